"""What a set must be tested on: its targets, and for each the wheels that one installation has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rocm_wheels.errors import DataError
from rocm_wheels.model.gfx import base_target, gfx_families, kinds_of_card
from rocm_wheels.model.project import Platform
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.variants.document import NULL_LABEL
from rocm_wheels.wheels.names import parse_wheel_name


@dataclass(frozen=True)
class Together:
    """The wheels that are installed together, for a Python (``3.12``; "" where none is special to one).

    ``full``: they are of all projects that the set has for the GPU.
    """

    python: str
    files: tuple[SetFile, ...]
    full: bool = True


def digest_of_needs(document: SetDocument) -> str:
    """Return the sha256 of what a document says of tests that are needed, and its id says nothing of.

    Who changes the targets of a wheel, so that nobody asks for tests of them, changes this.
    """
    files = sorted([f.name, f.sha256, f.label, *sorted(f.targets)] for f in document.files)
    both = (document.planned, document.missing)
    cells = [sorted([cell.project, cell.python, cell.target] for cell in cells) for cells in both]
    said = json.dumps([document.id, document.family, document.layout, files, *cells])
    return hashlib.sha256(said.encode()).hexdigest()


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
    """Return the families that a target may be tested and named under, the narrowest first.

    The set's own family, where the target is in it: what a set is called makes no GPU another one.
    """
    members = gfx_families()
    if gfx in members.get(document.family, ()):
        return tuple(dict.fromkeys((gfx, document.family)))
    named = [name for name, all_of in members.items() if gfx in all_of and name not in kinds_of_card()]
    return tuple(sorted(named, key=lambda name: len(members[name])))


def together(document: SetDocument, gfx: str, projects: Sequence[str] = ()) -> tuple[Together, ...]:
    """Return, for each Python, the wheels that a machine with this GPU gets; only these projects', if any.

    Where the set has device code, and none for this GPU and Python, nothing there can be tested on it.
    """
    files = _for_gpu(document, gfx)
    all_of = {file.project for file in files}
    pythons = sorted({python for file in files for python in pythons_of(file.name)}, key=_by_number)
    found = []
    for python in pythons or [""]:
        mine = tuple(f for f in files if not (own := pythons_of(f.name)) or python in own)
        kept = tuple(f for f in mine if not projects or any(_is_of(f, project) for project in projects))
        has_code = not document.targets or any(file.targets for file in mine)
        if kept and has_code and set(projects) <= {file.project for file in kept}:
            found.append(Together(python, kept, {file.project for file in mine} == all_of))
    return tuple(found)


def _for_gpu(document: SetDocument, gfx: str) -> list[SetFile]:
    """Return what a machine with a GPU may get: its own device code, else what is for every one.

    A variant for every machine (``null``) is for those that nothing else of its project fits.
    """
    own = [file for file in document.files if gfx in {base_target(target) for target in file.targets}]
    plain = [file for file in document.files if not file.targets]
    special = {file.project for file in (*own, *plain) if file.targets or file.label not in {"", NULL_LABEL}}
    return [*own, *(file for file in plain if file.label != NULL_LABEL or file.project not in special)]


def _is_of(file: SetFile, project: str) -> bool:
    """Tell whether a wheel is a project's, or a part of it (``torch-device-gfx942``)."""
    return file.project == project or file.project.startswith(f"{project}-device-")


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
