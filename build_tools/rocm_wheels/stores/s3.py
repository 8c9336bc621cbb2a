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
from rocm_wheels.stores.attempts import Attempts, Passing, Refused
from rocm_wheels.stores.content import arriving, content_digest, content_size, require_digest
from rocm_wheels.stores.s3_client import Client, tag_of
from rocm_wheels.stores.store import (
    AGAIN,
    Changed,
    Exists,
    Found,
    Head,
    Listed,
    Missing,
    Unknown,
    below,
    checked,
    is_path,
)


class S3Store:
    """A bucket, or a folder in one."""

    conditional = True
    folder: Path | None = None

    def __init__(
        self, bucket: str, prefix: str, env: Mapping[str, str], *, attempts: Attempts | None = None
    ) -> None:
        self._bucket, self._prefix = bucket, below(prefix)
        self._attempts = attempts or Attempts()
        self._client = Client(env)
        self.looks_first = False
        self._bare_tags = False

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def read(self, path: str) -> Found:
        """Return a whole file, checked against its sha256 where the store keeps one. Raises Missing."""
        return self._attempts.read(f"read {self._said(path)}", lambda: self._read(path))

    def _read(self, path: str) -> Found:
        answer, content = self._client.body("get_object", **self._at(path))
        kept = _sha256(answer)
        if len(content) != answer["ContentLength"] or (kept and content_digest(content) != kept):
            raise Passing(f"{len(content)} bytes came, and not those that were written", unsure=False)
        return Found(content, tag_of(answer["ETag"]))

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine, whole or not at all. Raises Missing."""
        hasher, found = hashlib.sha256(), self._there(path)
        with arriving(target) as file:
            for piece in self._pieces(path, found):
                hasher.update(piece)
                file.write(piece)
            if found.sha256 and hasher.hexdigest() != found.sha256:
                raise ReleaseError(f"{self._said(path)} gives other bytes than those that were written")

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of the bytes that the server gives out. Raises Missing."""
        hasher = hashlib.sha256()
        for piece in self._pieces(path, self._there(path)):
            hasher.update(piece)
        return hasher.hexdigest()

    def head(self, path: str) -> Head | None:
        """Return size, ETag and sha256, ``None`` when there is no such file."""
        return self._attempts.read(f"look at {self._said(path)}", lambda: self._head(path))

    def _head(self, path: str) -> Head | None:
        try:
            answer = self._client.call("head_object", **self._at(path))
        except Missing:
            return None
        return Head(answer["ContentLength"], tag_of(answer["ETag"]), _sha256(answer))

    def _there(self, path: str) -> Head:
        found = self.head(path)
        if found is None:
            raise Missing(f"there is no {self._said(path)}")
        return found

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Write a new file, a large one in parts. Raises Exists.

        A large one is looked for before it is sent; Ceph knows no condition for files of parts, so that of
        two that send one at the same moment both may succeed there.
        """
        large = content_size(content) > s3_parts.PART
        sent = content if large or isinstance(content, bytes) else content.read_bytes()
        sums = s3_parts.sums_of(sent)
        require_digest(sums.sha256, sha256, content)
        mark = s3_parts.Mark.new(path, sums.sha256)
        work = s3_parts.putting(self._client, self._at(path), sent, sums, mark, attempts=self._attempts)
        return self._once(path, mark, work, look_first=large)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag. Raises Changed."""
        if tag is None:
            try:
                return self.create(path, content)
            except Exists as cause:
                raise Changed(f"{path} was made by somebody else meanwhile") from cause
        mark = s3_parts.Mark.new(path, content_digest(content))

        def put() -> str:
            if self.looks_first and ((found := self._head(path)) is None or found.tag != tag):
                raise Refused
            said = {**s3_parts.body(content), **mark.said}
            return self._known(lambda: self._exchange(path, said, tag), looked=self.looks_first)

        try:
            return self._attempts.write(f"write {self._said(path)}", put, lambda: self._ours(path, mark))
        except (Refused, Missing):
            raise Changed(f"{path} was changed by somebody else meanwhile") from None

    def _exchange(self, path: str, said: Mapping[str, Any], tag: str) -> str:
        """Write a file if its ETag is ``tag``: in quotes as HTTP has it, or without, as a server may want."""
        try:
            asked = tag.strip('"') if self._bare_tags else tag
            answer = self._client.call("put_object", **self._at(path), **said, IfMatch=asked)
        except Refused:
            found = self._head(path)
            if self._bare_tags or found is None or found.tag != tag:
                raise
            # Ceph (16 at least) compares the header as it comes with an ETag that it keeps without quotes
            answer = self._client.call("put_object", **self._at(path), **said, IfMatch=tag.strip('"'))
            self._bare_tags = True
        return tag_of(answer["ETag"])

    def copy(self, source: str, target: str) -> str:
        """Copy a file inside the bucket, on the server. Raises Missing and Exists.

        Many servers know no condition for copies: of two that copy at one moment both may succeed. Nor do
        all of them (Ceph 16) hold a copy to the source's ETag: the source is looked at again.
        """
        found = self._there(source)
        mark = s3_parts.Mark.new(target, found.sha256)
        places = self._at(source), self._at(target)
        work = s3_parts.copying(self._client, *places, found, mark, attempts=self._attempts)
        changed = ReleaseError(f"{self._said(source)} changed while it was copied", tip=AGAIN)
        try:
            tag = self._once(target, mark, work, look_first=True)
        except Exists:
            if self.head(target) is not None:
                raise
            raise changed from None
        if (still := self.head(source)) is None or still.tag != found.tag:
            self.remove(target)  # it says that it is what the source was
            raise changed
        return tag

    def listing(self, prefix: str) -> Iterator[Listed]:
        """Yield the files below a folder, sorted by path."""
        for answer in self._pages(below(prefix)):
            for item in answer.get("Contents", ()):
                if is_path(path := item["Key"].removeprefix(self._prefix)):
                    yield Listed(path, item["Size"], tag_of(item["ETag"]))

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        start = self._prefix + below(prefix)
        found = [
            item["Prefix"].removeprefix(start).rstrip("/")
            for answer in self._pages(below(prefix), Delimiter="/")
            for item in answer.get("CommonPrefixes", ())
        ]
        return sorted(filter(is_path, found))

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(Missing):
            self._attempts.read(
                f"remove {self._said(path)}", lambda: self._client.call("delete_object", **self._at(path))
            )

    def url_of(self, path: str) -> str:
        """Return where a file is; that it can be read there is up to the bucket."""
        end = "/" if path.endswith("/") else ""
        return f"{self._client.url(self._bucket)}/{quote(self._prefix + checked(path.rstrip('/')))}{end}"

    def _once(self, path: str, mark: s3_parts.Mark, work: s3_parts.Work, *, look_first: bool = False) -> str:
        """Do a write that creates. Raises Exists."""

        def create() -> str:
            if (self.looks_first or look_first) and self._head(path) is not None:
                raise Refused
            return self._known(work, looked=self.looks_first or look_first)

        try:
            return self._attempts.write(f"write {self._said(path)}", create, lambda: self._ours(path, mark))
        except Refused:
            raise Exists(f"{self._said(path)} exists already") from None

    def _known(self, work: s3_parts.Work, *, looked: bool) -> str:
        """Do a write; after a look at what is there, without its condition if the server has none."""
        try:
            return work()
        except Unknown as unknown:
            if not looked or unknown.operation in self._client.without:
                raise
            self._client.without.add(unknown.operation)
            return work()

    def _ours(self, path: str, mark: s3_parts.Mark) -> str | None:
        """Return the tag of a file if it is the one of this very write."""
        try:
            answer = self._client.call("head_object", **self._at(path))
        except Missing:
            return None
        return tag_of(answer["ETag"]) if answer.get("Metadata", {}).get("write") == mark.write else None

    def _pieces(self, path: str, found: Head) -> Iterator[bytes]:
        """Yield the bytes of a file, all of one version of it."""
        for first in range(0, found.size, s3_parts.PART):
            last = min(first + s3_parts.PART, found.size) - 1

            def piece(first: int = first, last: int = last) -> bytes:
                span = {"Range": f"bytes={first}-{last}", "IfMatch": found.tag}
                content = self._client.body("get_object", **self._at(path), **span)[1]
                if len(content) != last + 1 - first:
                    raise Passing(f"{len(content)} of {last + 1 - first} bytes came", unsure=False)
                return content

            try:
                yield self._attempts.read(f"read {self._said(path)}", piece)
            except Refused:
                raise ReleaseError(f"{self._said(path)} changed while it was read", tip=AGAIN) from None

    def _pages(self, prefix: str, **more: str) -> Iterator[Any]:
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, **more}
        while True:
            answer = self._attempts.read(
                f"list {self.url}", lambda: self._client.call("list_objects_v2", **asked)
            )
            yield answer
            if not answer.get("IsTruncated"):
                return
            asked["ContinuationToken"] = answer["NextContinuationToken"]

    def _at(self, path: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + checked(path)}

    def _said(self, path: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{path}"


def _sha256(answer: Mapping[str, Any]) -> str | None:
    kept = answer.get("Metadata", {}).get("sha256")
    return str(kept) if kept else None
