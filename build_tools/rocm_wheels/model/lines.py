"""Release lines: what belongs to torch 2.13 and not to torch 2.12.

Owns ``data/release_lines.yaml``; its records are in ``line_facts``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from rocm_wheels.errors import DataError
from rocm_wheels.model.line_facts import TorchLine
from rocm_wheels.model.names import get_data_folder
from rocm_wheels.model.project import Platform
from rocm_wheels.records import Record, suggest_name, load_record

LINES_TABLE = "release_lines.yaml"


class BuildTool(Record):
    """A package that a build environment gets; ``source`` says where ``spec`` was read."""

    name: str
    spec: str
    source: str
    platforms: tuple[Platform, ...] = ("linux", "windows")

    @field_validator("spec")
    @classmethod
    def _is_specifier(cls, value: str) -> str:
        try:
            SpecifierSet(value)
        except InvalidSpecifier:
            raise ValueError(f"{value} is not a version specifier") from None
        return value


class Toolset(Record):
    """The build tools that several lines share."""

    name: str
    tools: tuple[BuildTool, ...]


class LineTable(Record):
    """The whole of ``data/release_lines.yaml``."""

    toolsets: tuple[Toolset, ...]
    lines: tuple[TorchLine, ...]

    @model_validator(mode="after")
    def _rows_fit_together(self) -> LineTable:
        toolset_names = [toolset.name for toolset in self.toolsets]
        names = [line.name for line in self.lines]
        errors: list[InitErrorDetails] = []
        for row, line in enumerate(self.lines):
            if line.toolset not in toolset_names:
                hint = suggest_name(line.toolset, toolset_names)
                errors.append(
                    _make_row_error(row, "toolset", f"there is no such toolset{hint}", line.toolset)
                )
            if line.name in names[:row]:
                errors.append(_make_row_error(row, "name", "the line is given twice", line.name))
        if errors:
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        if not any(line.torch for line in self.lines):
            raise ValueError("there must be a line with a version of torch")
        return self


class LineTools(Record):
    """What a line of torch is built with. ``exact`` is false when a newer torch borrowed the newest line."""

    torch: str
    tools: tuple[BuildTool, ...]
    exact: bool = True

    def list_requirements(self, platform: Platform) -> tuple[str, ...]:
        """Return the tools as requirements (PEP 508) for an installer."""
        return tuple(f"{tool.name}{tool.spec}" for tool in self.tools if platform in tool.platforms)


def get_release_lines() -> tuple[TorchLine, ...]:
    """Return every line, in the order of the table."""
    return _read_line_table().lines


def get_release_line(name: str) -> TorchLine:
    """Return the line that ``--line`` names. Raises DataError, with the name that was probably meant."""
    lines = {line.name: line for line in get_release_lines()}
    if name not in lines:
        bare = name.lower().rpartition("/")[2].removeprefix("v")  # of release/2.9, v2.9
        raise DataError(
            f"there is no release line {name!r}{suggest_name(bare, lines)}",
            tip=f"known lines: {', '.join(lines)}; for another ref of torch, give that instead of a line",
        )
    return lines[name]


def get_line_tools(torch_version: str) -> LineTools:
    """Return the line of a torch version.

    A version newer than every line gets the newest one with ``exact=False`` (say so to the
    user). Raises DataError for one that is older, or in a gap.
    """
    try:
        version = Version(torch_version)
    except InvalidVersion:
        raise DataError(f"{torch_version!r} is not a version of torch (PEP 440)") from None
    tools = {toolset.name: toolset.tools for toolset in _read_line_table().toolsets}
    series = (version.major, version.minor)
    line_by_series = {_parse_series(line.torch): line for line in get_release_lines() if line.torch}
    newest = max(line_by_series)
    line = line_by_series.get(newest if series > newest else series)
    if line is None or line.torch is None:
        listed = ", ".join(line.torch for line in line_by_series.values() if line.torch)
        raise DataError(
            f"torch {series[0]}.{series[1]} is not among the release lines ({listed})",
            tip=f"add a line to build_tools/rocm_wheels/data/{LINES_TABLE}",
        )
    return LineTools(torch=line.torch, tools=tools[line.toolset], exact=series <= newest)


def get_line_pythons(torch_version: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of a torch version's line, and the Pythons that it was released for.

    They are as people write them, ``3.13`` and ``3.13t``; none where nobody knows.
    """
    torch = get_line_tools(torch_version).torch
    row = next(line for line in get_release_lines() if line.torch == torch)
    return row.name, (*row.pythons.values, *row.free_threaded.values)


def list_unusable_tools(platform: Platform) -> tuple[str, ...]:
    """Return the build tools whose packages are no good on a platform, whatever a tree requires."""
    tools = [tool for toolset in _read_line_table().toolsets for tool in toolset.tools]
    return tuple(sorted({tool.name for tool in tools if platform not in tool.platforms}))


def get_newest_line_tools() -> LineTools:
    """Return the newest line: for companions that are built without a torch tree beside them."""
    return get_line_tools(max((line.torch for line in get_release_lines() if line.torch), key=_parse_series))


def load_line_table(path: Path) -> LineTable:
    """Read a table of lines. Raises DataError with ``file:line:column`` of every mistake."""
    return load_record(path, LineTable)


@lru_cache
def _read_line_table() -> LineTable:
    return load_line_table(get_data_folder() / LINES_TABLE)


def _parse_series(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _make_row_error(row: int, key: str, message: str, value: str) -> InitErrorDetails:
    error = PydanticCustomError("release_lines", "{message}", {"message": message})
    return InitErrorDetails(type=error, loc=("lines", row, key), input=value)
