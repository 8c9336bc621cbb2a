"""Several files into the cache, some at a time, each checked against the digest that the index states."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels import log, parallel
from rocm_wheels.downloads import progress
from rocm_wheels.downloads.download import Download, Fetched, Patience, Wanted, host_of
from rocm_wheels.downloads.identity import Validators
from rocm_wheels.errors import HostError
from rocm_wheels.hosts.install.cache import Cache
from rocm_wheels.index.reach import Reach, UnreachableError, local_path, past_proxies
from rocm_wheels.wheels.members import digest_of_file
from rocm_wheels.words import amount
from rocm_wheels.workspace import exclusive

if TYPE_CHECKING:
    import requests

JOBS = 3  # large files from one server: more only take bandwidth from each other
_PATIENCE_FOR_OTHERS = 6 * 3600.0


def fetch_all(
    wanted: Sequence[Wanted], cache: Cache, *, patience: Patience | None = None, jobs: int = JOBS
) -> dict[Wanted, Fetched]:
    """Return every file whole and checked: from the cache, from the disk, or over the network.

    Another run that fetches into the same cache is waited for. HostError for what cannot be had; what
    there is of it, and the other files, are kept.
    """
    missing = []
    found = {}
    for one in wanted:
        if (path := _at_hand(one, cache)) is not None:
            found[one] = path
        else:
            missing.append(one)
    if not missing:
        return found
    cache.require_writable()
    cache.require_room(sum((one.size or 0) - _begun(one, cache) for one in missing))
    with (
        exclusive(cache.lock("downloads"), what="fetching wheels", patience=_PATIENCE_FOR_OTHERS),
        progress.shown() as begin,
    ):
        calm = patience or Patience()

        def fetch(one: Wanted) -> Fetched:
            return _at_hand(one, cache) or _fetch(
                one, cache, begin, calm
            )  # another run may just have done it

        missing.sort(key=lambda one: one.size or 0, reverse=True)  # the longest must not begin last
        return {**found, **dict(zip(missing, parallel.each(fetch, missing, jobs=jobs), strict=True))}


def _at_hand(wanted: Wanted, cache: Cache) -> Fetched | None:
    """Return a file that is on this machine already; HostError when it is not what it must be."""
    if (path := local_path(wanted.url)) is not None:
        return _of_disk(wanted, path)
    if wanted.sha256 is None:
        return None
    path = cache.wheel(wanted.sha256, wanted.name)
    if not path.is_file():
        return None
    if digest_of_file(path) == wanted.sha256:
        return Fetched(path, wanted.sha256, Validators())
    log.warn(f"{path} has changed since it was fetched; fetching it again")
    path.unlink()
    return None


def _of_disk(wanted: Wanted, path: Path) -> Fetched:
    try:
        digest = digest_of_file(path)
    except OSError as cause:
        raise HostError(f"{path}, which the index names, cannot be read: {cause.strerror}") from None
    if wanted.sha256 not in (None, digest):
        raise HostError(
            f"{path} has the sha256 {digest}, and the index says {wanted.sha256}",
            tip="`rocm-wheels index verify` tells what else is wrong with the index",
        )
    return Fetched(path, digest, Validators())


def _fetch(wanted: Wanted, cache: Cache, begin: progress.Begin, patience: Patience) -> Fetched:
    import requests

    with requests.Session() as session:
        past_proxies(session)
        if wanted.sha256 is None and (known := _unchanged(wanted, cache, session, patience)):
            return known
        folder = cache.part(wanted.sha256, wanted.url)
        tell = begin(wanted.name, wanted.size)
        begun = _begun(wanted, cache)
        more = f", {amount(begun)} are here" if begun else ""
        log.note(f"fetching {wanted.name} ({amount(wanted.size)}) from {host_of(wanted.url)}{more}")
        fetched = Download(wanted, folder, session, tell, patience).run()
    place = cache.wheel(fetched.sha256, wanted.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(fetched.path, place)
    (folder / "state.json").unlink(missing_ok=True)
    folder.rmdir()
    if wanted.sha256 is None:
        cache.remember(wanted.url, fetched.said, fetched.sha256)
    return Fetched(place, fetched.sha256, fetched.said)


def _unchanged(wanted: Wanted, cache: Cache, session: requests.Session, patience: Patience) -> Fetched | None:
    """Return the file of a URL without a digest, when the server says that it is still the same."""
    import requests

    try:
        answer = session.head(
            wanted.url,
            allow_redirects=True,
            timeout=patience.silence,
            headers={"Accept-Encoding": "identity"},
        )
    except requests.RequestException:
        return None  # the download itself tells what is wrong, and tries again
    said = answer.headers
    length = said.get("Content-Length", "")
    now = Validators(
        said.get("ETag", ""), said.get("Last-Modified", ""), int(length) if length.isdigit() else None
    )
    path = cache.remembered(wanted.url, now, wanted.name) if answer.status_code == 200 else None
    if path is None:
        return None
    digest = digest_of_file(path)
    return Fetched(path, digest, now) if path.parent.name == digest else None


def _begun(wanted: Wanted, cache: Cache) -> int:
    part = cache.part(wanted.sha256, wanted.url) / "part"
    return part.stat().st_size if part.is_file() else 0


class WholeReach(Reach):
    """Reads a wheel's METADATA also from a server that sends no parts of files: then of the whole file.

    Such a server is what ``python -m http.server`` is. The file is kept: it is wanted soon.
    """

    def __init__(self, cache: Cache) -> None:
        super().__init__()
        self._cache = cache

    def texts(
        self, url: str, name: str, size: int | None, *, variant: bool = True
    ) -> tuple[bytes, str | None]:
        """Return METADATA and ``variant.json``, as ``Reach`` does."""
        try:
            return super().texts(url, name, size, variant=variant)
        except UnreachableError:
            if local_path(url) is not None:
                raise
        log.note(f"the server sends no parts of files: {name} is fetched to see what it requires")
        wanted = Wanted(name, url, None, size)
        path = fetch_all([wanted], self._cache)[wanted].path
        return super().texts(path.as_uri(), name, None, variant=variant)
