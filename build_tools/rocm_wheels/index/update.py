"""Update an index in a folder: add (all or none), build, yank; then publish all pages at once.

The order in which it appears: wheels and METADATA, the state files, variants files, project pages, root
pages and the pages for ``--find-links``; last what is no longer listed is removed. Pages of a project come
after those of what its new wheels require, so that nobody finds a torch without its triton. Before the first
step a note of the change is left, so that the next command finishes what a killed one began.

One writer at a time holds the lock (``flock``: on this machine, and on network drives that pass it on;
an object store has none, so there it must be one writer that uploads).
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urljoin

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, log, parallel, shell, tables
from rocm_wheels.core.files import copy_content, hash_file, lock_folder
from rocm_wheels.index import pages, provenance_object, publish, wheel_file
from rocm_wheels.index.folder import (
    HTML_PAGE,
    JSON_PAGE,
    LINKS_PAGE,
    METADATA_SUFFIX,
    PENDING_NOTE,
    SDIST_SUFFIX,
    STATE_FOLDER,
    VARIANTS_FOLDER,
    IndexEntry,
    IndexFolder,
    check_family_name,
    combine_entries,
    escape_file_name,
    list_families,
    list_lost_families,
    parse_file_name,
    path_of_families,
    read_entries_file,
    refuse_family_name,
    refuse_other_bytes,
    sort_entries,
    write_entries,
)
from rocm_wheels.wheels.statement import locate_statement, locate_statement_signature, read_statement

_FILES_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^ /]|/|\.\./")  # how a URL of --files-url begins

LOCK_PATIENCE = 600.0  # seconds for another writer to end


@dataclass(frozen=True)
class AddedWheels:
    """What became of the wheels: names that are new in the index, and those that it had."""

    new: tuple[str, ...]
    unchanged: tuple[str, ...]


def add_wheels(
    root: Path,
    wheels: Sequence[Path],
    *,
    now: str,
    family: str = "",
    link: bool = False,
    files_url: str | None = None,
    digests: Mapping[str, str] | None = None,
    public_url: str | None = None,
    startup_files: Collection[str] = (),
    patience: float = LOCK_PATIENCE,
) -> AddedWheels:
    """Add wheels; they are copied (reflink where the system can), or hard-linked with ``link``.

    With ``files_url`` they are not copied: the pages link to ``<files_url>/<file name>``. The same bytes
    again are left. DataError for a wheel that is damaged, dangerous or of other bytes than the index has;
    ``startup_files`` are globs of the ``.pth`` that wheels may have.

    A provenance object beside a wheel (``<wheel>.provenance``) comes along; pages name it by its whole URL,
    for which ``public_url`` says where the index is seen, unless ``files_url`` is whole. A statement and its
    signature come along as well: installers look for them beside the wheel.
    """
    require_index(root, create=True)
    if family:
        check_family_name(root, family)
    view = IndexFolder(root, family)
    _refuse_same_names(wheels)
    place = "" if files_url is None else check_files_url(files_url)
    known_digests = digests or {}

    def take(path: Path) -> wheel_file.IndexedFile:
        digest = known_digests.get(path.name)
        return _find_unchanged(view, path) or wheel_file.read_wheel_file(
            path, now=now, digest=digest, place=place, startup_files=startup_files
        )

    for path in wheels:
        parse_file_name(path.name)  # before anything is hashed
    wheels_read = parallel.run_in_parallel(take, wheels, jobs=os.cpu_count() or 1)
    new: list[str] = []
    objects = _read_provenance_objects(wheels, wheels_read)
    bases = PublicUrls(family, public_url and provenance_object.check_provenance_base(public_url), place)
    with change_index(root, action="index build", create=True, patience=patience) as change:
        for project in dict.fromkeys(wheel.project for wheel in wheels_read):
            refuse_family_name(root, project, list_families(root))
            entries = change.read_entries(view, project)
            for path, wheel in zip(wheels, wheels_read, strict=True):
                if wheel.project == project and _add_wheel(change, view, wheel, path, entries, link=link):
                    new.append(wheel.entry.name)
                if wheel.project == project and (content := objects.get(wheel.entry.name)) is not None:
                    entry = bases.add_provenance(project, entries[wheel.entry.name])
                    entries[entry.name] = entry
                    if (target := view.provenance_of(project, entry)) is not None:
                        change.put_metadata(target, content)
                if wheel.project == project:
                    _add_statements(change, view, path, wheel)
            change.set_entries(view, project, entries)
    return AddedWheels(
        tuple(new), tuple(wheel.entry.name for wheel in wheels_read if wheel.entry.name not in new)
    )


def _read_provenance_objects(
    wheels: Sequence[Path], wheels_read: Sequence[wheel_file.IndexedFile]
) -> dict[str, bytes]:
    """Return the provenance objects beside wheels, by the names of the wheels; DataError for a wrong one."""
    objects = {}
    for path, wheel in zip(wheels, wheels_read, strict=True):
        beside = path.with_name(path.name + provenance_object.PROVENANCE_SUFFIX)
        if beside.is_file():
            content, entry = beside.read_bytes(), wheel.entry
            provenance_object.require_provenance_object(
                content, where=str(beside), file_name=entry.name, sha256=entry.sha256
            )
            objects[entry.name] = content
    return objects


def _add_statements(
    change: IndexChange, view: IndexFolder, path: Path, wheel: wheel_file.IndexedFile
) -> None:
    """Take the statement beside a wheel along, and its signature; DataError for one about other bytes."""
    statement = read_statement(path) if path.name.endswith(".whl") else None
    if statement is None:
        return
    if (statement.name, statement.sha256) != (wheel.entry.name, wheel.entry.sha256):
        raise errors.DataError(
            f"the statement beside {path} is about {statement.name} with sha256 {statement.sha256}"
        )
    sources = (locate_statement(path), locate_statement_signature(path))
    for source, target in zip(sources, view.statements_of(wheel.project, wheel.entry), strict=False):
        if source.is_file() and not (target.exists() and source.samefile(target)):
            change.put_metadata(target, source.read_bytes())
        elif target.exists() and not source.is_file():
            change.remove_file(target)  # the signature of another statement


@dataclass(frozen=True)
class PublicUrls:
    """Where the files of an index are seen: below its ``public_url``, or all in one place elsewhere."""

    family: str
    public_url: str | None
    place: str = ""

    def add_provenance(self, project: str, entry: IndexEntry) -> IndexEntry:
        """Return an entry with the URL of its provenance object.

        UsageError where nobody said where the index is seen, now or before.
        """
        name = escape_file_name(entry.name) + provenance_object.PROVENANCE_SUFFIX
        if "://" in self.place:
            return replace(entry, provenance=f"{self.place}{name}")
        if self.public_url is not None:
            folders = [self.family, project] if self.family else [project]
            page = self.public_url + "".join(f"{folder}/" for folder in folders)
            return replace(entry, provenance=urljoin(page, f"{entry.place}{name}"))
        if entry.provenance:
            return entry
        raise errors.UsageError(
            f"{entry.name} has a provenance object, which pages name by its whole URL",
            tip="say where people see the index: --public-url https://…",
        )


def _refuse_same_names(wheels: Sequence[Path]) -> None:
    paths: dict[str, Path] = {}
    for path in wheels:
        other = paths.setdefault(path.name, path)
        if other.resolve() != path.resolve() and hash_file(other) != hash_file(path):
            raise errors.DataError(f"{other} and {path} have the same name and different bytes")


def check_files_url(url: str) -> str:
    """Return the URL of a folder of wheels with a slash at its end; UsageError when it is none.

    It is whole, or begins with a slash or ``../``, and has no password, which the pages would tell everybody.
    """
    if (redacted := shell.hide_credentials(url)) != url:
        raise errors.UsageError(
            f"--files-url {redacted} has credentials, and the pages would show them", tip="leave them out"
        )
    folder_url = url.rstrip("/") + "/"
    is_index_folder = (
        posixpath.normpath(folder_url) == ".."
    )  # the folder of the index, where wheels are copied to
    if (
        not _FILES_URL.match(url)
        or any(sign in url for sign in "?#\"'<> \\")
        or not url.isprintable()
        or is_index_folder
    ):
        raise errors.UsageError(
            f"--files-url {url!r} is not the URL of a folder elsewhere",
            tip="for example: https://host/wheels/, /wheels/ or, from a project page, ../../wheels/",
        )
    return folder_url


def _find_unchanged(view: IndexFolder, path: Path) -> wheel_file.IndexedFile | None:
    """Return a wheel that lies in the index and is known: its size and time are as they were."""
    project = parse_file_name(path.name)[0]
    entry = view.read_entries(project).get(path.name)
    if entry is None:
        return None
    file = view.file_of(project, entry)
    status = path.stat()
    is_unchanged = (status.st_size, status.st_mtime_ns) == (entry.size, entry.changed)
    return (
        wheel_file.IndexedFile(project, entry)
        if file and is_unchanged and path.resolve() == file.resolve()
        else None
    )


def _add_wheel(
    change: IndexChange,
    view: IndexFolder,
    wheel: wheel_file.IndexedFile,
    source: Path,
    entries: dict[str, IndexEntry],
    *,
    link: bool,
) -> bool:
    """Put a wheel among the entries of its project; tell whether it is new there."""
    entry = wheel.entry
    listed = entries.get(entry.name)
    if listed is not None:
        refuse_other_bytes(entry.name, listed.sha256, entry.sha256, where=view.family or "for all")
        file = view.file_of(wheel.project, listed)
        file_entry = entry if file is not None and not file.is_file() else listed  # of a file that was lost
        entry = replace(listed, size=file_entry.size, changed=file_entry.changed)
    file = view.file_of(wheel.project, entry)
    if file is not None and not (listed and file.is_file()):
        _stage_wheel(change, source, file, wheel.entry, link=link)
    if wheel.metadata is not None:
        change.put_metadata(view.sidecar_of(wheel.project, entry), wheel.metadata)
    entries[entry.name] = entry
    return listed is None


def _stage_wheel(change: IndexChange, source: Path, target: Path, entry: IndexEntry, *, link: bool) -> None:
    """Stage a wheel for its place, unless these bytes lie there already."""
    if target.exists():
        if not source.samefile(target):
            present_sha256 = hash_file(target)
            refuse_other_bytes(
                entry.name, present_sha256, entry.sha256, where="there already, not listed yet"
            )
        return
    part = change.new_part()
    if link:
        try:
            os.link(source.resolve(), part)  # a link to a symbolic link would lead nowhere from here
        except OSError as cause:
            raise errors.UsageError(
                f"{source} cannot be hard-linked into {target.parent}", tip="leave out --link"
            ) from cause
    else:
        with source.open("rb") as wheel, part.open("wb") as copy:
            copy_content(wheel, copy)
        os.utime(part, ns=(entry.changed, entry.changed))
    status = source.stat()
    if (status.st_size, status.st_mtime_ns) != (entry.size, entry.changed):
        raise errors.DataError(f"{source} changed while it was added")
    change.place_wheel(target, part)


_MOST_MISSING_SHOWN = 20
_FILE_SUFFIXES = (".whl", SDIST_SUFFIX)


@dataclass(frozen=True)
class FolderFile:
    """A file in a folder, and whether METADATA lies beside it, as far as it needs that."""

    path: str
    state: wheel_file.WheelFileState
    has_sidecar: bool


@dataclass(frozen=True)
class BuiltIndex:
    """How many files and projects the index has now, how many are new, and the files that are gone."""

    files: int
    projects: int
    new: int
    missing: tuple[str, ...]


def build_index(
    root: Path,
    *,
    now: str,
    new_families: Sequence[str] = (),
    digests: Mapping[str, str] | None = None,
    drop_missing: bool = False,
    public_url: str | None = None,
    startup_files: Collection[str] = (),
    patience: float = LOCK_PATIENCE,
) -> BuiltIndex:
    """Write the pages for the wheels in ``root`` and in the folders of their projects, and of families.

    What is known of a wheel (by name, size and time) is not read again. DataError for wheels that are
    gone (unless ``drop_missing``), replaced by other bytes, damaged, or in a folder of another name.
    ``public_url`` and ``startup_files`` as in ``add_wheels``.
    """
    if not root.is_dir():
        state = "not a folder" if root.exists() else "not there"
        raise errors.UsageError(f"{root} is {state}", tip="name the folder of the index")
    for family in new_families:
        check_family_name(root, family)
        if not (root / family).is_dir():
            raise errors.UsageError(
                f"--family {family}: there is no folder {root / family}",
                tip=f"`rocm-wheels index build {root} FILE --family {family}` makes one",
            )
    base = public_url and provenance_object.check_provenance_base(public_url)
    count, new, projects, missing = 0, 0, set[str](), list[str]()
    with change_index(
        root,
        action="index build",
        create=True,
        everything=True,
        drop_missing=drop_missing,
        patience=patience,
    ) as change:
        reader = _EntryReader(change, now, digests or {}, startup_files)
        names = sorted({*list_families(root), *new_families} - set(change.lost_families))
        missing += [str(root / family) for family in change.lost_families]
        for view in [IndexFolder(root, family) for family in ["", *names]]:
            for project, files in _scan_projects(view, names):
                refuse_family_name(root, project, names)
                old_entries = change.read_entries(view, project)
                entries = reader.read_entries(view, project, files, old_entries)
                _follow_provenance_objects(PublicUrls(view.family, base), view, project, entries)
                new += len(entries.keys() - old_entries.keys())
                for entry in [e for name, e in old_entries.items() if name not in entries]:
                    missing.append(str(view.file_of(project, entry)))
                    change.remove_beside(view, project, entry)
                change.set_entries(view, project, entries)
                count += len(entries)
                projects |= {project} if entries else set()
        if missing and not drop_missing:
            listed = "\n".join(sorted(missing)[:_MOST_MISSING_SHOWN])
            raise errors.DataError(
                f"{tables.format_count(len(missing), 'wheel')} of the index missing:\n{listed}",
                tip="put them back, or drop them from the pages with --drop-missing",
            )
    return BuiltIndex(count, len(projects), new, tuple(sorted(missing)))


def _follow_provenance_objects(
    bases: PublicUrls, view: IndexFolder, project: str, entries: dict[str, IndexEntry]
) -> None:
    """Have the entries of files name the provenance objects beside them, and no others."""
    for name, entry in entries.items():
        path = view.provenance_of(project, entry)
        if path is None:
            continue
        if path.is_file():
            provenance_object.require_provenance_object(
                path.read_bytes(), where=str(path), file_name=name, sha256=entry.sha256
            )
            entries[name] = bases.add_provenance(project, entry)
        elif entry.provenance:
            entries[name] = replace(entry, provenance="")


def _scan_projects(
    view: IndexFolder, family_names: Iterable[str]
) -> Iterator[tuple[str, dict[str, FolderFile]]]:
    """Yield every project with its wheels in the folder and in the folder of its name, one after another.

    DataError for a wheel in a folder of another name, and for one that lies in both.
    """
    files_beside: dict[str, dict[str, FolderFile]] = {}
    for name, file in _scan_files(view.folder, "../"):
        files_beside.setdefault(parse_file_name(name)[0], {})[name] = file
    skipped = {STATE_FOLDER, *(() if view.family else family_names)}
    with os.scandir(view.folder) as listed:
        folders = {item.name for item in listed if item.is_dir() and item.name not in skipped}
    own_projects = set(view.list_own_projects())
    for project in sorted({*files_beside, *folders, *own_projects}):
        files = files_beside.pop(project, {})
        folder = view.folder / project
        for name, file in _scan_files(folder, "") if project in folders else ():
            project_of_file = parse_file_name(name)[0]
            if project_of_file != project:
                raise errors.DataError(
                    f"{folder} holds {name}: wheels lie in {project_of_file}/ or beside it",
                    tip=f"move it there; if {project} is a GPU family, say so: --family {project}",
                )
            if name in files:
                raise errors.DataError(f"{name} lies in {view.folder} and in {folder}", tip="remove one")
            files[name] = file
        if files or project in own_projects:
            yield project, files


def _scan_files(folder: Path, place: str) -> Iterable[tuple[str, FolderFile]]:
    with os.scandir(folder) as listed:
        items = [item for item in listed if item.name.endswith((*_FILE_SUFFIXES, METADATA_SUFFIX))]
    names = {item.name for item in items}
    for item in items:
        if item.name.endswith(_FILE_SUFFIXES) and not item.name.startswith(".") and item.is_file():
            state = item.stat()
            has_metadata = item.name + METADATA_SUFFIX in names or item.name.endswith(SDIST_SUFFIX)
            lying = wheel_file.WheelFileState(item.name, state.st_size, state.st_mtime_ns, place)
            yield item.name, FolderFile(item.path, lying, has_metadata)


@dataclass(frozen=True)
class _EntryReader:
    """Reads the wheels of a project that are not known yet, or have changed."""

    change: IndexChange
    now: str
    digests: Mapping[str, str]
    startup_files: Collection[str]

    def read_entries(
        self,
        view: IndexFolder,
        project: str,
        files: Mapping[str, FolderFile],
        old_entries: Mapping[str, IndexEntry],
    ) -> dict[str, IndexEntry]:
        """Return the wheels of a project: those that are as they were, others read; remote ones are kept."""
        entries = {name: entry for name, entry in old_entries.items() if entry.is_remote}
        listed, unread = [], []
        for name, file in files.items():
            old_entry, state = old_entries.get(name), file.state
            is_unchanged = old_entry is not None and (old_entry.size, old_entry.changed) == (
                state.size,
                state.changed,
            )
            if old_entry is not None and is_unchanged and file.has_sidecar:
                entries[name] = (
                    old_entry if old_entry.place == state.place else replace(old_entry, place=state.place)
                )
            elif name in self.digests and (
                listed_wheel := wheel_file.read_listed_wheel(
                    file.path, state, now=self.now, digest=self.digests[name]
                )
            ):
                listed.append(listed_wheel)
            else:
                unread.append(file)
        jobs = os.cpu_count() or 1
        read = (
            parallel.run_in_parallel(self._read_file, unread, jobs=jobs)
            if len(unread) > 1
            else map(self._read_file, unread)
        )
        for wheel in (*listed, *read):
            entry, old_entry = wheel.entry, old_entries.get(wheel.entry.name)
            if old_entry is not None:
                refuse_other_bytes(entry.name, old_entry.sha256, entry.sha256, where=view.family or "for all")
                entry = replace(
                    entry,
                    uploaded=old_entry.uploaded,
                    yanked=old_entry.yanked,
                    provenance=old_entry.provenance,
                )
            if wheel.metadata is not None and not wheel.beside:
                self.change.put_metadata(view.sidecar_of(project, entry), wheel.metadata)
            entries[entry.name] = entry
        return entries

    def _read_file(self, file: FolderFile) -> wheel_file.IndexedFile:
        path = Path(file.path)
        return wheel_file.read_wheel_file(
            path,
            now=self.now,
            digest=self.digests.get(path.name),
            place=file.state.place,
            startup_files=self.startup_files,
        )


_NAME_TIP = "name a wheel's file, or a release: torch==2.9.1+rocm7.1.0"


def yank_wheels(
    root: Path, words: Sequence[str], *, reason: str | None, family: str = "", patience: float = LOCK_PATIENCE
) -> list[str]:
    """Yank wheels (PEP 592) with a ``reason`` ("" for none); None takes it back. Return what changed."""
    changed = []
    with change_index(root, action="index yank", patience=patience) as change:
        for project, names in _find_names(change, root, words, family).items():
            view = IndexFolder(root, family)
            entries = change.read_entries(view, project)
            for name in names:
                if entries[name].yanked != reason:
                    entries[name] = replace(entries[name], yanked=reason)
                    changed.append(name)
            change.set_entries(view, project, entries)
    return changed


def _find_names(change: IndexChange, root: Path, words: Sequence[str], family: str) -> dict[str, list[str]]:
    """Return the file names that are meant, by project; UsageError for one that is not there."""
    if family and family not in list_families(root):
        listed = list_families(root)
        raise errors.UsageError(
            f"--family {family}: the index has {', '.join(listed) or 'no families'}",
            tip="name another family, or leave --family out",
        )
    view = IndexFolder(root, family)
    names_by_project: dict[str, list[str]] = {}
    for word in words:
        project, version = _parse_name(word)
        entries = change.read_entries(view, project)
        names = [name for name, entry in entries.items() if _is_meant(entry, word, version)]
        if not names:
            near = tables.suggest_name(word, list(entries)) if entries else ""
            where = f"{root / family}" if family else f"{root}"
            raise errors.UsageError(f"{where} has no {word}{near}", tip=_NAME_TIP)
        names_by_project.setdefault(project, [])
        names_by_project[project] += [name for name in names if name not in names_by_project[project]]
    return names_by_project


def _is_meant(entry: IndexEntry, word: str, version: Version | None) -> bool:
    return entry.name == word if version is None else entry.version == version


def _parse_name(word: str) -> tuple[str, Version | None]:
    if word.endswith((".whl", SDIST_SUFFIX)):
        return parse_file_name(word)[0], None
    name, equals, version = word.partition("==")
    try:
        if equals:
            return canonicalize_name(name.strip()), Version(version.strip())
    except InvalidVersion:
        raise errors.UsageError(f"{word}: {version!r} is not a version", tip=_NAME_TIP) from None
    raise errors.UsageError(f"{word} is neither a wheel nor a release", tip=_NAME_TIP)


_FOLDERS_BESIDE = ("", "../")  # places of wheels whose folder somebody may name with --find-links


def stage_project(
    publication: publish.FolderPublication,
    view: IndexFolder,
    project: str,
    own_entries: Mapping[str, IndexEntry],
    general_entries: Mapping[str, IndexEntry],
) -> bool:
    """Stage the pages of a project: its own wheels and those for everybody; tell whether it has any."""
    entries = sort_entries(combine_entries(view, project, dict(own_entries), dict(general_entries)))
    files = pages.make_variants_files(project, entries)
    folder = view.project_folder(project)
    _stage_variants(publication, folder, entries, files)
    for path, content in make_project_pages(folder, project, entries, files).items():
        if entries:
            publication.stage_content(path, content, publish.PublishRank.PROJECT)
        elif path.exists():
            publication.stage_removal(path)
    return bool(entries)


def make_project_pages(
    folder: Path, project: str, entries: Sequence[IndexEntry], files: Sequence[pages.VariantsFile]
) -> dict[Path, bytes]:
    """Return the pages of a project."""
    return {
        folder / JSON_PAGE: pages.make_project_json(project, entries, files),
        folder / HTML_PAGE: pages.make_project_html(project, entries, files),
    }


def place_variants_files(
    folder: Path, entries: Iterable[IndexEntry], files: Sequence[pages.VariantsFile]
) -> dict[Path, bytes]:
    """Return variants files with their content: one by its digest for the page, one beside the wheels."""
    places = sorted({e.place for e in entries if e.variant is not None and e.place in _FOLDERS_BESIDE})
    return {
        path: file.content
        for file in files
        for path in (folder / file.folder / file.name, *(folder / place / file.name for place in places))
    }


def _stage_variants(
    publication: publish.FolderPublication,
    folder: Path,
    entries: Iterable[IndexEntry],
    files: Sequence[pages.VariantsFile],
) -> None:
    """Stage variants files; those of the page before stay for one change more: somebody may be reading it."""
    if not files and not (folder / VARIANTS_FOLDER).is_dir():
        return
    new_files = place_variants_files(folder, entries, files)
    new = [
        path
        for path, content in new_files.items()
        if publication.stage_content(path, content, publish.PublishRank.VARIANTS)
    ]
    page = folder / HTML_PAGE
    before = page.read_bytes() if new and page.is_file() else b""
    pattern = f"{folder.name.replace('-', '_')}-*-variants.json"
    for path in (*folder.glob(pattern), *(folder / "..").glob(pattern)):
        if path not in new_files:
            publication.stage_removal(path)
    for path in folder.glob(f"{VARIANTS_FOLDER}/*/*-variants.json"):
        if path not in new_files and path.parent.name.encode() not in before:
            publication.stage_removal(path)


def stage_root_pages(
    publication: publish.FolderPublication,
    view: IndexFolder,
    names: Sequence[str],
    family_names: Sequence[str],
) -> None:
    """Stage the root pages and the page for ``--find-links``, which is put together a project at a time."""
    part = publication.new_part()
    with part.open("wb") as file:
        file.write(pages.make_page_head("Links of all projects"))
        for project in names:
            page = publication.current_path(view.project_folder(project) / HTML_PAGE)
            file.write(pages.make_links(project, page.read_bytes()))
        file.write(pages.PAGE_TAIL)
    publication.stage_content(view.folder / JSON_PAGE, pages.make_root_json(names), publish.PublishRank.ROOT)
    publication.stage_part(view.folder / LINKS_PAGE, part, publish.PublishRank.ROOT)
    publication.stage_content(
        view.folder / HTML_PAGE, pages.make_root_html(names, family_names), publish.PublishRank.ROOT
    )


class IndexChange:
    """What a command changes. Projects are settled one after another; none is kept in memory."""

    def __init__(self, root: Path, publication: publish.FolderPublication) -> None:
        self.root = root
        self._publication = publication
        self._names: dict[IndexFolder, set[str]] = {}
        self._keys: dict[tuple[str, str], None] = {}
        self._requires: dict[str, set[str]] = {}  # of projects whose wheels change
        self._adds = False
        self.lost_families = list_lost_families(root)
        self._known = set(list_families(root)) - set(self.lost_families)

    def read_entries(self, view: IndexFolder, project: str) -> dict[str, IndexEntry]:
        """Return a project's own wheels, as settled so far."""
        path = view.state_file(project)
        return read_entries_file(self._publication.current_path(path), path)

    def set_entries(self, view: IndexFolder, project: str, entries: dict[str, IndexEntry]) -> None:
        """Say what the own wheels of a project are from now on."""
        self._keys[view.family, project] = None
        self._refuse_mixed_rocm(view, project, entries)
        self._note_requirements(view, project, entries)
        path = view.state_file(project)
        if entries:
            self._publication.stage_content(path, write_entries(entries), publish.PublishRank.STATE)
        elif path.exists():
            self._publication.stage_content(path, b"", publish.PublishRank.STATE)
            self._publication.stage_removal(path)
        self._stage_project(view, project, entries)

    def _refuse_mixed_rocm(self, view: IndexFolder, project: str, entries: Mapping[str, IndexEntry]) -> None:
        """Raise DataError for a wheel that carries its ROCm beside one that requires ROCm's packages."""

        def requires(name: str) -> bool:
            path = self._publication.current_path(view.sidecar_of(project, entries[name]))
            return path.is_file() and wheel_file.requires_rocm(path.read_bytes(), name)

        if pair := wheel_file.find_mixed_rocm(entries, requires):
            raise errors.DataError(
                f"{pair[0]} carries its ROCm, and {pair[1]} of the same version requires ROCm's packages:"
                " installers take either",
                tip="fat and thin wheels need an index each",
            )

    def _note_requirements(self, view: IndexFolder, project: str, entries: Mapping[str, IndexEntry]) -> None:
        """Note what the wheels require that come or go: pages change in that order (``_order_projects``)."""
        old_entries, required = view.read_entries(project), self._requires.setdefault(project, set())
        self._adds = self._adds or not entries.keys() <= old_entries.keys()
        for name in entries.keys() ^ old_entries.keys():
            entry = entries.get(name) or old_entries[name]
            sidecar = self._publication.current_path(view.sidecar_of(project, entry))
            if sidecar.is_file():
                required |= wheel_file.list_required_names(sidecar.read_bytes())

    def _order_projects(self) -> list[str]:
        """Return the projects that change: when wheels come, what they require before them; else after them.

        Whoever reads meanwhile, or after a kill, finds what a wheel requires wherever he finds the wheel.
        """
        ordered: dict[str, None] = {}
        begun: set[str] = set()

        def add(project: str) -> None:
            if project not in begun:
                begun.add(project)
                for name in sorted(self._requires[project] & self._requires.keys()):
                    add(name)
                ordered[project] = None

        for project in sorted(self._requires):
            add(project)
        return list(ordered) if self._adds else list(reversed(ordered))

    def place_wheel(self, target: Path, part: Path) -> None:
        """Have a wheel that was written to ``new_part`` appear as ``target``."""
        self._publication.stage_part(target, part, publish.PublishRank.WHEEL)

    def put_metadata(self, target: Path, content: bytes) -> None:
        """Have the METADATA of a wheel lie at ``target``."""
        self._publication.stage_content(target, content, publish.PublishRank.METADATA)

    def remove_file(self, path: Path) -> None:
        """Have a file removed when nothing links to it any more."""
        self._publication.stage_removal(path)

    def remove_beside(self, view: IndexFolder, project: str, entry: IndexEntry) -> None:
        """Have what lies beside a wheel that is gone removed: METADATA, provenance, statement."""
        files = (view.sidecar_of(project, entry), view.provenance_of(project, entry))
        for file in (*files, *view.statements_of(project, entry)):
            if file is not None and file.exists():
                self.remove_file(file)

    def new_part(self) -> Path:
        """Return a path for a file in the making, on the file system of the index."""
        return self._publication.new_part()

    def _stage_project(self, view: IndexFolder, project: str, own_entries: dict[str, IndexEntry]) -> None:
        if view not in self._names:
            self._names[view] = set(view.list_projects())
        general_entries = self.read_entries(IndexFolder(self.root), project) if view.family else {}
        if stage_project(self._publication, view, project, own_entries, general_entries):
            self._names[view].add(project)
        else:
            self._names[view].discard(project)

    def finish(self, *, everything: bool = False) -> None:
        """Write what follows, and make it all appear; ``everything``: the root pages in any case."""
        self._stage_families()
        if everything:
            self._names.setdefault(IndexFolder(self.root), set(IndexFolder(self.root).list_projects()))
        every = sorted({*self._known, *(view.family for view in self._names)} - {""})
        for view, names in self._names.items():
            stage_root_pages(self._publication, view, sorted(names), [] if view.family else every)
        if not self._publication.is_empty:
            note = self.root / STATE_FOLDER / PENDING_NOTE
            self._publication.commit(note, self.root, projects=self._order_projects())

    def _stage_families(self) -> None:
        """Stage the pages that follow: a wheel for everybody is on every family's pages."""
        general = [project for family, project in self._keys if not family]
        new = {family for family, _ in self._keys if family} - self._known
        for family in sorted(self._known | new):
            follow = {*general, *(IndexFolder(self.root).list_own_projects() if family in new else [])}
            for project in sorted(follow):
                if (family, project) not in self._keys or project in general:
                    view = IndexFolder(self.root, family)
                    self._stage_project(view, project, self.read_entries(view, project))
        if new or self.lost_families:  # their names are on the root page
            listed = json.dumps(sorted(self._known | new)) + "\n"
            self._publication.stage_content(
                path_of_families(self.root), listed.encode(), publish.PublishRank.STATE
            )
            self._names.setdefault(IndexFolder(self.root), set(IndexFolder(self.root).list_projects()))


@contextlib.contextmanager
def change_index(
    root: Path,
    *,
    action: str,
    create: bool = False,
    everything: bool = False,
    drop_missing: bool = False,
    patience: float = LOCK_PATIENCE,
) -> Iterator[IndexChange]:
    """Hold an index and give a change to fill; it is made at the end, unless something is raised.

    DataError for a family whose folder is gone, unless it is to be dropped.
    """
    require_index(root, create=create)
    _require_own_page(root)
    with lock_folder(root / STATE_FOLDER, purpose=action, patience=patience):
        if (note := root / STATE_FOLDER / PENDING_NOTE).exists():
            log.log_note(f"{root}: finishing a change that was cut short")
            publish.finish_publication(note, root)
        with publish.FolderPublication.begin(root / STATE_FOLDER / "parts") as publication:
            change = IndexChange(root, publication)
            if change.lost_families and not drop_missing:
                raise errors.DataError(
                    f"{root} lists families whose folders are gone: {', '.join(change.lost_families)}",
                    tip=f"put them back, or drop them with `rocm-wheels index build {root} --drop-missing`",
                )
            yield change
            change.finish(everything=everything)


def _require_own_page(root: Path) -> None:
    """Raise UsageError when the folder has a front page that is no index: it would be lost."""
    page = root / HTML_PAGE
    if page.is_file() and pages.REPOSITORY_VERSION not in page.read_bytes():
        tip = "name another folder, or move that page away"
        raise errors.UsageError(f"{page} is not the page of an index made here", tip=tip)


def require_index(root: Path, *, create: bool = False) -> None:
    """Raise UsageError unless a folder is an index, or with ``create`` can become one."""
    if create and (root.is_dir() or not root.exists()):
        return
    if not root.is_dir():
        state = "not a folder" if root.exists() else "not there"
        raise errors.UsageError(f"{root} is {state}", tip="name the folder of the index")
    if not (root / STATE_FOLDER).is_dir():
        tip = f"`rocm-wheels index build {root}` makes one of the wheels in it"
        raise errors.UsageError(f"{root} is not an index", tip=tip)
