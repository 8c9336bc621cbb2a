"""Read a wheel or source distribution that an index is to have: its digest, its METADATA, its variant."""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, log, tables
from rocm_wheels.core.files import hash_file
from rocm_wheels.index import reader
from rocm_wheels.index.folder import METADATA_SUFFIX, SDIST_SUFFIX, IndexEntry, parse_file_name
from rocm_wheels.index.provenance_object import PROVENANCE_SUFFIX
from rocm_wheels.wheels import dist_info, installer_slots
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.scan import scan_wheel

FILE_SUFFIXES = (".whl", SDIST_SUFFIX)
_MOST_SHOWN = 20
_FIELDS = (b"name", b"version", b"requires-python")


@dataclass(frozen=True)
class FoundFile:
    """A file in a folder: its size, time (nanoseconds), and what lies beside it.

    ``place`` is where it lies, or is to lie, from its project's page; ``is_in_index`` when it lies there
    already. ``has_metadata`` is true of a source distribution, too, which needs none.
    """

    folder: Path
    name: str
    size: int
    changed: int
    place: str
    is_in_index: bool
    has_metadata: bool
    has_provenance: bool

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / self.name


def find_files(folder: Path, place: str) -> Iterator[FoundFile]:
    """Yield the wheels and source distributions that lie in a folder of an index."""
    with os.scandir(folder) as listed:
        items = {item.name: item for item in listed}
    for name, item in items.items():
        if name.endswith(FILE_SUFFIXES) and not name.startswith(".") and item.is_file():
            has_metadata = name + METADATA_SUFFIX in items or name.endswith(SDIST_SUFFIX)
            has_provenance, status = name + PROVENANCE_SUFFIX in items, item.stat()
            size, changed = status.st_size, status.st_mtime_ns
            yield FoundFile(folder, name, size, changed, place, True, has_metadata, has_provenance)


def find_new_file(path: Path) -> FoundFile:
    """Return a file that an index is to have."""
    status, has_provenance = path.stat(), path.with_name(path.name + PROVENANCE_SUFFIX).is_file()
    size, changed = status.st_size, status.st_mtime_ns
    return FoundFile(path.parent, path.name, size, changed, "", False, False, has_provenance)


@dataclass(frozen=True)
class IndexedFile:
    """A file as it is to be listed; METADATA of a wheel that was read, else None."""

    file: FoundFile
    entry: IndexEntry
    metadata: bytes | None = None

    @property
    def project(self) -> str:
        """The project that it is of."""
        return parse_file_name(self.entry.name)[0]


@dataclass(frozen=True)
class FileReader:
    """Reads files that are added ``now``. ``startup_files``: globs of the ``.pth`` that wheels may have."""

    now: str
    startup_files: Collection[str]

    def read(self, file: FoundFile, listed: IndexEntry | None) -> IndexedFile:
        """Read a file; ``listed`` is what is known of it if it is the one that lies in the index.

        DataError for a file that is damaged, misnamed or dangerous, or whose variant breaks a rule.
        """
        is_unchanged = listed is not None and (listed.size, listed.changed) == (file.size, file.changed)
        if listed is not None and is_unchanged and (file.has_metadata or not file.is_in_index):
            is_there = listed.place == file.place or not file.is_in_index
            return IndexedFile(file, listed if is_there else replace(listed, place=file.place))
        path = file.path
        if file.name.endswith(SDIST_SUFFIX):
            return self._read_sdist(file, path)
        label = parse_file_name(file.name)[2]
        scan = scan_wheel(path)
        if refusals := scan.list_refusals(self.startup_files):
            more = [f"{path}: {tables.format_count(len(refusals) - _MOST_SHOWN, 'more fault')}"]
            shown = refusals if len(refusals) <= _MOST_SHOWN else [*refusals[:_MOST_SHOWN], *more]
            is_allowable = not scan.list_refusals(startup_files=("*",))
            tip = "look at what it runs; --allow-pth NAME takes wheels with that file"
            raise errors.DataError(
                "\n".join(shown), tip=tip if is_allowable else "`rocm-wheels audit` says more of it"
            )
        content, variant, notes = reader.read_wheel_texts(
            scan.texts, scan.texts.__getitem__, str(path), label
        )
        if notes:
            log.log_note(
                f"{path}: its variant.json is of an older form, which uv does not read; "
                "`rocm-wheels wheel retag --label ''`, then `wheel stamp` gives it a new one"
            )
        return IndexedFile(file, self._make_entry(file, scan.sha256, content, variant), content)

    def _read_sdist(self, file: FoundFile, path: Path) -> IndexedFile:
        status = path.stat()
        try:
            with tarfile.open(path, "r:gz") as archive:
                stated = archive.extractfile(f"{path.name.removesuffix(SDIST_SUFFIX)}/PKG-INFO")
                content = stated.read() if stated else b""
                for _ in archive:  # to its end: a file that was cut is found here
                    pass
        except (tarfile.TarError, EOFError, zlib.error, KeyError) as cause:
            raise errors.DataError(f"{path} is not a readable source distribution with a PKG-INFO") from cause
        entry = self._make_entry(file, hash_file(path), content)
        after = path.stat()
        if (after.st_ino, after.st_size, after.st_mtime_ns) != (status.st_ino, file.size, file.changed):
            raise errors.DataError(f"{path} changed while it was read")
        return IndexedFile(file, replace(entry, metadata=""))

    def _make_entry(
        self, file: FoundFile, sha256: str, metadata: bytes, variant: str | None = None
    ) -> IndexEntry:
        return IndexEntry(
            name=file.name,
            size=file.size,
            changed=file.changed,
            sha256=sha256,
            uploaded=self.now,
            metadata=hashlib.sha256(metadata).hexdigest(),
            requires_python=read_requires_python(metadata, file.name),
            variant=variant,
            place=file.place,
        )


def read_metadata_and_variant(
    archive: WheelArchive, path: Path, label: str | None
) -> tuple[bytes, str | None]:
    """Return METADATA of a wheel and, with a label, its ``variant.json``; DataError when one is wrong."""
    members = {member.name: member for member in archive.members}
    content, variant, _ = reader.read_wheel_texts(
        members, lambda name: archive.read(members[name]), str(path), label
    )
    metadata = dist_info.parse_metadata(content, name=f"{path}: METADATA", variant_markers=True)
    dist_folder = dist_info.list_dist_info_folders(members)[0]
    faults = dist_info.compare_names(dist_info.parse_wheel_name(path.name), dist_folder, metadata)
    if faults:
        raise errors.DataError("\n".join(f"{path}: {fault}" for fault in faults))
    return content, variant


def read_requires_python(metadata: bytes, file_name: str) -> str:
    """Return Requires-Python of a wheel's METADATA; DataError when that is of another wheel or wrong."""
    fields: dict[bytes, str] = {}
    for line in metadata.splitlines():
        if not line:
            break  # the description follows
        key, _, value = line.partition(b":")
        if key.lower() in _FIELDS:
            fields.setdefault(key.lower(), value.strip().decode("utf-8", "replace"))
    name, version, _ = parse_file_name(file_name)
    stated = fields.get(b"name", ""), fields.get(b"version", "")
    if canonicalize_name(stated[0]) != name or _parse_version(stated[1]) != version:
        raise errors.DataError(f"METADATA of {file_name} is of {' '.join(stated).strip() or 'nothing'}")
    python = fields.get(b"requires-python", "")
    if not _is_specifier(python):
        raise errors.DataError(f"METADATA of {file_name}: Requires-Python: {python!r} is not a specifier")
    return python


def requires_rocm(metadata: bytes, name: str) -> bool:
    """Tell whether METADATA require ROCm's packages, as every torch does that does not carry its ROCm."""
    requirements = dist_info.parse_metadata(
        metadata, name=f"METADATA of {name}", variant_markers=True
    ).requires_dist
    return any(canonicalize_name(Requirement(text.partition(";")[0]).name) == "rocm" for text in requirements)


_REQUIREMENT_NAME = re.compile(rb"^Requires-Dist: *([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)


def list_required_names(metadata: bytes) -> set[str]:
    """Return the projects that METADATA require, with whatever extra or marker, by their normalized names."""
    return {canonicalize_name(name.decode("ascii")) for name in _REQUIREMENT_NAME.findall(metadata)}


def order_by_requirements(requires: Mapping[str, Collection[str]]) -> list[str]:
    """Return projects by what they require, of those that are named here, dependencies first."""
    ordered: dict[str, None] = {}
    begun: set[str] = set()

    def add(project: str) -> None:
        if project not in begun:
            begun.add(project)
            for name in sorted(set(requires[project]) & requires.keys()):
                add(name)
            ordered[project] = None

    for project in sorted(requires):
        add(project)
    return list(ordered)


def find_mixed_rocm(
    names: Iterable[str], new: Collection[str], requires: Callable[[str], bool]
) -> tuple[str, str] | None:
    """Return a wheel that does not require ROCm's packages and one that does, between which installers
    would choose; one of both is ``new``.
    """
    by_release: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(names):
        if name.endswith(".whl"):
            by_release.setdefault(tuple(name.split("-", 2)[:2]), []).append(name)
    for same in by_release.values():
        slots = [slot for name in same for slot in installer_slots.installer_slots(name)]
        if len(slots) == len(set(slots)) and not any(installer_slots.ANY_VALUE in slot for slot in slots):
            continue  # as mostly: a wheel for each Python
        for first, second in combinations(same, 2):
            is_new = first in new or second in new
            if is_new and installer_slots.are_interchangeable(first, second):
                is_thin = requires(first)
                if is_thin != requires(second):
                    return (second, first) if is_thin else (first, second)
    return None


@lru_cache(maxsize=4096)
def _parse_version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


@lru_cache(maxsize=512)
def _is_specifier(text: str) -> bool:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True
