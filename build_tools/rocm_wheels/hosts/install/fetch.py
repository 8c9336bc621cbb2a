"""Several files into the cache, some at a time, each checked against the digest that the index states."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels import log, parallel
from rocm_wheels.downloads import progress
from rocm_wheels.downloads.download import (
    FileDownload,
    DownloadedFile,
    RetryPolicy,
    DownloadTarget,
    host_of_url,
)
from rocm_wheels.downloads.identity import Validators
from rocm_wheels.errors import HostError
from rocm_wheels.hosts.install.cache import WheelCache
from rocm_wheels.index.reach import IndexReader, UnreachableError, path_of_url, bypass_proxies_locally
from rocm_wheels.wheels.members import hash_file
from rocm_wheels.words import format_size
from rocm_wheels.workspace import lock_folder

if TYPE_CHECKING:
    import requests

DOWNLOAD_JOBS = 3  # large files from one server: more only take bandwidth from each other
_LOCK_PATIENCE = 6 * 3600.0


def download_wheels(
    downloads: Sequence[DownloadTarget],
    cache: WheelCache,
    *,
    patience: RetryPolicy | None = None,
    jobs: int = DOWNLOAD_JOBS,
) -> dict[DownloadTarget, DownloadedFile]:
    """Return every file whole and checked: from the cache, from the disk, or over the network.

    Another run that fetches into the same cache is waited for. HostError for what cannot be had; what
    there is of it, and the other files, are kept.
    """
    missing = []
    present = {}
    for download in downloads:
        if (path := _find_local_file(download, cache)) is not None:
            present[download] = path
        else:
            missing.append(download)
    if not missing:
        return present
    cache.require_writable()
    cache.require_room(sum((download.size or 0) - _measure_part(download, cache) for download in missing))
    with (
        lock_folder(cache.lock_folder("downloads"), purpose="fetching wheels", patience=_LOCK_PATIENCE),
        progress.show_downloads() as begin,
    ):
        calm = patience or RetryPolicy()

        def fetch(download: DownloadTarget) -> DownloadedFile:
            return _find_local_file(download, cache) or _download_wheel(
                download, cache, begin, calm
            )  # another run may just have done it

        missing.sort(key=lambda download: download.size or 0, reverse=True)  # the longest must not begin last
        return {
            **present,
            **dict(zip(missing, parallel.run_in_parallel(fetch, missing, jobs=jobs), strict=True)),
        }


def _find_local_file(download: DownloadTarget, cache: WheelCache) -> DownloadedFile | None:
    """Return a file that is on this machine already; HostError when it is not what it must be."""
    if (path := path_of_url(download.url)) is not None:
        return _check_disk_file(download, path)
    if download.sha256 is None:
        return None
    path = cache.wheel_path(download.sha256, download.name)
    if not path.is_file():
        return None
    if hash_file(path) == download.sha256:
        return DownloadedFile(path, download.sha256, Validators())
    log.log_warning(f"{path} has changed since it was fetched; fetching it again")
    path.unlink()
    return None


def _check_disk_file(download: DownloadTarget, path: Path) -> DownloadedFile:
    try:
        digest = hash_file(path)
    except OSError as cause:
        raise HostError(f"{path}, which the index names, cannot be read: {cause.strerror}") from None
    if download.sha256 not in (None, digest):
        raise HostError(
            f"{path} has the sha256 {digest}, and the index says {download.sha256}",
            tip="`rocm-wheels index verify` tells what else is wrong with the index",
        )
    return DownloadedFile(path, digest, Validators())


def _download_wheel(
    download: DownloadTarget, cache: WheelCache, begin: progress.BeginFile, patience: RetryPolicy
) -> DownloadedFile:
    import requests

    with requests.Session() as session:
        bypass_proxies_locally(session)
        if download.sha256 is None and (unchanged := _find_unchanged(download, cache, session, patience)):
            return unchanged
        folder = cache.part_folder(download.sha256, download.url)
        tell = begin(download.name, download.size)
        begun = _measure_part(download, cache)
        progress_text = f", {format_size(begun)} are here" if begun else ""
        log.log_note(
            f"fetching {download.name} ({format_size(download.size)}) from {host_of_url(download.url)}{progress_text}"
        )
        fetched = FileDownload(download, folder, session, tell, patience).run()
    wheel_path = cache.wheel_path(fetched.sha256, download.name)
    wheel_path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(fetched.path, wheel_path)
    (folder / "state.json").unlink(missing_ok=True)
    folder.rmdir()
    if download.sha256 is None:
        cache.remember_url(download.url, fetched.validators, fetched.sha256)
    return DownloadedFile(wheel_path, fetched.sha256, fetched.validators)


def _find_unchanged(
    download: DownloadTarget, cache: WheelCache, session: requests.Session, patience: RetryPolicy
) -> DownloadedFile | None:
    """Return the file of a URL without a digest, when the server says that it is still the same."""
    import requests

    try:
        answer = session.head(
            download.url,
            allow_redirects=True,
            timeout=patience.silence,
            headers={"Accept-Encoding": "identity"},
        )
    except requests.RequestException:
        return None  # the download itself tells what is wrong, and tries again
    headers = answer.headers
    length = headers.get("Content-Length", "")
    current = Validators(
        headers.get("ETag", ""), headers.get("Last-Modified", ""), int(length) if length.isdigit() else None
    )
    path = cache.find_remembered(download.url, current, download.name) if answer.status_code == 200 else None
    if path is None:
        return None
    digest = hash_file(path)
    return DownloadedFile(path, digest, current) if path.parent.name == digest else None


def _measure_part(download: DownloadTarget, cache: WheelCache) -> int:
    part = cache.part_folder(download.sha256, download.url) / "part"
    return part.stat().st_size if part.is_file() else 0


class WholeReach(IndexReader):
    """Reads a wheel's METADATA also from a server that sends no parts of files: then of the whole file.

    Such a server is what ``python -m http.server`` is. The file is kept: it is wanted soon.
    """

    def __init__(self, cache: WheelCache) -> None:
        super().__init__()
        self._cache = cache

    def fetch_metadata_and_variant(
        self, url: str, name: str, size: int | None, *, variant: bool = True
    ) -> tuple[bytes, str | None]:
        """Return METADATA and ``variant.json``, as ``IndexReader`` does."""
        try:
            return super().fetch_metadata_and_variant(url, name, size, variant=variant)
        except UnreachableError:
            if path_of_url(url) is not None:
                raise
        log.log_note(f"the server sends no parts of files: {name} is fetched to see what it requires")
        download = DownloadTarget(name, url, None, size)
        path = download_wheels([download], self._cache)[download].path
        return super().fetch_metadata_and_variant(path.as_uri(), name, None, variant=variant)
