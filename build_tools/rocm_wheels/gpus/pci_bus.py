"""The cards of the PCI bus: it tells which there are, also without any driver."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from .gpu import Gpu
from .pci import find_pci_entry, make_amd_gpu
from .programs import Look
from .vendors import find_vendor

PCI_DEVICES = "sys/bus/pci/devices"
_DEVICE_CLASSES = (0x03, 0x12)
_ACCELERATOR = 0x1200  # Instinct cards have no display and say this
_LSPCI_DEVICE = re.compile(r"^(?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] ", re.MULTILINE)
_LSPCI_LINE = re.compile(
    r"^((?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) [^\[]*\[([0-9a-f]{4})\]: (.*) "
    r"\[([0-9a-f]{4}):([0-9a-f]{4})\](?: \(rev [0-9a-f]+\))?(?: \(prog-if .*\))?\s*$"
)


@dataclass(frozen=True)
class PciCard:
    """A card: vendor:device, its slot, a name when something says it, and the kernel's driver that has it."""

    pci_id: str
    address: str
    name: str = ""
    driver: str = ""

    @property
    def vendor(self) -> str | None:
        """The maker (``amd``), None for one that matters to no wheel."""
        return find_vendor(self.pci_id)


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
                cards.append(PciCard(f"{vendor:04x}:{device:04x}", slot, driver=_read_driver(folder)))
    return cards, True


def count_cards(cards: Collection[object]) -> str:
    """Return how many cards there are: ``1 card``."""
    return f"{len(cards)} card{'' if len(cards) == 1 else 's'}"


def query_lspci(look: Look) -> list[PciCard]:
    """Return the cards that lspci lists."""
    printed = look.ask(("lspci", "-nn"), 10.0)
    if printed is None:
        return []
    cards = parse_lspci(printed)
    look.tried.append(f"lspci: {count_cards(cards)}")
    if printed.strip() and not _LSPCI_DEVICE.search(printed):
        look.faults.append(f"lspci printed no list of devices, but {printed.strip().splitlines()[0][:60]!r}")
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
    entry = find_pci_entry(card.pci_id)
    name = (entry.name if entry else "") or card.name
    if card.vendor == "amd":
        return make_amd_gpu(None, source, pci_id=card.pci_id, name=name, address=card.address)
    if card.vendor is None:
        return None
    return Gpu(
        vendor=card.vendor,
        name=name,
        pci_id=card.pci_id,
        address=card.address,
        integrated=entry.integrated if entry else None,
        capability=entry.capability if entry else None,
        source=source,
        confidence="derived" if entry else "unknown",
        notes=(entry.note,) if entry and entry.note else (),
    )


def format_slot(domain: int, location: int) -> str:
    """Return ``0000:03:00.0``: bus, device and function are in the lower 16 bits of ``location``."""
    return f"{domain:04x}:{location >> 8 & 255:02x}:{location >> 3 & 31:02x}.{location & 7}"


def _is_card(kind: int, vendor: str) -> bool:
    # Intel's NPUs are accelerators too, and no GPUs
    return kind >> 8 == 3 or (kind == _ACCELERATOR and vendor == "1002")


def _read_hex(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return int(file.read(), 16)
    except (OSError, ValueError):
        return None


def _read_driver(folder: str) -> str:
    """Return the name of the kernel's driver that has a device, "" when none has."""
    try:
        return Path(folder, "driver").readlink().name
    except OSError:
        return ""
