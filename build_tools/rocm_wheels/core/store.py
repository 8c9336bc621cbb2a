"""Define what a store can do and what its answers look like, and what all kinds of stores share.

Files are written once and stay, but for the few documents that point at others: those are exchanged under
the condition that nobody else has done so meanwhile. No more is asked of a store.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from rocm_wheels.core.errors import ReleaseError, UsageError
from rocm_wheels.core.files import hash_file
from rocm_wheels.core.retry import RetryPolicy, run_with_retries

_PATH_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!~-]*")
RUN_AGAIN_TIP = "run the same command again; what is finished is kept"


class NotInStoreError(ReleaseError):
    """There is no such file in the store."""


class AlreadyInStoreError(ReleaseError):
    """There is a file already where one was to be created."""


class ChangedInStoreError(ReleaseError):
    """A file is not the one any more that was to be replaced."""


class UnsupportedByStoreError(ReleaseError):
    """The store does not know what it was asked for: a condition, as a rule."""

    operation = ""


@dataclass(frozen=True)
class StoredFile:
    """A file that was read, and the tag that it had then."""

    content: bytes
    tag: str


@dataclass(frozen=True)
class StoredFileInfo:
    """Size in bytes, the tag (other bytes, other tag) and, where the store keeps it, the sha256 in hex."""

    size: int
    tag: str
    sha256: str | None = None


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

    looks_first: bool  # before each write, for a store that ignores conditions

    @property
    def url(self) -> str:
        """What people call the store; without credentials."""

    @property
    def folder(self) -> Path | None:
        """The folder that it is, where it is one of this machine."""

    @property
    def conditional(self) -> bool:
        """Whether conditional writes are part of its language; whether it means them is told by a probe."""

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

        ``None``: there must not be one yet. Raises ChangedInStoreError for any other tag.
        """

    def copy(self, source: str, target: str) -> str:
        """Copy a file inside the store, without its bytes passing here.

        Raises NotInStoreError and AlreadyInStoreError.
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
        raise UsageError(f"{path!r} is no path in a store")
    return path


def prefix_of_folder(prefix: str) -> str:
    """Return a prefix as all paths below it begin."""
    return f"{check_store_path(prefix.rstrip('/'))}/" if prefix.strip("/") else ""


_ResultT = TypeVar("_ResultT")
_CONTENTION_POLICY = RetryPolicy(retries=6, first_wait=0.02, jitter=1)


def change_documents(work: Callable[[], _ResultT], *, description: str) -> _ResultT:
    """Return what ``work`` returns, which reads documents of a store and replaces them by their tags.

    It is done again while it raises ChangedInStoreError. Raises ReleaseError when others change
    ``description`` all the time.
    """
    try:
        return run_with_retries(
            work,
            policy=_CONTENTION_POLICY,
            is_transient=lambda failure: isinstance(failure, ChangedInStoreError),
        )
    except ChangedInStoreError as cause:
        raise ReleaseError(f"{description} is changed by others all the time", tip=RUN_AGAIN_TIP) from cause


def create_or_read(store: Store, path: str, content: bytes) -> bytes | None:
    """Write a new file; return ``None``, or the content of the file that is there already."""
    try:
        store.create(path, content)
    except AlreadyInStoreError:
        return store.read(path).content
    return None


def put_file(store: Store, path: str, content: bytes, check: Callable[[], None] | None = None) -> bool:
    """Let a file have this content; tell whether it had not.

    Raises ChangedInStoreError when somebody else writes other bytes there meanwhile.
    """
    try:
        stored = store.read(path)
    except NotInStoreError:
        stored = None
    if stored is not None and stored.content == content:
        return False
    if check is not None:
        check()
    try:
        if stored is None:
            store.create(path, content)
        else:
            store.replace(path, content, stored.tag)
    except (ChangedInStoreError, AlreadyInStoreError) as cause:
        with contextlib.suppress(NotInStoreError):
            if store.read(path).content == content:  # another run does the same
                return False
        raise ChangedInStoreError(
            f"{path} was changed by another process in the meantime", tip=RUN_AGAIN_TIP
        ) from cause
    return True


def size_of_content(content: bytes | Path) -> int:
    """Return how many bytes are to be written."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def digest_of_content(content: bytes | Path) -> str:
    """Return the sha256 (hex) of what is to be written."""
    return hash_file(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def require_digest(actual: str, sha256: str | None, content: bytes | Path) -> None:
    """Raise ReleaseError where the bytes that were read are not those that were meant."""
    if sha256 is not None and actual != sha256:
        raise make_changed_error(content if isinstance(content, Path) else f"what has the sha256 {actual}")


def make_changed_error(source: object) -> ReleaseError:
    """Return the error of a file that somebody writes to while it is sent."""
    tip = f"let nothing write to it in the meantime, then {RUN_AGAIN_TIP}"
    return ReleaseError(
        f"{source} has other bytes than when it was looked at; nothing was sent of it", tip=tip
    )
