"""List data types of torch by GPU target: what can be calculated there, and how close a result must be.

Owns ``data/dtypes.yaml``, whose header explains its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from packaging.version import Version
from pydantic import Field, model_validator

from rocm_wheels.core import errors, records, tables
from rocm_wheels.models import facts, gfx, libraries, project_names

DtypeLevel = Literal["full", "matrix", "storage", "none"]
DtypeFormatName = Literal[
    "float", "int", "complex", "bool", "quantized", "fp8-fnuz", "fp8-ocp", "scale", "fp4", "mx", "tf32"
]
OTHER_ARCHITECTURES = "others"


class GpuArchitecture(facts.Fact):
    """Targets of one generation of hardware, which treats every dtype alike."""

    targets: tuple[str, ...] = Field(min_length=1)


class DtypeOperation(facts.Fact):
    """What can be tested with a dtype: the call of torch, ``before`` it had that name, and the ROCm
    library (``rocm_libraries.yaml``) without which there is no such operation."""

    call: str
    before: str = ""
    library: str = ""


class DtypeFormat(records.Record):
    """How dtypes of one kind are tested: the reference is calculated on the CPU in ``reference``.

    A product is held in ``product``; sides of its matrices are multiples of ``multiple``.
    """

    operations: tuple[str, ...]
    compared: Literal["close", "equal"]
    reference: str
    product: str = ""
    multiple: int = Field(default=1, gt=0)


class DtypeTolerance(facts.Fact):
    """``|got - wanted| <= atol + rtol * |wanted|``."""

    rtol: float = Field(ge=0, lt=1)
    atol: float = Field(ge=0)


class DtypeTolerances(records.Record):
    """Of one operation an element, and of sums and products of 1024 terms in [-1, 1)."""

    elementwise: DtypeTolerance | None = None
    accumulated: DtypeTolerance | None = None


class Dtype(facts.Fact):
    """A dtype of tensors, or (without ``torch``) a way to calculate with ``elements`` of one.

    ``page``: of the 22 of the PyTorch compatibility page. ``operations`` and ``product`` (the dtype of a
    product's result) only where they are not the format's.
    """

    format: DtypeFormatName
    bits: int = Field(gt=0)
    torch: Annotated[
        str, records.require_pattern(r"(torch\.[a-z0-9_]+)?", "a dtype such as torch.float16, or empty")
    ] = ""
    aliases: tuple[str, ...] = ()
    elements: str = ""
    scale: str = ""
    block: int = 0
    hip: str = ""
    page: bool = False
    since_torch: facts.VersionField | None = None
    since_rocm: facts.VersionField | None = None
    operations: tuple[str, ...] | None = None
    product: str = ""


class DtypeSupport(facts.Fact):
    """What the architectures ``on`` do with a dtype; ``since_rocm``: the first with more than storage."""

    on: tuple[str, ...] = Field(min_length=1)
    level: DtypeLevel
    matrix: bool = False
    since_rocm: facts.VersionField | None = None


class DtypeTable(facts.FactTable):
    """``data/dtypes.yaml``, whole: every name leads somewhere, every dtype names all architectures."""

    architectures: Mapping[str, GpuArchitecture]
    operations: Mapping[str, DtypeOperation]
    formats: Mapping[str, DtypeFormat]
    dtypes: Mapping[str, Dtype]
    tolerances: Mapping[str, DtypeTolerances]
    support: Mapping[str, tuple[DtypeSupport, ...]]

    @model_validator(mode="after")
    def _fits_together(self) -> DtypeTable:
        if faults := _find_faults(self):
            raise ValueError("; ".join(faults))
        return self


def _find_faults(table: DtypeTable) -> list[str]:
    """What records alone cannot see: names that lead nowhere, and architectures named twice or never."""
    targets = [target for item in table.architectures.values() for target in item.targets]
    faults = [f"{item} is no GPU target" for item in targets if item not in gfx.get_gfx_targets()]
    faults += [f"{item} is in two architectures" for item in sorted(set(targets)) if targets.count(item) > 1]
    projects = {item.project for item in libraries.get_rocm_libraries().values()} | {""}
    faults += [
        f"{name}: no library {item.library}{tables.suggest_name(item.library, projects)}"
        for name, item in table.operations.items()
        if item.library not in projects
    ]
    for words in (table.tolerances, table.support):
        faults += [
            f"{item} is no dtype{tables.suggest_name(item, table.dtypes)}"
            for item in words
            if item not in table.dtypes
        ]
    for name, dtype in table.dtypes.items():
        if dtype.format not in table.formats:
            faults.append(f"{name}: no format {dtype.format}")
            continue
        dtype_format = table.formats[dtype.format]
        operations = dtype_format.operations if dtype.operations is None else dtype.operations
        faults += [f"{name}: no operation {item}" for item in operations if item not in table.operations]
        tolerances = table.tolerances.get(name, DtypeTolerances())
        if (
            dtype_format.compared == "close"
            and operations
            and not (tolerances.elementwise or tolerances.accumulated)
        ):
            faults.append(f"{name} is compared as close, and no tolerance says how close")
        faults += _find_support_faults(name, table)
    return faults


def _find_support_faults(name: str, table: DtypeTable) -> list[str]:
    if name not in table.support:
        return [f"{name}: no support says where it is"]
    named_architectures = [item for support in table.support[name] for item in support.on]
    architectures = (*table.architectures, OTHER_ARCHITECTURES)
    faults = [
        f"{name}: no architecture {item}{tables.suggest_name(item, architectures)}"
        for item in named_architectures
        if item not in architectures
    ]
    faults += [
        f"{name}: {item} is named twice"
        for item in sorted(set(named_architectures))
        if named_architectures.count(item) > 1
    ]
    if OTHER_ARCHITECTURES not in named_architectures:
        faults += [
            f"{name}: nothing is said of {item}"
            for item in table.architectures
            if item not in named_architectures
        ]
    return faults


DTYPES_TABLE = "dtypes.yaml"
_STORAGE_OPERATIONS = frozenset({"cast", "view"})


@dataclass(frozen=True)
class TargetDtype:
    """A dtype on a target: what to calculate there and how to compare it with the CPU.

    ``operations`` is empty when there is nothing to test. ``note`` is the target's, else the dtype's.
    """

    name: str
    dtype: Dtype
    level: DtypeLevel
    matrix: bool
    operations: tuple[str, ...]
    compared: Literal["close", "equal"]
    reference: str
    product: str
    multiple: int
    tolerances: DtypeTolerances
    support: DtypeSupport

    @property
    def note(self) -> str:
        """What there is to know about it here."""
        return self.support.note or self.dtype.note


@lru_cache
def load_dtype_table() -> DtypeTable:
    """Return the whole table."""
    return records.load_record(project_names.get_data_folder() / DTYPES_TABLE, DtypeTable)


def get_dtypes() -> Mapping[str, Dtype]:
    """Return all dtypes and ways to calculate by name, in the order of the page, then the others."""
    return load_dtype_table().dtypes


def get_architectures() -> Mapping[str, GpuArchitecture]:
    """Return the generations of hardware by name, the oldest first."""
    return load_dtype_table().architectures


def get_operations() -> Mapping[str, DtypeOperation]:
    """Return what the names of operations stand for."""
    return load_dtype_table().operations


def find_architecture(target: str) -> str:
    """Return the architecture of a target, features or not. Raises UsageError for one that has none."""
    base = gfx.strip_features(target)
    for name, architecture in get_architectures().items():
        if base in architecture.targets:
            return name
    all_targets = [target for row in get_architectures().values() for target in row.targets]
    raise errors.UsageError(
        f"nothing is known about data types of {target}{tables.suggest_name(base, all_targets)}",
        tip=f"targets: {', '.join(all_targets)}",
    )


def list_target_dtypes(
    target: str, *, torch: Version | None = None, rocm: Version | None = None
) -> tuple[TargetDtype, ...]:
    """Return the dtypes that a target has, in the order of the table, each with what can be tested.

    With a version of torch or ROCm, without what came later. A dtype that only came to be calculated
    with later is held, as on hardware without it. Raises UsageError for an unknown target.
    """
    architecture = find_architecture(target)
    missing = set(libraries.get_exclusions(target))
    target_dtypes = []
    for name, dtype in get_dtypes().items():
        support = _get_support(name, architecture)
        if (
            support.level == "none"
            or _is_later(dtype.since_torch, torch)
            or _is_later(dtype.since_rocm, rocm)
        ):
            continue
        level: DtypeLevel = "storage" if _is_later(support.since_rocm, rocm) else support.level
        if level == "storage" and dtype.format in ("mx", "tf32"):
            continue  # a way to calculate is not held
        dtype_format = load_dtype_table().formats[dtype.format]
        names = dtype_format.operations if dtype.operations is None else dtype.operations
        usable = tuple(
            operation
            for operation in names
            if (level != "storage" or operation in _STORAGE_OPERATIONS)
            and get_operations()[operation].library not in missing
        )
        target_dtypes.append(
            TargetDtype(
                name,
                dtype,
                level,
                support.matrix,
                usable,
                dtype_format.compared,
                dtype_format.reference,
                dtype.product or dtype_format.product,
                dtype_format.multiple,
                load_dtype_table().tolerances.get(name, DtypeTolerances()),
                support,
            )
        )
    return tuple(target_dtypes)


def tabulate_dtypes() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of the table: a row a dtype, with the architectures by level."""
    header = ("dtype", "format", "bits", "torch", "ROCm", "calculated on", "held on", "kind", "source")
    rows: list[tuple[str, ...]] = []
    for name, dtype in get_dtypes().items():
        levels = {
            architecture: _get_support(name, architecture).level for architecture in get_architectures()
        }
        rows.append(
            (
                dtype.torch or name,
                dtype.format,
                str(dtype.bits),
                str(dtype.since_torch or ""),
                str(dtype.since_rocm or ""),
                _join_names(
                    [architecture for architecture, level in levels.items() if level in ("full", "matrix")]
                ),
                _join_names([architecture for architecture, level in levels.items() if level == "storage"]),
                dtype.kind,
                load_dtype_table().sources[dtype.source].url,
            )
        )
    return header, rows


def _join_names(chosen: list[str]) -> str:
    return "all" if len(chosen) == len(get_architectures()) else " ".join(chosen)


def _is_later(since: Version | None, version: Version | None) -> bool:
    return since is not None and version is not None and since > version


def _get_support(name: str, architecture: str) -> DtypeSupport:
    rows = load_dtype_table().support[name]
    matching_rows = [row for row in rows if architecture in row.on]
    return (matching_rows or [row for row in rows if OTHER_ARCHITECTURES in row.on])[0]
