"""Writes of S3 that may take several requests: a large file is sent, or copied on the server, in parts.

Nothing is seen of a file before all of it is there. Parts of an upload that was killed stay with the server,
unseen, and cost what they weigh: a bucket wants a lifecycle rule (AbortIncompleteMultipartUpload).
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rocm_wheels import log
from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.parallel import each
from rocm_wheels.stores.attempts import Attempts, Passing
from rocm_wheels.stores.content import changed_meanwhile
from rocm_wheels.stores.s3_client import Client, tag_of
from rocm_wheels.stores.store import Head

PART = 16 << 20  # bytes; S3 takes 10,000 parts
_COPIED_PART = 512 << 20
_JOBS = 4
_ANY_TYPE = "application/octet-stream"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".metadata": "text/plain; charset=utf-8",
}
Work = Callable[[], str]
_At = Mapping[str, Any]


@dataclass(frozen=True)
class Mark:
    """What is kept with a file: its sha256, a word of its own for each write, and what kind of file it is."""

    sha256: str | None
    write: str
    kind: str

    @classmethod
    def new(cls, path: str, sha256: str | None) -> Mark:
        """Return the mark of a new write."""
        return cls(sha256, secrets.token_hex(8), _TYPES.get(PurePosixPath(path).suffix, _ANY_TYPE))

    @property
    def said(self) -> dict[str, Any]:
        """The part of a request that says it."""
        sha256 = {"sha256": self.sha256} if self.sha256 else {}
        return {"Metadata": {**sha256, "write": self.write}, "ContentType": self.kind}


@dataclass(frozen=True)
class Sums:
    """What is to be sent: its sha256 (hex), and the MD5 (base64) of each part where it goes in several."""

    sha256: str
    parts: tuple[str, ...] = ()


def sums_of(content: bytes | Path) -> Sums:
    """Read what is to be sent, once, a large file part by part."""
    if isinstance(content, bytes):
        return Sums(hashlib.sha256(content).hexdigest())
    hasher, parts = hashlib.sha256(), []
    with content.open("rb") as file:
        while piece := file.read(PART):
            hasher.update(piece)
            parts.append(_md5(piece))
    return Sums(hasher.hexdigest(), tuple(parts))


def putting(
    client: Client, at: _At, content: bytes | Path, sums: Sums, mark: Mark, *, attempts: Attempts
) -> Work:
    """Return the work that creates a file, of bytes or in parts, and returns its ETag."""
    if isinstance(content, bytes):
        return lambda: _put(client, at, content, mark)
    return lambda: _put_parts(client, at, content, sums, mark, attempts=attempts)


def copying(client: Client, source: _At, target: _At, found: Head, mark: Mark, *, attempts: Attempts) -> Work:
    """Return the work that copies a file on the server and returns the new one's ETag."""
    from_there = {
        "CopySource": dict(source),
        "CopySourceIfMatch": found.tag,
    }
    if found.size > _COPIED_PART:
        return lambda: _copy_parts(client, target, from_there, found, mark, attempts=attempts)
    asked = {**from_there, **mark.said, "MetadataDirective": "REPLACE", "IfNoneMatch": "*"}
    return lambda: tag_of(client.call("copy_object", **target, **asked)["CopyObjectResult"]["ETag"])


def _put(client: Client, at: _At, content: bytes, mark: Mark) -> str:
    asked = {**body(content), **mark.said, "IfNoneMatch": "*"}
    return tag_of(client.call("put_object", **at, **asked)["ETag"])


def body(content: bytes) -> dict[str, Any]:
    """Return bytes to send, with the sum by which a server knows that they have arrived."""
    return {"Body": content, "ContentMD5": _md5(content)}


def _md5(content: bytes) -> str:
    return b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def _put_parts(client: Client, at: _At, path: Path, sums: Sums, mark: Mark, *, attempts: Attempts) -> str:
    def send(number: int) -> dict[str, Any]:
        with path.open("rb") as file:
            file.seek((number - 1) * PART)
            piece = file.read(PART)
        asked = {"UploadId": upload, "PartNumber": number, **body(piece)}
        if asked["ContentMD5"] != sums.parts[number - 1]:
            raise changed_meanwhile(path)
        what = f"send part {number} of {path.name}"
        answer = attempts.read(what, lambda: client.call("upload_part", **at, **asked))
        return {"ETag": answer["ETag"], "PartNumber": number}

    upload = client.call("create_multipart_upload", **at, **mark.said)["UploadId"]
    return _together(client, at, upload, send, range(1, len(sums.parts) + 1))


def _copy_parts(
    client: Client, target: _At, from_there: _At, found: Head, mark: Mark, *, attempts: Attempts
) -> str:
    def copy(number: int) -> dict[str, Any]:
        first = (number - 1) * _COPIED_PART
        span = f"bytes={first}-{min(first + _COPIED_PART, found.size) - 1}"
        asked = {"UploadId": upload, "PartNumber": number, "CopySourceRange": span}
        what = f"copy part {number} of {target['Key']}"
        answer = attempts.read(what, lambda: client.call("upload_part_copy", **target, **from_there, **asked))
        return {"ETag": answer["CopyPartResult"]["ETag"], "PartNumber": number}

    upload = client.call("create_multipart_upload", **target, **mark.said)["UploadId"]
    return _together(client, target, upload, copy, range(1, -(-found.size // _COPIED_PART) + 1))


def _together(
    client: Client, at: _At, upload: str, part: Callable[[int], dict[str, Any]], numbers: Sequence[int]
) -> str:
    """Do all parts and make one file of them; the parts go when that fails."""
    try:
        parts = each(part, numbers, jobs=_JOBS)
        asked = {"UploadId": upload, "MultipartUpload": {"Parts": parts}, "IfNoneMatch": "*"}
        return tag_of(client.call("complete_multipart_upload", **at, **asked)["ETag"])
    except Exception as failure:
        if not (isinstance(failure, Passing) and failure.unsure):  # else it may be under way
            _abort(client, at, upload)
        raise


def _abort(client: Client, at: _At, upload: str) -> None:
    try:
        client.call("abort_multipart_upload", **at, UploadId=upload)
    except (Passing, RocmWheelsError) as failure:
        log.warn(f"parts of {at['Key']} stay with the server, unseen: {failure}")
