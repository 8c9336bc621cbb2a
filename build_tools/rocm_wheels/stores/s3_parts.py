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
from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.stores.attempts import S3Retry, TransientS3Error
from rocm_wheels.stores.content import make_changed_error
from rocm_wheels.stores.s3_client import S3Client, normalize_etag
from rocm_wheels.stores.store import StoredFileInfo

PART_SIZE = 16 << 20  # bytes; S3 takes 10,000 parts
_COPIED_PART_SIZE = 512 << 20
_PART_JOBS = 4
_DEFAULT_CONTENT_TYPE = "application/octet-stream"
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".metadata": "text/plain; charset=utf-8",
}
S3Write = Callable[[], str]
_ObjectKey = Mapping[str, Any]


@dataclass(frozen=True)
class WriteMark:
    """What is kept with a file: its sha256, a word of its own for each write, and what kind of file it is."""

    sha256: str | None
    write: str
    kind: str

    @classmethod
    def make(cls, path: str, sha256: str | None) -> WriteMark:
        """Return the mark of a new write."""
        return cls(
            sha256,
            secrets.token_hex(8),
            _CONTENT_TYPES.get(PurePosixPath(path).suffix, _DEFAULT_CONTENT_TYPE),
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """The part of a request that says it."""
        sha256 = {"sha256": self.sha256} if self.sha256 else {}
        return {"Metadata": {**sha256, "write": self.write}, "ContentType": self.kind}


@dataclass(frozen=True)
class ContentSums:
    """What is to be sent: its sha256 (hex), and the MD5 (base64) of each part where it goes in several."""

    sha256: str
    parts: tuple[str, ...] = ()


def compute_content_sums(content: bytes | Path) -> ContentSums:
    """Read what is to be sent, once, a large file part by part."""
    if isinstance(content, bytes):
        return ContentSums(hashlib.sha256(content).hexdigest())
    hasher, parts = hashlib.sha256(), []
    with content.open("rb") as file:
        while piece := file.read(PART_SIZE):
            hasher.update(piece)
            parts.append(_compute_md5(piece))
    return ContentSums(hasher.hexdigest(), tuple(parts))


def make_s3_put(
    client: S3Client,
    object_key: _ObjectKey,
    content: bytes | Path,
    sums: ContentSums,
    mark: WriteMark,
    *,
    attempts: S3Retry,
) -> S3Write:
    """Return the work that creates a file, of bytes or in parts, and returns its ETag."""
    if isinstance(content, bytes):
        return lambda: _put_object(client, object_key, content, mark)
    return lambda: _put_parts(client, object_key, content, sums, mark, attempts=attempts)


def make_s3_copy(
    client: S3Client,
    source: _ObjectKey,
    target: _ObjectKey,
    source_info: StoredFileInfo,
    mark: WriteMark,
    *,
    attempts: S3Retry,
) -> S3Write:
    """Return the work that copies a file on the server and returns the new one's ETag."""
    from_there = {
        "CopySource": dict(source),
        "CopySourceIfMatch": source_info.tag,
    }
    if source_info.size > _COPIED_PART_SIZE:
        return lambda: _copy_parts(client, target, from_there, source_info, mark, attempts=attempts)
    parameters = {**from_there, **mark.parameters, "MetadataDirective": "REPLACE", "IfNoneMatch": "*"}
    return lambda: normalize_etag(
        client.call("copy_object", **target, **parameters)["CopyObjectResult"]["ETag"]
    )


def _put_object(client: S3Client, object_key: _ObjectKey, content: bytes, mark: WriteMark) -> str:
    parameters = {**make_s3_body(content), **mark.parameters, "IfNoneMatch": "*"}
    return normalize_etag(client.call("put_object", **object_key, **parameters)["ETag"])


def make_s3_body(content: bytes) -> dict[str, Any]:
    """Return bytes to send, with the sum by which a server knows that they have arrived."""
    return {"Body": content, "ContentMD5": _compute_md5(content)}


def _compute_md5(content: bytes) -> str:
    return b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def _put_parts(
    client: S3Client,
    object_key: _ObjectKey,
    path: Path,
    sums: ContentSums,
    mark: WriteMark,
    *,
    attempts: S3Retry,
) -> str:
    def send(number: int) -> dict[str, Any]:
        with path.open("rb") as file:
            file.seek((number - 1) * PART_SIZE)
            piece = file.read(PART_SIZE)
        parameters = {"UploadId": upload, "PartNumber": number, **make_s3_body(piece)}
        if parameters["ContentMD5"] != sums.parts[number - 1]:
            raise make_changed_error(path)
        action = f"send part {number} of {path.name}"
        answer = attempts.read(action, lambda: client.call("upload_part", **object_key, **parameters))
        return {"ETag": answer["ETag"], "PartNumber": number}

    upload = client.call("create_multipart_upload", **object_key, **mark.parameters)["UploadId"]
    return _complete_parts(client, object_key, upload, send, range(1, len(sums.parts) + 1))


def _copy_parts(
    client: S3Client,
    target: _ObjectKey,
    from_there: _ObjectKey,
    source_info: StoredFileInfo,
    mark: WriteMark,
    *,
    attempts: S3Retry,
) -> str:
    def copy(number: int) -> dict[str, Any]:
        first = (number - 1) * _COPIED_PART_SIZE
        span = f"bytes={first}-{min(first + _COPIED_PART_SIZE, source_info.size) - 1}"
        parameters = {"UploadId": upload, "PartNumber": number, "CopySourceRange": span}
        action = f"copy part {number} of {target['Key']}"
        answer = attempts.read(
            action, lambda: client.call("upload_part_copy", **target, **from_there, **parameters)
        )
        return {"ETag": answer["CopyPartResult"]["ETag"], "PartNumber": number}

    upload = client.call("create_multipart_upload", **target, **mark.parameters)["UploadId"]
    return _complete_parts(
        client, target, upload, copy, range(1, -(-source_info.size // _COPIED_PART_SIZE) + 1)
    )


def _complete_parts(
    client: S3Client,
    object_key: _ObjectKey,
    upload: str,
    send_part: Callable[[int], dict[str, Any]],
    numbers: Sequence[int],
) -> str:
    """Do all parts and make one file of them; the parts go when that fails."""
    try:
        parts = run_in_parallel(send_part, numbers, jobs=_PART_JOBS)
        parameters = {"UploadId": upload, "MultipartUpload": {"Parts": parts}, "IfNoneMatch": "*"}
        return normalize_etag(client.call("complete_multipart_upload", **object_key, **parameters)["ETag"])
    except Exception as failure:
        if not (isinstance(failure, TransientS3Error) and failure.unsure):  # else it may be under way
            _abort_upload(client, object_key, upload)
        raise


def _abort_upload(client: S3Client, object_key: _ObjectKey, upload: str) -> None:
    try:
        client.call("abort_multipart_upload", **object_key, UploadId=upload)
    except (TransientS3Error, RocmWheelsError) as failure:
        log.log_warning(f"parts of {object_key['Key']} stay with the server, unseen: {failure}")
