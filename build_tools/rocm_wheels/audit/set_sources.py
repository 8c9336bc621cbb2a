"""Collect the files of a set from a folder, an index, or a lock (PEP 751); what is at a URL is downloaded.

Of an index, the newest wheel of each project and tags counts: that is what installers take. Downloads must
fit on the disk before the first begins, and their digests are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from packaging.version import Version

from rocm_wheels.audit import audited_set
from rocm_wheels.core import errors, log, parallel, records, shell, toml_reader
from rocm_wheels.core.files import require_room
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, parse_file_name
from rocm_wheels.index.reader import (
    IndexLink,
    IndexReader,
    UnreachableError,
    download_link,
    file_name_of_link,
    path_of_url,
    require_link_digest,
    resolve_index_url,
)

_SDIST_SUFFIX = ".tar.gz"
_SDIST_PROJECT = "rocm"  # whose source distribution decides what is installed
_MOST_PROJECTS = 500  # an index with more is not that of a set
_JOBS = 4
_PLACES_TIP = (
    "name a folder of wheels, the folder or URL of an index, a pylock.toml, or a set.json of a store"
)


def collect_set(place: str, folder: Path) -> audited_set.SetFiles:
    """Return the files of a set; those at URLs are downloaded to ``folder``.

    UsageError for a place of another kind, one without wheels, and downloads that the disk has no room for;
    DataError for a lock or page that cannot be read.
    """
    scheme = urlsplit(place).scheme
    path = Path(place)
    if scheme in ("http", "https", "file"):
        if urlsplit(place).path.endswith((".toml", ".json", ".whl")):
            raise errors.UsageError(
                f"{shell.hide_credentials(place)}: of what is at a URL, only an index is taken",
                tip="download the file, and name it",
            )
        return _collect_index(place, folder)
    if path.is_dir():
        is_index = any((path / page).is_file() for page in (HTML_PAGE, JSON_PAGE))
        return _collect_index(place, folder) if is_index else _collect_folder(path)
    if not path.exists():
        raise errors.UsageError(f"{place}: there is no such folder or file", tip=_PLACES_TIP)
    if path.name.startswith("pylock.") and path.suffix == ".toml":
        return _collect_lock(path, folder)
    raise errors.UsageError(f"{place} is nothing that a set can be read from", tip=_PLACES_TIP)


def _collect_folder(folder: Path) -> audited_set.SetFiles:
    wheels = tuple(sorted(folder.glob("*.whl")))
    if not wheels:
        raise errors.UsageError(f"{folder}: there are no wheels in it, and no {HTML_PAGE}", tip=_PLACES_TIP)
    return audited_set.SetFiles(
        str(folder), "folder", wheels, tuple(sorted(folder.glob(f"*{_SDIST_SUFFIX}")))
    )


def _collect_index(place: str, folder: Path) -> audited_set.SetFiles:
    url, reader = resolve_index_url(place), IndexReader()
    projects = _read_links(reader, url)
    if len(projects) > _MOST_PROJECTS:
        raise errors.UsageError(
            f"{shell.hide_credentials(place)} has {len(projects)} projects: that is no index of one set",
            tip="name the index of the release, such as that of a channel or a family",
        )
    pages = [link.url if link.url.endswith("/") else f"{link.url}/" for link in projects]
    answers = parallel.run_in_parallel(lambda page: _read_links(reader, page), pages, jobs=_JOBS)
    rows: list[tuple[str, Version, IndexLink]] = []
    for link in (link for answer in answers for link in answer if link.yanked is None):
        with suppress(errors.DataError):  # no installer reads it either; the conformance of the index tells
            rows.append((*_describe_file(file_name_of_link(link)), link))
    newest: dict[str, IndexLink] = {}
    for key, _, link in sorted(rows, key=lambda row: row[1], reverse=True):
        newest.setdefault(key, link)
    newest.pop("", None)
    older = [file_name_of_link(link) for key, _, link in rows if newest.get(key, link) is not link]
    if not newest:
        raise errors.UsageError(f"{shell.hide_credentials(place)}: the index has no wheels", tip=_PLACES_TIP)
    listed = audited_set.SetFiles(
        shell.hide_credentials(place), "index", (), older=tuple(sorted(older)), index_url=url
    )
    return _fetch_links(listed, newest.values(), reader, folder, remote=path_of_url(url) is None)


def add_named_wheels(files: audited_set.SetFiles, named: Sequence[Path]) -> audited_set.SetFiles:
    """Return a set with wheels that were named beside it; of an index, they replace those of their tags."""
    paths, names = {path.resolve() for path in named}, {path.name for path in named}
    listed = [wheel for wheel in files.wheels if wheel.resolve() not in paths]
    older = list(files.older)
    if files.kind == "index":
        replaced = set()
        for name in names:
            with suppress(errors.DataError):
                replaced.add(_describe_file(name)[0])
        outdated = [w for w in listed if w.name not in names and _describe_file(w.name)[0] in replaced]
        older += [wheel.name for wheel in outdated]
        listed = [wheel for wheel in listed if wheel not in outdated]
    return replace(files, wheels=tuple(listed), named=tuple(named), older=tuple(sorted(older)))


def _describe_file(name: str) -> tuple[str, Version]:
    """Return what stands for a project and its tags ("" for what does not count), and the version."""
    if not name.endswith((".whl", _SDIST_SUFFIX)):
        return "", Version("0")
    project, version, _ = parse_file_name(name)
    if name.endswith(_SDIST_SUFFIX):
        return (f"{project} sdist" if project == _SDIST_PROJECT else ""), version
    return f"{project} {'-'.join(name.split('-')[2:])}", version


def _read_links(reader: IndexReader, url: str) -> tuple[IndexLink, ...]:
    links = reader.read_page(url, url)
    if links is None:
        raise errors.UsageError(
            f"there is no page of an index at {shell.hide_credentials(url)}",
            tip="`rocm-wheels index verify` tells what else is wrong with the index",
        )
    return links


def _collect_lock(lock: Path, folder: Path) -> audited_set.SetFiles:
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

    try:
        table = toml_reader.parse_toml(records.read_text_file(lock), name=str(lock))
        packages = Pylock.from_dict(table).packages
    except (PylockValidationError, PylockUnsupportedVersionError) as wrong:
        raise errors.DataError(f"{lock} is not a lock (PEP 751): {wrong}") from None
    links, without = [], []
    for package in packages:
        files: list[Any] = list(package.wheels or ())
        if package.sdist is not None and package.name == _SDIST_PROJECT:
            files.append(package.sdist)
        if package.archive is not None and str(package.archive.url or package.archive.path).endswith(".whl"):
            files.append(package.archive)
        if not files:
            without.append(package.name)
        for file in files:
            url = file.url or (lock.parent.absolute() / str(file.path)).as_uri()
            url = urljoin(f"{lock.parent.absolute().as_uri()}/", url)
            links.append(IndexLink(url, url, url, file.hashes.get("sha256"), size=file.size))
    if without:
        log.log_note(f"{lock}: no wheels of {', '.join(sorted(without))}: left out")
    if not links:
        raise errors.UsageError(f"{lock}: it lists no wheels", tip=_PLACES_TIP)
    return _fetch_links(audited_set.SetFiles(str(lock), "lock", ()), links, IndexReader(), folder)


def _fetch_links(
    listed: audited_set.SetFiles,
    links: Iterable[IndexLink],
    reader: IndexReader,
    folder: Path,
    *,
    remote: bool = False,
) -> audited_set.SetFiles:
    """Return a set with its files, downloaded where they are not here; why not, of those that cannot be had.

    What is ``remote`` has no say about files of this machine.
    """
    links = sorted(links, key=file_name_of_link)
    _require_room([link for link in links if path_of_url(link.url) is None], reader, folder)
    digests: dict[str, str] = {}
    absent: dict[str, str] = {}
    paths: list[Path] = []
    for link in links:
        name = file_name_of_link(link)
        try:
            if (digest := require_link_digest(link)) is not None:
                digests[name] = digest
            if remote and path_of_url(link.url) is not None:
                raise errors.DataError("leads from a server to a file of this machine")
            path = download_link(link, folder, error=errors.DataError)
            if not path.is_file():
                raise errors.DataError(f"is not at {path}")
            paths.append(path)
        except errors.RocmWheelsError as cause:
            absent[name] = cause.message.removeprefix(f"{name}: ")
    wheels = tuple(path for path in paths if path.suffix == ".whl")
    sdists = tuple(path for path in paths if path not in wheels)
    return replace(listed, wheels=wheels, sdists=sdists, digests=digests, absent=absent)


def _require_room(links: Sequence[IndexLink], reader: IndexReader, folder: Path) -> None:
    """Raise UsageError where what is to be downloaded does not fit on the disk."""
    sizes = parallel.run_in_parallel(
        lambda link: link.size if link.size is not None else _ask_size(link, reader), links, jobs=_JOBS
    )
    instead = "set TMPDIR to a folder on another disk; or download the wheels and name their folder"
    require_room(folder, sum(sizes), "downloaded", error=errors.UsageError, instead=instead)


def _ask_size(link: IndexLink, reader: IndexReader) -> int:
    try:
        return reader.fetch_size(link.url)[1] or 0
    except UnreachableError:
        return 0  # the download itself says what is wrong
