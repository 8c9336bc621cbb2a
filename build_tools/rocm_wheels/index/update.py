"""Update an index in a folder: add (all or none), build, yank.

All that changes is stored beside before, so that a full disk changes nothing. Then it appears: files and
what lies beside them; project after project its variants files, its page as HTML and, last, that as JSON,
which is what is known; root pages and the page for ``--find-links``. Projects come after what their new
wheels require, so that nobody finds a torch without its triton. A change that was cut short is finished by
the same command, as what it had not come to is not known yet; `index build` makes all pages again.

One writer at a time holds the lock (``flock``: on this machine, and on network drives that pass it on;
an object store has none, so there it must be one writer that uploads).
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urljoin

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, files, parallel, tables
from rocm_wheels.index import folder, pages, provenance_object, wheel_file
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, METADATA_SUFFIX, IndexEntry, IndexFolder
from rocm_wheels.index.provenance_object import PROVENANCE_SUFFIX
from rocm_wheels.models import project_names, versions
from rocm_wheels.wheels import statement

LOCK_PATIENCE = 600.0  # seconds for another writer to end
_SYNC_JOBS = 16  # they wait for the disk
_SIGNED_SUFFIXES = (statement.STATEMENT_SUFFIX, statement.STATEMENT_SIGNATURE_SUFFIX)
_FOLDERS_BESIDE = ("", "../")  # places of wheels whose folder somebody may name with --find-links
_MOST_MISSING_SHOWN = 20
_NAME_TIP = "name a wheel's file, or a release: torch==2.9.1+rocm7.1.0"


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
    public_url: str | None = None,
    startup_files: Collection[str] = (),
    patience: float = LOCK_PATIENCE,
) -> AddedWheels:
    """Add wheels; they are copied (reflink where the system can). The same bytes again are left.

    DataError for a wheel that is damaged, dangerous or of other bytes than the index has; ``startup_files``
    are globs of the ``.pth`` that wheels may have.

    A provenance object beside a wheel (``<wheel>.provenance``) comes along; pages name it by its whole URL,
    for which ``public_url`` says where the index is seen. A statement and its signature come along as well:
    installers look for them beside the wheel.
    """
    if root.exists():
        _require_folder(root)
    if family:
        folder.check_family_name(root, family)
    public_base = provenance_object.check_provenance_base(public_url)
    view = IndexFolder(root, family)
    reading = wheel_file.FileReader(now, startup_files)
    paths: dict[str, Path] = {}
    for path in wheels:
        folder.parse_file_name(path.name)  # before anything is hashed
        other = paths.setdefault(path.name, path)
        if other.resolve() != path.resolve() and files.hash_file(other) != files.hash_file(path):
            raise errors.DataError(f"{other} and {path} have the same name and different bytes")
    projects = dict.fromkeys(folder.parse_file_name(name)[0] for name in paths)
    listed = {name: entry for project in projects for name, entry in view.read_entries(project).items()}

    def read(path: Path) -> wheel_file.IndexedFile:
        file, entry = wheel_file.find_new_file(path), listed.get(path.name)
        lies = view.file_of(folder.parse_file_name(path.name)[0], entry) if entry is not None else None
        is_there = lies is not None and path.resolve() == lies.resolve()
        return reading.read(file, entry if is_there else None)

    read_wheels = parallel.run_in_parallel(read, paths.values(), jobs=os.cpu_count() or 1)
    new = set[str]()
    with change_index(root, patience=patience, public_base=public_base) as change:
        for project in projects:
            folder.refuse_family_name(root, project, change.families)
            entries = change.read_entries(view, project)
            own_wheels = [wheel for wheel in read_wheels if wheel.project == project]
            new |= change.take(view, project, own_wheels, entries, entries)
    unchanged = tuple(name for name in paths if name not in new)
    return AddedWheels(tuple(name for name in paths if name in new), unchanged)


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
    _require_folder(root)
    for family in new_families:
        folder.check_family_name(root, family)
        if not (root / family).is_dir():
            raise errors.UsageError(
                f"--family {family}: there is no folder {root / family}",
                tip=f"`rocm-wheels index build {root} FILE --family {family}` makes one",
            )
    public_base = provenance_object.check_provenance_base(public_url)
    reading = wheel_file.FileReader(now, startup_files)
    count, new, projects = 0, 0, set[str]()
    with change_index(root, drop_missing=drop_missing, patience=patience, public_base=public_base) as change:
        families = sorted({*change.families, *new_families})
        missing = [str(root / family) for family in change.lost_families]
        for view in [IndexFolder(root, family) for family in ["", *families]]:
            change.note_index(view)
            for project, present in _scan_projects(view, families):
                folder.refuse_family_name(root, project, families)
                entries = change.read_entries(view, project)
                kept: dict[str, IndexEntry] = {}
                for name in entries.keys() - {file.name for file in present}:
                    missing.append(str(view.file_of(project, entries[name])))
                    change.drop(view, project, entries[name])
                new += len(change.take(view, project, _read_files(reading, present, entries), entries, kept))
                count += len(kept)
                projects |= {project} if kept else set()
        if missing and not drop_missing:
            listed = "\n".join(sorted(missing)[:_MOST_MISSING_SHOWN])
            raise errors.DataError(
                f"{tables.format_count(len(missing), 'wheel')} of the index missing:\n{listed}",
                tip="put them back, or drop them from the pages with --drop-missing",
            )
    return BuiltIndex(count, len(projects), new, tuple(sorted(missing)))


def _scan_projects(
    view: IndexFolder, families: Collection[str]
) -> Iterator[tuple[str, list[wheel_file.FoundFile]]]:
    """Yield every project with its files in the folder and in the folder of its name, one after another.

    DataError for a wheel in a folder of another name, and for one that lies in both.
    """
    beside: dict[str, list[wheel_file.FoundFile]] = {}
    for file in wheel_file.find_files(view.folder, "../"):
        beside.setdefault(folder.parse_file_name(file.name)[0], []).append(file)
    skipped = {folder.STATE_FOLDER, *(() if view.family else families)}
    with os.scandir(view.folder) as listed:
        folders = {item.name for item in listed if item.is_dir() and item.name not in skipped}
    listed_projects = set(view.list_projects())
    for project in sorted({*beside, *folders}):
        present = beside.pop(project, [])
        names, home = {file.name for file in present}, view.folder / project
        for file in wheel_file.find_files(home, "") if project in folders else ():
            project_of_file = folder.parse_file_name(file.name)[0]
            if project_of_file != project:
                raise errors.DataError(
                    f"{home} holds {file.name}: wheels lie in {project_of_file}/ or beside it",
                    tip=f"move it there; if {project} is a GPU family, say so: --family {project}",
                )
            if file.name in names:
                raise errors.DataError(f"{file.name} lies in {view.folder} and in {home}", tip="remove one")
            present.append(file)
        if present or project in listed_projects:
            yield project, present


def _read_files(
    reading: wheel_file.FileReader,
    present: Sequence[wheel_file.FoundFile],
    entries: Mapping[str, IndexEntry],
) -> list[wheel_file.IndexedFile]:
    """Read the files of a project, several at a time where that is worth it: most are known."""
    slow = [file for file in present if file.name not in entries]
    jobs = os.cpu_count() or 1 if len(slow) > 1 else 0
    read = partial(parallel.run_in_parallel, jobs=jobs) if jobs else map
    return list(read(lambda file: reading.read(file, entries.get(file.name)), present))


def yank_wheels(
    root: Path, words: Sequence[str], *, reason: str | None, patience: float = LOCK_PATIENCE
) -> list[str]:
    """Yank wheels (PEP 592) with a ``reason`` ("" for none); None takes it back. Return what changed.

    ``root`` is an index, or the folder of a family in it.
    """
    changed = []
    _require_folder(root)
    family, above = "", root.parent
    if (above / folder.STATE_FOLDER).is_dir() and root.name in folder.list_families(above):
        root, family = above, root.name
    if not (root / folder.STATE_FOLDER).is_dir():
        tip = f"`rocm-wheels index build {root}` makes one of the wheels in it"
        raise errors.UsageError(f"{root} is not an index", tip=tip)
    with change_index(root, patience=patience) as change:
        view = IndexFolder(root, family)
        for word in words:
            project, version = _parse_name(word)
            entries = change.read_entries(view, project)
            names = [
                name
                for name, entry in entries.items()
                if (entry.name == word if version is None else entry.version == version)
            ]
            if not names:
                near = tables.suggest_name(word, list(entries)) if entries else ""
                raise errors.UsageError(f"{view.folder} has no {word}{near}", tip=_NAME_TIP)
            for name in names:
                if entries[name].yanked != reason:
                    entries[name] = replace(entries[name], yanked=reason)
                    changed.append(name)
            change.set_entries(view, project, entries, ())
    return changed


def _parse_name(word: str) -> tuple[str, Version | None]:
    if word.endswith(wheel_file.FILE_SUFFIXES):
        return folder.parse_file_name(word)[0], None
    name, equals, version = word.partition("==")
    try:
        if equals:
            return canonicalize_name(name.strip()), Version(version.strip())
    except InvalidVersion:
        raise errors.UsageError(f"{word}: {version!r} is not a version", tip=_NAME_TIP) from None
    raise errors.UsageError(f"{word} is neither a wheel nor a release", tip=_NAME_TIP)


def make_project_files(
    view: IndexFolder,
    project: str,
    own_entries: Mapping[str, IndexEntry],
    general_entries: Mapping[str, IndexEntry],
) -> dict[Path, bytes]:
    """Return what the folder of a project holds beside its wheels, as it is to appear; nothing without any.

    Each variants file is there for the page, by its digest (a page that somebody is reading stays true), and
    beside the wheels. ``general_entries`` are those of the index for everybody, none of its own pages.
    """
    entries = folder.sort_entries(folder.combine_entries(view, project, own_entries, general_entries))
    if not entries:
        return {}
    home = view.folder / project
    variants = pages.make_variants_files(project, entries)
    places = sorted({e.place for e in entries if e.variant is not None and e.place in _FOLDERS_BESIDE})
    made = {
        place / file.name: file.content
        for file in variants
        for place in (home / file.folder, *(home if place == "" else view.folder for place in places))
    }
    keys = folder.make_page_keys(view, own_entries)
    made[home / JSON_PAGE] = pages.make_project_json(project, entries, variants, keys)
    made[home / HTML_PAGE] = pages.make_project_html(project, entries, variants)
    return made


def make_root_files(view: IndexFolder, names: Sequence[str], families: Sequence[str]) -> dict[Path, bytes]:
    """Return the root pages of an index, but for the page for ``--find-links``."""
    return {
        view.folder / JSON_PAGE: pages.make_root_json(names, families),
        view.folder / HTML_PAGE: pages.make_root_html(names, families),
    }


# in which order what changes appears: files first, then project after project the next five, and root pages
FILES, VARIANTS, HTML, BESIDE, JSON, LEFT, ROOT = range(7)


@dataclass(frozen=True)
class _Step:
    """A file that appears out of ``part``, or goes (None); ``when`` is one of the above."""

    when: int
    project: str
    part: Path | None


class IndexChange:
    """What a command changes. Projects are settled one after another; none is kept in memory.

    New contents lie in a folder beside until ``commit`` gives them their names.
    """

    def __init__(self, root: Path, *, public_base: str) -> None:
        self.root = root
        self.parts = root / folder.STATE_FOLDER / "parts"
        self._public_base = public_base  # where people see the index, "" where nobody says
        self._part_count = 0
        self._steps: dict[Path, _Step] = {}
        self._names: dict[IndexFolder, set[str]] = {}  # projects of the indexes whose root pages may change
        self._settled: dict[tuple[str, str], None] = {}
        self._requires: dict[str, set[str]] = {}  # what wheels require that come or go, by project
        self._adds = False
        listed = folder.list_families(root)
        self.lost_families = [family for family in listed if not (root / family).is_dir()]
        self.families = [family for family in listed if family not in self.lost_families]

    def new_part(self) -> Path:
        """Return a path for a file in the making, on the file system of the index."""
        self._part_count += 1
        return self.parts / str(self._part_count)

    def put(self, path: Path, content: bytes, when: int, project: str = "") -> bool:
        """Have a file hold a content, unless it does already; tell whether it changes."""
        self._steps.pop(path, None)
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return False
        part = self.new_part()
        part.write_bytes(content)
        self._steps[path] = _Step(when, project, part)
        return True

    def remove(self, path: Path, when: int, project: str) -> None:
        """Have a file removed, if it is there."""
        self._steps.pop(path, None)
        if path.exists():
            self._steps[path] = _Step(when, project, None)

    def drop(self, view: IndexFolder, project: str, entry: IndexEntry) -> None:
        """Have what lies beside a wheel that is gone removed: METADATA, provenance, statement."""
        for suffix in (METADATA_SUFFIX, PROVENANCE_SUFFIX, *_SIGNED_SUFFIXES):
            file = view.beside(project, entry, suffix)
            if file.exists():
                if suffix == METADATA_SUFFIX:
                    self.require(project, file.read_bytes())
                self.remove(file, BESIDE, project)

    def require(self, project: str, metadata: bytes) -> None:
        """Note what a wheel requires that comes or goes: pages change in that order."""
        self._requires.setdefault(project, set()).update(wheel_file.list_required_names(metadata))

    def note_index(self, view: IndexFolder) -> set[str]:
        """Have the root pages of an index written again; return the projects that they list."""
        return self._names.setdefault(view, set(view.list_projects()))

    def _find(self, path: Path) -> Path | None:
        """Return where the content lies that a file will have; None when it is to go."""
        return self._steps[path].part if path in self._steps else path

    def read_entries(self, view: IndexFolder, project: str) -> dict[str, IndexEntry]:
        """Return a project's own files, as settled so far."""
        page = self._find(view.page_of(project))
        return {} if page is None else view.read_entries(project, page)

    def take(
        self,
        view: IndexFolder,
        project: str,
        wheels: Sequence[wheel_file.IndexedFile],
        old_entries: Mapping[str, IndexEntry],
        entries: dict[str, IndexEntry],
    ) -> set[str]:
        """Put wheels among the entries of their project; return the names of those that it had not."""
        new = set[str]()
        for wheel in wheels:
            file, entry = wheel.file, wheel.entry
            listed = old_entries.get(entry.name)
            if listed is None:
                new.add(entry.name)
            elif entry is not listed:
                folder.refuse_other_bytes(
                    entry.name, listed.sha256, entry.sha256, where=view.family or "for all"
                )
                entry = replace(
                    entry,
                    uploaded=listed.uploaded,
                    yanked=listed.yanked,
                    provenance=listed.provenance,
                    place=file.place if file.is_in_index else listed.place,
                )
            if not file.is_in_index:
                target = view.file_of(project, entry)
                if listed and target.is_file():
                    entry = replace(entry, changed=listed.changed)
                elif not target.exists():
                    self._stage_file(project, file, target)
                elif not file.path.samefile(target):
                    where, digest = "there already, not listed yet", files.hash_file(target)
                    folder.refuse_other_bytes(entry.name, digest, entry.sha256, where=where)
            if wheel.metadata is not None:
                self.require(project, wheel.metadata)
                self.put(view.beside(project, entry, METADATA_SUFFIX), wheel.metadata, FILES, project)
            entries[entry.name] = self._take_companions(view, project, file, entry)
        self.set_entries(view, project, entries, new)
        return new

    def _stage_file(self, project: str, file: wheel_file.FoundFile, target: Path) -> None:
        part = self.new_part()
        with file.path.open("rb") as wheel, part.open("wb") as copy:
            files.copy_content(wheel, copy)
        os.utime(part, ns=(file.changed, file.changed))
        if wheel_file.find_new_file(file.path) != file:
            raise errors.DataError(f"{file.path} changed while it was added")
        self._steps[target] = _Step(FILES, project, part)

    def _take_companions(
        self, view: IndexFolder, project: str, file: wheel_file.FoundFile, entry: IndexEntry
    ) -> IndexEntry:
        """Take provenance object and statement beside a file along; DataError for one about other bytes."""
        if file.has_provenance:
            path = file.path.with_name(file.name + PROVENANCE_SUFFIX)
            content = path.read_bytes()
            provenance_object.require_provenance_object(
                content, where=str(path), file_name=entry.name, sha256=entry.sha256
            )
            entry = replace(entry, provenance=self._find_provenance_url(view, project, entry))
            self.put(view.beside(project, entry, PROVENANCE_SUFFIX), content, FILES, project)
        elif file.is_in_index:
            return replace(entry, provenance="") if entry.provenance else entry
        stated = None if file.is_in_index else statement.read_statement(file.path)
        if stated is None:
            return entry
        if (stated.name, stated.sha256) != (entry.name, entry.sha256):
            raise errors.DataError(
                f"the statement beside {file.path} is about {stated.name} with sha256 {stated.sha256}"
            )
        for suffix in _SIGNED_SUFFIXES:
            source, target = file.path.with_name(file.name + suffix), view.beside(project, entry, suffix)
            if source.is_file():
                self.put(target, source.read_bytes(), FILES, project)
            else:
                self.remove(target, FILES, project)  # the signature of another statement
        return entry

    def _find_provenance_url(self, view: IndexFolder, project: str, entry: IndexEntry) -> str:
        """Return where people see a provenance object: below the public URL.

        UsageError where nobody said where the index is seen, now or before.
        """
        name = folder.escape_file_name(entry.name) + PROVENANCE_SUFFIX
        if not self._public_base and not entry.provenance:
            raise errors.UsageError(
                f"{entry.name} has a provenance object, which pages name by its whole URL",
                tip="say where people see the index: --public-url https://…",
            )
        page = f"{self._public_base}{view.family and view.family + '/'}{project}/"
        return urljoin(page, f"{entry.place}{name}") if self._public_base else entry.provenance

    def set_entries(
        self, view: IndexFolder, project: str, entries: dict[str, IndexEntry], new: Collection[str]
    ) -> None:
        """Say what the own files of a project are from now on, and which of them are new."""
        self._settled[view.family, project] = None
        self._requires.setdefault(project, set())
        self._adds = self._adds or bool(new)

        def requires(name: str) -> bool:
            path = self._find(view.beside(project, entries[name], METADATA_SUFFIX))
            return path is not None and path.is_file() and wheel_file.requires_rocm(path.read_bytes(), name)

        if new and (pair := wheel_file.find_mixed_rocm(entries, new, requires)):
            raise errors.DataError(
                f"{pair[0]} carries its ROCm, and {pair[1]} of the same version requires ROCm's packages:"
                " installers take either",
                tip="fat and thin wheels need an index each",
            )
        times = {name: entry.changed for name, entry in sorted(entries.items())}
        if times:
            self.put(view.times_of(project), json.dumps(times).encode(), FILES, project)
        else:
            self.remove(view.times_of(project), FILES, project)
        self._stage_project(view, project, entries)

    def _stage_project(self, view: IndexFolder, project: str, entries: dict[str, IndexEntry]) -> None:
        """Stage the pages of a project; what its page before links to stays for one change more."""
        general = self.read_entries(IndexFolder(self.root), project) if view.family else {}
        made = make_project_files(view, project, entries, general)
        home, page = view.folder / project, view.page_of(project)
        turns = {home / HTML_PAGE: HTML, page: JSON}
        changes = [self.put(path, text, turns.get(path, VARIANTS), project) for path, text in made.items()]
        before = page.read_bytes() if any(changes) and made and page.is_file() else b""
        pattern = f"{project.replace('-', '_')}-*{folder.VARIANTS_SUFFIX}"
        left = [*home.glob(pattern), *view.folder.glob(pattern), *turns]
        left += [
            path
            for path in home.glob(f"{folder.VARIANTS_FOLDER}/*/*{folder.VARIANTS_SUFFIX}")
            if path.parent.name.encode() not in before
        ]
        for path in left:
            if path not in made:
                self.remove(path, turns.get(path, LEFT), project)
        names = self.note_index(view)
        (names.add if made else names.discard)(project)

    def commit(self) -> None:
        """Stage what follows, and make it all appear."""
        general = [project for family, project in self._settled if not family]
        new_families = {family for family, _ in self._settled if family} - {*self.families}
        families = sorted({*self.families, *new_families})
        for family in families:  # what is for everybody is on every family's pages
            view = IndexFolder(self.root, family)
            follow = IndexFolder(self.root).list_projects() if family in new_families else []
            for project in sorted({*general, *follow}):
                self._stage_project(view, project, self.read_entries(view, project))
        for view in (IndexFolder(self.root, family) for family in ("", *families)) if self._adds else ():
            self._refuse_asan_mixture(view)
        if new_families:  # the root page names them
            self.note_index(IndexFolder(self.root))
        for view, names in sorted(self._names.items()):  # the page that names families first
            for project in sorted(names):
                page = self._find(view.folder / project / HTML_PAGE)
                if page is None or not page.is_file():  # somebody has removed it
                    self._stage_project(view, project, self.read_entries(view, project))
            self._stage_root(view, sorted(names), [] if view.family else families)
        parts = [step.part for step in self._steps.values() if step.part is not None]
        parallel.run_in_parallel(_sync_file, parts, jobs=_SYNC_JOBS)
        turns = {project: turn for turn, project in enumerate(self._order_projects())}

        def find_turn(item: tuple[Path, _Step]) -> tuple[int, int, int]:
            step = item[1]
            # root pages come after the projects that they name for the first time, and before those that go
            phase = 0 if step.when == FILES else 2 if step.when < ROOT else 3 if self._adds else 1
            return phase, turns.get(step.project, -1), step.when

        for path, step in sorted(self._steps.items(), key=find_turn):
            if step.part is None:
                _remove_file(path)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if (mode := step.part.stat().st_mode) & 0o444 != 0o444:  # a web server is another user
                step.part.chmod(mode | 0o444)
            os.replace(step.part, path)

    def _refuse_asan_mixture(self, view: IndexFolder) -> None:
        """Raise DataError where people find wheels with AddressSanitizer beside those without.

        Projects that we have recipes of are all alike; another one is like itself.
        """
        ours = project_names.find_wheel_projects()
        found: dict[str, dict[bool, str]] = {}
        for project in sorted({*ours, *(project for _, project in self._settled)}):
            page = self._find(view.page_of(project))
            shown = json.loads(page.read_bytes())["files"] if page is not None and page.is_file() else ()
            wheels = [file["filename"] for file in shown if file["filename"].endswith(".whl")]
            one_a_version = {name.split("-")[1]: name for name in wheels}
            kinds = found.setdefault("" if project in ours else project, {})
            kinds |= {versions.is_asan_version(version): name for version, name in one_a_version.items()}
            if len(kinds) > 1:
                raise errors.DataError(
                    f"{kinds[True]} has AddressSanitizer, and {kinds[False]} has not: installers take the"
                    " first for the newer one",
                    tip="wheels with AddressSanitizer need an index of their own",
                )

    def _stage_root(self, view: IndexFolder, names: Sequence[str], families: Sequence[str]) -> None:
        """Stage the root pages and the page for ``--find-links``, put together a project at a time."""
        part, page = self.new_part(), view.folder / folder.LINKS_PAGE
        with part.open("wb") as file:
            file.write(pages.make_page_head("Links of all projects"))
            for project in names:
                html = self._find(view.folder / project / HTML_PAGE)
                file.write(pages.make_links(project, html.read_bytes() if html else b""))
            file.write(pages.PAGE_TAIL)
        if not page.is_file() or not filecmp.cmp(part, page, shallow=False):
            self._steps[page] = _Step(ROOT, "", part)
        for path, content in make_root_files(view, names, families).items():
            self.put(path, content, ROOT)

    def _order_projects(self) -> list[str]:
        """Return the projects that change: when wheels come, what they require before them; else after them.

        Whoever reads meanwhile, or after a kill, finds what a wheel requires wherever he finds the wheel.
        """
        ordered = wheel_file.order_by_requirements(self._requires)
        return ordered if self._adds else ordered[::-1]


def _remove_file(path: Path) -> None:
    """Remove a file, and what is left empty of variants/<digest>, its folder and the project's."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for parent in list(path.parents)[:3] if path.parent.name != folder.STATE_FOLDER else ():
            parent.rmdir()


def _sync_file(path: Path) -> None:
    with open(path, "rb+" if os.name == "nt" else "rb") as file:  # a linked wheel may be read-only
        os.fsync(file.fileno())


@contextlib.contextmanager
def change_index(
    root: Path,
    *,
    drop_missing: bool = False,
    patience: float = LOCK_PATIENCE,
    public_base: str = "",
) -> Iterator[IndexChange]:
    """Hold an index and give a change to fill; it is made at the end, unless something is raised.

    DataError for a family whose folder is gone, unless it is to be dropped; UsageError when the folder has a
    front page that is no index: it would be lost.
    """
    page = root / HTML_PAGE
    if page.is_file() and pages.REPOSITORY_VERSION not in page.read_bytes():
        tip = "name another folder, or move that page away"
        raise errors.UsageError(f"{page} is not the page of an index made here", tip=tip)
    with files.lock_folder(root / folder.STATE_FOLDER, purpose="a change of the index", patience=patience):
        change = IndexChange(root, public_base=public_base)
        shutil.rmtree(change.parts, ignore_errors=True)  # of a writer that was killed
        change.parts.mkdir()
        try:
            if change.lost_families and not drop_missing:
                raise errors.DataError(
                    f"{root} lists families whose folders are gone: {', '.join(change.lost_families)}",
                    tip=f"put them back, or drop them with `rocm-wheels index build {root} --drop-missing`",
                )
            yield change
            change.commit()
        finally:
            shutil.rmtree(change.parts, ignore_errors=True)


def _require_folder(root: Path) -> None:
    if not root.is_dir():
        state = "not a folder" if root.exists() else "not there"
        raise errors.UsageError(f"{root} is {state}", tip="name the folder of the index")
