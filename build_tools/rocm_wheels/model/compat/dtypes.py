"""Data types of torch by GPU target: what can be calculated there, and how close a result must be.

Owns ``data/dtypes.yaml``, whose header explains its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from packaging.version import Version
from pydantic import Field, model_validator

from rocm_wheels.errors import UsageError
from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.compat.libraries import excluded_from, rocm_libraries
from rocm_wheels.model.compat.versions import VersionField
from rocm_wheels.model.gfx import base_target, gfx_targets
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import Record, did_you_mean, load

Level = Literal["full", "matrix", "storage", "none"]
Format = Literal[
    "float", "int", "complex", "bool", "quantized", "fp8-fnuz", "fp8-ocp", "scale", "fp4", "mx", "tf32"
]
OTHERS = "others"
_HELD = frozenset({"cast", "view"})


class Architecture(Fact):
    """Targets of one generation of hardware, which treats every dtype alike."""

    targets: tuple[str, ...] = Field(min_length=1)


class Operation(Fact):
    """What can be tested with a dtype: the call of torch, ``before`` it had that name, and the ROCm
    library (``rocm_libraries.yaml``) without which there is no such operation."""

    call: str
    before: str = ""
    library: str = ""


class DtypeFormat(Record):
    """How dtypes of one kind are tested: the reference is calculated on the CPU in ``reference``."""

    operations: tuple[str, ...]
    compared: Literal["close", "equal"]
    reference: str
    product: str = ""


class Tolerance(Fact):
    """``|got - wanted| <= atol + rtol * |wanted|``."""

    rtol: float = Field(ge=0, lt=1)
    atol: float = Field(ge=0)


class Tolerances(Record):
    """Of one operation an element, and of sums and products of 1024 terms in [-1, 1)."""

    elementwise: Tolerance | None = None
    accumulated: Tolerance | None = None


class Dtype(Fact):
    """A dtype of tensors, or (without ``torch``) a way to calculate with ``elements`` of one.

    ``page``: of the 22 of the PyTorch compatibility page. ``operations`` and ``product`` (the dtype of a
    product's result) only where they are not the format's.
    """

    format: Format
    bits: int = Field(gt=0)
    torch: str = Field(default="", pattern=r"^(torch\.[a-z0-9_]+)?$")
    aliases: tuple[str, ...] = ()
    elements: str = ""
    scale: str = ""
    block: int = 0
    hip: str = ""
    page: bool = False
    since_torch: VersionField | None = None
    since_rocm: VersionField | None = None
    operations: tuple[str, ...] | None = None
    product: str = ""


class Support(Fact):
    """What the architectures ``on`` do with a dtype; ``since_rocm``: the first with more than storage."""

    on: tuple[str, ...] = Field(min_length=1)
    level: Level
    matrix: bool = False
    since_rocm: VersionField | None = None


class _Table(FactTable):
    architectures: Mapping[str, Architecture]
    operations: Mapping[str, Operation]
    formats: Mapping[str, DtypeFormat]
    dtypes: Mapping[str, Dtype]
    tolerances: Mapping[str, Tolerances]
    support: Mapping[str, tuple[Support, ...]]

    @model_validator(mode="after")
    def _whole(self) -> _Table:
        for fault in _faults(self):
            raise ValueError(fault)
        return self


@dataclass(frozen=True)
class TargetDtype:
    """A dtype on a target: what to calculate there and how to compare it with the CPU.

    ``operations`` is empty when there is nothing to test. ``note`` is the target's, else the dtype's.
    """

    name: str
    dtype: Dtype
    level: Level
    matrix: bool
    operations: tuple[str, ...]
    compared: Literal["close", "equal"]
    reference: str
    product: str
    tolerances: Tolerances
    support: Support

    @property
    def note(self) -> str:
        """What there is to know about it here."""
        return self.support.note or self.dtype.note


@lru_cache
def _table() -> _Table:
    return load(data_folder() / "dtypes.yaml", _Table)


def dtypes() -> Mapping[str, Dtype]:
    """Return all dtypes and ways to calculate by name, in the order of the page, then the others."""
    return _table().dtypes


def architectures() -> Mapping[str, Architecture]:
    """Return the generations of hardware by name, the oldest first."""
    return _table().architectures


def operations() -> Mapping[str, Operation]:
    """Return what the names of operations stand for."""
    return _table().operations


def architecture_of(target: str) -> str:
    """Return the architecture of a target, features or not. Raises UsageError for one that has none."""
    base = base_target(target)
    for name, architecture in architectures().items():
        if base in architecture.targets:
            return name
    known = [target for one in architectures().values() for target in one.targets]
    raise UsageError(
        f"nothing is known about data types of {target}{did_you_mean(base, known)}",
        tip=f"targets: {', '.join(known)}",
    )


def dtypes_of(
    target: str, *, torch: Version | None = None, rocm: Version | None = None
) -> tuple[TargetDtype, ...]:
    """Return the dtypes that a target has, in the order of the table, each with what can be tested.

    With a version of torch or ROCm, without what came later. A dtype that only came to be calculated
    with later is held, as on hardware without it. Raises UsageError for an unknown target.
    """
    architecture = architecture_of(target)
    missing = set(excluded_from(target))
    found = []
    for name, dtype in dtypes().items():
        support = _support(_table(), name, architecture)
        if support.level == "none" or _later(dtype.since_torch, torch) or _later(dtype.since_rocm, rocm):
            continue
        level: Level = "storage" if _later(support.since_rocm, rocm) else support.level
        if level == "storage" and dtype.format in ("mx", "tf32"):
            continue  # a way to calculate is not held
        how = _table().formats[dtype.format]
        names = how.operations if dtype.operations is None else dtype.operations
        usable = tuple(
            one
            for one in names
            if (level != "storage" or one in _HELD) and operations()[one].library not in missing
        )
        found.append(
            TargetDtype(
                name,
                dtype,
                level,
                support.matrix,
                usable,
                how.compared,
                how.reference,
                dtype.product or how.product,
                _table().tolerances.get(name, Tolerances()),
                support,
            )
        )
    return tuple(found)


def show_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of the table: a row a dtype, with the architectures by level."""
    header = ("dtype", "format", "bits", "torch", "ROCm", "calculated on", "held on", "kind", "source")
    rows: list[tuple[str, ...]] = []
    for name, dtype in dtypes().items():
        levels = {one: _support(_table(), name, one).level for one in architectures()}
        rows.append(
            (
                dtype.torch or name,
                dtype.format,
                str(dtype.bits),
                str(dtype.since_torch or ""),
                str(dtype.since_rocm or ""),
                _names([one for one, level in levels.items() if level in ("full", "matrix")]),
                _names([one for one, level in levels.items() if level == "storage"]),
                dtype.kind,
                _table().sources[dtype.source].url,
            )
        )
    return header, rows


def _names(chosen: list[str]) -> str:
    return "all" if len(chosen) == len(architectures()) else " ".join(chosen)


def _later(since: Version | None, version: Version | None) -> bool:
    return since is not None and version is not None and since > version


def _support(table: _Table, name: str, architecture: str) -> Support:
    named = [one for one in table.support[name] if architecture in one.on]
    return (named or [one for one in table.support[name] if OTHERS in one.on])[0]


def _faults(table: _Table) -> list[str]:
    """What records alone cannot see: names that lead nowhere, and architectures named twice or never."""
    targets = [target for one in table.architectures.values() for target in one.targets]
    faults = [f"{one} is no GPU target" for one in targets if one not in gfx_targets()]
    faults += [f"{one} is in two architectures" for one in sorted(set(targets)) if targets.count(one) > 1]
    projects = {one.project for one in rocm_libraries().values()} | {""}
    faults += [
        f"{name}: no library {one.library}{did_you_mean(one.library, projects)}"
        for name, one in table.operations.items()
        if one.library not in projects
    ]
    for words in (table.tolerances, table.support):
        faults += [
            f"{one} is no dtype{did_you_mean(one, table.dtypes)}" for one in words if one not in table.dtypes
        ]
    for name, dtype in table.dtypes.items():
        if dtype.format not in table.formats:
            faults.append(f"{name}: no format {dtype.format}")
            continue
        how = table.formats[dtype.format]
        used = how.operations if dtype.operations is None else dtype.operations
        faults += [f"{name}: no operation {one}" for one in used if one not in table.operations]
        held = table.tolerances.get(name, Tolerances())
        if how.compared == "close" and used and not (held.elementwise or held.accumulated):
            faults.append(f"{name} is compared as close, and no tolerance says how close")
        faults += _support_faults(name, table)
    return faults


def _support_faults(name: str, table: _Table) -> list[str]:
    if name not in table.support:
        return [f"{name}: no support says where it is"]
    named = [one for support in table.support[name] for one in support.on]
    known = (*table.architectures, OTHERS)
    faults = [f"{name}: no architecture {one}{did_you_mean(one, known)}" for one in named if one not in known]
    faults += [f"{name}: {one} is named twice" for one in sorted(set(named)) if named.count(one) > 1]
    if OTHERS not in named:
        faults += [f"{name}: nothing is said of {one}" for one in table.architectures if one not in named]
    return faults
