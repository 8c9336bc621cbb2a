"""Keep a store in S3, or in what speaks its language (Ceph, MinIO and others), through botocore.

Conditions are S3's own: ``If-None-Match: *`` creates, ``If-Match: <ETag>`` replaces; a server that
ignores them is found by ``find_broken_promise``. With a file its sha256 is kept, so that it is recognised
without being read, and a mark of the write. A request is sent again when its answer was lost; where its
condition no longer holds then, the mark tells whether that was our own doing. An MD5 goes along with all
bytes, and the server refuses them when they arrive as others. While two writes of one file are under way a
server may answer 409 (``ConditionalRequestConflict``): the request is sent again, and parts all anew
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).

A large file is sent in parts; nothing is seen of it before all of it is there.
Parts of an upload that was killed stay with the server, unseen, and cost what they weigh: a bucket wants
a lifecycle rule (AbortIncompleteMultipartUpload).

``AWS_ENDPOINT_URL`` names another server than Amazon's; credentials are those of AWS's own tools.

Libraries that do more were tried on moto 5.2.5, also over a line that loses answers, and do not keep this:

- obstore 0.12.1 creates and replaces under conditions. But where the answer to such a write is lost, its own
  second attempt is answered with 412, and it says that somebody else was first; it keeps no mark by which
  one could tell. A conditional write is one request with the whole file in memory (300 MB took 520 MB), never
  parts. A copy cannot be held to the ETag of its source, and one that must create loses the metadata
  (``multipart``) or replaced what was there (``header``). A file is said to exist when the server answers
  409, that another write is under way; a 500 and an expired token are one kind of error. No MD5 is sent,
  ``AWS_PROFILE`` and SSO are not read, and there is no wheel for Python 3.10. (16 MB, as abi3 for
  manylinux_2_17; botocore takes 32.)
- s3transfer 0.19.3, the transfers of boto3, takes no conditions for uploads.
- s3fs 2026.9.0 has the calls of botocore behind an event loop, leaves out conditions that its botocore does
  not know without a word, and brings 15 more packages.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from rocm_wheels.core import errors, files, installation, log, parallel, retry, shell
from rocm_wheels.core.environment_numbers import read_process_number
from rocm_wheels.stores import store

_TRANSIENT_CODES = {"RequestTimeout", "BadDigest", "IncompleteBody"}
_TIPS_BY_CODE = {
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
    "ExpiredToken": f"the credentials have expired: get new ones, then {store.RUN_AGAIN_TIP}",
    "NoSuchBucket": "make it, or name another",
    "EntityTooLarge": "the server takes no file of this size",
    "QuotaExceeded": f"the bucket is full: free some space, then {store.RUN_AGAIN_TIP}",
    "XMinioStorageFull": f"the server is full: free some space, then {store.RUN_AGAIN_TIP}",
}
_READING_VERBS = {"get_object": "read", "head_object": "look at", "list_objects_v2": "list"}
_SETTINGS_TIP = (
    "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_ENDPOINT_URL, or what is in ~/.aws"
)
_SERVER_URL = re.compile(r"https?://([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/.*)?")
PART_SIZE = 16 << 20  # bytes; S3 takes 10,000 parts
_PART_JOBS = 4
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".metadata": "text/plain; charset=utf-8",
}


class S3ConditionError(Exception):
    """The condition of a request does not hold."""


class S3UnansweredError(errors.ReleaseError):
    """No attempt of a request was answered; the server may have done what it was asked for."""


class S3Client:
    """The operations of S3's own API by their names in botocore, from any thread, attempted again.

    How often, and how many seconds the server may be silent, say ROCM_WHEELS_RETRIES and ROCM_WHEELS_TIMEOUT.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        needs_credentials: bool = True,
        policy: retry.RetryPolicy | None = None,
    ) -> None:
        self.policy = policy or retry.RetryPolicy(
            read_process_number("ROCM_WHEELS_RETRIES", 5), first_wait=0.2, growth=2.5
        )
        self._env, self._needs_credentials = env, needs_credentials
        self._endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
        self._region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or ""
        self._made: Any = None
        self._lock = threading.Lock()

    def bucket_url(self, bucket: str) -> str:
        """Return the URL of a bucket, without credentials."""
        if self._endpoint:
            return f"{shell.hide_credentials(self._endpoint).rstrip('/')}/{bucket}"
        return "https://" + ".".join(filter(None, (bucket, "s3", self._region, "amazonaws.com")))

    def call(
        self, operation: str, finish: Callable[[Any], Any] = lambda answer: answer, /, **parameters: Any
    ) -> Any:
        """Return the answer of the server, or what ``finish`` makes of it, which is part of the attempt.

        Raises S3UnansweredError when none came after all attempts, S3ConditionError for a condition that does
        not hold, NotInStoreError for a file that is not there, UnsupportedByStoreError for what the server
        has not, and ReleaseError for everything else.
        """
        with self._lock:
            if self._made is None:
                self._made = self._connect()
        from botocore import exceptions  # type: ignore[import-untyped]
        from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]
        from urllib3.exceptions import HTTPError

        lost = (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.IncompleteReadError)
        subject = parameters.get("Params", parameters)  # of a URL to sign: those of its request
        where = f"s3://{subject['Bucket']}/{subject.get('Key', subject.get('Prefix', ''))}"

        def attempt() -> Any:
            try:
                return finish(getattr(self._made, operation)(**parameters))
            except exceptions.ClientError as failure:
                raise _translate_error(failure.response, operation, where) from None
            except (*lost, ResponseParserError, HTTPError, OSError) as failure:  # HTTPError: within a body
                raise retry.TransientError(str(failure) or type(failure).__name__) from failure
            except exceptions.BotoCoreError as failure:
                message = f"{operation} of {where} cannot be asked for"
                raise errors.ReleaseError(message, tip=_SETTINGS_TIP) from failure

        try:
            return retry.run_with_retries(attempt, policy=self.policy)
        except retry.TransientError as failure:
            tip = f"see that AWS_ENDPOINT_URL ({self._endpoint}) is right and its server up; then "
            raise S3UnansweredError(
                f"cannot {_READING_VERBS.get(operation, 'write')} {where}",
                tip=f"{tip if self._endpoint else ''}{store.RUN_AGAIN_TIP}",
            ) from failure

    def read_object(self, *, size: int | None = None, **parameters: Any) -> tuple[Any, bytes]:
        """Return the answer and the bytes that it carries: ``size`` of them, or all of a file.

        Raises as ``call``. What comes short, or is other than the kept sha256 of a whole file says, is asked
        for again.
        """

        def read_body(answer: Any) -> tuple[Any, bytes]:
            with answer["Body"] as body:
                content = body.read()
            kept = answer["Metadata"].get("sha256") if size is None else None
            wrong_bytes = kept and hashlib.sha256(content).hexdigest() != kept
            if wrong_bytes or len(content) != (answer["ContentLength"] if size is None else size):
                raise retry.TransientError(f"{len(content)} bytes came, and not those that were written")
            return answer, content

        answer_and_body: tuple[Any, bytes] = self.call("get_object", read_body, **parameters)
        return answer_and_body

    def list_items(self, bucket: str, prefix: str, **options: str) -> Iterator[Any]:
        """Yield what the server says of the files whose keys begin with ``prefix``: ``Key`` and so on.

        With the option ``Delimiter`` they end at the next one, and what goes on after it is a ``Prefix``.
        """
        parameters: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, **options}
        while True:
            answer = self.call("list_objects_v2", **parameters)
            yield from answer.get("Contents", ())
            yield from answer.get("CommonPrefixes", ())
            if not answer.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = answer["NextContinuationToken"]

    def _connect(self) -> Any:
        """Return botocore's client. Raises UsageError for settings that lead nowhere."""
        env, endpoint = self._env, self._endpoint
        if "@" in endpoint:
            tip = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the URL is printed and logged"
            raise errors.UsageError("AWS_ENDPOINT_URL holds credentials", tip=tip)
        if endpoint and not _SERVER_URL.fullmatch(endpoint):
            tip = "for example: https://s3.example.org:9000"
            raise errors.UsageError(f"AWS_ENDPOINT_URL={endpoint!r} is not the URL of a server", tip=tip)
        installation.require_extras("a store in S3", "s3")
        from botocore import UNSIGNED
        from botocore.config import Config  # type: ignore[import-untyped]
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
        from botocore.session import Session  # type: ignore[import-untyped]

        silence = read_process_number("ROCM_WHEELS_TIMEOUT", 60)
        try:
            session = Session(profile=env.get("AWS_PROFILE") or None)
            signs = self._needs_credentials or env.get("AWS_ACCESS_KEY_ID") or session.get_credentials()
            config = Config(
                # s3v4: of URLs too, whose default is older
                signature_version="s3v4" if signs else UNSIGNED,
                # newer checksums are unknown to many servers; what arrived is told by the ETag
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                retries={"mode": "standard", "total_max_attempts": 1},  # ``call`` sees to them
                connect_timeout=silence,
                read_timeout=silence,
                max_pool_connections=32,
                s3={"addressing_style": "path"} if endpoint else None,
            )
            return session.create_client(
                "s3",
                region_name=self._region or ("us-east-1" if endpoint else None),
                endpoint_url=endpoint or None,
                aws_access_key_id=env.get("AWS_ACCESS_KEY_ID"),
                aws_secret_access_key=env.get("AWS_SECRET_ACCESS_KEY"),
                aws_session_token=env.get("AWS_SESSION_TOKEN"),
                config=config,
            )
        except (BotoCoreError, ValueError) as cause:  # a profile that is not there, a key without its secret
            raise errors.UsageError("the settings of AWS cannot be used", tip=_SETTINGS_TIP) from cause


def _translate_error(response: Mapping[str, Any], operation: str, where: str) -> Exception:
    details, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    status, code = int(metadata.get("HTTPStatusCode", 0)), str(details.get("Code", ""))
    message = f"{operation} of {where}: {status} {code} {details.get('Message', '')}".rstrip()
    # 409: another write of the file is under way; where it was to be made of parts, these are lost
    if status == 412 or (status == 409 and operation == "complete_multipart_upload"):
        return S3ConditionError(message)
    if code == "NotImplemented":
        return store.UnsupportedByStoreError(message)
    # S3 gives a word for what it refuses, but to HEAD: this broke off, or is another server's
    is_no_answer = code == str(status) and status not in (401, 403) and operation != "head_object"
    if status in (409, 429) or status >= 500 or code in _TRANSIENT_CODES or is_no_answer:
        wait = retry.parse_retry_after(metadata.get("HTTPHeaders", {}).get("retry-after", ""))
        return retry.TransientError(message, retry_after=wait)
    if code == "NoSuchBucket":
        message = f"there is no bucket {where.split('/')[2]}"
    elif status == 404:
        return store.NotInStoreError(f"there is no {where}" if code != "NoSuchUpload" else message)
    tip = _TIPS_BY_CODE.get(code) or ("the credentials must allow it" if status in (401, 403) else None)
    return errors.ReleaseError(message, tip=tip)


def normalize_etag(etag: str) -> str:
    """Return an ETag as it is compared: a proxy that compresses makes it weak, some leave out its quotes."""
    return '"{}"'.format(etag.removeprefix("W/").strip('"'))


def _make_body(content: bytes) -> dict[str, Any]:
    """Return bytes to send, with the sum by which a server knows that they have arrived."""
    md5 = hashlib.md5(content, usedforsecurity=False).digest()
    return {"Body": content, "ContentMD5": b64encode(md5).decode()}


class S3Store:
    """A bucket, or a folder in one."""

    folder: Path | None = None

    def __init__(
        self, bucket: str, prefix: str, env: Mapping[str, str], *, policy: retry.RetryPolicy | None = None
    ) -> None:
        self._bucket, self._prefix = bucket, store.prefix_of_folder(prefix)
        self.url = f"s3://{bucket}/{self._prefix}".rstrip("/")
        self._client = S3Client(env, policy=policy)
        self._bare_tags = False  # whether the server wants them without quotes

    def read(self, path: str) -> store.StoredFile:
        """Return a whole file, checked against its sha256 if the store keeps one. Raises NotInStoreError."""
        answer, content = self._client.read_object(**self._object_key(path))
        return store.StoredFile(content, normalize_etag(answer["ETag"]))

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine, whole or not at all. Raises NotInStoreError."""
        info = self._require_head(path)
        with files.open_atomically(target) as file:
            digest = files.hash_pieces(self._read_pieces(path, info), file.write)
            if info.sha256 and digest != info.sha256:
                raise errors.ReleaseError(f"{self.url}/{path} gives other bytes than those that were written")

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of the bytes that the server gives out. Raises NotInStoreError."""
        return files.hash_pieces(self._read_pieces(path, self._require_head(path)))

    def head(self, path: str) -> store.StoredFileInfo | None:
        """Return size, ETag, sha256 and time, ``None`` when there is no such file."""
        try:
            return self._require_head(path)
        except store.NotInStoreError:
            return None

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Write a new file, a large one in parts. Raises AlreadyInStoreError.

        A large one is looked for before it is sent; Ceph and others know no condition for files of parts, so
        that of two that send one at the same moment both may succeed there.
        """
        if isinstance(content, Path) and content.stat().st_size > PART_SIZE:
            digest, source = sha256 or files.hash_file(content), content

            def send(target: Mapping[str, Any]) -> Any:
                if self.head(path) is not None:
                    raise S3ConditionError
                return self._send_parts(target, source, digest)

            return self._write(path, digest, None, send)
        payload = content if isinstance(content, bytes) else content.read_bytes()
        store.require_digest(hashlib.sha256(payload).hexdigest(), sha256, content)
        return self.replace(path, payload, None)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag. Raises ChangedInStoreError."""

        def send(target: Mapping[str, Any]) -> Any:
            condition = {"IfNoneMatch": "*"}
            if tag is not None:
                condition = {"IfMatch": tag.strip('"') if self._bare_tags else tag}
            return self._client.call("put_object", **target, **_make_body(content), **condition)

        return self._write(path, hashlib.sha256(content).hexdigest(), tag, send)

    def listing(self, prefix: str) -> Iterator[store.ListedFile]:
        """Yield the files below a folder, sorted by path."""
        for item in self._client.list_items(self._bucket, self._prefix + store.prefix_of_folder(prefix)):
            if store.is_store_path(path := item["Key"].removeprefix(self._prefix)):
                yield store.ListedFile(path, item["Size"], normalize_etag(item["ETag"]))

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        start = self._prefix + store.prefix_of_folder(prefix)
        items = self._client.list_items(self._bucket, start, Delimiter="/")
        names = (item["Prefix"].removeprefix(start).rstrip("/") for item in items if "Prefix" in item)
        return sorted(filter(store.is_store_path, names))

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(store.NotInStoreError):
            self._client.call("delete_object", **self._object_key(path))

    def url_of(self, path: str) -> str:
        """Return where a file is; that it can be read there is up to the bucket."""
        end = "/" if path.endswith("/") else ""
        key = quote(self._prefix + store.check_store_path(path.rstrip("/")))
        return f"{self._client.bucket_url(self._bucket)}/{key}{end}"

    def _object_key(self, path: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + store.check_store_path(path)}

    def _require_head(self, path: str) -> store.StoredFileInfo:
        answer = self._client.call("head_object", **self._object_key(path))
        return store.StoredFileInfo(
            answer["ContentLength"],
            normalize_etag(answer["ETag"]),
            answer["Metadata"].get("sha256") or None,
            answer["LastModified"].timestamp() if "LastModified" in answer else None,
        )

    def _read_pieces(self, path: str, info: store.StoredFileInfo) -> Iterator[bytes]:
        """Yield the bytes of a file, all of one version of it."""
        for first in range(0, info.size, PART_SIZE):
            size = min(PART_SIZE, info.size - first)
            span = {"Range": f"bytes={first}-{first + size - 1}", "IfMatch": info.tag}
            try:
                yield self._client.read_object(size=size, **self._object_key(path), **span)[1]
            except S3ConditionError:
                raise store.ChangedInStoreError(
                    f"{self.url}/{path} changed while it was read", tip=store.RUN_AGAIN_TIP
                ) from None

    def _send_parts(self, target: Mapping[str, Any], source: Path, sha256: str) -> Any:
        """Send all parts of a new file, and make it of them; the parts go when that fails."""
        key = {"Bucket": target["Bucket"], "Key": target["Key"]}
        upload = {**key, "UploadId": self._client.call("create_multipart_upload", **target)["UploadId"]}
        hasher, lock, parts = hashlib.sha256(), threading.Lock(), list[dict[str, Any]]()

        def send_part(_: int) -> None:
            with lock:
                part: dict[str, Any] = {"PartNumber": len(parts) + 1}
                parts.append(part)
                content = file.read(PART_SIZE)
                hasher.update(content)
            part["ETag"] = self._client.call("upload_part", **upload, **part, **_make_body(content))["ETag"]

        try:
            with source.open("rb") as file:
                count = -(-source.stat().st_size // PART_SIZE)
                parallel.run_in_parallel(send_part, range(count), jobs=_PART_JOBS)
            store.require_digest(hasher.hexdigest(), sha256, source)  # or somebody has written to it
            complete = {**upload, "MultipartUpload": {"Parts": parts}}
            try:
                return self._client.call("complete_multipart_upload", **complete, IfNoneMatch="*")
            except store.UnsupportedByStoreError:  # ``create`` has looked, which is all that can be done
                return self._client.call("complete_multipart_upload", **complete)
        except Exception:
            try:
                with contextlib.suppress(store.NotInStoreError):
                    self._client.call("abort_multipart_upload", **upload)
            except errors.RocmWheelsError as failure:
                log.log_warning(f"parts of {key['Key']} stay with the server, unseen: {failure}")
            raise

    def _write(
        self, path: str, sha256: str, tag: str | None, send: Callable[[Mapping[str, Any]], Any]
    ) -> str:
        """Have a file written where it has this tag (None: where there is none); return the new one.

        ``send`` gets what a request says of it. An attempt whose answer was lost may have written it: the
        mark of the write tells.
        """
        key, mark = self._object_key(path), secrets.token_hex(8)
        kind = _CONTENT_TYPES.get(PurePosixPath(path).suffix, "application/octet-stream")
        target = {**key, "Metadata": {"write": mark, "sha256": sha256}, "ContentType": kind}

        def attempt() -> str:
            try:
                return normalize_etag(send(target)["ETag"])
            except (S3ConditionError, S3UnansweredError, store.NotInStoreError) as failure:
                try:
                    stored = self._client.call("head_object", **key)
                except store.NotInStoreError:
                    stored = {}
                except S3UnansweredError:
                    if isinstance(failure, S3UnansweredError):
                        raise failure from failure.__cause__
                    raise  # the refusal may have been of a second attempt, after our own write
                stored_tag = normalize_etag(stored["ETag"]) if stored else None
                if stored_tag and stored["Metadata"].get("write") == mark:
                    return stored_tag
                if stored_tag != tag:
                    exists = store.AlreadyInStoreError(f"{self.url}/{path} exists already")
                    raise (exists if tag is None else store.make_changed_error(path)) from None
                if isinstance(failure, S3UnansweredError):
                    raise
                # What was in the way is gone, or the server compares otherwise: Ceph (16 at least) compares
                # the header as it comes with an ETag that it keeps without quotes.
                self._bare_tags = not self._bare_tags
                raise retry.TransientError(str(failure)) from failure

        try:
            return retry.run_with_retries(attempt, policy=self._client.policy)
        except retry.TransientError as failure:
            raise errors.ReleaseError(f"cannot write {self.url}/{path}", tip=store.RUN_AGAIN_TIP) from failure
