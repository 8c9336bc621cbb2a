"""Keep the signed snapshot of a channel, or of support.json, while what it is about changes.

Order, of whoever changes a channel (``promote``) or its views (``refresh``):

1. the journal is claimed: nobody else changes the same pages
2. ``add``: the snapshot states what is there now and all that is about to be, and is not settled
3. pages change, then the journal says that it is done
4. ``settle``: the snapshot states what follows from the documents, and nothing else

(The document of a channel is believed with a change that is pending beside what was signed; that of its views
is signed before it is written, and once more afterwards: another may have settled the snapshot between.)

So whatever a reader finds at any moment, and whatever a run that was killed leaves, is signed; and what is
signed follows from sets, never from what happens to lie at a place. A document that others follow from is
believed only where the snapshot before states it: so an old one that was put back is never signed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from rocm_wheels.core import errors, ssh_signature
from rocm_wheels.index.snapshot import (
    FileStates,
    Snapshot,
    SnapshotMemory,
    VerifiedSnapshot,
    format_snapshot_time,
    make_file_state,
    parse_snapshot,
    parse_snapshot_time,
    sign_snapshot,
    verify_snapshot,
)
from rocm_wheels.release.channel import Channel, ChannelRecord
from rocm_wheels.release.layout import SUPPORT_SNAPSHOT, FamilyPaths, StoreLayout
from rocm_wheels.stores.store import NotInStoreError, Store, change_documents

DEFAULT_VALID_DAYS = 14
_SUPPORT_NAME = "support"
RESTORE_TIP = "it was edited, or an old one was put back: put the right one back from a copy of the store"
OLD_STATE_TIP = (
    "put the newer one back from a copy of the store; if you put this one back yourself, sign that once: "
    "`rocm-wheels set refresh STORE --sign-with KEY --sign-anew`"
)
ANEW_TIP = (
    "look at what it shows, then sign that once: `rocm-wheels set refresh STORE --sign-with KEY --sign-anew`"
)


@dataclass(frozen=True)
class ReleaseSigner:
    """One who signs what channels show, by the private key in a file (or in an agent), for some days.

    ``signers`` are public keys by name that are trusted besides: of before, or of other channels. ``anew``:
    what has no snapshot that holds is signed as it is. ``memory`` knows the newest that was seen here.
    """

    key: Path
    env: Mapping[str, str]
    now: datetime
    signers: Mapping[str, str] = field(default_factory=dict)
    valid_days: int = DEFAULT_VALID_DAYS
    anew: bool = False
    memory: SnapshotMemory | None = None
    _verified: dict[bytes, VerifiedSnapshot] = field(default_factory=dict, compare=False)

    @cached_property
    def trusted(self) -> dict[str, str]:
        """The public keys whose snapshots are believed, by name. UsageError for a file that is none."""
        return {**self.signers, str(self.key): ssh_signature.read_public_key(self.key, self.env)}

    def verify(self, content: bytes, where: str) -> VerifiedSnapshot:
        """Return a snapshot that a trusted key has signed. Raises DataError as ``verify_snapshot``."""
        if content not in self._verified:
            self._verified[content] = verify_snapshot(content, where, self.trusted, self.env)
        return self._verified[content]


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot as it was read (None: none that holds), the tag of its file, and the last version."""

    snapshot: Snapshot | None
    tag: str | None
    version: int = 0


@dataclass(frozen=True)
class SnapshotKeeper:
    """The snapshot called ``name`` at a path of the release area; without ``signer`` it stays as it is."""

    store: Store
    path: str
    family: str
    name: str
    signer: ReleaseSigner | None

    @property
    def folder(self) -> str:
        """The folder that it is of, which its paths are relative to."""
        return self.path.rpartition("/")[0]

    @property
    def title(self) -> str:
        """What it is about, for people."""
        return f"{self.name} of {self.family or 'all families'}"

    def read(self) -> StoredSnapshot:
        """Return it. Raises ReleaseError for one that does not hold, unless it may be signed anew."""
        try:
            stored = self.store.read(self.path)
        except NotInStoreError:
            return StoredSnapshot(None, None)
        where, signer = self.store.url_of(self.path), self.signer
        if signer is None:
            snapshot = parse_snapshot(stored.content, where)[0]
            return StoredSnapshot(snapshot, stored.tag, snapshot.version)
        try:
            verified = signer.verify(stored.content, where)
        except errors.DataError as cause:
            if signer.anew:
                return StoredSnapshot(None, stored.tag, _read_version(stored.content))
            message = f"the snapshot of {self.title} cannot be believed"
            raise errors.ReleaseError(message, tip=RESTORE_TIP) from cause
        snapshot = verified.snapshot
        if (snapshot.family, snapshot.name) != (self.family, self.name):
            raise errors.ReleaseError(f"{where} is of {snapshot.name} of {snapshot.family}", tip=RESTORE_TIP)
        if signer.memory is not None and (fault := signer.memory.find_fault(where, verified)):
            if signer.anew:
                return StoredSnapshot(
                    None, stored.tag, max(snapshot.version, signer.memory.find_version(where))
                )
            raise errors.ReleaseError(f"{where}: {fault}", tip=OLD_STATE_TIP)
        if (fault := snapshot.find_time_fault(signer.now)) and not signer.anew:
            raise errors.ReleaseError(
                f"the snapshot of {self.title} cannot be believed: {fault}", tip=ANEW_TIP
            )
        return StoredSnapshot(snapshot, stored.tag, snapshot.version)

    def require_signer(self) -> None:
        """Raise UsageError where there is a snapshot and nobody to sign the next one."""
        if self.signer is None and self.store.head(self.path) is not None:
            tip = "name the key with --sign-with KEY: who checks signatures refuses what is changed without"
            raise errors.UsageError(f"{self.title} is signed", tip=tip)

    def require_channel(self, path: str, record: ChannelRecord) -> None:
        """Raise ReleaseError where the document of a channel is not one that was signed, or follows from it.

        A change that was claimed and not signed yet may be pending, of one that was killed there.
        """
        self.require_signer()
        if self.signer is None:
            return
        snapshot = self.read().snapshot
        if snapshot is None:
            if record.tag is not None and not self.signer.anew:
                raise errors.ReleaseError(f"nobody has signed what {self.title} shows", tip=ANEW_TIP)
            if fault := record.channel.find_history_fault() or record.channel.find_pending_fault():
                raise errors.ReleaseError(
                    f"the history of {self.title} does not add up: {fault}", tip=RESTORE_TIP
                )
            return
        channel = record.channel
        content = record.content if record.tag is not None else None
        if fault := find_channel_fault(snapshot, self._relative(path), channel, content):
            raise errors.ReleaseError(f"the document of {self.title} {fault}", tip=RESTORE_TIP)

    def vouches(self, snapshot: Snapshot | None, path: str, content: bytes | None) -> bool:
        """Tell whether a snapshot of this name states that a path of the store may have this content."""
        return snapshot is not None and snapshot.states_content(self._relative(path), content)

    def require_content(self, path: str, content: bytes | None) -> None:
        """Raise ReleaseError where what lies at a path is not what was signed."""
        snapshot = self.read().snapshot
        if snapshot is None:
            if content is None or (self.signer is not None and self.signer.anew):
                return
            raise errors.ReleaseError(f"nobody has signed {self.store.url_of(path)}", tip=ANEW_TIP)
        if not self.vouches(snapshot, path, content):
            raise errors.ReleaseError(f"{self.store.url_of(path)} is not what was signed", tip=RESTORE_TIP)

    def add(
        self,
        contents: Mapping[str, Iterable[bytes | None]],
        *,
        folders: Iterable[str] = (),
        channel_document: bytes | None = None,
    ) -> None:
        """Have it state these contents of paths, besides those that it states; None: the file may be absent.

        Of other paths in ``folders`` it states that they may go. ``channel_document`` is what that will be.
        Nothing is written where all of it is stated. Raises UsageError where that needs a key.
        """
        change_documents(lambda: self._add(contents, tuple(folders), channel_document), description=self.path)

    def _add(
        self,
        contents: Mapping[str, Iterable[bytes | None]],
        folders: tuple[str, ...],
        channel_document: bytes | None,
    ) -> None:
        stored = self.read()
        if self.signer is None and stored.tag is None:
            return
        before = stored.snapshot.files if stored.snapshot is not None else {}
        files = {
            name: (*states, None) if self._is_below(name, folders) else states
            for name, states in before.items()
        }
        for path, options in contents.items():
            name = self._relative(path)
            new = [None if content is None else make_file_state(content) for content in options]
            files[name] = (*before.get(name, (None,)), *new)
        files = {name: tuple(dict.fromkeys(options)) for name, options in files.items()}
        states = stored.snapshot.channel_states if stored.snapshot is not None else ()
        if channel_document is not None:
            states = tuple(dict.fromkeys((*states, compute_channel_state(channel_document))))
        if stored.snapshot is not None and (files, states) == (dict(before), stored.snapshot.channel_states):
            return
        self.require_signer()
        revision = stored.snapshot.revision if stored.snapshot is not None else 0
        self._write(stored, files, states, revision, settled=False)

    def settle(
        self,
        stored: StoredSnapshot,
        contents: Mapping[str, bytes],
        *,
        channel_document: bytes | None = None,
        revision: int = 0,
    ) -> bool:
        """Have it state these contents alone; tell whether it was written. Raises ChangedInStoreError.

        What it states already is written anew when less than half of the time is left that it is valid for.
        """
        signer = self.signer
        assert signer is not None
        files: dict[str, FileStates] = {
            self._relative(path): (make_file_state(content),) for path, content in contents.items()
        }
        states = () if channel_document is None else (compute_channel_state(channel_document),)
        present = stored.snapshot
        if (
            present is not None
            and present.settled
            and (files, states) == (present.files, present.channel_states)
        ):
            left = parse_snapshot_time(present.expires) - signer.now
            if left >= timedelta(days=signer.valid_days) / 2:
                return False
        self._write(stored, files, states, revision, settled=True)
        return True

    def _write(
        self,
        stored: StoredSnapshot,
        files: Mapping[str, FileStates],
        states: tuple[str, ...],
        revision: int,
        *,
        settled: bool,
    ) -> None:
        """Sign and write the next version: its number is a time, or one more than the last."""
        signer = self.signer
        assert signer is not None
        snapshot = Snapshot(
            family=self.family,
            name=self.name,
            version=max(stored.version + 1, int(signer.now.timestamp())),
            revision=revision,
            issued=format_snapshot_time(signer.now),
            expires=format_snapshot_time(signer.now + timedelta(days=signer.valid_days)),
            settled=settled,
            channel_states=states,
            files=dict(sorted(files.items())),
        )
        content = sign_snapshot(snapshot, signer.key, signer.env)
        self.store.replace(self.path, content, stored.tag)
        if signer.memory is not None:
            where = self.store.url_of(self.path)
            signer.memory.remember(where, signer.verify(content, where))

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self.folder}/")

    def _is_below(self, name: str, folders: tuple[str, ...]) -> bool:
        return name.startswith(tuple(f"{self._relative(folder)}/" for folder in folders))


def keep_channel_snapshot(
    store: Store, release: FamilyPaths, channel: str, signer: ReleaseSigner | None
) -> SnapshotKeeper:
    """Return the keeper of the snapshot of a channel."""
    return SnapshotKeeper(store, release.channel_snapshot(channel), release.family, channel, signer)


def keep_support_snapshot(store: Store, release: FamilyPaths, signer: ReleaseSigner | None) -> SnapshotKeeper:
    """Return the keeper of the snapshot of a family's support.json."""
    return SnapshotKeeper(store, release.support_snapshot, release.family, _SUPPORT_NAME, signer)


def keep_whole_snapshot(store: Store, layout: StoreLayout, signer: ReleaseSigner | None) -> SnapshotKeeper:
    """Return the keeper of the snapshot of the documents of all families."""
    return SnapshotKeeper(store, f"{layout.release}/{SUPPORT_SNAPSHOT}", "", _SUPPORT_NAME, signer)


def find_channel_fault(snapshot: Snapshot, name: str, channel: Channel, content: bytes | None) -> str:
    """Return why the document of a channel (``name`` in its family) was not signed, "" where it was.

    Or it follows from one that was: a change may be pending that was claimed and not signed yet.
    """
    if snapshot.states_content(name, content):
        return ""
    if content is None:
        return f"is gone, and was signed at revision {snapshot.revision}"
    if channel.pending is not None and compute_channel_state(content) in snapshot.channel_states:
        if channel.pending.policy is not None:  # such a change is signed before it is claimed
            return "is about to keep another policy, and nobody signed that"
        return channel.find_pending_fault()
    if channel.revision < snapshot.revision:
        older = f"is at revision {channel.revision}, and was signed at {snapshot.revision}"
        return f"{older}: an old one was put back"
    return f"at revision {channel.revision} is not the one that was signed at {snapshot.revision}"


def compute_channel_state(content: bytes) -> str:
    """Return the digest of the document of a channel without what is pending, and without its revision.

    It is that of its values, so that another version of the tool computes the same.
    """
    values = json.loads(content)
    values.pop("pending", None)
    values.pop("revision", None)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _read_version(content: bytes) -> int:
    """Return the version that a snapshot says which cannot be believed; 0 of one that says none."""
    try:
        return parse_snapshot(content, "")[0].version
    except errors.DataError:
        return 0
