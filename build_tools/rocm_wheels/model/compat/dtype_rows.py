"""Records of the table of data types. The header of ``data/dtypes.yaml`` explains its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.compat.libraries import get_rocm_libraries
from rocm_wheels.model.compat.versions import VersionField
from rocm_wheels.model.gfx import get_gfx_targets
from rocm_wheels.records import Record, suggest_name, require_pattern

DtypeLevel = Literal["full", "matrix", "storage", "none"]
DtypeFormatName = Literal[
    "float", "int", "complex", "bool", "quantized", "fp8-fnuz", "fp8-ocp", "scale", "fp4", "mx", "tf32"
]
OTHER_ARCHITECTURES = "others"


class GpuArchitecture(Fact):
    """Targets of one generation of hardware, which treats every dtype alike."""

    targets: tuple[str, ...] = Field(min_length=1)


class DtypeOperation(Fact):
    """What can be tested with a dtype: the call of torch, ``before`` it had that name, and the ROCm
    library (``get_rocm_libraries.yaml``) without which there is no such operation."""

    call: str
    before: str = ""
    library: str = ""


class DtypeFormat(Record):
    """How dtypes of one kind are tested: the reference is calculated on the CPU in ``reference``.

    A product is held in ``product``; sides of its matrices are multiples of ``multiple``.
    """

    operations: tuple[str, ...]
    compared: Literal["close", "equal"]
    reference: str
    product: str = ""
    multiple: int = Field(default=1, gt=0)


class DtypeTolerance(Fact):
    """``|got - wanted| <= atol + rtol * |wanted|``."""

    rtol: float = Field(ge=0, lt=1)
    atol: float = Field(ge=0)


class DtypeTolerances(Record):
    """Of one operation an element, and of sums and products of 1024 terms in [-1, 1)."""

    elementwise: DtypeTolerance | None = None
    accumulated: DtypeTolerance | None = None


class Dtype(Fact):
    """A dtype of tensors, or (without ``torch``) a way to calculate with ``elements`` of one.

    ``page``: of the 22 of the PyTorch compatibility page. ``operations`` and ``product`` (the dtype of a
    product's result) only where they are not the format's.
    """

    format: DtypeFormatName
    bits: int = Field(gt=0)
    torch: Annotated[
        str, require_pattern(r"(torch\.[a-z0-9_]+)?", "a dtype such as torch.float16, or empty")
    ] = ""
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


class DtypeSupport(Fact):
    """What the architectures ``on`` do with a dtype; ``since_rocm``: the first with more than storage."""

    on: tuple[str, ...] = Field(min_length=1)
    level: DtypeLevel
    matrix: bool = False
    since_rocm: VersionField | None = None


class DtypeTable(FactTable):
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
    faults = [f"{item} is no GPU target" for item in targets if item not in get_gfx_targets()]
    faults += [f"{item} is in two architectures" for item in sorted(set(targets)) if targets.count(item) > 1]
    projects = {item.project for item in get_rocm_libraries().values()} | {""}
    faults += [
        f"{name}: no library {item.library}{suggest_name(item.library, projects)}"
        for name, item in table.operations.items()
        if item.library not in projects
    ]
    for words in (table.tolerances, table.support):
        faults += [
            f"{item} is no dtype{suggest_name(item, table.dtypes)}"
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
        f"{name}: no architecture {item}{suggest_name(item, architectures)}"
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
