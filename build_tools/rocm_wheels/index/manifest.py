"""A manifest: which bytes the pages of a channel have, signed, numbered, and with an end.

TUF's snapshot and timestamp roles in one document: the signature says whose pages they are, the number,
which only grows, that no older ones were put back, and the end of validity, that no mirror was frozen. It is
signed by an SSH key (Ed25519), as evidence and statements are: one kind of key, and nothing to install for
those who check it. (The library ``tuf`` has keys of another form, which no agent holds.)

It lies in the folder of a family, as ``<channel>.manifest.json``. While pages are being exchanged some of
them are not yet what it says, or not any more: readers try again. What it says is signed as text, so that
nothing depends on how JSON is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels.core import download, errors, records, ssh_signature
from rocm_wheels.core.files import write_json_file
from rocm_wheels.models import lock

MANIFEST_SUFFIX = ".manifest.json"
MANIFEST_NAMESPACE = "manifest@rocm-wheels"


class Manifest(records.Record):
    """What is signed of a channel. ``document`` is the sha256 of the document that says what it shows.

    ``files`` are the sha256 of the pages of the channel and of its views, by their paths in the folder of the
    family: a page that is not among them is not there.
    """

    schema_version: Literal[2] = Field(default=2, alias="schema")
    family: str
    channel: str
    version: int = Field(ge=1)
    issued: records.MomentText
    expires: records.MomentText
    document: lock.Sha256Digest
    files: dict[str, lock.Sha256Digest]

    def find_time_fault(self, now: datetime) -> str:
        """Return why it does not hold any more at a time, "" while it does."""
        is_valid = now < records.parse_moment(self.expires)
        return "" if is_valid else f"it has expired: it was valid to {self.expires}"

    def states_document(self, document: bytes) -> bool:
        """Tell whether the document that says what it shows is this one."""
        return self.document == hashlib.sha256(document).hexdigest()

    def states_content(self, path: str, content: bytes | None) -> bool:
        """Tell whether a page has this content; None: whether there is none."""
        digest = None if content is None else hashlib.sha256(content).hexdigest()
        return self.files.get(path) == digest


class _SignedManifest(records.Record):
    """The file: what is signed as it was signed, the public key, and the signature (SSHSIG, armored)."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    payload: str
    key: str
    signature: str


@dataclass(frozen=True)
class VerifiedManifest:
    """A manifest whose signature is right: by whom, and the digest of what was signed."""

    manifest: Manifest
    signer: str
    digest: str


def digest_pages(pages: Mapping[str, bytes], folder: str = "") -> dict[str, str]:
    """Return what a manifest states of pages: their sha256, by their paths below ``folder`` (``FAMILY/``)."""
    return {path.removeprefix(folder): hashlib.sha256(content).hexdigest() for path, content in pages.items()}


def sign_manifest(manifest: Manifest, key: Path, env: Mapping[str, str]) -> bytes:
    """Return the file of a manifest, signed by a key. Raises UsageError as ``sign_content`` does."""
    payload = manifest.model_dump_json(by_alias=True, indent=1) + "\n"
    signature = ssh_signature.sign_content(payload.encode(), key, MANIFEST_NAMESPACE, env)
    signed = _SignedManifest(payload=payload, key=signature.public_key, signature=signature.text)
    return (json.dumps(signed.model_dump(by_alias=True), indent=1) + "\n").encode()


def parse_manifest(content: bytes, where: str) -> tuple[Manifest, ssh_signature.SshSignature]:
    """Return what a manifest says, and its signature, unchecked. Raises DataError that names ``where``."""
    try:
        signed = _SignedManifest.model_validate_json(content)
        manifest = Manifest.model_validate_json(signed.payload)
    except ValidationError as cause:
        raise errors.DataError(
            f"{where} is no signed manifest: {records.summarize_faults(cause, Manifest)}"
        ) from None
    return manifest, ssh_signature.SshSignature(signed.key, signed.signature)


def verify_manifest(
    content: bytes, where: str, signers: Mapping[str, str] | None, env: Mapping[str, str]
) -> VerifiedManifest:
    """Return a manifest that one of ``signers`` (public keys by name; None: whoever) has signed.

    Whether it has expired is another question. Raises DataError that names ``where`` for any other, and
    UsageError without ssh-keygen.
    """
    manifest, signature = parse_manifest(content, where)
    payload = json.loads(content)["payload"].encode()
    signer = (
        signature.public_key if signers is None else ssh_signature.find_signer(signature.public_key, signers)
    )
    if not signer:
        tip = "ask whoever runs it: if that key is theirs, too, name it: ROCM_WHEELS_RELEASED_BY=KEY.pub"
        raise errors.DataError(f"{where} is signed by {signature.public_key}, which is not trusted", tip=tip)
    if not ssh_signature.is_signature_of(signature, payload, MANIFEST_NAMESPACE, env):
        raise errors.DataError(f"{where} was changed after it was signed")
    return VerifiedManifest(manifest, signer, hashlib.sha256(payload).hexdigest())


@dataclass(frozen=True)
class ManifestMemory:
    """The highest version of each manifest that this machine has seen, in a folder, a file for each.

    It may be deleted: then an older manifest passes until it expires.
    """

    folder: Path

    def find_fault(self, url: str, verified: VerifiedManifest) -> str:
        """Return why a manifest is not the newest, or not the one of its version, "" where it may be."""
        version, digest = self._read(url)
        if verified.manifest.version < version:
            state = f"it is version {verified.manifest.version}, signed {verified.manifest.issued}"
            return f"{state}, and version {version} was seen: an old state was put back"
        if verified.manifest.version == version and verified.digest != digest:
            return f"it is not the version {version} that was seen: two were signed with one number"
        return ""

    def find_version(self, url: str) -> int:
        """Return the highest version that was seen of a manifest, 0 for none."""
        return self._read(url)[0]

    def remember(self, url: str, verified: VerifiedManifest) -> None:
        """Note that a manifest was seen; an older one than before changes nothing."""
        if verified.manifest.version > self.find_version(url):
            seen = {"version": verified.manifest.version, "digest": verified.digest}
            write_json_file(self.locate(url), seen)

    def locate(self, url: str) -> Path:
        """Return the file that says what was seen of a manifest at a URL."""
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
            raise errors.DataError(f"{path} does not say which manifest was seen", tip=tip) from None
