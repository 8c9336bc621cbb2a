"""What a run is asked for, in the words of the tables; other words are refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import UsageError
from rocm_wheels.model.ci import MULTI_ARCH, CI_PLATFORMS, CiTable, PackagingMode
from rocm_wheels.model.gfx import get_gfx_families
from rocm_wheels.model.lines import get_release_lines
from rocm_wheels.model.project import Platform
from rocm_wheels.records import suggest_name


@dataclass(frozen=True)
class MatrixCell:
    """A family of GPUs, a Python (``3.12``, ``3.14t``), a torch line and a platform."""

    family: str
    python: str
    line: str
    platform: Platform

    def __str__(self) -> str:
        """Return it as people name it: ``gfx94X-dcgpu/3.12/2.13/linux``."""
        return f"{self.family}/{self.python}/{self.line}/{self.platform}"


@dataclass(frozen=True)
class MatrixSelection:
    """What a run is asked for. Empty: what the trigger has. ``rocm``: another than the newest of AMD."""

    trigger: str = "nightly"
    families: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    platforms: tuple[Platform, ...] = ()
    rocm: str | None = None
    layout: PackagingMode | None = None


def parse_cell(text: str) -> MatrixCell:
    """Read a cell as it is printed. Raises UsageError for another form."""
    parts = text.split("/")
    if len(parts) != 4 or parts[3] not in CI_PLATFORMS:
        tip = "for example gfx94X-dcgpu/3.12/2.13/linux: family, Python, torch line, linux or windows"
        raise UsageError(f"{text!r} is no cell", tip=tip)
    return MatrixCell(parts[0], parts[1], parts[2], "linux" if parts[3] == "linux" else "windows")


def check_selection(table: CiTable, selection: MatrixSelection) -> MatrixSelection:
    """Return a selection that says its layout. Raises UsageError for names that there are not."""
    lines = [line.name for line in get_release_lines()]
    pythons = {
        python
        for line in get_release_lines()
        for python in (*line.pythons.values, *line.free_threaded.values)
    }
    known_pythons = {python for trigger in table.triggers.values() for python in trigger.pythons} | pythons
    _require_known("--trigger", "trigger", (selection.trigger,), table.triggers)
    if selection.rocm is not None:
        _require_version(selection.rocm)
    for family in selection.families:
        if family not in table.all_families:
            raise UsageError(
                f"--families: {_explain_no_family(table, family)}",
                tip=f"there are {join_names(table.all_families)}",
            )
    _require_known("--lines", "release line", selection.lines, lines)
    _require_known(
        "--pythons",
        "Python that torch is built for",
        selection.pythons,
        sorted(known_pythons, key=_python_order),
    )
    return replace(selection, layout=find_layout(table, selection))


def find_layout(table: CiTable, selection: MatrixSelection) -> PackagingMode:
    """Return the layout that a selection names, or else its trigger has."""
    return selection.layout or table.triggers[selection.trigger].layout


def _explain_no_family(table: CiTable, name: str) -> str:
    if name == MULTI_ARCH:
        return f"{name} is no family, but all of a run together: --layout {name}"
    members = get_gfx_families()
    holding = [family for family in table.all_families if name in members[family]]
    if holding:
        return f"{name} is built with {holding[0]}"
    if name in members:
        within = [family for family in table.all_families if set(members[family]) & set(members[name])]
        return f"{name} is not built as one, but as {join_names(within)}"
    return f"there is no family {name!r}{suggest_name(name, table.all_families)}"


def check_cell(table: CiTable, cell: MatrixCell) -> None:
    """Raise UsageError for a cell with a name that there is not."""
    try:
        check_selection(
            table, MatrixSelection(next(iter(table.triggers)), (cell.family,), (cell.python,), (cell.line,))
        )
    except UsageError as wrong:
        message = wrong.message.partition(": ")[2]
        raise UsageError(f"{str(cell)!r} is no cell: {message}", tip=wrong.tip) from None


def _require_known(option: str, noun: str, values: Iterable[str], choices: Iterable[str]) -> None:
    names = list(choices)
    for value in values:
        if value not in names:
            raise UsageError(
                f"{option}: there is no {noun} {value!r}{suggest_name(value, names)}",
                tip=f"there are {join_names(names)}",
            )


def _require_version(text: str) -> None:
    try:
        Version(text)
    except InvalidVersion:
        tip = "such as 10.1 or 7.14.0rc1"
        raise UsageError(f"--rocm-version: {text!r} is not a version (PEP 440)", tip=tip) from None


def _python_order(python: str) -> tuple[int, str]:
    return int(python[2:].rstrip("t") or 0), python


def join_names(names: Iterable[str]) -> str:
    """Return names with commas between, as messages have them."""
    return ", ".join(names) or "none"
