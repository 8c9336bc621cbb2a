"""Making an index of the wheels that lie in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.index.changing import PATIENCE, Change, changing
from rocm_wheels.index.entries import METADATA_SUFFIX, SDIST_SUFFIX, Entry, name_parts
from rocm_wheels.index.taking import State, Taken, take_file, take_listed
from rocm_wheels.index.views import (
    STATE,
    View,
    checked_family,
    families,
    refuse_family_name,
    refuse_other_bytes,
)
from rocm_wheels.parallel import each

_MOST_SHOWN = 20
_FILES = (".whl", SDIST_SUFFIX)


@dataclass(frozen=True)
class Lying:
    """A file in a folder, and whether METADATA lies beside it, as far as it needs that."""

    path: str
    state: State
    has_sidecar: bool


@dataclass(frozen=True)
class Built:
    """How many files and projects the index has now, how many are new, and the files that are gone."""

    files: int
    projects: int
    new: int
    gone: tuple[str, ...]


def build_index(
    root: Path,
    *,
    now: str,
    new_families: Sequence[str] = (),
    digests: Mapping[str, str] | None = None,
    drop_missing: bool = False,
    patience: float = PATIENCE,
) -> Built:
    """Write the pages for the wheels in ``root`` and in the folders of their projects, and of families.

    What is known of a wheel (by name, size and time) is not read again. DataError for wheels that are
    gone (unless ``drop_missing``), replaced by other bytes, damaged, or in a folder of another name.
    """
    if not root.is_dir():
        raise UsageError(f"{root} is {'not a folder' if root.exists() else 'not there'}")
    for family in new_families:
        checked_family(root, family)
        if not (root / family).is_dir():
            raise UsageError(f"--family {family}: there is no folder {root / family}")
    count, new, projects, gone = 0, 0, set[str](), list[str]()
    with changing(root, what="index build", create=True, everything=True, patience=patience) as change:
        reader = _Reader(change, now, digests or {})
        names = sorted({*families(root), *new_families})
        for view in [View(root, family) for family in ["", *names]]:
            for project, found in _scan(view, names):
                refuse_family_name(root, project, names)
                had = change.read(view, project)
                entries = reader.entries(view, project, found, had)
                new += len(entries.keys() - had.keys())
                gone += [str(view.file_of(project, e)) for name, e in had.items() if name not in entries]
                change.settle(view, project, entries)
                count += len(entries)
                projects |= {project} if entries else set()
        if gone and not drop_missing:
            shown = "\n".join(sorted(gone)[:_MOST_SHOWN])
            raise DataError(
                f"{len(gone)} wheels of the index are gone:\n{shown}",
                tip="put them back, or say that they are to be dropped from its pages: --drop-missing",
            )
    return Built(count, len(projects), new, tuple(sorted(gone)))


def _scan(view: View, family_names: Iterable[str]) -> Iterator[tuple[str, dict[str, Lying]]]:
    """Yield every project with its wheels in the folder and in the folder of its name, one after another.

    DataError for a wheel in a folder of another name, and for one that lies in both.
    """
    beside: dict[str, dict[str, Lying]] = {}
    for name, file in _wheels(view.folder, "../"):
        beside.setdefault(name_parts(name)[0], {})[name] = file
    skipped = {STATE, *(() if view.family else family_names)}
    with os.scandir(view.folder) as listed:
        folders = {item.name for item in listed if item.is_dir() and item.name not in skipped}
    known = set(view.own_projects())
    for project in sorted({*beside, *folders, *known}):
        found = beside.pop(project, {})
        folder = view.folder / project
        for name, file in _wheels(folder, "") if project in folders else ():
            belongs = name_parts(name)[0]
            if belongs != project:
                raise DataError(
                    f"{folder} holds {name}: wheels lie in {belongs}/ or beside it",
                    tip=f"move it there; if {project} is a GPU family, say so: --family {project}",
                )
            if name in found:
                raise DataError(f"{name} lies in {view.folder} and in {folder}", tip="remove one")
            found[name] = file
        if found or project in known:
            yield project, found


def _wheels(folder: Path, place: str) -> Iterable[tuple[str, Lying]]:
    with os.scandir(folder) as listed:
        items = [item for item in listed if item.name.endswith((*_FILES, METADATA_SUFFIX))]
    names = {item.name for item in items}
    for item in items:
        if item.name.endswith(_FILES) and not item.name.startswith(".") and item.is_file():
            state = item.stat()
            beside = item.name + METADATA_SUFFIX in names or item.name.endswith(SDIST_SUFFIX)
            lying = State(item.name, state.st_size, state.st_mtime_ns, place)
            yield item.name, Lying(item.path, lying, beside)


@dataclass(frozen=True)
class _Reader:
    """Reads the wheels of a project that are not known yet, or have changed."""

    change: Change
    now: str
    digests: Mapping[str, str]

    def entries(
        self, view: View, project: str, found: Mapping[str, Lying], had: Mapping[str, Entry]
    ) -> dict[str, Entry]:
        """Return the wheels of a project: those that are as they were, others read; remote ones are kept."""
        entries = {name: entry for name, entry in had.items() if entry.is_remote}
        listed, unread = [], []
        for name, file in found.items():
            known, state = had.get(name), file.state
            same = known is not None and (known.size, known.changed) == (state.size, state.changed)
            if known is not None and same and file.has_sidecar:
                entries[name] = known if known.place == state.place else replace(known, place=state.place)
            elif name in self.digests and (
                taken := take_listed(file.path, state, now=self.now, digest=self.digests[name])
            ):
                listed.append(taken)
            else:
                unread.append(file)
        jobs = os.cpu_count() or 1
        read = each(self._take, unread, jobs=jobs) if len(unread) > 1 else map(self._take, unread)
        for wheel in (*listed, *read):
            entry, known = wheel.entry, had.get(wheel.entry.name)
            if known is not None:
                refuse_other_bytes(entry.name, known.sha256, entry.sha256, where=view.family or "for all")
                entry = replace(entry, uploaded=known.uploaded, yanked=known.yanked)
            if wheel.metadata is not None and not wheel.beside:
                self.change.put_metadata(view.sidecar_of(project, entry), wheel.metadata)
            entries[entry.name] = entry
        return entries

    def _take(self, file: Lying) -> Taken:
        path = Path(file.path)
        return take_file(path, now=self.now, digest=self.digests.get(path.name), place=file.state.place)
