"""Fetch the wheels that uv is not to fetch, resumable: large ones, and those that have a name of their own.

| below ``large`` in the cache | what it is |
|---|---|
| ``<sha256, or digest of the URL>/part``, ``state.json`` | one that is under way, and what the server said |
| ``<…>/<name>.whl`` | a whole one, checked, until uv has unpacked it into its own cache |
| ``<…>/`` without a file | uv has it: it is kept there, and not twice |

All of it can be deleted at any time. No URL is written down, as it may hold a password or a signature.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.core import download, errors, files, log, parallel, progress, tables
from rocm_wheels.index import reader
from rocm_wheels.user.lock import LockedPackage

if TYPE_CHECKING:
    import requests

DOWNLOAD_JOBS = 3  # large files from one server: more only take bandwidth from each other
_LOCK_PATIENCE = 6 * 3600.0


def find_folder(package: LockedPackage, cache: Path) -> Path:
    """Return the folder of a wheel: by its digest, else by its URL."""
    return cache / "large" / (package.sha256 or f"url-{download.fingerprint_of_url(package.url)}")


def find_fetched(package: LockedPackage, cache: Path) -> Path | None:
    """Return the file of a package that is on this machine; None for one that has to be fetched.

    What was fetched without a digest may have changed since.
    """
    local = reader.path_of_url(package.url)
    if local is None and package.sha256 is not None:
        local = find_folder(package, cache) / package.name
    return local if local is not None and local.is_file() else None


def is_left_to_uv(package: LockedPackage, cache: Path) -> bool:
    """Tell whether uv has unpacked a wheel that was fetched here before."""
    folder = find_folder(package, cache)
    return package.sha256 is not None and folder.is_dir() and not any(folder.iterdir())


def lead_to_cache(package: LockedPackage, cache: Path) -> LockedPackage:
    """Return a package where it was fetched to, by which uv finds what it has unpacked of it."""
    return replace(package, url=(find_folder(package, cache) / package.name).as_uri())


def leave_to_uv(package: LockedPackage, cache: Path) -> None:
    """Note that uv has unpacked a wheel: what was fetched of it goes."""
    (find_folder(package, cache) / package.name).unlink(missing_ok=True)


def discard_fetched(package: LockedPackage, cache: Path) -> None:
    """Delete what was fetched of a wheel: it is wanted elsewhere, and is there."""
    shutil.rmtree(find_folder(package, cache), ignore_errors=True)


def fetch_packages(
    packages: Sequence[LockedPackage],
    cache: Path,
    *,
    variables: Mapping[str, str] | None = None,
    policy: download.DownloadPolicy | None = None,
) -> list[LockedPackage]:
    """Return packages that are here, whole and checked, with their digests: each leads to a file.

    ``variables`` name proxies and certificates. Another run that fetches into the same cache is waited for.
    HostError for what cannot be had; what there is of it, and the other files, are kept.
    """
    whole = {package.project: known for package in packages if (known := _check_file(package, cache))}
    missing = [package for package in packages if package.project not in whole]
    if missing:
        _require_room(missing, cache)
        held = files.lock_folder(
            cache / "locks" / "downloads", purpose="fetching wheels", patience=_LOCK_PATIENCE
        )
        with held, progress.show_downloads() as begin:

            def fetch(package: LockedPackage) -> LockedPackage:
                known = _check_file(package, cache)  # another run may just have done it
                return known or _fetch(package, cache, begin, variables or {}, policy)

            # the longest must not begin last
            missing.sort(key=lambda package: package.size or 0, reverse=True)
            fetched = parallel.run_in_parallel(fetch, missing, jobs=DOWNLOAD_JOBS)
        whole |= {package.project: package for package in fetched}
    return [whole[package.project] for package in packages]


def add_digests(packages: Sequence[LockedPackage], fetched: Iterable[LockedPackage]) -> list[LockedPackage]:
    """Return packages with the digests and sizes of what was fetched of them."""
    known = {package.project: package for package in fetched}
    facts = [known.get(package.project, package) for package in packages]
    return [replace(p, sha256=fact.sha256, size=fact.size) for p, fact in zip(packages, facts, strict=True)]


def _check_file(package: LockedPackage, cache: Path) -> LockedPackage | None:
    """Return a package whose file is here; HostError for one of a folder that is not what it must be."""
    path = find_fetched(package, cache)
    if path is None:
        if (gone := reader.path_of_url(package.url)) is not None:
            raise errors.HostError(
                f"{gone} is not there, and the index or lock names it",
                tip="nothing was installed; put that file there again",
            )
        return None
    digest = files.hash_file(path)
    if package.sha256 in (None, digest):
        known = replace(package, sha256=digest, size=path.stat().st_size)
        if path.name != package.name:  # of a folder: a variant has another name there than uv reads
            place = find_folder(known, cache) / package.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            files.link_or_copy(path, place)
            path = place
        return replace(known, url=path.as_uri())
    if reader.path_of_url(package.url) is not None:
        raise errors.HostError(
            f"{path} has the sha256 {digest}, and the index or lock says {package.sha256}",
            tip="nothing was installed; get that file again: it was changed, or cut short",
        )
    log.log_warning(f"{path} has changed since it was fetched; fetching it again")
    path.unlink()
    return None


def _fetch(
    package: LockedPackage,
    cache: Path,
    begin: progress.BeginFile,
    variables: Mapping[str, str],
    policy: download.DownloadPolicy | None,
) -> LockedPackage:
    import requests

    folder = find_folder(package, cache)
    begun = _measure_part(package, cache)
    log.log_note(
        f"fetching {package.file} ({tables.format_size(package.size)}) from "
        f"{download.host_of_url(package.url)}{f', {tables.format_size(begun)} are here' if begun else ''}"
    )
    report = begin(package.file, package.size)
    target = download.DownloadTarget(package.file, package.url, package.sha256, package.size)
    with requests.Session() as session:
        follow_variables(reader.bypass_proxies_locally(session), variables)
        waiting = policy or download.DownloadPolicy()
        fetched = download.FileDownload(
            target, folder, session, report, waiting, option="XDG_CACHE_HOME"
        ).run()
    known = replace(package, sha256=fetched.sha256, size=fetched.path.stat().st_size)
    place = find_folder(known, cache) / package.name
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(fetched.path, place)
    (folder / "state.json").unlink(missing_ok=True)
    if place.parent != folder:
        folder.rmdir()
    return replace(known, url=place.as_uri())


def follow_variables(session: requests.Session, variables: Mapping[str, str]) -> requests.Session:
    """Have a session go by proxies and certificates that variables name, which are none of this process."""
    for scheme in ("http", "https"):
        if proxy := variables.get(f"{scheme}_proxy"):
            session.proxies[scheme] = proxy
    if bundle := variables.get("REQUESTS_CA_BUNDLE"):
        session.verify = bundle
    return session


def _measure_part(package: LockedPackage, cache: Path) -> int:
    part = find_folder(package, cache) / "part"
    return part.stat().st_size if part.is_file() else 0


def require_writable(folder: Path, title: str, tip: str) -> None:
    """Make a folder, and raise HostError where nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as cause:
        raise errors.HostError(f"{title} cannot be written: {cause.strerror}", tip=tip) from None


def _require_room(packages: Sequence[LockedPackage], cache: Path) -> None:
    """Raise HostError where the cache cannot be written, or has no room."""
    require_writable(cache / "large", f"the cache {cache}", "XDG_CACHE_HOME names another folder")
    size = sum((package.size or 0) - _measure_part(package, cache) for package in packages)
    instead = "name a folder on another disk by XDG_CACHE_HOME"
    files.require_room(cache, size, "fetched", error=errors.HostError, instead=instead)
