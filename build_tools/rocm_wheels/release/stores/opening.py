"""Which store a URL means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rocm_wheels.errors import UsageError
from rocm_wheels.release.stores.store import Store


def open_store(url: str, env: Mapping[str, str]) -> Store:
    """Return the store of a path or URL; nothing is asked of it yet. Raises UsageError for none.

    ``env`` holds what AWS's own tools read, credentials and ``AWS_ENDPOINT_URL`` included.
    """
    from rocm_wheels.release.stores.folder import FolderStore

    scheme = urlsplit(url).scheme
    if not url.strip():
        raise UsageError("the store has no name", tip="name a folder, or s3://bucket/prefix")
    if len(scheme) < 2 or "://" not in url:  # a letter is a drive of Windows
        folder = Path(url).expanduser()
    elif scheme == "file":
        from urllib.request import url2pathname

        folder = Path(url2pathname(urlsplit(url).path))
    elif scheme == "s3":
        return _bucket(url, env)
    else:
        from rocm_wheels.release.stores.others import OtherStore

        return OtherStore(url)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", tip="name another one")
    return FolderStore(folder)


def _bucket(url: str, env: Mapping[str, str]) -> Store:
    from rocm_wheels.release.stores.s3 import S3Store

    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise UsageError(f"{url} names no bucket", tip="for example: s3://bucket/prefix")
    return S3Store(bucket, prefix, env)
