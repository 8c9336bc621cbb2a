"""Find cards as people name them, and put together what the tables know of their targets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rocm_wheels.errors import UsageError
from rocm_wheels.gpus import names, pci
from rocm_wheels.gpus.pci import PciEntry
from rocm_wheels.model.compat.facts import FactKind, Source
from rocm_wheels.model.compat.releases import Index, indexes_for
from rocm_wheels.model.compat.targets import targets_named
from rocm_wheels.model.gfx import Attribute, base_target, fact_of, gfx_targets
from rocm_wheels.records import did_you_mean

AskedBy = Literal["id", "target", "name", "product"]
_PLATFORMS = ("linux", "windows")
_SHOWN: tuple[Attribute, ...] = ("families", "wave", "fp8", "aotriton", "readiness", "excluded")


@dataclass(frozen=True)
class KnownFact:
    """One thing known of a target: in words, how it is known, and where it was read."""

    what: str
    value: str
    kind: FactKind
    source: Source


@dataclass(frozen=True)
class TargetFacts:
    """What is known of a vendor's target, and what serves it.

    ``target`` is like ``gfx942``, a compute capability (``8.9``) of NVIDIA, None for Intel and when it is
    not known. ``product`` and ``facts`` are empty for a target that ROCm's builds do not know. ``indexes``
    are those of the stable channel by platform, the best first.
    """

    vendor: str
    target: str | None
    product: str
    generic: str | None
    facts: tuple[KnownFact, ...]
    indexes: tuple[tuple[str, Index], ...]


@dataclass(frozen=True)
class FoundCards:
    """The cards that a query means, how it was read, and the facts of their targets."""

    query: str
    asked_by: AskedBy
    cards: tuple[PciEntry, ...]
    targets: tuple[TargetFacts, ...]


def find_cards(query: str) -> FoundCards:
    """Return the cards that are meant by words of a name, a gfx target or a PCI id.

    Four hexadecimal digits may be an id and part of a name (6800): then both count. A product of the table of
    targets (Ryzen AI 9 HX 370) means the GPUs that are part of a processor with that target. Raises
    UsageError, with near names, when nothing is meant.
    """
    text = " ".join(query.split())
    if re.match(r"(?i)gfx", text):
        target = _target(text)
        cards = tuple(entry for entry in pci.entries() if entry.gfx == target)
        return FoundCards(text, "target", cards, (facts_of(target),))
    by_id = _by_id(text)
    spelled = pci.normal_id(text) is not None
    cards = by_id if spelled and (":" in text or "0x" in text.lower()) else (*by_id, *pci.search(text))
    if not cards and not spelled and (named := targets_named(text)):
        parts = tuple(entry for entry in pci.entries() if entry.gfx in named and entry.integrated)
        return FoundCards(text, "product", parts, tuple(facts_of(target) for target in named))
    if not cards:
        raise _unknown_id(text) if spelled else _unknown_name(text)
    cards = tuple(dict.fromkeys(cards))
    known = dict.fromkeys((entry.vendor, entry.gfx or entry.capability) for entry in cards)
    facts = tuple(facts_of(target, vendor) for vendor, target in known if target or vendor != "amd")
    return FoundCards(text, "id" if by_id else "name", cards, facts)


def amd_targets_of(product: str) -> tuple[str, ...]:
    """Return the targets of AMD's cards that are called by words of their name; none for another vendor's.

    Raises UsageError, with near names, when no card is called so, or when its target is not known.
    """
    facts = find_cards(product).targets
    targets = tuple(one.target for one in facts if one.vendor == "amd" and one.target)
    if not targets and not facts:
        raise UsageError(f"no table knows the target of {product!r}", tip="rocminfo prints it: gfx…")
    return targets


def facts_of(target: str | None, vendor: str = "amd") -> TargetFacts:
    """Return what the tables know of a target of AMD, a compute capability of NVIDIA, or of Intel's GPUs."""
    indexes = tuple(
        (platform, index)
        for platform in _PLATFORMS
        for index in indexes_for(target, vendor=vendor, platform=platform)
    )
    generic = names.generic_of(target) if target and vendor == "amd" else None
    if target is None or target not in gfx_targets():
        return TargetFacts(vendor, target, "", generic, (), indexes)
    facts = []
    for attribute in _SHOWN:
        fact, source = fact_of(target, attribute)
        facts.append(KnownFact(attribute, _words(target, attribute), fact.kind, source))
    return TargetFacts(vendor, target, gfx_targets()[target].product, generic, tuple(facts), indexes)


def as_json(facts: TargetFacts) -> dict[str, Any]:
    """Return the facts of a target as plain data."""
    return {
        "vendor": facts.vendor,
        "target": facts.target,
        "product": facts.product,
        "generic": facts.generic,
        "facts": [
            {"what": fact.what, "value": fact.value, "kind": fact.kind}
            | {"source": fact.source.model_dump(mode="json")}
            for fact in facts.facts
        ],
        "indexes": [
            {"platform": platform, "name": index.name, "url": index.url, "layout": index.layout}
            | {"reason": index.reason}
            for platform, index in facts.indexes
        ],
    }


def _words(target: str, attribute: Attribute) -> str:
    entry = gfx_targets()[target]
    if attribute == "families":
        return ", ".join(entry.families)
    if attribute == "fp8":
        return f"{entry.fp8}, block-scaled (MX) types" if entry.mx else entry.fp8
    if attribute == "aotriton":
        return f"since {entry.aotriton}" if entry.aotriton else "no kernels"
    if attribute == "readiness":
        return ", ".join(f"{platform} {word}" for platform, word in entry.readiness.items()) or "none stated"
    if attribute == "excluded":
        return ", ".join(f"{name} {issue}".rstrip() for name, issue in entry.excluded.items()) or "nothing"
    return str(getattr(entry, attribute))


def _target(text: str) -> str:
    base = base_target(text.lower())
    features = text.lower()[len(base) :]
    known = sorted({*gfx_targets(), *names.KNOWN, *(e.gfx for e in pci.entries() if e.gfx)})
    if base not in known:
        raise UsageError(
            f"{base} is no GPU target{did_you_mean(base, near_targets(base, known))}",
            tip="`rocm-wheels compat show targets` lists them; a card can also be named, or given by PCI id",
        )
    if not re.fullmatch(r"(?::(?:xnack|sramecc)[+-])*", features):
        raise UsageError(
            f"{text} has an unknown feature", tip="features are :sramecc+ :sramecc- :xnack+ :xnack-"
        )
    return base


def near_targets(word: str, known: Sequence[str]) -> list[str]:
    """Return which targets can have been meant: by the name of a target only those that begin as it does."""
    alike = len("gfx94")
    return [one for one in known if not names.is_chip(word) or one[:alike] == word[:alike]]


def _by_id(text: str) -> tuple[PciEntry, ...]:
    normal = pci.normal_id(text)
    if normal is None:
        return ()
    alone = ":" not in text and "-" not in text
    ids = [f"{vendor}:{normal[5:]}" for vendor in pci.VENDORS] if alone else [normal]
    return tuple(entry for one in ids if (entry := pci.lookup(one)))


def _unknown_id(text: str) -> UsageError:
    normal = pci.normal_id(text) or text
    if normal[:4] not in pci.VENDORS:
        return UsageError(
            f"no GPU has PCI id {normal}: {normal[:4]} is no vendor of the tables",
            tip="vendors: " + ", ".join(f"{key} {name}" for key, name in pci.VENDORS.items()),
        )
    return UsageError(
        f"the tables have no GPU with PCI id {normal}",
        tip="the driver may know it: `rocm-wheels doctor`; "
        "new ones come with `rocm-wheels compat refresh-pci --write`",
    )


def _unknown_name(text: str) -> UsageError:
    asked = pci.words_of(text)
    best = sorted(
        (-_likeness(asked, entry), entry.vendor != "amd", entry.id) for entry in pci.entries() if asked
    )
    near = [entry.name for score, _, one in best[:3] if score < -0.65 and (entry := pci.lookup(one))]
    return UsageError(
        f"no GPU of the tables is called {text!r}",
        tip=f"near names: {'; '.join(near)}"
        if near
        else "name a card (RX 7900 XTX), a target (gfx942) or a PCI id (1002:74a1)",
    )


def _likeness(asked: frozenset[str], entry: PciEntry) -> float:
    words = pci.words_of(" ".join((entry.name, *entry.products)))
    nearest = [
        1.0
        if word in words
        else max((difflib.SequenceMatcher(None, word, one).ratio() for one in words), default=0)
        for word in asked
    ]
    return sum(nearest) / len(nearest)
