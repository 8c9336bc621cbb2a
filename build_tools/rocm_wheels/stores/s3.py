"""A store in S3, or in what speaks its language (Ceph, MinIO and others), through s3fs.

Conditions are S3's own: ``If-None-Match: *`` creates, ``If-Match: <ETag>`` replaces; a server that ignores
them is found by the probe. With a file its sha256 is kept, so that it is recognised without being read, and
a mark of the write, by which one is known whose answer was lost. An MD5 goes along with all bytes, and
the server refuses them when they arrive as others.

``AWS_ENDPOINT_URL`` names another server than Amazon's; credentials are those of AWS's own tools.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rocm_wheels.errors import ReleaseError
from rocm_wheels.stores import s3_parts
from rocm_wheels.stores.attempts import S3Retry, TransientS3Error, S3ConditionError
from rocm_wheels.stores.content import (
    write_part_then_rename,
    digest_of_content,
    size_of_content,
    require_digest,
)
from rocm_wheels.stores.s3_client import S3Client, normalize_etag
from rocm_wheels.stores.store import (
    RUN_AGAIN_TIP,
    ChangedInStoreError,
    AlreadyInStoreError,
    StoredFile,
    StoredFileInfo,
    ListedFile,
    NotInStoreError,
    UnsupportedByStoreError,
    prefix_of_folder,
    check_store_path,
    is_store_path,
)


class S3Store:
    """A bucket, or a folder in one."""

    conditional = True
    folder: Path | None = None

    def __init__(
        self, bucket: str, prefix: str, env: Mapping[str, str], *, attempts: S3Retry | None = None
    ) -> None:
        self._bucket, self._prefix = bucket, prefix_of_folder(prefix)
        self._attempts = attempts or S3Retry()
        self._client = S3Client(env)
        self.looks_first = False
        self._bare_tags = False

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def read(self, path: str) -> StoredFile:
        """Return a whole file, checked against its sha256 where the store keeps one. Raises Missing."""
        return self._attempts.read(f"read {self._describe_path(path)}", lambda: self._read(path))

    def _read(self, path: str) -> StoredFile:
        answer, content = self._client.call_with_body("get_object", **self._object_key(path))
        kept_sha256 = _get_kept_sha256(answer)
        if len(content) != answer["ContentLength"] or (
            kept_sha256 and digest_of_content(content) != kept_sha256
        ):
            raise TransientS3Error(
                f"{len(content)} bytes came, and not those that were written", unsure=False
            )
        return StoredFile(content, normalize_etag(answer["ETag"]))

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine, whole or not at all. Raises Missing."""
        hasher, info = hashlib.sha256(), self._require_head(path)
        with write_part_then_rename(target) as file:
            for piece in self._read_pieces(path, info):
                hasher.update(piece)
                file.write(piece)
            if info.sha256 and hasher.hexdigest() != info.sha256:
                raise ReleaseError(
                    f"{self._describe_path(path)} gives other bytes than those that were written"
                )

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of the bytes that the server gives out. Raises Missing."""
        hasher = hashlib.sha256()
        for piece in self._read_pieces(path, self._require_head(path)):
            hasher.update(piece)
        return hasher.hexdigest()

    def head(self, path: str) -> StoredFileInfo | None:
        """Return size, ETag and sha256, ``None`` when there is no such file."""
        return self._attempts.read(f"look at {self._describe_path(path)}", lambda: self._head(path))

    def _head(self, path: str) -> StoredFileInfo | None:
        try:
            answer = self._client.call("head_object", **self._object_key(path))
        except NotInStoreError:
            return None
        return StoredFileInfo(
            answer["ContentLength"], normalize_etag(answer["ETag"]), _get_kept_sha256(answer)
        )

    def _require_head(self, path: str) -> StoredFileInfo:
        info = self.head(path)
        if info is None:
            raise NotInStoreError(f"there is no {self._describe_path(path)}")
        return info

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Write a new file, a large one in parts. Raises Exists.

        A large one is looked for before it is sent; Ceph knows no condition for files of parts, so that of
        two that send one at the same moment both may succeed there.
        """
        large = size_of_content(content) > s3_parts.PART_SIZE
        sent = content if large or isinstance(content, bytes) else content.read_bytes()
        sums = s3_parts.compute_content_sums(sent)
        require_digest(sums.sha256, sha256, content)
        mark = s3_parts.WriteMark.make(path, sums.sha256)
        put = s3_parts.make_s3_put(
            self._client, self._object_key(path), sent, sums, mark, attempts=self._attempts
        )
        return self._create_once(path, mark, put, look_first=large)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag. Raises Changed."""
        if tag is None:
            try:
                return self.create(path, content)
            except AlreadyInStoreError as cause:
                raise ChangedInStoreError(f"{path} was made by somebody else meanwhile") from cause
        mark = s3_parts.WriteMark.make(path, digest_of_content(content))

        def put() -> str:
            if self.looks_first and ((info := self._head(path)) is None or info.tag != tag):
                raise S3ConditionError
            parameters = {**s3_parts.make_s3_body(content), **mark.parameters}
            return self._write_as_supported(
                lambda: self._put_if_match(path, parameters, tag), looked=self.looks_first
            )

        try:
            return self._attempts.write(
                f"write {self._describe_path(path)}", put, lambda: self._find_own_write(path, mark)
            )
        except (S3ConditionError, NotInStoreError):
            raise ChangedInStoreError(f"{path} was changed by somebody else meanwhile") from None

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

    def copy(self, source: str, target: str) -> str:
        """Copy a file inside the bucket, on the server. Raises Missing and Exists.

        Many servers know no condition for copies: of two that copy at one moment both may succeed. Nor do
        all of them (Ceph 16) hold a copy to the source's ETag: the source is looked at again.
        """
        source_info = self._require_head(source)
        mark = s3_parts.WriteMark.make(target, source_info.sha256)
        object_keys = self._object_key(source), self._object_key(target)
        copy_object = s3_parts.make_s3_copy(
            self._client, *object_keys, source_info, mark, attempts=self._attempts
        )
        changed = ReleaseError(
            f"{self._describe_path(source)} changed while it was copied", tip=RUN_AGAIN_TIP
        )
        try:
            tag = self._create_once(target, mark, copy_object, look_first=True)
        except AlreadyInStoreError:
            if self.head(target) is not None:
                raise
            raise changed from None
        if (info_after := self.head(source)) is None or info_after.tag != source_info.tag:
            self.remove(target)  # it says that it is what the source was
            raise changed
        return tag

    def listing(self, prefix: str) -> Iterator[ListedFile]:
        """Yield the files below a folder, sorted by path."""
        for answer in self._list_pages(prefix_of_folder(prefix)):
            for item in answer.get("Contents", ()):
                if is_store_path(path := item["Key"].removeprefix(self._prefix)):
                    yield ListedFile(path, item["Size"], normalize_etag(item["ETag"]))

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        start = self._prefix + prefix_of_folder(prefix)
        names = [
            item["Prefix"].removeprefix(start).rstrip("/")
            for answer in self._list_pages(prefix_of_folder(prefix), Delimiter="/")
            for item in answer.get("CommonPrefixes", ())
        ]
        return sorted(filter(is_store_path, names))

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(NotInStoreError):
            self._attempts.read(
                f"remove {self._describe_path(path)}",
                lambda: self._client.call("delete_object", **self._object_key(path)),
            )

    def url_of(self, path: str) -> str:
        """Return where a file is; that it can be read there is up to the bucket."""
        end = "/" if path.endswith("/") else ""
        return f"{self._client.bucket_url(self._bucket)}/{quote(self._prefix + check_store_path(path.rstrip('/')))}{end}"

    def _create_once(
        self, path: str, mark: s3_parts.WriteMark, write: s3_parts.S3Write, *, look_first: bool = False
    ) -> str:
        """Do a write that creates. Raises Exists."""

        def create() -> str:
            if (self.looks_first or look_first) and self._head(path) is not None:
                raise S3ConditionError
            return self._write_as_supported(write, looked=self.looks_first or look_first)

        try:
            return self._attempts.write(
                f"write {self._describe_path(path)}", create, lambda: self._find_own_write(path, mark)
            )
        except S3ConditionError:
            raise AlreadyInStoreError(f"{self._describe_path(path)} exists already") from None

    def _write_as_supported(self, write: s3_parts.S3Write, *, looked: bool) -> str:
        """Do a write; after a look at what is there, without its condition if the server has none."""
        try:
            return write()
        except UnsupportedByStoreError as unknown:
            if not looked or unknown.operation in self._client.without:
                raise
            self._client.without.add(unknown.operation)
            return write()

    def _find_own_write(self, path: str, mark: s3_parts.WriteMark) -> str | None:
        """Return the tag of a file if it is the one of this very write."""
        try:
            answer = self._client.call("head_object", **self._object_key(path))
        except NotInStoreError:
            return None
        return (
            normalize_etag(answer["ETag"]) if answer.get("Metadata", {}).get("write") == mark.write else None
        )

    def _read_pieces(self, path: str, info: StoredFileInfo) -> Iterator[bytes]:
        """Yield the bytes of a file, all of one version of it."""
        for first in range(0, info.size, s3_parts.PART_SIZE):
            last = min(first + s3_parts.PART_SIZE, info.size) - 1

            def piece(first: int = first, last: int = last) -> bytes:
                span = {"Range": f"bytes={first}-{last}", "IfMatch": info.tag}
                content = self._client.call_with_body("get_object", **self._object_key(path), **span)[1]
                if len(content) != last + 1 - first:
                    raise TransientS3Error(f"{len(content)} of {last + 1 - first} bytes came", unsure=False)
                return content

            try:
                yield self._attempts.read(f"read {self._describe_path(path)}", piece)
            except S3ConditionError:
                raise ReleaseError(
                    f"{self._describe_path(path)} changed while it was read", tip=RUN_AGAIN_TIP
                ) from None

    def _list_pages(self, prefix: str, **options: str) -> Iterator[Any]:
        parameters: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, **options}
        while True:
            answer = self._attempts.read(
                f"list {self.url}", lambda: self._client.call("list_objects_v2", **parameters)
            )
            yield answer
            if not answer.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = answer["NextContinuationToken"]

    def _object_key(self, path: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_store_path(path)}

    def _describe_path(self, path: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{path}"


def _get_kept_sha256(answer: Mapping[str, Any]) -> str | None:
    sha256 = answer.get("Metadata", {}).get("sha256")
    return str(sha256) if sha256 else None
