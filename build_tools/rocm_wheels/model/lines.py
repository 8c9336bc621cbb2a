"""Release lines: what belongs to torch 2.13 and not to torch 2.12.

Owns ``data/release_lines.yaml``.
"""

from __future__ import annotations

from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import Field, field_validator, model_validator

from rocm_wheels.errors import DataError
from rocm_wheels.model.names import data_folder
from rocm_wheels.model.project import Platform
from rocm_wheels.records import Record, load


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


class _Toolset(Record):
    name: str
    tools: tuple[BuildTool, ...]


class _Line(Record):
    torch: str
    toolset: str


class _Table(Record):
    toolsets: tuple[_Toolset, ...]
    lines: tuple[_Line, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _toolsets_exist(self) -> _Table:
        known = {toolset.name for toolset in self.toolsets}
        for line in self.lines:
            if line.toolset not in known:
                raise ValueError(f"line {line.torch}: there is no toolset {line.toolset}")
        return self


class ReleaseLine(Record):
    """What a line of torch is built with. ``exact`` is false when a newer torch borrowed the newest line."""

    torch: str
    tools: tuple[BuildTool, ...]
    exact: bool = True

    def requirements(self, platform: Platform) -> tuple[str, ...]:
        """Return the tools as requirements (PEP 508) for an installer."""
        return tuple(f"{tool.name}{tool.spec}" for tool in self.tools if platform in tool.platforms)


def line_of(torch_version: str) -> ReleaseLine:
    """Return the line of a torch version.

    A version newer than every line gets the newest one with ``exact=False`` (say so to the
    user). Raises DataError for one that is older, or in a gap.
    """
    try:
        wanted = Version(torch_version)
    except InvalidVersion:
        raise DataError(f"{torch_version!r} is not a version of torch (PEP 440)") from None
    table = _table()
    tools = {toolset.name: toolset.tools for toolset in table.toolsets}
    series = (wanted.major, wanted.minor)
    known = {tuple(map(int, line.torch.split("."))): line for line in table.lines}
    newest = max(known)
    line = known.get(newest if series > newest else series)
    if line is None:
        listed = ", ".join(line.torch for line in table.lines)
        raise DataError(
            f"torch {series[0]}.{series[1]} is not among the release lines ({listed})",
            tip="add a line to build_tools/rocm_wheels/data/release_lines.yaml",
        )
    return ReleaseLine(torch=line.torch, tools=tools[line.toolset], exact=series <= newest)


def newest_line() -> ReleaseLine:
    """Return the newest line: for companions that are built without a torch tree beside them."""
    return line_of(max((line.torch for line in _table().lines), key=Version))


@lru_cache
def _table() -> _Table:
    return load(data_folder() / "release_lines.yaml", _Table)
