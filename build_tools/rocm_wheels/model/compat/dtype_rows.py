"""Records of the table of data types. The header of ``data/dtypes.yaml`` explains its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.compat.libraries import rocm_libraries
from rocm_wheels.model.compat.versions import VersionField
from rocm_wheels.model.gfx import gfx_targets
from rocm_wheels.records import Record, did_you_mean, spelled

Level = Literal["full", "matrix", "storage", "none"]
Format = Literal[
    "float", "int", "complex", "bool", "quantized", "fp8-fnuz", "fp8-ocp", "scale", "fp4", "mx", "tf32"
]
OTHERS = "others"


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
    """How dtypes of one kind are tested: the reference is calculated on the CPU in ``reference``.

    A product is held in ``product``; sides of its matrices are multiples of ``multiple``.
    """

    operations: tuple[str, ...]
    compared: Literal["close", "equal"]
    reference: str
    product: str = ""
    multiple: int = Field(default=1, gt=0)


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
    torch: Annotated[str, spelled(r"(torch\.[a-z0-9_]+)?", "a dtype such as torch.float16, or empty")] = ""
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


class DtypeTable(FactTable):
    """``data/dtypes.yaml``, whole: every name leads somewhere, every dtype names all architectures."""

    architectures: Mapping[str, Architecture]
    operations: Mapping[str, Operation]
    formats: Mapping[str, DtypeFormat]
    dtypes: Mapping[str, Dtype]
    tolerances: Mapping[str, Tolerances]
    support: Mapping[str, tuple[Support, ...]]

    @model_validator(mode="after")
    def _whole(self) -> DtypeTable:
        if faults := _faults(self):
            raise ValueError("; ".join(faults))
        return self


def _faults(table: DtypeTable) -> list[str]:
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


def _support_faults(name: str, table: DtypeTable) -> list[str]:
    if name not in table.support:
        return [f"{name}: no support says where it is"]
    named = [one for support in table.support[name] for one in support.on]
    known = (*table.architectures, OTHERS)
    faults = [f"{name}: no architecture {one}{did_you_mean(one, known)}" for one in named if one not in known]
    faults += [f"{name}: {one} is named twice" for one in sorted(set(named)) if named.count(one) > 1]
    if OTHERS not in named:
        faults += [f"{name}: nothing is said of {one}" for one in table.architectures if one not in named]
    return faults
