"""What a run is asked for, in the words of the tables; other words are refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import UsageError
from rocm_wheels.model.ci import MULTI_ARCH, PLATFORMS, CiTable, Layout
from rocm_wheels.model.gfx import gfx_families
from rocm_wheels.model.lines import all_lines
from rocm_wheels.model.project import Platform
from rocm_wheels.records import did_you_mean


@dataclass(frozen=True)
class Cell:
    """A family of GPUs, a Python (``3.12``, ``3.14t``), a torch line and a platform."""

    family: str
    python: str
    line: str
    platform: Platform

    def __str__(self) -> str:
        """Return it as people name it: ``gfx94X-dcgpu/3.12/2.13/linux``."""
        return f"{self.family}/{self.python}/{self.line}/{self.platform}"


@dataclass(frozen=True)
class Selection:
    """What a run is asked for. Empty: what the trigger has. ``rocm``: another than the newest of AMD."""

    trigger: str = "nightly"
    families: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    platforms: tuple[Platform, ...] = ()
    rocm: str | None = None
    layout: Layout | None = None


def parse_cell(text: str) -> Cell:
    """Read a cell as it is printed. Raises UsageError for another form."""
    parts = text.split("/")
    if len(parts) != 4 or parts[3] not in PLATFORMS:
        tip = "for example gfx94X-dcgpu/3.12/2.13/linux: family, Python, torch line, linux or windows"
        raise UsageError(f"{text!r} is no cell", tip=tip)
    return Cell(parts[0], parts[1], parts[2], "linux" if parts[3] == "linux" else "windows")


def checked(table: CiTable, selection: Selection) -> Selection:
    """Return a selection that says its layout. Raises UsageError for names that there are not."""
    lines = [line.name for line in all_lines()]
    pythons = {
        python for line in all_lines() for python in (*line.pythons.values, *line.free_threaded.values)
    }
    known = {python for trigger in table.triggers.values() for python in trigger.pythons} | pythons
    _require("--trigger", "trigger", (selection.trigger,), table.triggers)
    if selection.rocm is not None:
        _require_version(selection.rocm)
    for one in selection.families:
        if one not in table.every_family:
            raise UsageError(
                f"--families: {_no_family(table, one)}", tip=f"there are {enumerated(table.every_family)}"
            )
    _require("--lines", "release line", selection.lines, lines)
    _require("--pythons", "Python that torch is built for", selection.pythons, sorted(known, key=_by_number))
    return replace(selection, layout=layout_of(table, selection))


def layout_of(table: CiTable, selection: Selection) -> Layout:
    """Return the layout that a selection names, or else its trigger has."""
    return selection.layout or table.triggers[selection.trigger].layout


def _no_family(table: CiTable, name: str) -> str:
    if name == MULTI_ARCH:
        return f"{name} is no family, but all of a run together: --layout {name}"
    members = gfx_families()
    holding = [family for family in table.every_family if name in members[family]]
    if holding:
        return f"{name} is built with {holding[0]}"
    if name in members:
        within = [family for family in table.every_family if set(members[family]) & set(members[name])]
        return f"{name} is not built as one, but as {enumerated(within)}"
    return f"there is no family {name!r}{did_you_mean(name, table.every_family)}"


def check_cell(table: CiTable, cell: Cell) -> None:
    """Raise UsageError for a cell with a name that there is not."""
    try:
        checked(table, Selection(next(iter(table.triggers)), (cell.family,), (cell.python,), (cell.line,)))
    except UsageError as wrong:
        said = wrong.message.partition(": ")[2]
        raise UsageError(f"{str(cell)!r} is no cell: {said}", tip=wrong.tip) from None


def _require(option: str, what: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = list(known)
    for one in given:
        if one not in names:
            raise UsageError(
                f"{option}: there is no {what} {one!r}{did_you_mean(one, names)}",
                tip=f"there are {enumerated(names)}",
            )


def _require_version(text: str) -> None:
    try:
        Version(text)
    except InvalidVersion:
        tip = "such as 10.1 or 7.14.0rc1"
        raise UsageError(f"--rocm-version: {text!r} is not a version (PEP 440)", tip=tip) from None


def _by_number(python: str) -> tuple[int, str]:
    return int(python[2:].rstrip("t") or 0), python


def enumerated(names: Iterable[str]) -> str:
    """Return names with commas between, as messages have them."""
    return ", ".join(names) or "none"
