"""GPU targets and families, how they are chosen, and which target a GPU can pose as.

Owns ``data/gfx_families.yaml``. A target is written as LLVM writes it, features
included: ``gfx942``, ``gfx90a:sramecc+:xnack-``. What rocm-bootstrap says of the same is compared.

Owns ``data/isa_overrides.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from rocm_wheels.core import errors, records
from rocm_wheels.gpus import gpu
from rocm_wheels.models import facts, project_names

TARGETS_OPTION = "--gfx"
TARGETS_VARIABLE = "PYTORCH_ROCM_ARCH"
_FEATURES = re.compile(r"(?::(?:xnack|sramecc)[+-])*")


TargetAttribute = Literal["products", "families", "excluded", "aotriton", "readiness", "wave", "fp8"]


class GfxTarget(records.Record):
    """A GPU target.

    ``aotriton`` is the first release of aotriton that has kernels for it. ``excluded`` are projects of
    ROCm that are not built for it, with the address of the issue that says why ("": none is named).
    ``wave`` is the threads of a wavefront, ``fp8`` what 8-bit floats its matrix units take, ``mx``
    whether they take block-scaled types. ``readiness`` is TheRock's word on it, by platform. ``known``
    says of an attribute how it is known, where that is not as for the whole table (``get_attribute_fact``).
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
    known: Mapping[TargetAttribute, facts.Fact] = {}


class GfxTable(facts.FactTable):
    """The whole of ``data/gfx_families.yaml``; ``kinds`` are names of families that are kinds of card."""

    known: Mapping[TargetAttribute, facts.Fact]
    kinds: tuple[str, ...]
    targets: Mapping[str, GfxTarget] = Field(min_length=1)


@lru_cache
def load_gfx_table() -> GfxTable:
    """Return the whole table."""
    return records.load_record(project_names.get_data_folder() / "gfx_families.yaml", GfxTable)


def get_gfx_targets() -> Mapping[str, GfxTarget]:
    """Return all targets by name, in the order of the table."""
    return load_gfx_table().targets


def get_attribute_fact(target: str, attribute: TargetAttribute) -> tuple[facts.Fact, facts.FactSource]:
    """Return how an attribute of a target is known, and where it was read. Raises KeyError for no target."""
    table = load_gfx_table()
    fact = table.targets[target].known.get(attribute) or table.known[attribute]
    return fact, table.sources[fact.source]


@lru_cache
def get_gfx_families() -> Mapping[str, tuple[str, ...]]:
    """Return the targets of every family; each target is also a family of its own."""
    families: dict[str, tuple[str, ...]] = {}
    for name, target in get_gfx_targets().items():
        for family in (*target.families, name):
            families[family] = (*families.get(family, ()), name)
    return MappingProxyType(families)


def get_card_kinds() -> tuple[str, ...]:
    """Return the names that are kinds of card and no family: ``dgpu-all`` spans ten years of hardware."""
    return load_gfx_table().kinds


def strip_features(target: str) -> str:
    """Return a target without its features: ``gfx942`` for ``gfx942:xnack+``."""
    return target.split(":", 1)[0]


def find_families(targets: Iterable[str]) -> tuple[str, ...]:
    """Return the families that hold every one of ``targets``, the smallest first.

    Kinds of card (``dgpu-all``) are no answer. No targets, no family.
    """
    bases = {strip_features(target) for target in targets}
    matches = [
        (len(members), family)
        for family, members in get_gfx_families().items()
        if bases and family not in load_gfx_table().kinds and bases <= set(members)
    ]
    return tuple(family for _, family in sorted(matches))


@dataclass(frozen=True)
class NamedGpus:
    """What one word of ``--gfx`` names: ``targets`` without ``features`` (``:xnack+``), several of a family.

    ``card`` is the word where it is the name of a card, else "".
    """

    word: str
    targets: tuple[str, ...]
    features: str = ""
    card: str = ""


def read_gpu_words(text: str, *, input_name: str = TARGETS_OPTION, newer: bool = True) -> list[NamedGpus]:
    """Read what every ``--gfx`` takes: targets, families and cards, parted by commas, semicolons or spaces.

    Any target that is known may be named, and a newer one behind ``new:`` (new:gfx1399). Raises UsageError,
    with what may be meant, for anything else; ``input_name`` names the input. Without ``newer`` its message
    does not speak of newer ones, which the caller cannot take.
    """
    return [_read_word(word, input_name, newer=newer) for word in split_target_words(text)]


def _read_word(word: str, input_name: str, *, newer: bool) -> NamedGpus:
    lower, prefix = word.lower(), f"{input_name}: " if input_name else ""
    families = {family.lower(): members for family, members in get_gfx_families().items()}
    if lower in families:
        return NamedGpus(word, families[lower])
    if not lower.startswith(("gfx", gpu.NEW_MARK)):
        from rocm_wheels.models import gpu_cards  # which reads the tables of this module

        return NamedGpus(word, (gpu_cards.find_product_target(word, input_name),), card=word)
    mark = gpu.NEW_MARK * lower.startswith(gpu.NEW_MARK)
    base, colon, features = lower.removeprefix(mark).partition(":")
    if not _FEATURES.fullmatch(colon + features):
        raise errors.UsageError(
            f"{prefix}{word} has an unknown feature", tip="features are :sramecc+ :sramecc- :xnack+ :xnack-"
        )
    try:
        typed = word[: len(mark + base)]  # as errors name it
        return NamedGpus(word, (gpu.parse_stated_target(typed, newer=newer),), colon + features)
    except ValueError as cause:
        near = [
            family for family in get_gfx_families() if "x" in base[3:] and family.lower().startswith(base)
        ]
        message = f"{word} is no GPU target; did you mean {' or '.join(near)}?" if near else str(cause)
        raise errors.UsageError(
            f"{prefix}{message}",
            tip="`rocm-wheels compat show targets` lists them; a card can also be named: 'RX 7900 XTX'",
        ) from None


def parse_targets(text: str, *, input_name: str = TARGETS_OPTION) -> tuple[str, ...]:
    """Read a list of targets to compile for, as ``read_gpu_words`` does: those that ROCm is built for.

    Order is kept and a target counts once. Raises UsageError (``input_name`` names the input) for an empty
    list, what names no GPU or one that ROCm does not compile for, and for a target that is given both with
    and without a feature, which the compiler refuses (LLVM, AMDGPU target IDs).
    """
    parsed: dict[str, None] = {}
    for named in read_gpu_words(text, input_name=input_name, newer=False):
        for target in named.targets:
            if target not in get_gfx_targets():
                raise errors.UsageError(
                    f"{input_name} {named.word}: {target} is no target of ROCm",
                    tip=f"targets: {', '.join(get_gfx_targets())}",
                )
            parsed[target + named.features] = None
    if not parsed:
        option = f"{input_name} " if input_name.startswith("--") else ""
        raise errors.UsageError(
            f"{input_name} names no GPU target", tip=f"for example: {option}gfx942,gfx1100"
        )
    _refuse_mixtures(parsed, input_name)
    return tuple(parsed)


def parse_single_target(text: str, *, input_name: str = TARGETS_OPTION) -> str:
    """Read the one target that is meant, without features, as ``parse_targets`` does.

    UsageError for several.
    """
    targets = dict.fromkeys(map(strip_features, parse_targets(text, input_name=input_name)))
    if len(targets) > 1:
        raise errors.UsageError(
            f"{input_name} {text} names {len(targets)} targets", tip=f"name one of them: {', '.join(targets)}"
        )
    return next(iter(targets))


def split_target_words(text: str) -> list[str]:
    """Return the words of a list of targets; the words of a product (RX 7900 XTX) between commas are one."""
    words: list[str] = []
    for part in re.split(r"[,;]", text):
        names = part.split()
        are_names = any(
            name.lower().startswith(("gfx", gpu.NEW_MARK)) or name in get_gfx_families() for name in names
        )
        words += names if are_names else [" ".join(names)] if names else []
    return words


def choose_sdk_targets(sdk_targets: Sequence[str]) -> tuple[str, ...]:
    """Return what to compile for where nobody says it: the targets of a ROCm SDK that are of one family.

    An SDK for many families would make one wheel for every GPU there is, which nobody asked for: UsageError
    lists them.
    """
    if not sdk_targets:
        raise errors.UsageError(
            "no GPU target is named, and the installed ROCm SDK does not say which it serves",
            tip=f"name them: {TARGETS_OPTION} gfx942",
        )
    targets = parse_targets(",".join(sdk_targets), input_name="the ROCm SDK")
    if not find_families(targets):
        raise errors.UsageError(
            f"the installed ROCm SDK serves several GPU families: {', '.join(targets)}",
            tip=f"say which to compile for: {TARGETS_OPTION} {targets[0]} (or a family, or all: "
            f"{','.join(targets)})",
        )
    return targets


def _refuse_mixtures(targets: Iterable[str], input_name: str) -> None:
    features: dict[str, dict[str, set[str]]] = {}
    for target in targets:
        base, *settings = target.split(":")
        setting_by_feature = {feature[:-1]: feature for feature in settings}
        if len(setting_by_feature) != len(settings):
            raise errors.UsageError(f"{input_name}: {target} gives a feature twice")
        features.setdefault(base, {})[target] = set(setting_by_feature)
    for variants in features.values():
        if len({frozenset(names) for names in variants.values()}) > 1:
            raise errors.UsageError(
                f"{input_name}: {' and '.join(variants)} cannot be compiled together",
                tip="a feature is given with + and -, or not at all",
            )


def find_targets(text: str) -> tuple[str, ...]:
    """Return the targets whose name, family or product holds ``text``, in the order of the table."""
    word = text.casefold().strip()
    return tuple(
        name
        for name, target in get_gfx_targets().items()
        if word
        and any(
            word in label.casefold() for label in (name, target.product, *target.families, *target.products)
        )
    )


OVERRIDE_VARIABLE = "HSA_OVERRIDE_GFX_VERSION"


class TargetOverride(facts.Fact):
    """A target whose kernels a card can run. ``care`` is what is known to go wrong.

    ``risky``: not without being asked for.
    """

    target: str = Field(alias="as")
    care: str = ""
    risky: bool = False

    @property
    def version(self) -> str:
        """The value of ``HSA_OVERRIDE_GFX_VERSION``: ``10.3.0``."""
        return gpu.format_override_version(self.target)


class NodeOverride(facts.Fact):
    """Variables that override one card alone. ``since``: the first ROCm that reads them."""

    since: str


class OverrideTable(facts.FactTable):
    """All there is to know about overrides, by the card's own target."""

    per_node: NodeOverride
    windows: facts.Fact
    hidden_integrated: facts.Fact
    cards: Mapping[str, tuple[TargetOverride, ...]]
    refused: Mapping[str, tuple[TargetOverride, ...]]


@lru_cache
def load_overrides() -> OverrideTable:
    """Return the table."""
    return records.load_record(project_names.get_data_folder() / "isa_overrides.yaml", OverrideTable)
