"""List the cards on the PCI bus: from the kernel's files, or from lspci where those cannot be seen.

The bus tells which cards there are, also without any driver; a card's target is looked up in a table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from .gpu import Gpu
from .pci_ids import find_card_entry
from .programs import Runner, check_answer
from .target_names import INTEGRATED_TARGETS

PCI_DEVICES = "sys/bus/pci/devices"
CARD_VENDORS = {"1002": "amd", "10de": "nvidia", "8086": "intel", "106b": "apple"}
_DEVICE_CLASSES = (0x03, 0x12)
_ACCELERATOR = 0x1200  # Instinct cards have no display and say this
_LSPCI_LINE = re.compile(
    r"^((?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) [^\[]*\[([0-9a-f]{4})\]: (.*) "
    r"\[([0-9a-f]{4}):([0-9a-f]{4})\](?: \(rev [0-9a-f]+\))?(?: \(prog-if .*\))?\s*$"
)


@dataclass(frozen=True)
class PciCard:
    """A card: vendor:device, its slot, and a name when something says it."""

    pci_id: str
    address: str
    name: str = ""


def read_pci_cards(root: Path) -> tuple[list[PciCard], bool]:
    """Return the display and accelerator cards of the bus by their slots, and whether the bus can be seen."""
    try:
        slots = sorted(os.listdir(root / PCI_DEVICES))  # noqa: PTH208 - names; there may be hundreds
    except OSError:
        return [], False
    cards = []
    for slot in slots:
        folder = f"{root / PCI_DEVICES}/{slot}"
        kind = _read_hex(f"{folder}/class")
        if kind is not None and kind >> 16 in _DEVICE_CLASSES:  # of hundreds of devices a few
            vendor, device = _read_hex(f"{folder}/vendor"), _read_hex(f"{folder}/device")
            if vendor is not None and device is not None and _is_card(kind >> 8, f"{vendor:04x}"):
                cards.append(PciCard(f"{vendor:04x}:{device:04x}", slot))
    return cards, True


def count_cards(cards: Collection[object]) -> str:
    """Return how many cards there are: ``1 card``."""
    return f"{len(cards)} card{'' if len(cards) == 1 else 's'}"


def query_lspci(env: Mapping[str, str], run: Runner, faults: list[str], tried: list[str]) -> list[PciCard]:
    """Return the cards that lspci lists."""
    answer = run(("lspci", "-nn"), {**env, "LC_ALL": "C"}, 10.0)
    if not check_answer(answer, "lspci", faults, tried):
        return []
    cards = parse_lspci(answer.out)
    tried.append(f"lspci: {count_cards(cards)}")
    if not cards and answer.out.strip() and not _looks_like_lspci(answer.out):
        faults.append(f"lspci printed no list of devices, but {answer.out.strip().splitlines()[0][:60]!r}")
    return cards


def parse_lspci(text: str) -> list[PciCard]:
    """Read ``lspci -nn``: the ids of the class and of the device stand in brackets."""
    cards = []
    for match in filter(None, map(_LSPCI_LINE.match, text.splitlines())):
        slot, kind, name, vendor, device = match.groups()
        if _is_card(int(kind, 16), vendor):
            address = slot if slot.count(":") == 2 else f"0000:{slot}"
            cards.append(PciCard(f"{vendor}:{device}", address, name))
    return cards


def make_gpu(card: PciCard, source: str) -> Gpu | None:
    """Return a card as a GPU; None for a maker that matters to no wheel (a server's console)."""
    vendor = CARD_VENDORS.get(card.pci_id[:4])
    if vendor is None:
        return None
    entry = find_card_entry(card.pci_id)
    target = entry.gfx if entry else None
    is_known = target or (entry and vendor != "amd")
    integrated = entry.integrated if entry else None
    return Gpu(
        vendor=vendor,
        gfx=target,
        native=target,
        name=(entry.name if entry else "") or card.name,
        pci_id=card.pci_id,
        address=card.address,
        integrated=integrated if integrated is not None else (target in INTEGRATED_TARGETS or None),
        capability=entry.capability if entry else None,
        source=source,
        confidence="derived" if is_known else "unknown",
        notes=(entry.note,) if entry and entry.note else (),
    )


def _looks_like_lspci(text: str) -> bool:
    return any(
        re.match(r"(?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] ", line) for line in text.splitlines()
    )


def _is_card(kind: int, vendor: str) -> bool:
    # Intel's NPUs are accelerators too, and no GPUs
    return kind >> 8 == 3 or (kind == _ACCELERATOR and vendor == "1002")


def _read_hex(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return int(file.read(), 16)
    except (OSError, ValueError):
        return None
