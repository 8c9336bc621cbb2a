"""GPU targets and families: what names mean, and which targets a build gets.

Owns ``data/gfx_families.yaml``. A target is written as LLVM writes it, features
included: ``gfx942``, ``gfx90a:sramecc+:xnack-``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from pydantic import Field, model_validator

from rocm_wheels.errors import UsageError
from rocm_wheels.model.compat.facts import Fact, FactTable, Source
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import Record, did_you_mean, fault, load

OPTION = "--pytorch-rocm-arch"
VARIABLE = "PYTORCH_ROCM_ARCH"
_FEATURES = re.compile(r"(?::(?:xnack|sramecc)[+-])*")


Attribute = Literal["products", "families", "excluded", "aotriton", "readiness", "wave", "fp8"]


class GfxTarget(Record):
    """A GPU target.

    ``aotriton`` is the first release of aotriton that has kernels for it. ``excluded`` are projects of
    ROCm that are not built for it, with the address of the issue that says why ("": none is named).
    ``wave`` is the threads of a wavefront, ``fp8`` what 8-bit floats its matrix units take, ``mx``
    whether they take block-scaled types. ``readiness`` is TheRock's word on it, by platform. ``known``
    says of an attribute how it is known, where that is not as for the whole table (``fact_of``).
    """

    product: str
    products: tuple[str, ...] = Field(min_length=1)
    families: tuple[str, ...]
    aotriton: str | None = None
    wave: int
    fp8: Literal["fnuz", "ocp", "none"]
    mx: bool = False
    readiness: Mapping[Literal["linux", "windows"], Literal["build", "sanity", "release"]] = {}
    excluded: Mapping[str, str] = {}
    known: Mapping[Attribute, Fact] = {}


class _Table(FactTable):
    known: Mapping[Attribute, Fact]
    kinds: tuple[str, ...]
    targets: Mapping[str, GfxTarget] = Field(min_length=1)

    @model_validator(mode="after")
    def _names(self) -> _Table:
        if lacking := sorted(set(get_args(Attribute)) - set(self.known)):
            raise fault(f"`known` does not say how these are known: {', '.join(lacking)}", "known")
        for name, target in self.targets.items():
            if target.wave not in {32, 64}:
                raise fault("a wavefront has 32 or 64 threads", "targets", name, "wave")
            if not re.fullmatch(r"gfx[0-9]+[0-9a-f]{2}", name):
                raise fault(f"{name} is not the name of a GPU target", "targets", name)
        return self


@dataclass(frozen=True)
class ChosenTargets:
    """The targets of a build, and in words where they came from."""

    targets: tuple[str, ...]
    source: str


def gfx_table() -> FactTable:
    """Return the whole table, for those who look at its facts."""
    return _table()


@lru_cache
def _table() -> _Table:
    return load(data_folder() / "gfx_families.yaml", _Table)


def gfx_targets() -> Mapping[str, GfxTarget]:
    """Return all targets by name, in the order of the table."""
    return _table().targets


def fact_of(target: str, attribute: Attribute) -> tuple[Fact, Source]:
    """Return how an attribute of a target is known, and where it was read. Raises KeyError for no target."""
    table = _table()
    fact = table.targets[target].known.get(attribute) or table.known[attribute]
    return fact, table.sources[fact.source]


def gfx_families() -> dict[str, tuple[str, ...]]:
    """Return the targets of every family; each target is also a family of its own."""
    families: dict[str, tuple[str, ...]] = {}
    for name, target in gfx_targets().items():
        for family in (*target.families, name):
            families[family] = (*families.get(family, ()), name)
    return families


def kinds_of_card() -> tuple[str, ...]:
    """Return the names that are kinds of card and no family: ``dgpu-all`` spans ten years of hardware."""
    return _table().kinds


def base_target(target: str) -> str:
    """Return a target without its features: ``gfx942`` for ``gfx942:xnack+``."""
    return target.split(":", 1)[0]


def families_of(targets: Iterable[str]) -> tuple[str, ...]:
    """Return the families that hold every one of ``targets``, the smallest first.

    Kinds of card (``dgpu-all``) are no answer. No targets, no family.
    """
    wanted = {base_target(target) for target in targets}
    found = [
        (len(members), family)
        for family, members in gfx_families().items()
        if wanted and family not in _table().kinds and wanted <= set(members)
    ]
    return tuple(family for _, family in sorted(found))


def parse_targets(text: str, *, what: str = OPTION) -> tuple[str, ...]:
    """Read a list of targets and families, separated by commas, semicolons or spaces.

    A family stands for its targets. Order is kept and a target counts once. Raises
    UsageError (``what`` names the input) for an empty list, an unknown name, a feature
    that no target has, and for a target that is given both with and without a feature,
    which the compiler refuses (LLVM, AMDGPU target IDs).
    """
    found: dict[str, None] = {}
    for word in re.split(r"[,;\s]+", text):
        if word:
            found.update(dict.fromkeys(_expand(word, what)))
    if not found:
        raise UsageError(f"{what} names no GPU target", tip=f"for example: {OPTION} gfx942,gfx1100")
    _refuse_mixtures(found, what)
    return tuple(found)


def choose_targets(
    option: str | None, environment_value: str | None, sdk_targets: Sequence[str]
) -> ChosenTargets:
    """Decide what to compile for: the option, else ``PYTORCH_ROCM_ARCH``, else the SDK's targets.

    The SDK's are taken only when they are of one family: an SDK for many families would
    make one wheel for every GPU there is, which nobody asked for. Otherwise UsageError lists them.
    """
    if option is not None:
        return ChosenTargets(parse_targets(option), OPTION)
    if environment_value:
        return ChosenTargets(parse_targets(environment_value, what=VARIABLE), VARIABLE)
    if not sdk_targets:
        raise UsageError(
            "no GPU target is named, and the installed ROCm SDK does not say which it serves",
            tip=f"name them: {OPTION} gfx942",
        )
    targets = parse_targets(",".join(sdk_targets), what="the ROCm SDK")
    families = families_of(targets)
    if not families:
        raise UsageError(
            f"the installed ROCm SDK serves several GPU families: {', '.join(targets)}",
            tip=f"say which to compile for: {OPTION} {targets[0]} (or a family, or all: {','.join(targets)})",
        )
    return ChosenTargets(targets, f"the ROCm SDK (family {families[0]})")


def _expand(word: str, what: str) -> tuple[str, ...]:
    base = base_target(word)
    features = word[len(base) :]
    if base in gfx_targets():
        if not _FEATURES.fullmatch(features):
            raise UsageError(
                f"{what}: {word} has an unknown feature",
                tip="features are :sramecc+ :sramecc- :xnack+ :xnack-",
            )
        return (word,)
    families = gfx_families()
    if base in families and not features:
        return families[base]
    raise UsageError(
        f"{what}: {word} is no GPU target or family{did_you_mean(base, families)}",
        tip=f"targets: {', '.join(gfx_targets())}",
    )


def _refuse_mixtures(targets: Iterable[str], what: str) -> None:
    features: dict[str, dict[str, set[str]]] = {}
    for target in targets:
        base, *given = target.split(":")
        known = {feature[:-1]: feature for feature in given}
        if len(known) != len(given):
            raise UsageError(f"{what}: {target} gives a feature twice")
        features.setdefault(base, {})[target] = set(known)
    for variants in features.values():
        if len({frozenset(names) for names in variants.values()}) > 1:
            raise UsageError(
                f"{what}: {' and '.join(variants)} cannot be compiled together",
                tip="a feature is given with + and -, or not at all",
            )
