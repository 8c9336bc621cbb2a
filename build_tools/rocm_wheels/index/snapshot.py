"""A snapshot: which bytes the pages and documents of a channel have, signed, numbered, and with an end.

TUF's snapshot and timestamp roles in one document: the signature says whose pages they are, the number,
which only grows, that no older ones were put back, and the end of validity, that no mirror was frozen. It is
signed by an SSH key (Ed25519), as evidence and statements are: one kind of key, and nothing to install for
those who check it. (The library ``tuf`` has keys of another form, which no agent holds, and roles that
delegate to each other; it would come to 20 MB with what it requires.)

A snapshot lies in the folder of a family, as ``<channel>.snapshot.json``; paths in it are relative to that
folder. While pages are being exchanged it states all that a path may have meanwhile: several bytes, or none.
What it says is signed as text, so that nothing depends on how JSON is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels.core import download, errors, records, ssh_signature
from rocm_wheels.core.files import write_json_file
from rocm_wheels.models import lock

SNAPSHOT_SUFFIX = ".snapshot.json"
SNAPSHOT_NAMESPACE = "snapshot@rocm-wheels"
_TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"


class FileState(records.Record):
    """The bytes that a file may have."""

    sha256: lock.Sha256Digest
    size: int = Field(ge=0)


FileStates = tuple[FileState | None, ...]  # None: there may be no such file


class Snapshot(records.Record):
    """What is signed. ``name`` is the channel, or ``support``; ``family`` is "" for a document of all.

    ``revision`` is that of the channel, ``channel_states`` are digests of its document without what is
    pending. While it is not ``settled`` a file may have one of several states.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    family: str
    name: str
    version: int = Field(ge=1)
    revision: int = Field(default=0, ge=0)
    issued: str
    expires: str
    settled: bool = True
    channel_states: tuple[lock.Sha256Digest, ...] = ()
    files: dict[str, FileStates]

    def find_time_fault(self, now: datetime) -> str:
        """Return why it does not hold any more at a time, "" while it does."""
        return (
            ""
            if now < parse_snapshot_time(self.expires)
            else f"it has expired: it was valid to {self.expires}"
        )

    def states_content(self, path: str, content: bytes | None) -> bool:
        """Tell whether a file may have this content; None: whether it need not be there."""
        states = self.files.get(path)
        if states is None:
            return content is None
        return (None if content is None else make_file_state(content)) in states


class _SignedSnapshot(records.Record):
    """The file: what is signed as it was signed, the public key, and the signature (SSHSIG, armored)."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    payload: str
    key: str
    signature: str


@dataclass(frozen=True)
class VerifiedSnapshot:
    """A snapshot whose signature is right: by whom, and the digest of what was signed."""

    snapshot: Snapshot
    signer: str
    digest: str


def make_file_state(content: bytes) -> FileState:
    """Return the state of a file that has this content."""
    return FileState(sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def format_snapshot_time(moment: datetime) -> str:
    """Return a time in UTC as snapshots say it."""
    return moment.astimezone(timezone.utc).strftime(_TIME_FORM)


def parse_snapshot_time(text: str) -> datetime:
    """Return the time that a snapshot says. Raises ValueError for another form."""
    return datetime.strptime(text, _TIME_FORM).replace(tzinfo=timezone.utc)


def sign_snapshot(snapshot: Snapshot, key: Path, env: Mapping[str, str]) -> bytes:
    """Return the file of a snapshot, signed by a key. Raises UsageError as ``sign_content`` does."""
    payload = snapshot.model_dump_json(by_alias=True, indent=1) + "\n"
    signature = ssh_signature.sign_content(payload.encode(), key, SNAPSHOT_NAMESPACE, env)
    signed = _SignedSnapshot(payload=payload, key=signature.public_key, signature=signature.text)
    return (json.dumps(signed.model_dump(by_alias=True), indent=1) + "\n").encode()


def parse_snapshot(content: bytes, where: str) -> tuple[Snapshot, ssh_signature.SshSignature]:
    """Return what a snapshot says, and its signature, unchecked. Raises DataError that names ``where``."""
    try:
        signed = _SignedSnapshot.model_validate_json(content)
        snapshot = Snapshot.model_validate_json(signed.payload)
        parse_snapshot_time(snapshot.issued)
        parse_snapshot_time(snapshot.expires)
    except ValidationError as cause:
        raise errors.DataError(
            f"{where} is no signed snapshot: {records.summarize_faults(cause, Snapshot)}"
        ) from None
    except ValueError as cause:
        raise errors.DataError(f"{where} is no signed snapshot: {cause}") from None
    return snapshot, ssh_signature.SshSignature(signed.key, signed.signature)


def verify_snapshot(
    content: bytes, where: str, signers: Mapping[str, str] | None, env: Mapping[str, str]
) -> VerifiedSnapshot:
    """Return a snapshot that one of ``signers`` (public keys by name; None: whoever) has signed.

    Whether it has expired is another question. Raises DataError that names ``where`` for any other, and
    UsageError without ssh-keygen.
    """
    snapshot, signature = parse_snapshot(content, where)
    payload = json.loads(content)["payload"].encode()
    signer = (
        signature.public_key if signers is None else ssh_signature.find_signer(signature.public_key, signers)
    )
    if not signer:
        tip = "ask whoever runs it: if that key is theirs, too, name it with --released-by KEY.pub"
        raise errors.DataError(f"{where} is signed by {signature.public_key}, which is not trusted", tip=tip)
    if not ssh_signature.is_signature_of(signature, payload, SNAPSHOT_NAMESPACE, env):
        raise errors.DataError(f"{where} was changed after it was signed")
    return VerifiedSnapshot(snapshot, signer, hashlib.sha256(payload).hexdigest())


@dataclass(frozen=True)
class SnapshotMemory:
    """The highest version of each snapshot that this machine has seen, in a folder, a file for each.

    It may be deleted: then an older snapshot passes until it expires.
    """

    folder: Path

    def find_fault(self, url: str, verified: VerifiedSnapshot) -> str:
        """Return why a snapshot is not the newest, or not the one of its version, "" where it may be."""
        version, digest = self._read(url)
        if verified.snapshot.version < version:
            state = f"it is version {verified.snapshot.version}, signed {verified.snapshot.issued}"
            return f"{state}, and version {version} was seen: an old state was put back"
        if verified.snapshot.version == version and verified.digest != digest:
            return f"it is not the version {version} that was seen: two were signed with one number"
        return ""

    def find_version(self, url: str) -> int:
        """Return the highest version that was seen of a snapshot, 0 for none."""
        return self._read(url)[0]

    def remember(self, url: str, verified: VerifiedSnapshot) -> None:
        """Note that a snapshot was seen; an older one than before changes nothing."""
        if verified.snapshot.version > self.find_version(url):
            seen = {"version": verified.snapshot.version, "digest": verified.digest}
            write_json_file(self.locate(url), seen)

    def locate(self, url: str) -> Path:
        """Return the file that says what was seen of a snapshot at a URL."""
        return self.folder / f"{download.fingerprint_of_url(url)}.json"

    def _read(self, url: str) -> tuple[int, str]:
        """Return version and digest; (0, "") of what was never seen. Raises DataError for a damaged note."""
        path = self.locate(url)
        try:
            seen = json.loads(path.read_text(encoding="utf-8"))
            return int(seen["version"]), str(seen["digest"])
        except FileNotFoundError:
            return 0, ""
        except (OSError, ValueError, KeyError, TypeError):
            tip = "delete it, once you know that the index is the newest"
            raise errors.DataError(f"{path} does not say which snapshot was seen", tip=tip) from None
