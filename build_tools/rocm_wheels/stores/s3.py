"""Keep a store in S3, or in what speaks its language (Ceph, MinIO and others), through botocore.

Conditions are S3's own: ``If-None-Match: *`` creates, ``If-Match: <ETag>`` replaces; a server that
ignores them is found by ``find_broken_promise``. With a file its sha256 is kept, so that it is recognised
without being read, and a mark of the write, by which one is recognised whose answer was lost: a write is
never repeated without a look. An MD5 goes along with all bytes, and the server refuses them when they
arrive as others.

A large file is sent, or copied on the server, in parts; nothing is seen of it before all of it is there.
Parts of an upload that was killed stay with the server, unseen, and cost what they weigh: a bucket wants
a lifecycle rule (AbortIncompleteMultipartUpload).

``AWS_ENDPOINT_URL`` names another server than Amazon's; credentials are those of AWS's own tools.

Libraries that do more were tried on moto 5.2.5, also over a line that loses answers, and do not keep this:

- obstore 0.12.1 creates and replaces under conditions, but a conditional write is one request with the whole
  file in memory, never parts. A copy cannot be held to the ETag of its source, and one that must create loses
  the metadata (``multipart``) or replaced what was there (``header``). A file is said to exist when the
  server answers 409, that another write is under way; a lost answer, a 500 and an expired token are one kind
  of error. With its own retries a write whose answer was lost counts as somebody else's. No MD5 is sent, and
  ``AWS_PROFILE`` is not read.
- s3transfer 0.19.3, the transfers of boto3, takes no conditions for uploads.
- s3fs 2026.9.0 has the calls of botocore behind an event loop, leaves out conditions that its botocore does
  not know without a word, and brings 15 more packages.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from rocm_wheels.core import errors, extras, files, log, parallel, retry, shell
from rocm_wheels.stores import store

S3Result = TypeVar("S3Result")
S3_POLICY = retry.RetryPolicy(first_wait=0.2, growth=2.5)


class TransientS3Error(retry.TransientError):
    """A failure that may pass: a server in trouble, a connection that was lost.

    ``unsure``: the server may have done what it was asked for.
    """

    def __init__(self, message: str, *, unsure: bool, retry_after: float = 0) -> None:
        super().__init__(message, retry_after=retry_after)
        self.unsure = unsure


class S3ConditionError(Exception):
    """The condition of a write does not hold."""


def read_with_retries(policy: retry.RetryPolicy, action: str, work: Callable[[], S3Result]) -> S3Result:
    """Return what ``work`` returns, in the end. Raises ReleaseError when it never does."""
    try:
        return retry.run_with_retries(work, policy=policy)
    except TransientS3Error as failure:
        raise errors.ReleaseError(f"cannot {action}", tip=store.RUN_AGAIN_TIP) from failure


def write_with_retries(
    policy: retry.RetryPolicy, action: str, work: Callable[[], S3Result], look: Callable[[], S3Result | None]
) -> S3Result:
    """Return what ``work`` returns, or ``look`` when an attempt whose answer was lost had been enough.

    ``look`` tells whether we have written, and returns ``None`` when not. ``work`` raises
    S3ConditionError when somebody has: that may have been ourselves, by an attempt whose answer was lost
    below us. Raises ReleaseError when no attempt goes well.
    """
    unsure = False

    def attempt() -> S3Result:
        nonlocal unsure
        if unsure and (result := look()) is not None:
            return result
        unsure = False
        try:
            return work()
        except S3ConditionError:
            if (result := read_with_retries(policy, action, look)) is None:
                raise
            return result
        except TransientS3Error as failure:
            unsure = failure.unsure
            raise

    try:
        return retry.run_with_retries(attempt, policy=policy)
    except TransientS3Error as failure:
        with contextlib.suppress(TransientS3Error):
            if unsure and (result := look()) is not None:
                return result
        raise errors.ReleaseError(f"cannot {action}", tip=store.RUN_AGAIN_TIP) from failure


_NOT_DONE_STATUSES = {429, 503}  # what S3 says before it has done anything (SlowDown)
_CONFLICT_STATUS = 409  # another write of the same file is under way (S3, "conditional writes")
_TRANSIENT_CODES = {"RequestTimeout", "InternalError", "NoSuchUpload"}  # an upload that is gone: begun again
_TIPS_BY_CODE = {
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
    "ExpiredToken": f"the credentials have expired: get new ones, then {store.RUN_AGAIN_TIP}",
    "EntityTooLarge": "the server takes no file of this size",
    "QuotaExceeded": f"the bucket is full: free some space, then {store.RUN_AGAIN_TIP}",
    "XMinioStorageFull": f"the server is full: free some space, then {store.RUN_AGAIN_TIP}",
}
_SIGNED_URL_SECONDS = 12 * 3600  # a download of many files; temporary credentials may end it earlier


class S3Client:
    """The operations of S3's own API by their names in botocore, from any thread."""

    def __init__(self, env: Mapping[str, str], *, anonymous: bool = False) -> None:
        self._env = env
        self._anonymous = anonymous
        self._endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
        self.without: set[str] = set()  # writes that the server knows no conditions for
        self._made: Any = None
        self._lock = threading.Lock()

    def bucket_url(self, bucket: str) -> str:
        """Return the URL of a bucket, without credentials."""
        if self._endpoint:
            return f"{shell.hide_credentials(self._endpoint).rstrip('/')}/{bucket}"
        region = _get_region(self._env)
        return (
            f"https://{bucket}.s3.{region}.amazonaws.com" if region else f"https://{bucket}.s3.amazonaws.com"
        )

    def call(self, operation: str, **parameters: Any) -> Any:
        """Return the answer of the server.

        Raises TransientS3Error for what may succeed later, S3ConditionError for a condition that does not
        hold, NotInStoreError for a file that is not there, UnsupportedByStoreError for what the server has
        not, and ReleaseError for everything else.
        """
        if operation in self.without:
            parameters = {
                key: value for key, value in parameters.items() if key not in ("IfMatch", "IfNoneMatch")
            }
        return self._call_and_translate(
            operation, parameters, lambda client: getattr(client, operation)(**parameters)
        )

    def call_with_body(self, operation: str, **parameters: Any) -> tuple[Any, bytes]:
        """Return the answer and the bytes that it carries. Raises as ``call``."""

        def read(client: Any) -> tuple[Any, bytes]:
            answer = getattr(client, operation)(**parameters)
            with answer["Body"] as body:
                return answer, body.read()

        answer_and_body: tuple[Any, bytes] = self._call_and_translate(operation, parameters, read)
        return answer_and_body

    def download_url(self, bucket: str, key: str) -> str:
        """Return a URL that reads a file, signed with the credentials; nothing is asked of the server."""
        parameters = {"Bucket": bucket, "Key": key}
        return str(
            self._call_and_translate(
                "get_object",
                parameters,
                lambda client: client.generate_presigned_url(
                    "get_object", Params=parameters, ExpiresIn=_SIGNED_URL_SECONDS
                ),
            )
        )

    def _get_client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = _make_client(self._env, self._endpoint, anonymous=self._anonymous)
            return self._made

    def _call_and_translate(
        self, operation: str, parameters: Mapping[str, Any], work: Callable[[Any], Any]
    ) -> Any:
        client = self._get_client()
        from botocore import exceptions  # type: ignore[import-untyped]
        from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]
        from urllib3.exceptions import HTTPError

        where = f"s3://{parameters['Bucket']}/{parameters.get('Key', '')}"
        try:
            return work(client)
        except exceptions.NoCredentialsError as cause:
            tip = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            raise errors.ReleaseError(f"there are no credentials for {where}", tip=tip) from cause
        except exceptions.ClientError as failure:
            raise _translate_error(failure, operation, where) from failure
        except (
            exceptions.HTTPClientError,
            exceptions.ConnectionError,
            exceptions.IncompleteReadError,
            ResponseParserError,
            HTTPError,  # of a body that breaks off
            OSError,
        ) as failure:
            raise TransientS3Error(
                f"{where}: {str(failure) or type(failure).__name__}", unsure=True
            ) from failure
        except exceptions.BotoCoreError as failure:
            raise errors.ReleaseError(f"{operation} of {where} cannot be asked for") from failure


def has_aws_credentials(env: Mapping[str, str]) -> bool:
    """Tell whether AWS's own tools would find credentials: variables, files, or a server that gives them."""
    if env.get("AWS_ACCESS_KEY_ID") or env.get("AWS_PROFILE"):
        return True
    return _make_session(env).get_credentials() is not None


def _make_session(env: Mapping[str, str]) -> Any:
    extras.require_extras("a store in S3", "s3")
    from botocore.session import Session  # type: ignore[import-untyped]

    session = Session(profile=env.get("AWS_PROFILE") or None)
    session.lazy_register_component(
        "data_loader", lambda: _share_loader(session.get_config_variable("data_path"))
    )
    return session


@cache
def _share_loader(folders: str | None) -> Any:
    """Return what reads botocore's descriptions of services, once for all clients: megabytes of JSON."""
    from botocore.loaders import create_loader  # type: ignore[import-untyped]

    return create_loader(folders)


def _make_client(env: Mapping[str, str], endpoint: str, *, anonymous: bool) -> Any:
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise errors.UsageError(
            f"AWS_ENDPOINT_URL={endpoint.rpartition('@')[2]!r} is not the URL of a server"
        )
    if "@" in endpoint:
        tip = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the URL is printed and logged"
        raise errors.UsageError("AWS_ENDPOINT_URL holds credentials", tip=tip)
    session = _make_session(env)
    from botocore import UNSIGNED
    from botocore.config import Config  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]

    config = Config(
        signature_version=UNSIGNED if anonymous else "s3v4",  # of URLs too, whose default is older
        # newer checksums are unknown to many servers; what arrived is told by the ETag
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"mode": "standard", "total_max_attempts": 1},  # its own would repeat a write without a look
        max_pool_connections=32,
        s3={"addressing_style": "path"} if endpoint else None,
    )
    try:
        return session.create_client(
            "s3",
            region_name=_get_region(env) or ("us-east-1" if endpoint else None),
            endpoint_url=endpoint or None,
            aws_access_key_id=env.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=env.get("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=env.get("AWS_SESSION_TOKEN"),
            config=config,
        )
    except BotoCoreError as cause:  # a profile that is not there, a key without its secret
        raise errors.UsageError(
            "the settings of AWS cannot be used", tip="correct the AWS_ variables or ~/.aws"
        ) from cause


def _get_region(env: Mapping[str, str]) -> str:
    return env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or ""


def _translate_error(failure: Any, operation: str, where: str) -> Exception:
    details = failure.response.get("Error", {})
    status = int(failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    if status == 412:
        return S3ConditionError()
    if status == 501 or code == "NotImplemented":
        unknown = store.UnsupportedByStoreError(f"{operation} of {where}: {status} {code} {message}".rstrip())
        unknown.operation = operation
        return unknown
    if status == _CONFLICT_STATUS or status in _NOT_DONE_STATUSES:
        headers = failure.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return TransientS3Error(
            f"{where}: {status} {code}",
            unsure=status != _CONFLICT_STATUS,
            retry_after=retry.parse_retry_after(headers.get("retry-after", "")),
        )
    if code in ("BadDigest", "IncompleteBody"):
        return TransientS3Error(f"{where}: the bytes did not arrive as they are", unsure=False)
    if status >= 500 or code in _TRANSIENT_CODES:
        return TransientS3Error(f"{where}: {status} {code}", unsure=True)
    if code == "NoSuchBucket":
        return errors.ReleaseError(
            f"there is no bucket {where.split('/')[2]}", tip="make it, or name another"
        )
    if status == 404:
        return store.NotInStoreError(f"there is no {where}")
    tip = _TIPS_BY_CODE.get(code) or ("the credentials must allow it" if status in (401, 403) else None)
    return errors.ReleaseError(f"{operation} of {where}: {status} {code} {message}".rstrip(), tip=tip)


def normalize_etag(etag: str) -> str:
    """Return an ETag as it is compared: a proxy that compresses makes it weak, some leave out its quotes."""
    return '"{}"'.format(etag.removeprefix("W/").strip('"'))


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
    policy: retry.RetryPolicy,
) -> S3Write:
    """Return the work that creates a file, of bytes or in parts, and returns its ETag."""
    if isinstance(content, bytes):
        return lambda: _put_object(client, object_key, content, mark)
    return lambda: _put_parts(client, object_key, content, sums, mark, policy=policy)


def make_s3_copy(
    client: S3Client,
    source: _ObjectKey,
    target: _ObjectKey,
    source_info: store.StoredFileInfo,
    mark: WriteMark,
    *,
    policy: retry.RetryPolicy,
) -> S3Write:
    """Return the work that copies a file on the server and returns the new one's ETag."""
    from_there = {
        "CopySource": dict(source),
        "CopySourceIfMatch": source_info.tag,
    }
    if source_info.size > _COPIED_PART_SIZE:
        return lambda: _copy_parts(client, target, from_there, source_info, mark, policy=policy)
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
    policy: retry.RetryPolicy,
) -> str:
    def send(number: int) -> dict[str, Any]:
        with path.open("rb") as file:
            file.seek((number - 1) * PART_SIZE)
            piece = file.read(PART_SIZE)
        parameters = {"UploadId": upload, "PartNumber": number, **make_s3_body(piece)}
        if parameters["ContentMD5"] != sums.parts[number - 1]:
            raise store.make_changed_error(path)
        action = f"send part {number} of {path.name}"
        answer = read_with_retries(
            policy, action, lambda: client.call("upload_part", **object_key, **parameters)
        )
        return {"ETag": answer["ETag"], "PartNumber": number}

    upload = client.call("create_multipart_upload", **object_key, **mark.parameters)["UploadId"]
    return _complete_parts(client, object_key, upload, send, range(1, len(sums.parts) + 1))


def _copy_parts(
    client: S3Client,
    target: _ObjectKey,
    from_there: _ObjectKey,
    source_info: store.StoredFileInfo,
    mark: WriteMark,
    *,
    policy: retry.RetryPolicy,
) -> str:
    def copy(number: int) -> dict[str, Any]:
        first = (number - 1) * _COPIED_PART_SIZE
        span = f"bytes={first}-{min(first + _COPIED_PART_SIZE, source_info.size) - 1}"
        parameters = {"UploadId": upload, "PartNumber": number, "CopySourceRange": span}
        action = f"copy part {number} of {target['Key']}"
        answer = read_with_retries(
            policy, action, lambda: client.call("upload_part_copy", **target, **from_there, **parameters)
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
        parts = parallel.run_in_parallel(send_part, numbers, jobs=_PART_JOBS)
        parameters = {"UploadId": upload, "MultipartUpload": {"Parts": parts}, "IfNoneMatch": "*"}
        return normalize_etag(client.call("complete_multipart_upload", **object_key, **parameters)["ETag"])
    except Exception as failure:
        if not (isinstance(failure, TransientS3Error) and failure.unsure):  # else it may be under way
            _abort_upload(client, object_key, upload)
        raise


def _abort_upload(client: S3Client, object_key: _ObjectKey, upload: str) -> None:
    try:
        client.call("abort_multipart_upload", **object_key, UploadId=upload)
    except (TransientS3Error, errors.RocmWheelsError) as failure:
        log.log_warning(f"parts of {object_key['Key']} stay with the server, unseen: {failure}")


class S3Store:
    """A bucket, or a folder in one."""

    folder: Path | None = None

    def __init__(
        self, bucket: str, prefix: str, env: Mapping[str, str], *, policy: retry.RetryPolicy = S3_POLICY
    ) -> None:
        self._bucket, self._prefix = bucket, store.prefix_of_folder(prefix)
        self._policy = policy
        self._client = S3Client(env)
        self.looks_first = False
        self._bare_tags = False

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def read(self, path: str) -> store.StoredFile:
        """Return a whole file, checked against its sha256 if the store keeps one. Raises NotInStoreError."""
        return read_with_retries(self._policy, f"read {self._describe_path(path)}", lambda: self._read(path))

    def _read(self, path: str) -> store.StoredFile:
        answer, content = self._client.call_with_body("get_object", **self._object_key(path))
        kept_sha256 = _get_kept_sha256(answer)
        if len(content) != answer["ContentLength"] or (
            kept_sha256 and store.digest_of_content(content) != kept_sha256
        ):
            raise TransientS3Error(
                f"{len(content)} bytes came, and not those that were written", unsure=False
            )
        return store.StoredFile(content, normalize_etag(answer["ETag"]))

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine, whole or not at all. Raises NotInStoreError."""
        info = self._require_head(path)
        with files.open_atomically(target, tidy=True) as file:
            digest = files.hash_pieces(self._read_pieces(path, info), file.write)
            if info.sha256 and digest != info.sha256:
                raise errors.ReleaseError(
                    f"{self._describe_path(path)} gives other bytes than those that were written"
                )

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of the bytes that the server gives out. Raises NotInStoreError."""
        return files.hash_pieces(self._read_pieces(path, self._require_head(path)))

    def head(self, path: str) -> store.StoredFileInfo | None:
        """Return size, ETag and sha256, ``None`` when there is no such file."""
        return read_with_retries(
            self._policy, f"look at {self._describe_path(path)}", lambda: self._head(path)
        )

    def _head(self, path: str) -> store.StoredFileInfo | None:
        try:
            answer = self._client.call("head_object", **self._object_key(path))
        except store.NotInStoreError:
            return None
        written = answer.get("LastModified")
        return store.StoredFileInfo(
            answer["ContentLength"],
            normalize_etag(answer["ETag"]),
            _get_kept_sha256(answer),
            written.timestamp() if written is not None else None,
        )

    def _require_head(self, path: str) -> store.StoredFileInfo:
        info = self.head(path)
        if info is None:
            raise store.NotInStoreError(f"there is no {self._describe_path(path)}")
        return info

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Write a new file, a large one in parts. Raises AlreadyInStoreError.

        A large one is looked for before it is sent; Ceph knows no condition for files of parts, so that of
        two that send one at the same moment both may succeed there.
        """
        large = store.size_of_content(content) > PART_SIZE
        sent = content if large or isinstance(content, bytes) else content.read_bytes()
        sums = compute_content_sums(sent)
        store.require_digest(sums.sha256, sha256, content)
        mark = WriteMark.make(path, sums.sha256)
        put = make_s3_put(self._client, self._object_key(path), sent, sums, mark, policy=self._policy)
        return self._create_once(path, mark, put, look_first=large)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag. Raises ChangedInStoreError."""
        if tag is None:
            try:
                return self.create(path, content)
            except store.AlreadyInStoreError as cause:
                raise store.ChangedInStoreError(
                    f"{path} was created by another process in the meantime"
                ) from cause
        mark = WriteMark.make(path, store.digest_of_content(content))

        def put() -> str:
            if self.looks_first and ((info := self._head(path)) is None or info.tag != tag):
                raise S3ConditionError
            parameters = {**make_s3_body(content), **mark.parameters}
            return self._write_as_supported(
                lambda: self._put_if_match(path, parameters, tag), looked=self.looks_first
            )

        try:
            return write_with_retries(
                self._policy,
                f"write {self._describe_path(path)}",
                put,
                lambda: self._find_own_write(path, mark),
            )
        except (S3ConditionError, store.NotInStoreError):
            raise store.ChangedInStoreError(
                f"{path} was changed by another process in the meantime"
            ) from None

    def _put_if_match(self, path: str, parameters: Mapping[str, Any], tag: str) -> str:
        """Write a file if its ETag is ``tag``: in quotes as HTTP has it, or without, as a server may want."""
        try:
            etag = tag.strip('"') if self._bare_tags else tag
            answer = self._client.call("put_object", **self._object_key(path), **parameters, IfMatch=etag)
        except S3ConditionError:
            info = self._head(path)
            if self._bare_tags or info is None or info.tag != tag:
                raise
            # Ceph (16 at least) compares the header as it comes with an ETag that it keeps without quotes
            answer = self._client.call(
                "put_object", **self._object_key(path), **parameters, IfMatch=tag.strip('"')
            )
            self._bare_tags = True
        return normalize_etag(answer["ETag"])

    def copy(self, source: str, target: str, *, tag: str | None = None) -> str:
        """Copy a file inside the bucket, on the server, of this ETag if one is named.

        Raises NotInStoreError, AlreadyInStoreError and ChangedInStoreError.

        Many servers know no condition for copies: of two that copy at one moment both may succeed. Nor do
        all of them (Ceph 16) hold a copy to the source's ETag: the source is looked at again.
        """
        source_info = store.require_tag(self, source, tag)
        mark = WriteMark.make(target, source_info.sha256)
        object_keys = self._object_key(source), self._object_key(target)
        copy_object = make_s3_copy(self._client, *object_keys, source_info, mark, policy=self._policy)
        changed = errors.ReleaseError(
            f"{self._describe_path(source)} changed while it was copied", tip=store.RUN_AGAIN_TIP
        )
        try:
            tag = self._create_once(target, mark, copy_object, look_first=True)
        except store.AlreadyInStoreError:
            if self.head(target) is not None:
                raise
            raise changed from None
        if (info_after := self.head(source)) is None or info_after.tag != source_info.tag:
            self.remove(target)  # it says that it is what the source was
            raise changed
        return tag

    def listing(self, prefix: str) -> Iterator[store.ListedFile]:
        """Yield the files below a folder, sorted by path."""
        for answer in self._list_pages(store.prefix_of_folder(prefix)):
            for item in answer.get("Contents", ()):
                if store.is_store_path(path := item["Key"].removeprefix(self._prefix)):
                    yield store.ListedFile(path, item["Size"], normalize_etag(item["ETag"]))

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        start = self._prefix + store.prefix_of_folder(prefix)
        names = [
            item["Prefix"].removeprefix(start).rstrip("/")
            for answer in self._list_pages(store.prefix_of_folder(prefix), Delimiter="/")
            for item in answer.get("CommonPrefixes", ())
        ]
        return sorted(filter(store.is_store_path, names))

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(store.NotInStoreError):
            read_with_retries(
                self._policy,
                f"remove {self._describe_path(path)}",
                lambda: self._client.call("delete_object", **self._object_key(path)),
            )

    def url_of(self, path: str) -> str:
        """Return where a file is; that it can be read there is up to the bucket."""
        end = "/" if path.endswith("/") else ""
        key = quote(self._prefix + store.check_store_path(path.rstrip("/")))
        return f"{self._client.bucket_url(self._bucket)}/{key}{end}"

    def _create_once(self, path: str, mark: WriteMark, write: S3Write, *, look_first: bool = False) -> str:
        """Do a write that creates. Raises AlreadyInStoreError."""

        def create() -> str:
            if (self.looks_first or look_first) and self._head(path) is not None:
                raise S3ConditionError
            return self._write_as_supported(write, looked=self.looks_first or look_first)

        try:
            return write_with_retries(
                self._policy,
                f"write {self._describe_path(path)}",
                create,
                lambda: self._find_own_write(path, mark),
            )
        except S3ConditionError:
            raise store.AlreadyInStoreError(f"{self._describe_path(path)} exists already") from None

    def _write_as_supported(self, write: S3Write, *, looked: bool) -> str:
        """Do a write; after a look at what is there, without its condition if the server has none."""
        try:
            return write()
        except store.UnsupportedByStoreError as unknown:
            if not looked or unknown.operation in self._client.without:
                raise
            self._client.without.add(unknown.operation)
            return write()

    def _find_own_write(self, path: str, mark: WriteMark) -> str | None:
        """Return the tag of a file if it is the one of this very write."""
        try:
            answer = self._client.call("head_object", **self._object_key(path))
        except store.NotInStoreError:
            return None
        return (
            normalize_etag(answer["ETag"]) if answer.get("Metadata", {}).get("write") == mark.write else None
        )

    def _read_pieces(self, path: str, info: store.StoredFileInfo) -> Iterator[bytes]:
        """Yield the bytes of a file, all of one version of it."""
        for first in range(0, info.size, PART_SIZE):
            last = min(first + PART_SIZE, info.size) - 1

            def piece(first: int = first, last: int = last) -> bytes:
                span = {"Range": f"bytes={first}-{last}", "IfMatch": info.tag}
                content = self._client.call_with_body("get_object", **self._object_key(path), **span)[1]
                if len(content) != last + 1 - first:
                    raise TransientS3Error(f"{len(content)} of {last + 1 - first} bytes came", unsure=False)
                return content

            try:
                yield read_with_retries(self._policy, f"read {self._describe_path(path)}", piece)
            except S3ConditionError:
                raise errors.ReleaseError(
                    f"{self._describe_path(path)} changed while it was read", tip=store.RUN_AGAIN_TIP
                ) from None

    def _list_pages(self, prefix: str, **options: str) -> Iterator[Any]:
        parameters: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, **options}
        while True:
            answer = read_with_retries(
                self._policy, f"list {self.url}", lambda: self._client.call("list_objects_v2", **parameters)
            )
            yield answer
            if not answer.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = answer["NextContinuationToken"]

    def _object_key(self, path: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + store.check_store_path(path)}

    def _describe_path(self, path: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{path}"


def _get_kept_sha256(answer: Mapping[str, Any]) -> str | None:
    sha256 = answer.get("Metadata", {}).get("sha256")
    return str(sha256) if sha256 else None


class BucketFolder:
    """The files that lie directly in a folder of a bucket."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        env: Mapping[str, str],
        *,
        sign: bool = True,
        policy: retry.RetryPolicy = S3_POLICY,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._env, self._sign = env, sign
        self._policy = policy
        self._made: S3Client | None = None

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def list_files(self) -> list[store.ListedFile]:
        """Return the files in the folder, not those in folders of it; none where nothing is."""
        query = {"Bucket": self._bucket, "Prefix": self._prefix, "Delimiter": "/"}
        listed: list[store.ListedFile] = []
        while True:
            answer = read_with_retries(
                self._policy, f"list {self.url}", lambda: self._get_client.call("list_objects_v2", **query)
            )
            for item in answer.get("Contents", ()):
                if name := item["Key"].removeprefix(self._prefix):
                    listed.append(store.ListedFile(name, item["Size"], normalize_etag(item["ETag"])))
            if not answer.get("IsTruncated"):
                return listed
            query["ContinuationToken"] = answer["NextContinuationToken"]

    def download_url(self, name: str) -> str:
        """Return a URL of a file in the folder that can be read without credentials, for half a day."""
        return self._get_client.download_url(self._bucket, self._prefix + name)

    @property
    def _get_client(self) -> S3Client:
        if self._made is None:
            signed = self._sign and has_aws_credentials(self._env)
            self._made = S3Client(self._env, anonymous=not signed)
        return self._made
