"""Open the store that a URL or path means, and check that it keeps its promise of conditional writes.

A server may take the conditions and ignore them (s3rver does): two promoters at a time would both win
there. So they are tried once, on a file of no use.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from rocm_wheels.core.errors import ReleaseError, UsageError
from rocm_wheels.core.log import log_warning
from rocm_wheels.core.shell import hide_credentials
from rocm_wheels.core.store import AlreadyInStoreError, ChangedInStoreError, Store, UnsupportedByStoreError

_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def open_store(url: str, env: Mapping[str, str]) -> Store:
    """Return the store of a path or URL; nothing is asked of it yet. Raises UsageError for none.

    ``env`` holds what AWS's own tools read, credentials and ``AWS_ENDPOINT_URL`` included.
    """
    from rocm_wheels.core.store_folder import FolderStore

    if not url.strip():
        raise UsageError("the store has no name", tip="name a folder, or s3://bucket/prefix")
    parts = urlsplit(url)
    if len(parts.scheme) < 2 or "://" not in url:  # a letter is a drive of Windows
        folder = _expand_home(url)
    elif parts.scheme == "file":
        folder = _path_of_file_url(parts)
    elif parts.scheme == "s3":
        return _open_bucket(url.partition("://")[2], env)
    else:
        from rocm_wheels.core.store_fsspec import FsspecStore

        return FsspecStore(url)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", tip="name another one")
    return FolderStore(folder)


def open_existing_store(url: str, env: Mapping[str, str]) -> Store:
    """Return the store of a path or URL for those who read what others staged.

    Raises UsageError for none, and for a folder that is not there. Whether a bucket is, the first read tells.
    """
    store = open_store(url, env)
    if store.folder is not None and not store.folder.is_dir():
        raise UsageError(
            f"there is no store at {store.url}: the folder does not exist",
            tip=f"correct the path, or `rocm-wheels stage {shlex.quote(url)} …` makes a store there",
        )
    return store


def _expand_home(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as cause:
        raise UsageError(
            f"{path} is in the home of nobody", tip="name a folder, or s3://bucket/prefix"
        ) from cause


def _path_of_file_url(parts: SplitResult) -> Path:
    from urllib.request import url2pathname

    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise UsageError(
            f"{hide_credentials(parts.geturl())} is no folder of this machine",
            tip=f"three slashes, and a whole path: file:///{parts.netloc}{parts.path}",
        )
    return Path(url2pathname(parts.path))


def _open_bucket(bucket_and_prefix: str, env: Mapping[str, str]) -> Store:
    from rocm_wheels.core.store_s3 import S3Store

    bucket, _, prefix = bucket_and_prefix.partition("/")
    if "@" in bucket:
        raise UsageError(
            f"s3://…@{bucket_and_prefix.rpartition('@')[2]}: credentials have no place in the URL of a store",
            tip="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        )
    if not _BUCKET_NAME.fullmatch(bucket):
        fault = "names no bucket" if not bucket else f"names no bucket: {bucket!r} cannot be one"
        raise UsageError(f"s3://{bucket_and_prefix} {fault}", tip="for example: s3://bucket/prefix")
    return S3Store(bucket, prefix, env)


PROBE_FOLDER = "probe"


def find_broken_promise(store: Store) -> str | None:
    """Return what a store does with conditional writes that it must not, ``None`` when all is well.

    A few small writes below ``probe/``; what they leave is removed.
    """
    if not store.conditional:
        return "it knows no conditional writes"
    path = f"{PROBE_FOLDER}/{secrets.token_hex(8)}"
    try:
        tag = store.create(path, b"first")
    except UnsupportedByStoreError as unknown:
        return f"it knows no conditional writes ({unknown})"
    try:
        if not _is_refused(lambda: store.create(path, b"other"), AlreadyInStoreError):
            return "a file is created where there is one (If-None-Match is ignored)"
        new = store.replace(path, b"second", tag)
        if not _is_refused(lambda: store.replace(path, b"third", tag), ChangedInStoreError):
            return "a file that another process has changed is replaced (If-Match is ignored)"
        return None if store.read(path).tag == new else "a tag is not that of the file which was written"
    finally:
        store.remove(path)


def _is_refused(write: Callable[[], str], refusal: type[ReleaseError]) -> bool:
    try:
        write()
    except refusal:
        return True
    return False


def require_conditional_writes(store: Store, *, unconditional: bool = False) -> None:
    """Make sure that nobody's write is lost to another's. Raises ReleaseError.

    ``unconditional``: go on without, looking before each write. A folder of this machine is not asked.
    """
    if store.folder is not None:
        return
    broken = find_broken_promise(store)
    if broken is None:
        return
    if not unconditional:
        raise ReleaseError(
            f"{store.url} does not honour conditional writes: {broken}",
            tip="two that write at a time would both succeed; where nothing else does: --unconditional",
        )
    log_warning(
        f"{store.url} does not honour conditional writes: make sure that nothing else writes to it now"
    )
    store.looks_first = True
