"""Cache downloaded wheels by sha256, so that no two runs, indexes or environments download one twice.

| below the cache | what it is |
|---|---|
| ``wheels/sha256/ab/<digest>/<file>`` | a whole file, checked |
| ``parts/<key>/part``, ``state.json`` | one that is being downloaded, and what the server said of it |
| ``urls/<digest of the URL>.json`` | which file a URL had whose index says no digest |
| ``sets/<key>/`` | the files of one installation under the names that installers read (links) |
| ``locks/<key>/`` | who is at work on an environment, or on the cache |

All of it can be deleted at any time; what is needed is downloaded again. No URL is written down, as it may
hold a password or a signature: a digest stands for it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.core import errors, files, log, parallel, progress, tables
from rocm_wheels.core.download import (
    DownloadedFile,
    DownloadPolicy,
    DownloadTarget,
    FileDownload,
    Validators,
    fingerprint_of_url,
    host_of_url,
    make_folder_name,
)
from rocm_wheels.core.files import lock_folder
from rocm_wheels.index import reader

if TYPE_CHECKING:
    import requests

_CACHE_TIP = "name another folder with --cache-dir, or keep nothing with --no-cache"


@dataclass(frozen=True)
class WheelCache:
    """A cache folder. Nothing is made before it is used."""

    root: Path

    def wheel_path(self, sha256: str, name: str) -> Path:
        """Return the place of a file with this digest."""
        return self.root / "wheels" / "sha256" / sha256[:2] / sha256 / name

    def part_folder(self, sha256: str | None, url: str) -> Path:
        """Return the folder of a file under way: by its digest, else by its URL."""
        return self.root / "parts" / (sha256 or f"url-{fingerprint_of_url(url)}")

    def installation_folder(self, names: Mapping[str, str]) -> Path:
        """Return the folder of files that are installed together, given their digests by name."""
        text = json.dumps(sorted(names.items()))
        return self.root / "sets" / make_folder_name(text)[:16]

    def lock_folder(self, key: str) -> Path:
        """Return the folder to hold while something is worked on."""
        return self.root / "locks" / key

    def remember_url(self, url: str, validators: Validators, sha256: str) -> None:
        """Note which file a URL had."""
        record = {"etag": validators.etag, "modified": validators.modified, "size": validators.size}
        files.write_json_file(self._url_record(url), {**record, "sha256": sha256})

    def find_remembered(self, url: str, validators: Validators, name: str) -> Path | None:
        """Return the file that a URL had, when the server still says the same of it; None otherwise."""
        try:
            record = json.loads(self._url_record(url).read_text(encoding="utf-8"))
            recorded = Validators(record["etag"], record["modified"], record["size"])
            path = self.wheel_path(str(record["sha256"]), name)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return path if recorded == validators and validators.strong and path.is_file() else None

    def require_writable(self) -> None:
        """Raise HostError where no file can be made."""
        probe = self.root / "parts" / f".probe-{os.getpid()}"
        try:
            probe.parent.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as cause:
            raise errors.HostError(
                f"the cache {self.root} cannot be written: {cause.strerror}", tip=_CACHE_TIP
            ) from None

    def require_room(self, size: int) -> None:
        """Raise HostError when so many bytes more do not fit on its disk."""
        folder = self.root
        while not folder.exists():
            folder = folder.parent
        free = files.measure_free_space(folder)
        if size > free:
            raise errors.HostError(
                f"{tables.format_size(size)} are to be fetched, and {self.root} has room for "
                f"{tables.format_size(free)}",
                tip="free some space, or name a folder on another disk with --cache-dir",
            )

    def _url_record(self, url: str) -> Path:
        return self.root / "urls" / f"{fingerprint_of_url(url)}.json"


DOWNLOAD_JOBS = 3  # large files from one server: more only take bandwidth from each other
_LOCK_PATIENCE = 6 * 3600.0


def download_wheels(
    downloads: Sequence[DownloadTarget],
    cache: WheelCache,
    *,
    policy: DownloadPolicy | None = None,
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
        download_policy = policy or DownloadPolicy()

        def fetch(download: DownloadTarget) -> DownloadedFile:
            return _find_local_file(download, cache) or _download_wheel(
                download, cache, begin, download_policy
            )  # another run may just have done it

        missing.sort(key=lambda download: download.size or 0, reverse=True)  # the longest must not begin last
        return {
            **present,
            **dict(zip(missing, parallel.run_in_parallel(fetch, missing, jobs=jobs), strict=True)),
        }


def _find_local_file(download: DownloadTarget, cache: WheelCache) -> DownloadedFile | None:
    """Return a file that is on this machine already; HostError when it is not what it must be."""
    if (path := reader.path_of_url(download.url)) is not None:
        return _check_disk_file(download, path)
    if download.sha256 is None:
        return None
    path = cache.wheel_path(download.sha256, download.name)
    if not path.is_file():
        return None
    if files.hash_file(path) == download.sha256:
        return DownloadedFile(path, download.sha256, Validators())
    log.log_warning(f"{path} has changed since it was fetched; fetching it again")
    path.unlink()
    return None


def _check_disk_file(download: DownloadTarget, path: Path) -> DownloadedFile:
    try:
        digest = files.hash_file(path)
    except OSError as cause:
        raise errors.HostError(f"{path}, which the index names, cannot be read: {cause.strerror}") from None
    if download.sha256 not in (None, digest):
        raise errors.HostError(
            f"{path} has the sha256 {digest}, and the index says {download.sha256}",
            tip="`rocm-wheels index verify` tells what else is wrong with the index",
        )
    return DownloadedFile(path, digest, Validators())


def _download_wheel(
    download: DownloadTarget, cache: WheelCache, begin: progress.BeginFile, policy: DownloadPolicy
) -> DownloadedFile:
    import requests

    with requests.Session() as session:
        reader.bypass_proxies_locally(session)
        if download.sha256 is None and (unchanged := _find_unchanged(download, cache, session, policy)):
            return unchanged
        folder = cache.part_folder(download.sha256, download.url)
        tell = begin(download.name, download.size)
        begun = _measure_part(download, cache)
        progress_text = f", {tables.format_size(begun)} are here" if begun else ""
        log.log_note(
            f"fetching {download.name} ({tables.format_size(download.size)}) from "
            f"{host_of_url(download.url)}{progress_text}"
        )
        fetched = FileDownload(download, folder, session, tell, policy).run()
    wheel_path = cache.wheel_path(fetched.sha256, download.name)
    wheel_path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(fetched.path, wheel_path)
    (folder / "state.json").unlink(missing_ok=True)
    folder.rmdir()
    if download.sha256 is None:
        cache.remember_url(download.url, fetched.validators, fetched.sha256)
    return DownloadedFile(wheel_path, fetched.sha256, fetched.validators)


def _find_unchanged(
    download: DownloadTarget, cache: WheelCache, session: requests.Session, policy: DownloadPolicy
) -> DownloadedFile | None:
    """Return the file of a URL without a digest, when the server says that it is still the same."""
    import requests

    try:
        answer = session.head(
            download.url,
            allow_redirects=True,
            timeout=policy.silence,
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
    digest = files.hash_file(path)
    return DownloadedFile(path, digest, current) if path.parent.name == digest else None


def _measure_part(download: DownloadTarget, cache: WheelCache) -> int:
    part = cache.part_folder(download.sha256, download.url) / "part"
    return part.stat().st_size if part.is_file() else 0


_LARGEST_KEPT_ANSWER = 16 << 20  # bytes


class WholeReach(reader.IndexReader):
    """Reads an index for one plan: each page once, so that all of the plan is about the same state of it.

    METADATA of a wheel is read also from a server that sends no parts of files: then of the whole file. Such
    a server is what ``python -m http.server`` is. The file is kept: it is wanted soon.
    """

    def __init__(self, cache: WheelCache) -> None:
        super().__init__()
        self._cache = cache
        self._answers: dict[tuple[str, str], reader.IndexAnswer] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}

    def get(self, url: str, *, accept: str = "*/*") -> reader.IndexAnswer:
        """Return a file or page, as it was when it was first read."""
        key = url, accept
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._answers:
                answer = super().get(url, accept=accept)
                if len(answer.content) > _LARGEST_KEPT_ANSWER:
                    return answer
                self._answers[key] = answer
            return self._answers[key]

    def fetch_metadata_and_variant(
        self, url: str, name: str, size: int | None, *, variant: bool = True
    ) -> tuple[bytes, str | None]:
        """Return METADATA and ``variant.json``, as ``IndexReader`` does."""
        try:
            return super().fetch_metadata_and_variant(url, name, size, variant=variant)
        except reader.UnusableAnswerError:
            log.log_note(f"the server sends no parts of files: {name} is fetched to see what it requires")
        download = DownloadTarget(name, url, None, size)
        path = download_wheels([download], self._cache)[download].path
        return super().fetch_metadata_and_variant(path.as_uri(), name, None, variant=variant)
