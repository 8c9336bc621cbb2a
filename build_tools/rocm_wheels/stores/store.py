"""Stores: what one can do, opening the one that a URL means, and one that only records (a dry run).

Files are written once and stay, but for the few documents that point at others: those are exchanged under
the condition that nobody else has done so meanwhile. No more is asked of a store.

``open_store`` opens what a URL or path means; ``DryRunStore`` stands in for a store in a dry run: it records
what would be written, and reads as if it had been.

A server may take the conditions and ignore them (s3rver does): two promoters at a time would both win
there. So they are tried once, on a file of no use.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from rocm_wheels.core import errors, files, parallel, retry, shell

_PATH_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!~-]*")
RUN_AGAIN_TIP = "run the same command again; what is finished is kept"


class NotInStoreError(errors.ReleaseError):
    """There is no such file in the store."""


class ChangedInStoreError(errors.ReleaseError):
    """A file is not the one any more that was to be replaced."""


class AlreadyInStoreError(ChangedInStoreError):
    """There is a file already where one was to be created."""


class UnsupportedByStoreError(errors.ReleaseError):
    """The store does not know what it was asked for: a condition, as a rule."""


@dataclass(frozen=True)
class StoredFile:
    """A file that was read, and the tag that it had then."""

    content: bytes
    tag: str


@dataclass(frozen=True)
class StoredFileInfo:
    """Size in bytes, the tag (other bytes, other tag) and, where the store keeps it, the sha256 in hex.

    That one is as the file's writer stated it. ``changed`` is when the file was last written, in seconds
    since the epoch, by a clock that no writer can set; None where the store has none.
    """

    size: int
    tag: str
    sha256: str | None = None
    changed: float | None = None


@dataclass(frozen=True)
class ListedFile:
    """A file of a listing."""

    path: str
    size: int
    tag: str


class Store(Protocol):
    """Files by path. Paths are relative, with ``/``, and no part of one begins with a dot.

    A file is seen whole or not at all. A write that fails for good raises ReleaseError, or OSError of a
    folder, and has done nothing that another attempt would stumble over.
    """

    url: str  # what people call the store; without credentials

    @property
    def folder(self) -> Path | None:
        """The folder that it is, where it is one of this machine."""

    def read(self, path: str) -> StoredFile:
        """Return a whole file. Raises NotInStoreError."""

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine, whole or not at all. Raises NotInStoreError."""

    def head(self, path: str) -> StoredFileInfo | None:
        """Return what is known of a file without reading it, ``None`` when there is none."""

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of the bytes that the store gives out. Raises NotInStoreError."""

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Write a new file and return its tag. Raises AlreadyInStoreError, whoever was first.

        ``sha256`` (hex) is what the bytes must have that are sent; others are refused and never seen.
        """

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag, and return the new one.

        ``None``: there must not be one yet, as for ``create``. Raises ChangedInStoreError for any other tag.
        """

    def listing(self, prefix: str) -> Iterator[ListedFile]:
        """Yield the files below a folder (``""``: all), at any depth, sorted by path."""

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder, sorted."""

    def remove(self, path: str) -> None:
        """Delete a file; it is no mistake when it is not there."""

    def url_of(self, path: str) -> str:
        """Return where a file is, for people and installers."""


def is_store_path(path: str) -> bool:
    """Tell whether something may be a path in a store. What else lies there is none of its files."""
    return all(_PATH_PART.fullmatch(part) for part in path.split("/"))


def check_store_path(path: str) -> str:
    """Return a path that may be in a store. Raises UsageError for one that leads elsewhere."""
    if not is_store_path(path):
        raise errors.UsageError(f"{path!r} is no path in a store")
    return path


def prefix_of_folder(prefix: str) -> str:
    """Return a prefix as all paths below it begin."""
    return f"{check_store_path(prefix.rstrip('/'))}/" if prefix.strip("/") else ""


_ResultT = TypeVar("_ResultT")
_CONTENTION_POLICY = retry.RetryPolicy(retries=6, first_wait=0.02, jitter=1)


def change_documents(work: Callable[[], _ResultT], *, description: str) -> _ResultT:
    """Return what ``work`` returns, which reads documents of a store and replaces them by their tags.

    It is done again while it raises ChangedInStoreError. Raises ReleaseError when others change
    ``description`` all the time.
    """
    try:
        return retry.run_with_retries(
            work,
            policy=_CONTENTION_POLICY,
            is_transient=lambda failure: isinstance(failure, ChangedInStoreError),
        )
    except ChangedInStoreError as cause:
        raise errors.ReleaseError(
            f"{description} is changed by others all the time", tip=RUN_AGAIN_TIP
        ) from cause


def read_or_none(store: Store, path: str) -> StoredFile | None:
    """Return a whole file, ``None`` where there is none."""
    try:
        return store.read(path)
    except NotInStoreError:
        return None


def read_files(store: Store, paths: Iterable[str]) -> dict[str, bytes | None]:
    """Return the contents of small files, read side by side, by their paths; None for what is not there."""

    def read(path: str) -> tuple[str, bytes | None]:
        stored = read_or_none(store, path)
        return path, None if stored is None else stored.content

    return dict(parallel.run_in_parallel(read, paths))


def create_or_read(store: Store, path: str, content: bytes) -> bytes | None:
    """Write a new file; return ``None``, or the content of the file that is there already."""
    try:
        store.create(path, content)
    except AlreadyInStoreError:
        return store.read(path).content
    return None


def put_file(store: Store, path: str, content: bytes, check: Callable[[], None] | None = None) -> bool:
    """Let a file have this content; tell whether it had not. ``check`` is asked before it is written.

    Raises ChangedInStoreError when somebody else writes other bytes there meanwhile.
    """
    stored = read_or_none(store, path)
    if stored is not None and stored.content == content:
        return False
    if check is not None:
        check()
    try:
        if stored is None:
            store.create(path, content)
        else:
            store.replace(path, content, stored.tag)
    except ChangedInStoreError as cause:
        now = read_or_none(store, path)
        if now is not None and now.content == content:  # another run does the same
            return False
        raise make_changed_error(path) from cause
    return True


def make_changed_error(path: str) -> ChangedInStoreError:
    """Return the error of a file that another process has written, or made, since it was looked at."""
    return ChangedInStoreError(f"{path} was changed by another process in the meantime", tip=RUN_AGAIN_TIP)


def size_of_content(content: bytes | Path) -> int:
    """Return how many bytes are to be written."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def require_digest(actual: str, sha256: str | None, content: bytes | Path) -> None:
    """Raise ReleaseError where the bytes that were read are not those that were meant."""
    if sha256 is not None and actual != sha256:
        source = content if isinstance(content, Path) else f"what has the sha256 {actual}"
        raise errors.ReleaseError(
            f"{source} has other bytes than when it was looked at; nothing of it is in the store",
            tip=f"let nothing write to it in the meantime, then {RUN_AGAIN_TIP}",
        )


class DryRunStore:
    """A store as it would be after all that was asked of this one. ``writes`` says what that was."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.writes: list[str] = []
        self._changed: dict[str, bytes | None] = {}  # the bytes of a file; None: it is removed
        self.url, self.folder = inner.url, inner.folder
        self.url_of = inner.url_of

    def read(self, path: str) -> StoredFile:
        """Return a whole file. Raises NotInStoreError."""
        if path not in self._changed:
            return self._inner.read(path)
        if (content := self._changed[path]) is None:
            raise NotInStoreError(f"there is no {path} in {self.url}")
        return StoredFile(content, hashlib.sha256(content).hexdigest())

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine. Raises NotInStoreError."""
        files.write_atomically(target, self.read(path).content)

    def head(self, path: str) -> StoredFileInfo | None:
        """Return what is known of a file."""
        if path not in self._changed:
            return self._inner.head(path)
        if (stored := read_or_none(self, path)) is None:
            return None
        return StoredFileInfo(len(stored.content), stored.tag, stored.tag)

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of a file. Raises NotInStoreError."""
        return self.read(path).tag if path in self._changed else self._inner.digest(path)

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Say that a file would be created. Raises AlreadyInStoreError."""
        if self.head(path) is not None:
            raise AlreadyInStoreError(f"{path} is in {self.url} already")
        payload = content if isinstance(content, bytes) else content.read_bytes()
        require_digest(hashlib.sha256(payload).hexdigest(), sha256, content)
        return self._write("create", path, payload)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Say that a file would be replaced. Raises ChangedInStoreError."""
        if tag is None:
            return self.create(path, content)
        if (info := self.head(path)) is None or info.tag != tag:
            raise make_changed_error(path)
        return self._write("replace", path, content)

    def listing(self, prefix: str) -> Iterator[ListedFile]:
        """Yield the files below a folder, sorted by path."""
        start = prefix_of_folder(prefix)
        stored = {listed.path: listed for listed in self._inner.listing(prefix)}
        for path in sorted({*stored, *(path for path in self._changed if path.startswith(start))}):
            if path not in self._changed:
                yield stored[path]
            elif (info := self.head(path)) is not None:
                yield ListedFile(path, info.size, info.tag)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        start = prefix_of_folder(prefix)
        written = [path for path, content in self._changed.items() if content is not None]
        below = [path.removeprefix(start) for path in written if path.startswith(start)]
        return sorted({*self._inner.folders(prefix), *(path.split("/")[0] for path in below if "/" in path)})

    def remove(self, path: str) -> None:
        """Say that a file would be deleted."""
        self._changed[path] = None
        self.writes.append(f"remove {path}")

    def _write(self, action: str, path: str, content: bytes) -> str:
        self._changed[check_store_path(path)] = content
        self.writes.append(f"{action} {path}")
        return hashlib.sha256(content).hexdigest()


_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def split_bucket_url(url: str) -> tuple[str, str]:
    """Return bucket and prefix of ``s3://bucket/prefix``. Raises UsageError, which shows no credentials."""
    bucket, _, prefix = url.partition("://")[2].partition("/")
    if re.search("[:@]", url[len("s3:") :]):  # s3://KEY:SECRET/bucket, s3://KEY:SECRET@bucket
        raise errors.UsageError(
            "credentials have no place in a URL (s3://…), nor have servers: it is printed and logged",
            tip="s3://bucket/prefix is all; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; "
            "AWS_ENDPOINT_URL names another server than Amazon's",
        )
    if not _BUCKET_NAME.fullmatch(bucket):
        fault = f"names no bucket: {bucket!r} cannot be one" if bucket else "names no bucket"
        raise errors.UsageError(
            f"{shell.hide_credentials(url)} {fault}", tip="for example: s3://bucket/prefix"
        )
    return bucket, prefix


def open_store(url: str, env: Mapping[str, str]) -> Store:
    """Return the store of a path or URL; nothing is asked of it yet. Raises UsageError for none.

    ``env`` holds what AWS's own tools read, credentials and ``AWS_ENDPOINT_URL`` included.
    """
    example = "name a folder, or s3://bucket/prefix"
    scheme = url.partition(":")[0].lower()
    if not url.strip():
        raise errors.UsageError("the store has no name", tip=example)
    if scheme == "s3":
        from rocm_wheels.stores import s3

        return s3.S3Store(*split_bucket_url(url), env)
    from rocm_wheels.stores.folder import FolderStore

    if scheme == "file":
        from urllib.request import url2pathname

        match = re.fullmatch(r"file:(?://(?:localhost)?(?=/)|(?!//))(/[^?#]*)", url, re.IGNORECASE)
        if match is None:
            rest = re.split("[?#]", url.partition(":")[2].lstrip("/"))[0]
            raise errors.UsageError(
                f"{shell.hide_credentials(url)} is no folder of this machine",
                tip=f"three slashes, and a whole path: file:///{rest}",
            )
        folder = Path(url2pathname(match[1]))
    elif "://" in url:
        fault = f"is not a store: {scheme}:// is not supported"
        raise errors.UsageError(f"{shell.hide_credentials(url)} {fault}", tip=example)
    else:
        try:
            folder = Path(url).expanduser()
        except RuntimeError as cause:
            raise errors.UsageError(f"{url} is in the home of nobody", tip=example) from cause
    if folder.exists() and not folder.is_dir():
        raise errors.UsageError(f"{folder} is not a folder", tip="name another one")
    return FolderStore(folder)


def open_existing_store(url: str, env: Mapping[str, str]) -> Store:
    """Return the store of a path or URL for those who read what others staged.

    Raises UsageError for none, and for a folder that is not there. Whether a bucket is, the first read tells.
    """
    store = open_store(url, env)
    if store.folder is not None and not store.folder.is_dir():
        raise errors.UsageError(
            f"there is no store at {store.url}: the folder does not exist",
            tip=f"correct the path, or `rocm-wheels set stage {shlex.quote(url)} …` makes a store there",
        )
    return store


PROBE_FOLDER = "probe"


def find_broken_promise(store: Store) -> str | None:
    """Return what a store does with conditional writes that it must not, ``None`` when all is well.

    A few small writes below ``probe/``; what they leave is removed.
    """
    path = f"{PROBE_FOLDER}/{secrets.token_hex(8)}"
    try:
        tag = store.create(path, b"first")
    except UnsupportedByStoreError as unknown:
        return f"it knows no conditional writes ({unknown})"
    try:
        with contextlib.suppress(AlreadyInStoreError):
            store.create(path, b"other")
            return "a file is created where there is one (If-None-Match is ignored)"
        new = store.replace(path, b"second", tag)
        with contextlib.suppress(ChangedInStoreError):
            store.replace(path, b"third", tag)
            return "a file that another process has changed is replaced (If-Match is ignored)"
        return None if store.read(path).tag == new else "a tag is not that of the file which was written"
    finally:
        store.remove(path)


def require_conditional_writes(store: Store) -> None:
    """Make sure that nobody's write is lost to another's. Raises ReleaseError.

    A folder of this machine is not asked.
    """
    if store.folder is None and (broken := find_broken_promise(store)) is not None:
        raise errors.ReleaseError(
            f"{store.url} does not honour conditional writes: {broken}",
            tip="two that write at a time would both succeed: name a bucket of S3 or Ceph, or a folder",
        )
