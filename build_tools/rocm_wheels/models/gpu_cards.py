"""Find cards as people name them, and put together what the tables know of their targets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from rocm_wheels.core import errors, records
from rocm_wheels.gpus import gpu, pci
from rocm_wheels.models import gfx, package_indexes
from rocm_wheels.models.facts import FactKind, FactSource

QueryKind = Literal["id", "target", "name", "product"]
_MAX_NAMED = 6  # targets that are called the same
_MAX_PRODUCTS = 3
_LEAST_LIKENESS = 0.65  # of names that are proposed
_PLATFORMS = ("linux", "windows")
_INDEX_COLUMNS = ("name", "url", "layout", "reason")


class AttributeFact(records.Record):
    """One thing known of a target: in words, how it is known, and where it was read."""

    what: gfx.TargetAttribute
    value: str
    kind: FactKind
    source: FactSource


class ServingIndex(records.Record):
    """An index of the stable channel that serves a target on a platform, and why."""

    platform: str
    name: str
    url: str
    layout: package_indexes.IndexLayout
    reason: str


class TargetFacts(records.Record):
    """What is known of a vendor's target, and what serves it.

    ``target`` is like ``gfx942``, a compute capability (``8.9``) of NVIDIA, None for Intel and when it is
    not known. ``product`` has the products that were asked for, else what the table calls the target; it and
    ``facts`` are empty for a target that ROCm's builds do not know. ``indexes``: the best first.
    """

    vendor: str
    target: str | None
    product: str = ""
    generic: str | None = None
    facts: tuple[AttributeFact, ...] = ()
    indexes: tuple[ServingIndex, ...] = ()


@dataclass(frozen=True)
class FoundCards:
    """The cards that a query means, how it was read, and the facts of their targets."""

    query: str
    query_kind: QueryKind
    cards: tuple[pci.PciEntry, ...]
    targets: tuple[TargetFacts, ...]


def find_gpu_cards(query: str) -> FoundCards:
    """Return the cards that are meant by words of a name, a gfx target or a PCI id.

    Four hexadecimal digits may be an id and part of a name (6800): then both count. A product of the table of
    targets (Ryzen AI 9 HX 370) means the GPUs that are part of a processor with that target. Raises
    UsageError, with near names, when nothing is meant.
    """
    text = " ".join(query.split())
    if text.lower().startswith(("gfx", gpu.NEW_MARK)):
        words = gfx.read_gpu_words(text, input_name="")
        targets = dict.fromkeys(target for named in words for target in named.targets)
        cards = tuple(entry for entry in pci.list_pci_entries() if entry.gfx in targets)
        return FoundCards(text, "target", cards, tuple(map(get_target_facts, targets)))
    normal = pci.normalize_pci_id(text)
    by_id: tuple[pci.PciEntry, ...] = ()
    if normal is not None:  # four digits alone may be of any vendor
        lacks_vendor = ":" not in text and "-" not in text
        ids = [f"{vendor}:{normal[5:]}" for vendor in pci.PCI_VENDORS] if lacks_vendor else [normal]
        by_id = tuple(entry for pci_id in ids if (entry := pci.find_pci_entry(pci_id)))
    is_id = normal is not None and (":" in text or "0x" in text.lower())
    cards = by_id if is_id else (*by_id, *pci.search_pci_entries(text))
    if not cards and normal is None and (named := gfx.find_targets(text)):
        parts = tuple(entry for entry in pci.list_pci_entries() if entry.gfx in named and entry.integrated)
        facts = tuple(_name_as_asked(get_target_facts(target), text, parts) for target in named)
        return FoundCards(text, "product", parts, facts)
    if not cards:
        raise _make_unknown_name_error(text) if normal is None else _make_unknown_id_error(normal)
    cards = tuple(dict.fromkeys(cards))
    vendor_targets = dict.fromkeys((entry.vendor, entry.gfx or entry.capability) for entry in cards)
    facts = tuple(
        _name_as_asked(get_target_facts(target, vendor), text, cards)
        for vendor, target in vendor_targets
        if target or vendor != "amd"
    )
    return FoundCards(text, "id" if by_id else "name", cards, facts)


def find_product_target(product: str, input_name: str) -> str:
    """Return the one target of AMD's cards that are called so.

    ``input_name`` names the input in errors: UsageError, with near names, where no card is called so, where
    its target is unknown, for another vendor's card, and for cards of several targets.
    """
    prefix = f"{input_name}: " if input_name else ""
    try:
        matches = find_gpu_cards(product)
    except errors.UsageError as cause:
        raise errors.UsageError(f"{prefix}{cause.message}", tip=cause.tip) from None
    facts = matches.targets
    targets = [entry.target for entry in facts if entry.vendor == "amd" and entry.target]
    if len(targets) > 1:  # a Ryzen Z2 is none of the Z2 Extreme
        words = pci.split_words(product)
        called = [card for card in matches.cards if words in map(pci.split_words, card.products)]
        targets = list(dict.fromkeys(card.gfx for card in called if card.gfx)) or targets
    if len(targets) > 1:
        named = ", ".join([*targets[:_MAX_NAMED], *["…"] * (len(targets) > _MAX_NAMED)])
        raise errors.UsageError(
            f"{prefix}{product}: GPUs of {len(targets)} targets are called so: {named}",
            tip=f"say which; `rocm-wheels compat gpu {product}` tells them apart",
        )
    if not targets and facts:
        raise errors.UsageError(
            f"{input_name} {product}: that is no AMD GPU",
            tip=f"{input_name} none is for no AMD GPU, where a machine is stated",
        )
    if not targets:
        raise errors.UsageError(
            f"{prefix}no table knows the target of {product!r}", tip="rocminfo prints it: gfx…"
        )
    return targets[0]


def _name_as_asked(facts: TargetFacts, query: str, cards: Sequence[pci.PciEntry]) -> TargetFacts:
    """Return facts under the names that a query means: gfx1100 is also the RX 7900 GRE."""
    entry = gfx.get_gfx_targets().get(facts.target or "")
    of_target = [card for card in cards if facts.target and card.gfx == facts.target]
    products = [*(entry.products if entry else ()), *(name for card in of_target for name in card.products)]
    titles = [name for name in dict.fromkeys(products) if _split_parts(query) <= _split_parts(name)]
    if not titles and len(of_target) == 1:
        titles = [of_target[0].name]
    shown = ", ".join([*titles[:_MAX_PRODUCTS], *["…"] * (len(titles) > _MAX_PRODUCTS)])
    return facts.model_copy(update={"product": shown or facts.product})


def _split_parts(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+|[0-9]+", name.lower()))


def get_target_facts(target: str | None, vendor: str = "amd") -> TargetFacts:
    """Return what the tables know of a target of AMD, a compute capability of NVIDIA, or of Intel's GPUs."""
    indexes = tuple(
        ServingIndex(platform=platform, **{key: getattr(index, key) for key in _INDEX_COLUMNS})
        for platform in (() if target == gpu.INTEL_BEFORE_XE else _PLATFORMS)
        for index in package_indexes.find_indexes(target, vendor=vendor, platform=platform)
    )
    generic = gpu.find_generic_target(target) if target and vendor == "amd" else None
    entry = gfx.get_gfx_targets().get(target or "")
    if target is None or entry is None:
        return TargetFacts(vendor=vendor, target=target, generic=generic, indexes=indexes)
    excluded = [f"{name} {issue}".rstrip() for name, issue in entry.excluded.items()]
    texts: dict[gfx.TargetAttribute, str] = {
        "families": ", ".join(entry.families),
        "wave": str(entry.wave),
        "fp8": f"{entry.fp8}, block-scaled (MX) types" if entry.mx else entry.fp8,
        "aotriton": f"since {entry.aotriton}" if entry.aotriton else "no kernels",
        "readiness": ", ".join(map(" ".join, entry.readiness.items())) or "none stated",
        "excluded": ", ".join(excluded) or "nothing",
    }
    facts = []
    for attribute, text in texts.items():
        fact, source = gfx.get_attribute_fact(target, attribute)
        facts.append(AttributeFact(what=attribute, value=text, kind=fact.kind, source=source))
    return TargetFacts(
        vendor=vendor,
        target=target,
        product=entry.product,
        generic=generic,
        facts=tuple(facts),
        indexes=indexes,
    )


def _make_unknown_id_error(normal: str) -> errors.UsageError:
    if normal[:4] not in pci.PCI_VENDORS:
        return errors.UsageError(
            f"no GPU has PCI id {normal}: {normal[:4]} is no vendor of the tables",
            tip="vendors: " + ", ".join(f"{key} {name}" for key, name in pci.PCI_VENDORS.items()),
        )
    return errors.UsageError(
        f"the tables have no GPU with PCI id {normal}",
        tip="the driver may know it: `rocm-wheels doctor`; a newer rocm-wheels may have it",
    )


def _make_unknown_name_error(text: str) -> errors.UsageError:
    query_words = pci.split_words(text)

    @cache  # many cards share their words
    def compare(word: str, other: str) -> float:
        return difflib.SequenceMatcher(None, word, other).ratio()

    likeness = {}
    for entry in pci.list_pci_entries() if query_words else ():
        card_words = pci.split_words(" ".join((entry.name, *entry.products)))
        ratios = [max((compare(word, other) for other in card_words), default=0) for word in query_words]
        likeness[entry] = sum(ratios) / len(ratios)
    best = sorted(likeness, key=lambda entry: (-likeness[entry], entry.vendor != "amd", entry.id))
    similar = [entry.name for entry in best[:3] if likeness[entry] > _LEAST_LIKENESS]
    return errors.UsageError(
        f"no GPU of the tables is called {text!r}",
        tip=f"near names: {'; '.join(similar)}"
        if similar
        else "name a card (RX 7900 XTX), a target (gfx942) or a PCI id (1002:74a1)",
    )
