"""Keep the signed manifest of a channel, which states its pages and those of its views.

A manifest states the document of the channel as well. Before anything is made of that document, it must be
the one that was signed, or one in which a change from there is pending: who may write to a store, and has no
key, gets nothing signed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from rocm_wheels.core import errors, ssh_signature
from rocm_wheels.index import manifest
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores.store import Store, read_or_none

RESTORE_TIP = "it was edited, or an old one was put back: put the right one back from a copy of the store"
ANEW_TIP = (
    "look at what it shows, then sign that once: `rocm-wheels set refresh STORE --sign-with KEY --sign-anew`"
)


@dataclass(frozen=True)
class ReleaseSigner:
    """One who signs what channels show, by the private key in a file (or in an agent), for ``valid_for``.

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
    """The manifest of a channel; without ``signer`` it stays as it is."""

    store: Store
    paths: FamilyPaths
    channel: str
    signer: ReleaseSigner | None

    @property
    def path(self) -> str:
        """Where it lies."""
        return self.paths.channel_manifest(self.channel)

    def read(self) -> tuple[manifest.Manifest | None, str | None, int]:
        """Return it (None: there is none that holds), the tag of its file, and the last version.

        Raises ReleaseError for one that does not hold, unless it may be signed anew.
        """
        stored, signer = read_or_none(self.store, self.path), self.signer
        if stored is None or signer is None:
            return None, stored.tag if stored is not None else None, 0
        where, title = self.store.url_of(self.path), f"the manifest of {self.channel} of {self.paths.family}"
        try:
            verified = manifest.verify_manifest(stored.content, where, signer.trusted, signer.env)
        except errors.DataError as cause:
            if signer.anew:
                return None, stored.tag, 0
            raise errors.ReleaseError(f"{title} cannot be believed", tip=RESTORE_TIP) from cause
        found = verified.manifest
        if (found.family, found.channel) != (self.paths.family, self.channel):
            raise errors.ReleaseError(f"{where} is of {found.channel} of {found.family}", tip=RESTORE_TIP)
        seen = signer.memory.find_version(where) if signer.memory is not None else 0
        fault = signer.memory.find_fault(where, verified) if signer.memory is not None else ""
        fault = fault or found.find_time_fault(signer.now)
        if fault and not signer.anew:
            raise errors.ReleaseError(f"{title} cannot be believed: {fault}", tip=ANEW_TIP)
        return None if fault else found, stored.tag, max(found.version, seen)

    def require_channel(self, documents: Collection[bytes], *, is_new: bool) -> None:
        """Raise where a channel is not what was signed; ``documents`` may each be it: the one that is there,
        and those before and after the change that is pending. ``is_new``: it has never shown anything.

        ReleaseError for another, UsageError where there is a manifest and nobody to sign the next one.
        """
        signer = self.signer
        if signer is None:
            if self.store.head(self.path) is not None:
                raise errors.UsageError(
                    f"{self.channel} of {self.paths.family} is signed",
                    tip="name the key with --sign-with KEY: readers with --released-by refuse the rest",
                )
            return
        found = self.read()[0]
        title = f"{self.channel} of {self.paths.family}"
        if found is None:
            if not is_new and not signer.anew:
                raise errors.ReleaseError(f"nobody has signed what {title} shows", tip=ANEW_TIP)
        elif found.document not in {hashlib.sha256(document).hexdigest() for document in documents}:
            message = f"the document of {title} is not the one that was signed {found.issued}"
            raise errors.ReleaseError(message, tip=RESTORE_TIP)

    def begin_change(self, document: bytes) -> None:
        """State the document that a channel is about to have, so that a run that is killed can be carried on.

        What its pages are is stated when they have all followed (``write``).
        """
        if self.signer is None:
            return
        found, tag, version = self.read()
        if found is None or found.document != hashlib.sha256(document).hexdigest():
            self._write(document, found.files if found is not None else {}, tag, version)

    def write(self, document: bytes, pages: Mapping[str, bytes]) -> bool:
        """State these pages (by path in the store) and nothing else; tell whether it was written.

        What it states already is signed anew when less than half of its time is left. Raises
        ChangedInStoreError where another has signed meanwhile.
        """
        signer = self.signer
        if signer is None:
            return False
        found, tag, version = self.read()
        folder = f"{self.paths.family}/"
        files = {
            path.removeprefix(folder): hashlib.sha256(content).hexdigest()
            for path, content in sorted(pages.items())
        }
        digest = hashlib.sha256(document).hexdigest()
        if found is not None and (found.document, found.files) == (digest, files):
            left = manifest.parse_manifest_time(found.expires) - signer.now
            if left >= signer.valid_for / 2:
                return False
        self._write(document, files, tag, version)
        return True

    def _write(self, document: bytes, files: Mapping[str, str], tag: str | None, version: int) -> None:
        signer = self.signer
        assert signer is not None
        content = manifest.sign_manifest(
            manifest.Manifest(
                family=self.paths.family,
                channel=self.channel,
                version=max(version + 1, int(signer.now.timestamp())),
                issued=manifest.format_manifest_time(signer.now),
                expires=manifest.format_manifest_time(signer.now + signer.valid_for),
                document=hashlib.sha256(document).hexdigest(),
                files=dict(files),
            ),
            signer.key,
            signer.env,
        )
        self.store.replace(self.path, content, tag)
        if signer.memory is not None:
            where = self.store.url_of(self.path)
            verified = manifest.verify_manifest(content, where, signer.trusted, signer.env)
            signer.memory.remember(where, verified)
