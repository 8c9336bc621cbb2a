"""What a set must be tested on: its targets, and for each the wheels that one installation has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rocm_wheels.errors import DataError
from rocm_wheels.model.gfx import base_target, gfx_families
from rocm_wheels.model.project import Platform
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.wheels.names import parse_wheel_name


@dataclass(frozen=True)
class Together:
    """The wheels that are installed together, for a Python (``3.12``; "" where none is special to one)."""

    python: str
    files: tuple[SetFile, ...]


def platform_of(document: SetDocument) -> Platform:
    """Return what the wheels of a set run on: a lock is of one platform, and so is what is built from it."""
    windows = any("-win_" in file.name or "-win32" in file.name for file in document.files)
    return "windows" if windows else "linux"


def targets_of(document: SetDocument) -> tuple[str, ...]:
    """Return the targets that a set is for, sorted: those inside and those planned, else its family's."""
    planned = {cell.target for cell in document.planned if cell.target}
    found = {base_target(target) for target in {*document.targets, *planned}}
    return tuple(sorted(found)) or gfx_families().get(document.family, ())


def families_for(document: SetDocument, gfx: str) -> tuple[str, ...]:
    """Return the families that a target may be tested and named under, the narrowest first."""
    if document.family in gfx_families():
        return tuple(dict.fromkeys((gfx, document.family)))
    members = gfx_families()
    return tuple(
        sorted((name for name, all_of in members.items() if gfx in all_of), key=lambda n: len(members[n]))
    )


def together(document: SetDocument, gfx: str, projects: Sequence[str] = ()) -> tuple[Together, ...]:
    """Return, for each Python, the wheels that a machine with this GPU gets; only these projects', if any."""
    files = [
        file
        for file in document.files
        if gfx in {base_target(target) for target in file.targets} or file.for_any_rocm
    ]
    pythons = sorted({python for file in files for python in pythons_of(file.name)}, key=_by_number)
    found = []
    for python in pythons or [""]:
        mine = tuple(f for f in files if not (own := pythons_of(f.name)) or python in own)
        kept = tuple(f for f in mine if not projects or f.project in projects)
        if kept and set(projects) <= {file.project for file in kept}:
            found.append(Together(python, kept))
    return tuple(found)


@lru_cache(4096)
def pythons_of(name: str) -> frozenset[str]:
    """Return the Pythons that a wheel is for by its name; none: it is for every one (``py3``, ``abi3``)."""
    try:
        tags = parse_wheel_name(name).tags
    except DataError:
        return frozenset()  # not a name to go by: it counts for every Python
    return frozenset(
        f"{tag.interpreter[2]}.{tag.interpreter[3:]}{'t' if tag.abi.endswith('t') else ''}"
        for tag in tags
        if tag.interpreter.startswith("cp") and tag.interpreter[3:].isdigit() and tag.abi != "abi3"
    )


def _by_number(python: str) -> tuple[int, str]:
    return int(python[2:].rstrip("t") or 0), python
