"""Data types of torch by GPU target: what can be calculated there, and how close a result must be.

Owns ``data/dtypes.yaml``, whose header explains its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from packaging.version import Version

from rocm_wheels.errors import UsageError
from rocm_wheels.model.compat.dtype_rows import (
    OTHERS,
    Architecture,
    Dtype,
    DtypeTable,
    Level,
    Operation,
    Support,
    Tolerances,
)
from rocm_wheels.model.compat.libraries import excluded_from, hip_types_of, rocm_libraries
from rocm_wheels.model.gfx import base_target, gfx_targets
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import did_you_mean, load

TABLE = "dtypes.yaml"
_HELD = frozenset({"cast", "view"})


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
    multiple: int
    tolerances: Tolerances
    support: Support

    @property
    def note(self) -> str:
        """What there is to know about it here."""
        return self.support.note or self.dtype.note


@lru_cache
def dtype_table() -> DtypeTable:
    """Return the whole table."""
    return load(data_folder() / TABLE, DtypeTable)


def dtypes() -> Mapping[str, Dtype]:
    """Return all dtypes and ways to calculate by name, in the order of the page, then the others."""
    return dtype_table().dtypes


def architectures() -> Mapping[str, Architecture]:
    """Return the generations of hardware by name, the oldest first."""
    return dtype_table().architectures


def operations() -> Mapping[str, Operation]:
    """Return what the names of operations stand for."""
    return dtype_table().operations


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
        support = _support(name, architecture)
        if support.level == "none" or _later(dtype.since_torch, torch) or _later(dtype.since_rocm, rocm):
            continue
        level: Level = "storage" if _later(support.since_rocm, rocm) else support.level
        if level == "storage" and dtype.format in ("mx", "tf32"):
            continue  # a way to calculate is not held
        how = dtype_table().formats[dtype.format]
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
                how.multiple,
                dtype_table().tolerances.get(name, Tolerances()),
                support,
            )
        )
    return tuple(found)


def dtypes_for(library: str, target: str) -> tuple[TargetDtype, ...]:
    """Return the dtypes that a ROCm library calculates with on a target, in the order of the table.

    Of real or whole numbers: the precision page does not speak of complex ones. Nothing, where the library
    is not built for the target, or the page has not got it. Raises UsageError for an unknown name.
    """
    types = hip_types_of(library)
    if rocm_libraries()[library].project in excluded_from(target):
        return ()
    return tuple(
        row
        for row in dtypes_of(target)
        if row.dtype.torch and row.dtype.hip in types and row.level != "storage"
    )


def disagreements() -> tuple[tuple[str, str], ...]:
    """Return (target, what) where the table of targets says something else."""
    found = []
    for target, record in gfx_targets().items():
        if not any(target in one.targets for one in architectures().values()):
            found.append((target, "it has this target, and no architecture of this table has"))
            continue
        matrix = {row.dtype.format for row in dtypes_of(target) if row.level == "matrix"}
        for name, here in (
            ("fp8-fnuz", record.fp8 == "fnuz"),
            ("fp8-ocp", record.fp8 == "ocp"),
            ("mx", record.mx),
        ):
            if (name in matrix) != here:
                found.append((target, f"{name}: {'only there' if here else 'only here'}"))
    return tuple(found)


def show_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of the table: a row a dtype, with the architectures by level."""
    header = ("dtype", "format", "bits", "torch", "ROCm", "calculated on", "held on", "kind", "source")
    rows: list[tuple[str, ...]] = []
    for name, dtype in dtypes().items():
        levels = {one: _support(name, one).level for one in architectures()}
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
                dtype_table().sources[dtype.source].url,
            )
        )
    return header, rows


def _names(chosen: list[str]) -> str:
    return "all" if len(chosen) == len(architectures()) else " ".join(chosen)


def _later(since: Version | None, version: Version | None) -> bool:
    return since is not None and version is not None and since > version


def _support(name: str, architecture: str) -> Support:
    told = dtype_table().support[name]
    named = [one for one in told if architecture in one.on]
    return (named or [one for one in told if OTHERS in one.on])[0]
