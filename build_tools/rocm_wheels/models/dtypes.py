"""List data types of torch by GPU target: what can be calculated there, and how close a result must be.

Owns ``data/dtypes.yaml``, whose header explains its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from packaging.version import Version

from rocm_wheels.core import errors, records, tables
from rocm_wheels.models import facts, gfx, libraries, project_names

DtypeLevel = Literal["full", "matrix", "storage", "none"]
OTHER_ARCHITECTURES = "others"
_STORAGE_OPERATIONS = frozenset({"cast", "view"})


class GpuArchitecture(facts.ReadRow):
    """Targets of one generation of hardware, which treats every dtype alike."""

    targets: tuple[str, ...]


class DtypeOperation(facts.ReadRow):
    """What can be tested with a dtype: the call of torch, and the ROCm library (``rocm_libraries.yaml``)
    without which there is no such operation."""

    call: str
    library: str = ""


class DtypeFormat(facts.ReadRow):
    """How dtypes of one kind are tested: the reference is calculated on the CPU in ``reference``.

    A product is held in ``product``; sides of its matrices are multiples of ``multiple``.
    """

    operations: tuple[str, ...]
    compared: Literal["close", "equal"]
    reference: str
    product: str = ""
    multiple: int = 1


class DtypeTolerance(facts.ReadRow):
    """``|got - wanted| <= atol + rtol * |wanted|``."""

    rtol: float
    atol: float


class DtypeTolerances(records.Record):
    """Of one operation an element, and of sums and products of 1024 terms in [-1, 1)."""

    elementwise: DtypeTolerance | None = None
    accumulated: DtypeTolerance | None = None


class Dtype(facts.ReadRow):
    """A dtype of tensors, or (without ``torch``) a way to calculate with ``elements`` of one.

    ``operations`` and ``product`` (the dtype of a product's result) only where they are not the format's.
    """

    format: str
    bits: int
    torch: str = ""
    elements: str = ""
    scale: str = ""
    block: int = 0
    since_torch: facts.VersionField | None = None
    since_rocm: facts.VersionField | None = None
    operations: tuple[str, ...] | None = None
    product: str = ""
    note: str = ""


class DtypeSupport(facts.ReadRow):
    """What the architectures ``on`` do with a dtype; ``since_rocm``: the first with more than storage."""

    on: tuple[str, ...]
    level: DtypeLevel
    since_rocm: facts.VersionField | None = None
    note: str = ""


class DtypeTable(facts.FactTable):
    """``data/dtypes.yaml``, whole: every name leads somewhere, every dtype names all architectures."""

    architectures: Mapping[str, GpuArchitecture]
    operations: Mapping[str, DtypeOperation]
    formats: Mapping[str, DtypeFormat]
    dtypes: Mapping[str, Dtype]
    tolerances: Mapping[str, DtypeTolerances]
    support: Mapping[str, tuple[DtypeSupport, ...]]


@dataclass(frozen=True)
class TargetDtype:
    """A dtype on a target: ``operations`` can be tested there; ``note`` is the target's, else the dtype's."""

    name: str
    dtype: Dtype
    level: DtypeLevel
    operations: tuple[str, ...]
    note: str


@lru_cache
def load_dtype_table() -> DtypeTable:
    """Return the whole table."""
    return records.load_record(project_names.get_data_folder() / "dtypes.yaml", DtypeTable)


def find_architecture(target: str) -> str:
    """Return the architecture of a target, features or not. Raises UsageError for one that has none."""
    base = gfx.strip_features(target)
    all_targets: list[str] = []
    for name, architecture in load_dtype_table().architectures.items():
        if base in architecture.targets:
            return name
        all_targets += architecture.targets
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
    table, architecture = load_dtype_table(), find_architecture(target)
    missing = set(libraries.get_exclusions(target))
    target_dtypes = []
    for name, dtype in table.dtypes.items():
        rows = {place: row for row in table.support[name] for place in row.on}
        support = rows.get(architecture) or rows[OTHER_ARCHITECTURES]
        level: DtypeLevel = "storage" if _is_later(support.since_rocm, rocm) else support.level
        if (
            support.level == "none"
            or _is_later(dtype.since_torch, torch)
            or _is_later(dtype.since_rocm, rocm)
            or (level == "storage" and dtype.format in ("mx", "tf32"))  # a way to calculate is not held
        ):
            continue
        names = table.formats[dtype.format].operations if dtype.operations is None else dtype.operations
        operations = tuple(
            operation
            for operation in names
            if (level != "storage" or operation in _STORAGE_OPERATIONS)
            and table.operations[operation].library not in missing
        )
        target_dtypes.append(TargetDtype(name, dtype, level, operations, support.note or dtype.note))
    return tuple(target_dtypes)


def _is_later(since: Version | None, version: Version | None) -> bool:
    return since is not None and version is not None and since > version
