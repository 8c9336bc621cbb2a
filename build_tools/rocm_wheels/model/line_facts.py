"""The records of ``data/release_lines.yaml``: every fact says how it is known, and where it was found."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, get_args

from packaging.version import InvalidVersion, Version
from pydantic import Field, field_validator, model_validator

from rocm_wheels.model.project import Platform
from rocm_wheels.records import Record

LineFactKind = Literal["read", "documented", "believed", "unknown"]
_SERIES = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\Z")
_PYTHON = re.compile(r"3\.(0|[1-9]\d*)t?\Z")
_SOURCE_PLACE = re.compile(r"@[0-9a-f]{40}\b|\bat [0-9a-f]{40}\b|https://|\bPyPI METADATA\b")
_REF = re.compile(r"[^\s\x00-\x1f\x7f~^:?*\[\\-][^\s\x00-\x1f\x7f~^:?*\[\\]*\Z")


class LineFact(Record):
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

    def _nothing_if_unknown(self, value: object) -> None:
        if self.kind == "unknown" and value:
            raise ValueError("what is unknown has no value: say how it is known, or leave the value out")

    def _something_unless_unknown(self, name: str, value: object) -> None:
        self._nothing_if_unknown(value)
        if self.kind != "unknown" and not value:
            raise ValueError(f"`{name}` is missing; what nobody states has `kind: unknown`")


class LineValues(LineFact):
    """Several values, oldest first. Empty: there are none, or it is ``unknown`` whether there are."""

    values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _in_order(self) -> LineValues:
        self._nothing_if_unknown(self.values)
        if len(set(self.values)) != len(self.values):
            duplicate = next(value for value in self.values if self.values.count(value) > 1)
            raise ValueError(f"a value is given twice: {duplicate}")
        return self


class LineValue(LineFact):
    """One value, or none when it is ``unknown``."""

    value: str | None = None

    @model_validator(mode="after")
    def _value_or_unknown(self) -> LineValue:
        self._something_unless_unknown("value", self.value)
        return self


class LineCheckout(LineFact):
    """Where a project is checked out from, on ``platforms``; on others the line has no such project.

    Without ``ref`` only a pin in the torch tree says which commit.
    """

    origin: str | None = None
    ref: str | None = None
    platforms: tuple[Platform, ...] = ("linux", "windows")

    @model_validator(mode="after")
    def _origin_or_unknown(self) -> LineCheckout:
        self._nothing_if_unknown(self.ref)
        self._something_unless_unknown("origin", self.origin)
        if self.ref is not None and not _REF.match(self.ref):
            raise ValueError(f"{self.ref!r} is not the name of a branch or tag")
        return self


class LineCompanion(Record):
    """A project of a line; ``version`` is the series that goes with the line's torch."""

    version: LineValue | None = None
    checkout: LineCheckout


class LineRocmVersions(Record):
    """Versions of ROCm that a line was released with, by who released it."""

    pytorch_org: LineValues
    amd: LineValues

    @field_validator("pytorch_org", "amd")
    @classmethod
    def _are_versions(cls, value: LineValues) -> LineValues:
        return _check_values(value, _rank_version, "a version, such as 7.2")

    def list_versions(self) -> tuple[str, ...]:
        """Return every version that is known, oldest first."""
        return tuple(sorted({*self.pytorch_org.values, *self.amd.values}, key=Version))


class TorchLine(Record):
    """A row of the table. ``torch`` is its series (``2.13``); lines that move have none."""

    name: str
    torch: str | None = None
    toolset: str
    pythons: LineValues
    free_threaded: LineValues
    platforms: LineValues
    rocm: LineRocmVersions
    projects: Mapping[str, LineCompanion]

    def get_checkout(self, project: str, platform: Platform) -> LineCheckout | None:
        """Return where a project comes from on a platform; ``None`` when that is unknown."""
        companion = self.projects.get(project)
        if companion is None or companion.checkout.origin is None:
            return None
        return companion.checkout if platform in companion.checkout.platforms else None

    def leaves_out(self, project: str, platform: Platform) -> bool:
        """Tell whether the line states that it has a project on other platforms only.

        Nothing asks for it there then; a project whose place is unknown is asked for.
        """
        companion = self.projects.get(project)
        return companion is not None and platform not in companion.checkout.platforms

    @field_validator("pythons", "free_threaded")
    @classmethod
    def _are_pythons(cls, value: LineValues) -> LineValues:
        return _check_values(value, _rank_python, "a Python, such as 3.13 or 3.14t")

    @field_validator("platforms")
    @classmethod
    def _are_platforms(cls, value: LineValues) -> LineValues:
        return _check_values(value, lambda text: (get_args(Platform).index(text),), "linux or windows")

    @model_validator(mode="after")
    def _one_name(self) -> TorchLine:
        if self.torch is not None and (self.torch != self.name or not _SERIES.match(self.torch)):
            raise ValueError("`torch` is a series such as 2.13, and the line has its name")
        return self


def _rank_python(text: str) -> tuple[int, ...]:
    if not _PYTHON.match(text):
        raise ValueError
    return (int(text.removesuffix("t").partition(".")[2]),)


def _rank_version(text: str) -> tuple[int, ...]:
    try:
        return Version(text).release
    except InvalidVersion:
        raise ValueError from None


def _check_values(value: LineValues, order: Callable[[str], tuple[int, ...]], description: str) -> LineValues:
    """Hold every value against ``order``, which is its rank, or raises ValueError."""
    ranks = []
    for text in value.values:
        try:
            ranks.append(order(text))
        except ValueError:
            raise ValueError(f"{text!r} is not {description}") from None
    if ranks != sorted(ranks):
        raise ValueError("the oldest comes first")
    return value
