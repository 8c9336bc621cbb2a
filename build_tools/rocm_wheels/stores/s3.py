"""Keep a store in S3, or in what speaks its language (Ceph, MinIO and others), through botocore.

Conditions are S3's own: ``If-None-Match: *`` creates, ``If-Match: <ETag>`` replaces; a server that
ignores them is found by ``find_broken_promise``. With a file its sha256 is kept, so that it is recognised
without being read, and a mark of the write. A request is sent again when its answer was lost; where its
condition no longer holds then, the mark tells whether that was our own doing. An MD5 goes along with all
bytes, and the server refuses them when they arrive as others.

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
import secrets
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from rocm_wheels.core import errors, extras, files, log, parallel, retry, shell
from rocm_wheels.stores import store

S3_POLICY = retry.RetryPolicy(first_wait=0.2, growth=2.5)
_BUSY_STATUSES = {409, 429}  # 409: another write of the same file is under way (S3, "conditional writes")
_TRANSIENT_CODES = {
    "RequestTimeout": "",
    "InternalError": "",
    "BadDigest": "the bytes did not arrive as they are",
    "IncompleteBody": "the bytes did not arrive as they are",
}
_TIPS_BY_CODE = {
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
    "ExpiredToken": f"the credentials have expired: get new ones, then {store.RUN_AGAIN_TIP}",
    "EntityTooLarge": "the server takes no file of this size",
    "QuotaExceeded": f"the bucket is full: free some space, then {store.RUN_AGAIN_TIP}",
    "XMinioStorageFull": f"the server is full: free some space, then {store.RUN_AGAIN_TIP}",
}
_VERBS = {
    "get_object": "read",
    "head_object": "look at",
    "list_objects_v2": "list",
    "delete_object": "remove",
}
_SIGNED_URL_SECONDS = 12 * 3600  # a download of many files; temporary credentials may end it earlier
PART_SIZE = 16 << 20  # bytes; S3 takes 10,000 parts
_PART_JOBS = 4
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".metadata": "text/plain; charset=utf-8",
}


class S3ConditionError(Exception):
    """The condition of a write does not hold."""


class S3UnansweredError(errors.ReleaseError):
    """No attempt of a request was answered; the server may have done what it was asked for."""


class S3Client:
    """The operations of S3's own API by their names in botocore, from any thread, attempted again."""

    def __init__(
        self, env: Mapping[str, str], *, anonymous: bool = False, policy: retry.RetryPolicy = S3_POLICY
    ) -> None:
        self._env, self._anonymous, self._policy = env, anonymous, policy
        self._endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
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

        Raises S3UnansweredError when none came after all attempts, S3ConditionError for a condition that does
        not hold, NotInStoreError for a file that is not there, UnsupportedByStoreError for what the server
        has not, and ReleaseError for everything else.
        """
        return self._attempt(operation, parameters, lambda client: getattr(client, operation)(**parameters))

    def call_with_body(
        self, operation: str, *, size: int | None = None, **parameters: Any
    ) -> tuple[Any, bytes]:
        """Return the answer and the bytes that it carries: ``size`` of them, or all of a file.

        Raises as ``call``. What comes short, or is other than the kept sha256 of a whole file says, is asked
        for again.
        """

        def read(client: Any) -> tuple[Any, bytes]:
            answer = getattr(client, operation)(**parameters)
            with answer["Body"] as body:
                content = body.read()
            kept = answer["Metadata"].get("sha256") if size is None else None
            wrong_bytes = kept and hashlib.sha256(content).hexdigest() != kept
            if wrong_bytes or len(content) != (answer["ContentLength"] if size is None else size):
                raise retry.TransientError(f"{len(content)} bytes came, and not those that were written")
            return answer, content

        answer_and_body: tuple[Any, bytes] = self._attempt(operation, parameters, read)
        return answer_and_body

    def list_pages(self, bucket: str, prefix: str, **options: str) -> Iterator[Any]:
        """Yield the answers that list the files whose keys begin with ``prefix``, a thousand in each."""
        parameters: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, **options}
        while True:
            answer = self.call("list_objects_v2", **parameters)
            yield answer
            if not answer.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = answer["NextContinuationToken"]

    def download_url(self, bucket: str, key: str) -> str:
        """Return a URL that reads a file, signed with the credentials; nothing is asked of the server."""
        parameters = {"Bucket": bucket, "Key": key}

        def sign(client: Any) -> Any:
            return client.generate_presigned_url(
                "get_object", Params=parameters, ExpiresIn=_SIGNED_URL_SECONDS
            )

        return str(self._attempt("get_object", parameters, sign))

    def _get_client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = _make_client(self._env, self._endpoint, anonymous=self._anonymous)
            return self._made

    def _attempt(self, operation: str, parameters: Mapping[str, Any], work: Callable[[Any], Any]) -> Any:
        client = self._get_client()
        from botocore import exceptions  # type: ignore[import-untyped]
        from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]
        from urllib3.exceptions import HTTPError

        where = f"s3://{parameters['Bucket']}/{parameters.get('Key', parameters.get('Prefix', ''))}"

        def attempt() -> Any:
            try:
                return work(client)
            except exceptions.NoCredentialsError as cause:
                tip = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                raise errors.ReleaseError(f"there are no credentials for {where}", tip=tip) from cause
            except exceptions.ClientError as failure:
                raise _translate_error(failure.response, operation, where) from failure
            except (
                exceptions.HTTPClientError,
                exceptions.ConnectionError,
                exceptions.IncompleteReadError,
                ResponseParserError,
                HTTPError,  # of a body that breaks off
                OSError,
            ) as failure:
                raise retry.TransientError(f"{where}: {str(failure) or type(failure).__name__}") from failure
            except exceptions.BotoCoreError as failure:
                raise errors.ReleaseError(f"{operation} of {where} cannot be asked for") from failure

        try:
            return retry.run_with_retries(attempt, policy=self._policy)
        except retry.TransientError as failure:
            action = f"{_VERBS.get(operation, 'write')} {where}"
            raise S3UnansweredError(f"cannot {action}", tip=store.RUN_AGAIN_TIP) from failure


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


def _translate_error(response: Mapping[str, Any], operation: str, where: str) -> Exception:
    details, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    status, code = int(metadata.get("HTTPStatusCode", 0)), str(details.get("Code", ""))
    message = f"{operation} of {where}: {status} {code} {details.get('Message', '')}".rstrip()
    if status == 412:
        return S3ConditionError()
    if status == 501 or code == "NotImplemented":
        return store.UnsupportedByStoreError(message)
    if status in _BUSY_STATUSES or status >= 500 or code in _TRANSIENT_CODES:
        wait = retry.parse_retry_after(metadata.get("HTTPHeaders", {}).get("retry-after", ""))
        return retry.TransientError(
            f"{where}: {_TRANSIENT_CODES.get(code) or f'{status} {code}'}", retry_after=wait
        )
    if code == "NoSuchBucket":
        return errors.ReleaseError(
            f"there is no bucket {where.split('/')[2]}", tip="make it, or name another"
        )
    if code == "NoSuchUpload":
        return store.NotInStoreError(f"the server has lost the parts of {where}", tip=store.RUN_AGAIN_TIP)
    if status == 404:
        return store.NotInStoreError(f"there is no {where}")
    tip = _TIPS_BY_CODE.get(code) or ("the credentials must allow it" if status in (401, 403) else None)
    return errors.ReleaseError(message, tip=tip)


def normalize_etag(etag: str) -> str:
    """Return an ETag as it is compared: a proxy that compresses makes it weak, some leave out its quotes."""
    return '"{}"'.format(etag.removeprefix("W/").strip('"'))


def _make_body(content: bytes) -> dict[str, Any]:
    """Return bytes to send, with the sum by which a server knows that they have arrived."""
    md5 = hashlib.md5(content, usedforsecurity=False).digest()
    return {"Body": content, "ContentMD5": b64encode(md5).decode()}


def _make_mark(path: str, sha256: str | None) -> dict[str, Any]:
    """Return what is kept with a file: its sha256, a word for this write alone, and its kind."""
    metadata = {"write": secrets.token_hex(8), **({"sha256": sha256} if sha256 else {})}
    kind = _CONTENT_TYPES.get(PurePosixPath(path).suffix, "application/octet-stream")
    return {"Metadata": metadata, "ContentType": kind}


class S3Store:
    """A bucket, or a folder in one."""

    folder: Path | None = None

    def __init__(
        self, bucket: str, prefix: str, env: Mapping[str, str], *, policy: retry.RetryPolicy = S3_POLICY
    ) -> None:
        self._bucket, self._prefix = bucket, store.prefix_of_folder(prefix)
        self._client = S3Client(env, policy=policy)
        self._bare_tags = False

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def read(self, path: str) -> store.StoredFile:
        """Return a whole file, checked against its sha256 if the store keeps one. Raises NotInStoreError."""
        answer, content = self._client.call_with_body("get_object", **self._object_key(path))
        return store.StoredFile(content, normalize_etag(answer["ETag"]))

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine, whole or not at all. Raises NotInStoreError."""
        info = self._require_head(path)
        with files.open_atomically(target, tidy=True) as file:
            digest = files.hash_pieces(self._read_pieces(path, info), file.write)
            if info.sha256 and digest != info.sha256:
                raise errors.ReleaseError(
                    f"{self._url_of(path)} gives other bytes than those that were written"
                )

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of the bytes that the server gives out. Raises NotInStoreError."""
        return files.hash_pieces(self._read_pieces(path, self._require_head(path)))

    def head(self, path: str) -> store.StoredFileInfo | None:
        """Return size, ETag, sha256 and time, ``None`` when there is no such file."""
        try:
            answer = self._client.call("head_object", **self._object_key(path))
        except store.NotInStoreError:
            return None
        written = answer.get("LastModified")
        return store.StoredFileInfo(
            answer["ContentLength"],
            normalize_etag(answer["ETag"]),
            answer.get("Metadata", {}).get("sha256") or None,
            written.timestamp() if written is not None else None,
        )

    def _require_head(self, path: str) -> store.StoredFileInfo:
        if (info := self.head(path)) is None:
            raise store.NotInStoreError(f"there is no {self._url_of(path)}")
        return info

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Write a new file, a large one in parts. Raises AlreadyInStoreError.

        A large one is looked for before it is sent; Ceph and others know no condition for files of parts, so
        that of two that send one at the same moment both may succeed there.
        """
        if isinstance(content, Path) and content.stat().st_size > PART_SIZE:
            return self._create_in_parts(path, content, sha256)
        sent = content if isinstance(content, bytes) else content.read_bytes()
        digest = hashlib.sha256(sent).hexdigest()
        store.require_digest(digest, sha256, content)
        parameters = {
            **self._object_key(path),
            **_make_mark(path, digest),
            **_make_body(sent),
            "IfNoneMatch": "*",
        }
        return self._create_once(
            path, parameters["Metadata"], lambda: self._client.call("put_object", **parameters)
        )

    def _create_in_parts(self, path: str, source: Path, sha256: str | None) -> str:
        hasher, sums = hashlib.sha256(), []
        with source.open("rb") as file:
            while piece := file.read(PART_SIZE):
                hasher.update(piece)
                sums.append(_make_body(piece)["ContentMD5"])
        store.require_digest(hasher.hexdigest(), sha256, source)

        def send(number: int, upload: Mapping[str, Any]) -> Any:
            with source.open("rb") as file:
                file.seek((number - 1) * PART_SIZE)
                body = _make_body(file.read(PART_SIZE))
            # somebody has written to it since
            store.require_digest(body["ContentMD5"], sums[number - 1], source)
            return self._client.call("upload_part", **upload, **body, PartNumber=number)

        mark = _make_mark(path, hasher.hexdigest())
        return self._create_once(
            path, mark["Metadata"], lambda: self._send_parts(path, mark, send, len(sums)), look_first=True
        )

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag. Raises ChangedInStoreError."""
        if tag is None:
            try:
                return self.create(path, content)
            except store.AlreadyInStoreError as cause:
                raise store.make_changed_error(path) from cause
        mark = _make_mark(path, hashlib.sha256(content).hexdigest())
        parameters = {**self._object_key(path), **mark, **_make_body(content)}

        def has_tag() -> bool:
            info = self.head(path)
            return info is not None and info.tag == tag

        def put() -> Any:
            bare = tag.strip('"')
            try:
                return self._client.call("put_object", **parameters, IfMatch=bare if self._bare_tags else tag)
            except S3ConditionError:
                if self._bare_tags or not has_tag():
                    raise
            # Ceph (16 at least) compares the header as it comes with an ETag that it keeps without quotes
            answer = self._client.call("put_object", **parameters, IfMatch=bare)
            self._bare_tags = True
            return answer

        try:
            return self._write(path, mark["Metadata"], put)
        except (S3ConditionError, store.NotInStoreError):
            raise store.make_changed_error(path) from None

    def listing(self, prefix: str) -> Iterator[store.ListedFile]:
        """Yield the files below a folder, sorted by path."""
        for answer in self._client.list_pages(self._bucket, self._prefix + store.prefix_of_folder(prefix)):
            for item in answer.get("Contents", ()):
                if store.is_store_path(path := item["Key"].removeprefix(self._prefix)):
                    yield store.ListedFile(path, item["Size"], normalize_etag(item["ETag"]))

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        start = self._prefix + store.prefix_of_folder(prefix)
        names = [
            item["Prefix"].removeprefix(start).rstrip("/")
            for answer in self._client.list_pages(self._bucket, start, Delimiter="/")
            for item in answer.get("CommonPrefixes", ())
        ]
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

    def _url_of(self, path: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{path}"

    def _create_once(
        self, path: str, mark: Mapping[str, str], write: Callable[[], Any], *, look_first: bool = False
    ) -> str:
        """Do a write that creates. Raises AlreadyInStoreError."""
        exists = store.AlreadyInStoreError(f"{self._url_of(path)} exists already")
        if look_first and self.head(path) is not None:
            raise exists
        try:
            return self._write(path, mark, write)
        except S3ConditionError:
            raise exists from None

    def _write(self, path: str, mark: Mapping[str, str], write: Callable[[], Any]) -> str:
        """Do a write and return the new tag; it may have been done by an attempt whose answer was lost."""
        try:
            answer = write()
        except (S3ConditionError, S3UnansweredError, store.NotInStoreError) as failure:
            try:
                answer = self._client.call("head_object", **self._object_key(path))
            except (S3UnansweredError, store.NotInStoreError):
                raise failure from failure.__cause__
            if answer.get("Metadata", {}).get("write") != mark["write"]:
                raise
        return normalize_etag(answer["ETag"])

    def _send_parts(
        self,
        path: str,
        mark: Mapping[str, Any],
        send_part: Callable[[int, Mapping[str, Any]], Any],
        count: int,
    ) -> Any:
        """Send all parts of a file, and make it of them; the parts go when that fails."""
        key = self._object_key(path)
        upload = {**key, "UploadId": self._client.call("create_multipart_upload", **key, **mark)["UploadId"]}
        try:
            numbers = range(1, count + 1)
            answers = parallel.run_in_parallel(
                lambda number: send_part(number, upload), numbers, jobs=_PART_JOBS
            )
            parts = [
                {"ETag": answer["ETag"], "PartNumber": number}
                for number, answer in zip(numbers, answers, strict=True)
            ]
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

    def _read_pieces(self, path: str, info: store.StoredFileInfo) -> Iterator[bytes]:
        """Yield the bytes of a file, all of one version of it."""
        for first in range(0, info.size, PART_SIZE):
            size = min(PART_SIZE, info.size - first)
            span = {"Range": f"bytes={first}-{first + size - 1}", "IfMatch": info.tag}
            try:
                yield self._client.call_with_body("get_object", size=size, **self._object_key(path), **span)[
                    1
                ]
            except S3ConditionError:
                raise errors.ReleaseError(
                    f"{self._url_of(path)} changed while it was read", tip=store.RUN_AGAIN_TIP
                ) from None


class BucketFolder:
    """The files that lie directly in a folder of a bucket."""

    def __init__(self, bucket: str, prefix: str, env: Mapping[str, str], *, sign: bool = True) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._env, self._sign = env, sign
        self._made: S3Client | None = None

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def list_files(self) -> list[store.ListedFile]:
        """Return the files in the folder, not those in folders of it; none where nothing is."""
        return [
            store.ListedFile(name, item["Size"], normalize_etag(item["ETag"]))
            for answer in self._client.list_pages(self._bucket, self._prefix, Delimiter="/")
            for item in answer.get("Contents", ())
            if (name := item["Key"].removeprefix(self._prefix))
        ]

    def download_url(self, name: str) -> str:
        """Return a URL of a file in the folder that can be read without credentials, for half a day."""
        return self._client.download_url(self._bucket, self._prefix + name)

    @property
    def _client(self) -> S3Client:
        if self._made is None:
            signed = self._sign and has_aws_credentials(self._env)
            self._made = S3Client(self._env, anonymous=not signed)
        return self._made
