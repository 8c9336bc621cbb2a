"""The device code of installed libraries: for which targets, in which file.

A library holds its code itself, or names ``.kpack`` archives that lie beside it; those come from device
packages (``amd-torch-device-gfx942``), which put them into the folder of the library. What counts are the
archives that are there.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rocm_wheels.errors import DataError, explain
from rocm_wheels.hosts.installed.look import InstalledSet, Package
from rocm_wheels.wheels.device_code.quick import Library, read_library
from rocm_wheels.wheels.device_code.target_id import MACHINES, TargetId

_CODE = re.compile(r"\.so(\.[0-9.]+)?$|\.(dll|pyd)$")
_ANY_TARGET = "@GFXARCH@"
# the library that every kernel of a project's operators is in; others are extras for some targets
_MAIN = {"torch": ("libtorch_hip.so", "torch_hip.dll")}
# MIOpen writes the number of compute units right behind the target (gfx942130.db.txt): known names only
_TARGET = re.compile("|".join(sorted(MACHINES.values(), key=len, reverse=True)))
# where rocBLAS, hipBLASLt and MIOpen keep kernels and tuned parameters, below a ROCm root or torch/
_LIBRARY_FOLDERS = {
    "rocBLAS": "lib/rocblas/library",
    "hipBLASLt": "lib/hipblaslt/library",
    "MIOpen": "share/miopen/db",
}


@dataclass(frozen=True)
class InstalledCode:
    """The device code of one library: ``targets`` are IDs (``gfx90a:xnack+``), sorted as people do.

    ``archives`` are the ``.kpack`` files that were found for it, ``missing`` those that it names where
    none is. ``fault`` says why it could not be read.
    """

    path: Path
    targets: tuple[str, ...] = ()
    archives: tuple[Path, ...] = ()
    missing: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True)
class LibraryFiles:
    """The files that a ROCm library loads kernels from, by the targets in their names (it goes by those)."""

    library: str
    folder: Path
    targets: tuple[str, ...]


def targets_of(installed: InstalledSet, project: str) -> tuple[str, ...]:
    """Return the target IDs that a project's installed files hold device code for; () when none.

    Of torch that is its library of HIP operators; of others all their libraries together.
    DataError when that library is damaged.
    """
    package = installed.get(project)
    if package is None:
        return ()
    found = code_of(package)
    mains = [one for one in found if one.path.name in _MAIN.get(project, ())] or found
    for one in mains:
        if one.fault:
            raise DataError(one.fault)
    return sorted_targets(target for one in mains for target in one.targets)


def code_of(package: Package, *, everything: bool = False) -> tuple[InstalledCode, ...]:
    """Return the libraries of an installed package that hold or name device code, the main one first.

    Where the project has a main library, only that is read unless ``everything`` is asked for.
    """
    mains = _MAIN.get(package.name, ())
    files = _library_files(package)
    chosen = [one for one in files if one.name in mains]
    if everything or not mains:
        chosen += [one for one in files if one.name not in mains]
    found = [_read(path) for path in chosen]
    return tuple(one for one in found if one.targets or one.archives or one.missing or one.fault)


def library_files(roots: Iterable[Path]) -> tuple[LibraryFiles, ...]:
    """Return for which targets rocBLAS, hipBLASLt and MIOpen have files below the roots.

    A root is like ``_rocm_sdk_libraries``, ``/opt/rocm`` or ``torch``.
    """
    found = []
    for root in roots:
        for library, place in _LIBRARY_FOLDERS.items():
            folder = root / place
            if folder.is_dir():
                # of newer releases a folder for each target
                names = {_TARGET.search(one.name) for one in folder.iterdir()}
                targets = sorted_targets(name.group() for name in names if name)
                found.append(LibraryFiles(library, folder, targets))
    return tuple(found)


def library_roots(installed: InstalledSet) -> tuple[Path, ...]:
    """Return the folders of the environment that ROCm's libraries are below."""
    roots = [
        folder
        for place in installed.environment.path
        for folder in sorted(place.glob("_rocm_sdk_libraries*"))
        if folder.is_dir()
    ]
    torch = installed.torch
    return (*roots, *([torch.folder] if torch and torch.folder else []))


def sorted_targets(targets: Iterable[str]) -> tuple[str, ...]:
    """Return target IDs once each, sorted as people do."""
    return tuple(sorted(set(targets), key=lambda one: TargetId.parse(one).order()))


def _library_files(package: Package) -> list[Path]:
    """Return a package's libraries, those that its RECORD lists, or all below its folder."""
    record = package.distribution.info / "RECORD"
    if package.distribution.editable or not record.is_file():
        return sorted(_below(package.folder)) if package.folder else []
    with record.open(encoding="utf-8", newline="", errors="replace") as file:
        lines = [line for line in file if ".so" in line or ".dll" in line or ".pyd" in line]
    paths = [row[0] for row in csv.reader(lines) if row and _CODE.search(row[0])]
    found = (package.distribution.place / path for path in paths)
    return sorted(path for path in found if path.is_file())


def _below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if _CODE.search(path.name) and path.is_file())


def _read(path: Path) -> InstalledCode:
    try:
        library = _tables(path)
        archives, missing = _archives(library)
        own = [target for archive in archives for target in _tables(archive).targets]
    except DataError as fault:
        return InstalledCode(path, fault=explain(fault))
    return InstalledCode(path, sorted_targets([*library.targets, *own]), archives, missing)


def _tables(path: Path) -> Library:
    """Return the tables of a file, which are asked for many times: read once while it stays as it is."""
    try:
        now = path.stat()
    except OSError:
        return read_library(path)  # which says what is wrong with it
    return _tables_of(path, now.st_mtime_ns, now.st_ctime_ns, now.st_size)


@lru_cache(maxsize=256)
def _tables_of(path: Path, *_state: int) -> Library:
    return read_library(path)


def _archives(library: Library) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the archives that a library names and that are there, and the names that none is there for."""
    found: list[Path] = []
    missing = []
    for name in library.archives:
        place = library.path.parent / name
        matching = sorted(place.parent.glob(place.name.replace(_ANY_TARGET, "*")))
        found += matching
        if not matching:
            missing.append(name)
    return tuple(found), tuple(missing)
