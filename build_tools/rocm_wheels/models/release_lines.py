"""Define release lines: what belongs to torch 2.13 and not to torch 2.12.

Owns ``data/release_lines.yaml``: every fact says how it is known, and where it was found. That its rows fit
together is held by tests of the table; what recipes have of a line is checked as it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, model_validator

from rocm_wheels.core import records, tables
from rocm_wheels.core.errors import DataError
from rocm_wheels.models import facts, project_names

LineFactKind = Literal["read", "documented", "believed", "unknown"]
if TYPE_CHECKING:
    from rocm_wheels.models.project import Project

_SOURCE_PLACE = re.compile(r"@[0-9a-f]{40}\b|\bat [0-9a-f]{40}\b|https://|\bPyPI METADATA\b")
_Ref = Annotated[
    str,
    records.require_pattern(
        r"[^\s\x00-\x1f\x7f~^:?*\[\\-][^\s\x00-\x1f\x7f~^:?*\[\\]*", "the name of a branch or tag"
    ),
]


def _check_version(text: str) -> str:
    facts.parse_version(text)
    return text


def _check_specifier(text: str) -> str:
    facts.parse_specifier(text)
    return text


class LineFact(records.Record):
    """How something is known.

    ``read``: in the file that decides it. ``documented``: by those who release it.
    ``believed``: nobody states it; ``source`` says why. ``unknown``: there is no value;
    ``source`` says where it was looked for. The first two name a place, for others to look again.
    """

    kind: LineFactKind
    source: str = Field(min_length=1)

    @model_validator(mode="after")
    def _names_its_place(self) -> LineFact:
        if self.kind in {"read", "documented"} and not _SOURCE_PLACE.search(self.source):
            raise ValueError(f"kind {self.kind} needs a source: path@commit, a page or PyPI METADATA")
        return self

    def _require_value(self, name: str, value: object, *others: object) -> None:
        if self.kind == "unknown" and any((value, *others)):
            raise ValueError("what is unknown has no value: say how it is known, or leave the value out")
        if self.kind != "unknown" and not value:
            raise ValueError(f"`{name}` is missing; what nobody states has `kind: unknown`")


class LineValues(LineFact):
    """Several values, oldest first. Empty: there are none, or it is ``unknown`` whether there are."""

    values: tuple[str, ...] = ()


class LinePythons(LineValues):
    """Pythons: ``3.13``, ``3.14t``."""

    values: tuple[facts.PythonField, ...] = ()


class LinePlatforms(LineValues):
    """Platforms."""

    values: tuple[project_names.Platform, ...] = ()


class LineVersions(LineValues):
    """Versions of ROCm."""

    values: tuple[Annotated[str, AfterValidator(_check_version)], ...] = ()


class LineValue(LineFact):
    """One value, or none when it is ``unknown``."""

    value: str | None = None

    @model_validator(mode="after")
    def _value_or_unknown(self) -> LineValue:
        self._require_value("value", self.value)
        return self


class LineCheckout(LineFact):
    """Where a project is checked out from, on ``platforms``; on others the line has no such project.

    Without ``ref`` only a pin in the torch tree says which commit.
    """

    origin: str | None = None
    ref: _Ref | None = None
    platforms: tuple[project_names.Platform, ...] = ("linux", "windows")

    @model_validator(mode="after")
    def _origin_or_unknown(self) -> LineCheckout:
        self._require_value("origin", self.origin, self.ref)
        return self


class LineCompanion(records.Record):
    """A project of a line; ``version`` is the series that goes with the line's torch."""

    version: LineValue | None = None
    checkout: LineCheckout


class LineRocmVersions(records.Record):
    """Versions of ROCm that a line was released with, by who released it."""

    pytorch_org: LineVersions
    amd: LineVersions

    def list_versions(self) -> tuple[str, ...]:
        """Return every version that is known, oldest first."""
        return tuple(sorted({*self.pytorch_org.values, *self.amd.values}, key=Version))


class TorchLine(records.Record):
    """A row of the table. ``torch`` is its series (``2.13``); lines that move have none."""

    name: str
    torch: str | None = None
    toolset: str
    pythons: LinePythons
    free_threaded: LinePythons
    platforms: LinePlatforms
    rocm: LineRocmVersions
    projects: Mapping[str, LineCompanion]

    def get_companion(self, project: Project) -> LineCompanion | None:
        """Return what goes with the line of a project: as the table says, else as its recipe does."""
        return self.projects.get(project.name) or project.lines.get(self.name)

    def get_checkout(self, project: Project, platform: project_names.Platform) -> LineCheckout | None:
        """Return where a project comes from on a platform; ``None`` when that is unknown."""
        companion = self.get_companion(project)
        if companion is None or companion.checkout.origin is None:
            return None
        return companion.checkout if platform in companion.checkout.platforms else None

    def leaves_out(self, project: Project, platform: project_names.Platform) -> bool:
        """Tell whether the line states that it has a project on other platforms only.

        Nothing asks for it there then; a project whose place is unknown is asked for.
        """
        companion = self.get_companion(project)
        return companion is not None and platform not in companion.checkout.platforms


LINES_TABLE = "release_lines.yaml"


class BuildTool(records.Record):
    """A package that a build environment gets; ``source`` says where ``spec`` was read."""

    name: str
    spec: Annotated[str, AfterValidator(_check_specifier)]
    source: str
    platforms: tuple[project_names.Platform, ...] = ("linux", "windows")


class Toolset(records.Record):
    """The build tools that several lines share."""

    name: str
    tools: tuple[BuildTool, ...]


class LineTable(records.Record):
    """The whole of ``data/release_lines.yaml``."""

    table: facts.TableHead | None = None
    toolsets: tuple[Toolset, ...]
    lines: tuple[TorchLine, ...]


class LineTools(records.Record):
    """What a line of torch is built with. ``exact`` is false when a newer torch borrowed the newest line."""

    torch: str
    tools: tuple[BuildTool, ...]
    exact: bool = True

    def list_requirements(self, platform: project_names.Platform) -> tuple[str, ...]:
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
            f"there is no release line {name!r}{tables.suggest_name(bare, lines)}",
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


def list_unusable_tools(platform: project_names.Platform) -> tuple[str, ...]:
    """Return the build tools whose packages are no good on a platform, whatever a tree requires."""
    tools = [tool for toolset in _read_line_table().toolsets for tool in toolset.tools]
    return tuple(sorted({tool.name for tool in tools if platform not in tool.platforms}))


def get_newest_line_tools() -> LineTools:
    """Return the newest line: for companions that are built without a torch tree beside them."""
    return get_line_tools(max((line.torch for line in get_release_lines() if line.torch), key=_parse_series))


@lru_cache
def _read_line_table() -> LineTable:
    return records.load_record(project_names.get_data_folder() / LINES_TABLE, LineTable)


def _parse_series(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
