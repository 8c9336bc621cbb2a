"""What a set must be tested on: its targets, and for each the wheels that one installation has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rocm_wheels.errors import DataError
from rocm_wheels.model.gfx import strip_features, get_gfx_families, get_card_kinds
from rocm_wheels.model.project import Platform
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.variants.document import NULL_LABEL
from rocm_wheels.wheels.names import parse_wheel_name


@dataclass(frozen=True)
class InstalledWheels:
    """The wheels that are installed together, for a Python (``3.12``; "" where none is special to one).

    ``full``: they are of all projects that the set has for the GPU.
    """

    python: str
    files: tuple[SetFile, ...]
    full: bool = True


def compute_needs_digest(document: SetDocument) -> str:
    """Return the sha256 of what a document says of tests that are needed, and its id says nothing of.

    Who changes the targets of a wheel, so that nobody asks for tests of them, changes this.
    """
    files = sorted([f.name, f.sha256, f.label, *sorted(f.targets)] for f in document.files)
    cell_groups = (document.planned, document.missing)
    cells = [sorted([cell.project, cell.python, cell.target] for cell in cells) for cells in cell_groups]
    text = json.dumps([document.id, document.family, document.layout, files, *cells])
    return hashlib.sha256(text.encode()).hexdigest()


def find_set_platform(document: SetDocument) -> Platform:
    """Return what the wheels of a set run on: a lock is of one platform, and so is what is built from it."""
    windows = any("-win_" in file.name or "-win32" in file.name for file in document.files)
    return "windows" if windows else "linux"


def list_set_targets(document: SetDocument) -> tuple[str, ...]:
    """Return the targets that a set is for, sorted: those inside and those planned, else its family's."""
    planned = {cell.target for cell in document.planned if cell.target}
    targets = {strip_features(target) for target in {*document.targets, *planned}}
    return tuple(sorted(targets)) or get_gfx_families().get(document.family, ())


def list_families_of_target(document: SetDocument, gfx: str) -> tuple[str, ...]:
    """Return the families that a target may be tested and named under, the narrowest first.

    The set's own family, where the target is in it: what a set is called makes no GPU another one.
    """
    members = get_gfx_families()
    if gfx in members.get(document.family, ()):
        return tuple(dict.fromkeys((gfx, document.family)))
    containing = [name for name, all_of in members.items() if gfx in all_of and name not in get_card_kinds()]
    return tuple(sorted(containing, key=lambda name: len(members[name])))


def list_installed_wheels(
    document: SetDocument, gfx: str, projects: Sequence[str] = ()
) -> tuple[InstalledWheels, ...]:
    """Return, for each Python, the wheels that a machine with this GPU gets; only these projects', if any.

    Where the set has device code, and none for this GPU and Python, nothing there can be tested on it.
    """
    files = _find_wheels_for_gpu(document, gfx)
    all_of = {file.project for file in files}
    pythons = sorted(
        {python for file in files for python in list_wheel_pythons(file.name)}, key=_python_number
    )
    groups = []
    for python in pythons or [""]:
        python_files = tuple(
            f for f in files if not (file_pythons := list_wheel_pythons(f.name)) or python in file_pythons
        )
        chosen = tuple(
            f for f in python_files if not projects or any(_is_part_of(f, project) for project in projects)
        )
        has_code = not document.targets or any(file.targets for file in python_files)
        if chosen and has_code and set(projects) <= {file.project for file in chosen}:
            groups.append(InstalledWheels(python, chosen, {file.project for file in python_files} == all_of))
    return tuple(groups)


def _find_wheels_for_gpu(document: SetDocument, gfx: str) -> list[SetFile]:
    """Return what a machine with a GPU may get: its own device code, else what is for every one.

    A variant for every machine (``null``) is for those that nothing else of its project fits.
    """
    with_code = [
        file for file in document.files if gfx in {strip_features(target) for target in file.targets}
    ]
    without_code = [file for file in document.files if not file.targets]
    special = {
        file.project
        for file in (*with_code, *without_code)
        if file.targets or file.label not in {"", NULL_LABEL}
    }
    return [
        *with_code,
        *(file for file in without_code if file.label != NULL_LABEL or file.project not in special),
    ]


def _is_part_of(file: SetFile, project: str) -> bool:
    """Tell whether a wheel is a project's, or a part of it (``torch-device-gfx942``)."""
    return file.project == project or file.project.startswith(f"{project}-device-")


@lru_cache(4096)
def list_wheel_pythons(name: str) -> frozenset[str]:
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


def _python_number(python: str) -> tuple[int, str]:
    return int(python[2:].rstrip("t") or 0), python
