"""Keep the signed manifest of an index: of a channel with its views, or of one over several stores.

A manifest states the document as well that the pages are made by. Before anything is made of that of a
channel, it must be the one that was signed, or one in which a change from there is pending: who may write to
a store, and has no key, gets nothing signed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from rocm_wheels.core import errors, records, ssh_signature
from rocm_wheels.index import manifest
from rocm_wheels.stores.store import Store, read_or_none

RESTORE_TIP = "it was edited, or an old one was put back: put the right one back from a copy of the store"
ANEW_TIP = (
    "look at what it shows, then sign that once: `rocm-wheels set refresh STORE --sign-with KEY --sign-anew`"
)


@dataclass(frozen=True)
class ReleaseSigner:
    """One who signs what indexes show, by the private key in a file (or in an agent), for ``valid_for``.

    ``signers`` are public keys by name that are trusted besides: of before, or of other channels. ``anew``:
    what has no manifest that holds is signed as it is. ``memory`` knows the newest that was seen here.
    """

    key: Path
    env: Mapping[str, str]
    now: datetime
    signers: Mapping[str, str] = field(default_factory=dict)
    valid_for: timedelta = timedelta(days=14)
    anew: bool = False
    memory: manifest.ManifestMemory | None = None

    @cached_property
    def trusted(self) -> dict[str, str]:
        """The public keys whose manifests are believed, by name. UsageError for a file that is none."""
        return {**self.signers, str(self.key): ssh_signature.read_public_key(self.key, self.env)}


@dataclass(frozen=True)
class ManifestKeeper:
    """The manifest of a channel, which lies at ``path``; without ``signer`` it stays as it is.

    The channel is of a family; an index over several stores is of the folder that it was made in.
    """

    store: Store
    path: str
    family: str
    channel: str
    signer: ReleaseSigner | None

    @property
    def title(self) -> str:
        """What it is of, for people: ``nightly of gfx110X-all``."""
        return f"{self.channel} of {self.family}" if self.channel != self.family else self.channel

    def read(self) -> tuple[manifest.Manifest | None, str | None, int]:
        """Return it (None: there is none that holds), the tag of its file, and the last version.

        Raises ReleaseError for one that does not hold, unless it may be signed anew.
        """
        stored, signer = read_or_none(self.store, self.path), self.signer
        if stored is None or signer is None:
            return None, stored.tag if stored is not None else None, 0
        where, title = self.store.url_of(self.path), f"the manifest of {self.title}"
        try:
            verified = manifest.verify_manifest(stored.content, where, signer.trusted, signer.env)
        except errors.DataError as cause:
            if signer.anew:
                return None, stored.tag, 0
            raise errors.ReleaseError(f"{title} cannot be believed", tip=RESTORE_TIP) from cause
        found = verified.manifest
        is_other = (found.family, found.channel) != (self.family, self.channel)  # or the folder was renamed
        if is_other and not signer.anew:
            raise errors.ReleaseError(f"{where} is of {found.channel} of {found.family}", tip=RESTORE_TIP)
        seen = signer.memory.find_version(where) if signer.memory is not None else 0
        fault = signer.memory.find_fault(where, verified) if signer.memory is not None else ""
        fault = fault or found.find_time_fault(signer.now)
        if fault and not signer.anew:
            raise errors.ReleaseError(f"{title} cannot be believed: {fault}", tip=ANEW_TIP)
        return None if fault or is_other else found, stored.tag, max(found.version, seen)

    def require_key(self) -> None:
        """Raise UsageError where there is a manifest, and nobody to sign the next one."""
        if self.signer is None and self.store.head(self.path) is not None:
            raise errors.UsageError(
                f"{self.title} is signed",
                tip="name the key with --sign-with KEY: readers with --released-by refuse the rest",
            )

    def require_channel(self, documents: Collection[bytes], *, is_new: bool) -> None:
        """Raise where a channel is not what was signed; ``documents`` may each be it: the one that is there,
        and those before and after the change that is pending. ``is_new``: it has never shown anything.

        ReleaseError for another, UsageError where there is a manifest and nobody to sign the next one.
        """
        self.require_key()
        if self.signer is None:
            return
        found = self.read()[0]
        if found is None:
            if not is_new and not self.signer.anew:
                raise errors.ReleaseError(f"nobody has signed what {self.title} shows", tip=ANEW_TIP)
        elif not any(map(found.states_document, documents)):
            message = f"the document of {self.title} is not the one that was signed {found.issued}"
            raise errors.ReleaseError(message, tip=RESTORE_TIP)

    def begin_change(self, document: bytes) -> None:
        """State the document that a channel is about to have, so that a run that is killed can be carried on.

        What its pages are is stated when they have all followed (``write``).
        """
        if self.signer is None:
            return
        found, tag, version = self.read()
        if found is None or not found.states_document(document):
            self._write(document, found.files if found is not None else {}, tag, version)

    def write(self, document: bytes, files: Mapping[str, str]) -> bool:
        """State these pages (sha256 by path) and nothing else; tell whether it was written.

        What it states already is signed anew when less than half of its time is left. Raises
        ChangedInStoreError where another has signed meanwhile.
        """
        signer = self.signer
        if signer is None:
            return False
        found, tag, version = self.read()
        if found is not None and found.states_document(document) and found.files == files:
            left = records.parse_moment(found.expires) - signer.now
            if left >= signer.valid_for / 2:
                return False
        self._write(document, files, tag, version)
        return True

    def _write(self, document: bytes, files: Mapping[str, str], tag: str | None, version: int) -> None:
        signer = self.signer
        assert signer is not None
        content = manifest.sign_manifest(
            manifest.Manifest(
                family=self.family,
                channel=self.channel,
                version=max(version + 1, int(signer.now.timestamp())),
                issued=records.format_moment(signer.now),
                expires=records.format_moment(signer.now + signer.valid_for),
                document=hashlib.sha256(document).hexdigest(),
                files=dict(sorted(files.items())),
            ),
            signer.key,
            signer.env,
        )
        self.store.replace(self.path, content, tag)
        if signer.memory is not None:
            where = self.store.url_of(self.path)
            verified = manifest.verify_manifest(content, where, signer.trusted, signer.env)
            signer.memory.remember(where, verified)
