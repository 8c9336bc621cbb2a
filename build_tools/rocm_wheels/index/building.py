"""Making an index of the wheels that lie in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.index.changing import LOCK_PATIENCE, IndexChange, change_index
from rocm_wheels.index.entries import METADATA_SUFFIX, SDIST_SUFFIX, IndexEntry, parse_file_name
from rocm_wheels.index.taking import WheelFileState, IndexedFile, read_wheel_file, read_listed_wheel
from rocm_wheels.index.views import (
    STATE_FOLDER,
    IndexFolder,
    check_family_name,
    list_families,
    refuse_family_name,
    refuse_other_bytes,
)
from rocm_wheels.parallel import run_in_parallel

_MOST_MISSING_SHOWN = 20
_FILE_SUFFIXES = (".whl", SDIST_SUFFIX)


@dataclass(frozen=True)
class FolderFile:
    """A file in a folder, and whether METADATA lies beside it, as far as it needs that."""

    path: str
    state: WheelFileState
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
    patience: float = LOCK_PATIENCE,
) -> BuiltIndex:
    """Write the pages for the wheels in ``root`` and in the folders of their projects, and of families.

    What is known of a wheel (by name, size and time) is not read again. DataError for wheels that are
    gone (unless ``drop_missing``), replaced by other bytes, damaged, or in a folder of another name.
    """
    if not root.is_dir():
        raise UsageError(f"{root} is {'not a folder' if root.exists() else 'not there'}")
    for family in new_families:
        check_family_name(root, family)
        if not (root / family).is_dir():
            raise UsageError(f"--family {family}: there is no folder {root / family}")
    count, new, projects, missing = 0, 0, set[str](), list[str]()
    with change_index(root, action="index build", create=True, everything=True, patience=patience) as change:
        reader = _EntryReader(change, now, digests or {})
        names = sorted({*list_families(root), *new_families})
        for view in [IndexFolder(root, family) for family in ["", *names]]:
            for project, files in _scan_projects(view, names):
                refuse_family_name(root, project, names)
                old_entries = change.read_entries(view, project)
                entries = reader.read_entries(view, project, files, old_entries)
                new += len(entries.keys() - old_entries.keys())
                missing += [
                    str(view.file_of(project, e)) for name, e in old_entries.items() if name not in entries
                ]
                change.set_entries(view, project, entries)
                count += len(entries)
                projects |= {project} if entries else set()
        if missing and not drop_missing:
            listed = "\n".join(sorted(missing)[:_MOST_MISSING_SHOWN])
            raise DataError(
                f"{len(missing)} wheels of the index are gone:\n{listed}",
                tip="put them back, or say that they are to be dropped from its pages: --drop-missing",
            )
    return BuiltIndex(count, len(projects), new, tuple(sorted(missing)))


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
                raise DataError(
                    f"{folder} holds {name}: wheels lie in {project_of_file}/ or beside it",
                    tip=f"move it there; if {project} is a GPU family, say so: --family {project}",
                )
            if name in files:
                raise DataError(f"{name} lies in {view.folder} and in {folder}", tip="remove one")
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
            lying = WheelFileState(item.name, state.st_size, state.st_mtime_ns, place)
            yield item.name, FolderFile(item.path, lying, has_metadata)


@dataclass(frozen=True)
class _EntryReader:
    """Reads the wheels of a project that are not known yet, or have changed."""

    change: IndexChange
    now: str
    digests: Mapping[str, str]

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
                listed_wheel := read_listed_wheel(file.path, state, now=self.now, digest=self.digests[name])
            ):
                listed.append(listed_wheel)
            else:
                unread.append(file)
        jobs = os.cpu_count() or 1
        read = (
            run_in_parallel(self._read_file, unread, jobs=jobs)
            if len(unread) > 1
            else map(self._read_file, unread)
        )
        for wheel in (*listed, *read):
            entry, old_entry = wheel.entry, old_entries.get(wheel.entry.name)
            if old_entry is not None:
                refuse_other_bytes(entry.name, old_entry.sha256, entry.sha256, where=view.family or "for all")
                entry = replace(entry, uploaded=old_entry.uploaded, yanked=old_entry.yanked)
            if wheel.metadata is not None and not wheel.beside:
                self.change.put_metadata(view.sidecar_of(project, entry), wheel.metadata)
            entries[entry.name] = entry
        return entries

    def _read_file(self, file: FolderFile) -> IndexedFile:
        path = Path(file.path)
        return read_wheel_file(path, now=self.now, digest=self.digests.get(path.name), place=file.state.place)
