"""GPUs by PCI id: the target or capability, the kind of card, the name, and who says so.

Three tables stand beside this module, a row a PCI id: ``pci_ids.tsv`` (AMD), ``pci_ids_nvidia.tsv`` and
``pci_ids_intel.tsv``. Their heads name the sources. ``rocm-wheels compat refresh-pci`` keeps up the names.

A target looked up here is second best: one PCI id can stand for two chips, and drivers name the target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

VENDORS = {"1002": "amd", "10de": "nvidia", "8086": "intel"}
TABLES = {"amd": "pci_ids.tsv", "nvidia": "pci_ids_nvidia.tsv", "intel": "pci_ids_intel.tsv"}
COLUMNS = ("id", "target", "card", "kind", "sources", "named", "name", "also", "note")
SOURCE_MARK = "#source\t"
PCI_IDS_URL = "https://pci-ids.ucw.cz/v2.2/pci.ids"
_SAID_OF_ALL = "graphics gpu igpu"  # in names that drivers give, whatever the table's name is
_CARDS = {"discrete": False, "integrated": True, "-": None}
_ID = re.compile(r"(?:(?:0x)?([0-9a-f]{4})[:-])?(?:0x)?([0-9a-f]{4})")


@dataclass(frozen=True)
class PciEntry:
    """A GPU of the tables.

    ``id`` is vendor:device (``1002:74a1``), ``vendor`` ``amd``, ``nvidia`` or ``intel``. ``gfx`` is the
    target of an AMD GPU, ``capability`` the compute capability of an NVIDIA one; None: not known. ``name``
    and ``products`` are for people: one id stands for cards of several names. ``integrated`` is None when
    nothing tells. ``kind`` says how ``gfx`` or ``capability`` is known (``documented``, ``packaged``,
    ``tested``, ``believed``), ``sources`` who says it: keys of ``sources()``, the one that decided first.
    ``note`` says what to mind, "" mostly.
    """

    id: str
    vendor: str
    gfx: str | None
    name: str
    integrated: bool | None
    capability: str | None
    kind: str
    sources: tuple[str, ...]
    products: tuple[str, ...] = ()
    note: str = ""

    @property
    def source(self) -> str:
        """The source that decided."""
        return self.sources[0]


@dataclass(frozen=True)
class PciSource:
    """Where facts of a table were read: ``at`` is the state that was read, ``date`` the day of that state,
    "" when it is not known."""

    at: str
    date: str
    where: str


def normal_id(text: str) -> str | None:
    """Return vendor:device of a PCI id as people and tools write it; None for anything else.

    ``1002:74a1``, ``0x1002:0x74A1``, ``1002-74a1``; a device alone (``74a1``, ``0x74a1``) is one of AMD.
    """
    found = _ID.fullmatch(text.strip().lower())
    return f"{found[1] or '1002'}:{found[2]}" if found else None


def lookup(pci_id: str) -> PciEntry | None:
    """Return the GPU of a PCI id, None for one that the tables do not have and for what is no PCI id."""
    normal = normal_id(pci_id)
    vendor = VENDORS.get(normal[:4]) if normal else None
    if normal is None or vendor is None:
        return None
    table = _table(vendor)
    start = table.find(f"\n{normal}\t")
    return _entry(table[start + 1 : table.index("\n", start + 1)], vendor) if start >= 0 else None


@lru_cache
def entries() -> tuple[PciEntry, ...]:
    """Return every GPU of the tables: AMD, NVIDIA, Intel, each by id."""
    return tuple(
        _entry(line, vendor)
        for vendor in TABLES
        for line in _table(vendor).splitlines()
        if line and not line.startswith("#")
    )


def search(text: str) -> tuple[PciEntry, ...]:
    """Return the GPUs of which one name has every word of ``text``, whatever the case; AMD's first.

    ``RX 7900 XTX``, ``rx7900xtx``, ``mi300x``, ``780M``, ``Strix Halo``. Where no GPU has the words whole,
    beginnings count: ``mi300`` finds MI300A and MI300X. No words, no GPUs.
    """
    wanted = words_of(text)
    parts = frozenset(re.findall(r"[a-z]+|[0-9]+", " ".join(wanted)))
    for asked, matches in ((wanted, frozenset.issubset), (parts, frozenset.issubset), (wanted, _begins)):
        found = tuple(
            entry for entry, names in _words() if asked and any(matches(asked, one) for one in names)
        )
        if found:
            return found
    return ()


def sources(vendor: str = "amd") -> dict[str, PciSource]:
    """Return the sources of a vendor's table by key."""
    return read_sources(_table(vendor).splitlines())


def read_sources(lines: Iterable[str]) -> dict[str, PciSource]:
    """Return the sources that the lines of a table name."""
    rows = [line.split("\t") for line in lines if line.startswith(SOURCE_MARK)]
    return {key: PciSource(at, "" if date == "-" else date, where) for _, key, at, date, where in rows}


def words_of(text: str) -> frozenset[str]:
    """Return the words of a name, in lower case: letters and digits that stand together; no ``(TM)``."""
    return frozenset(re.findall(r"[a-z0-9]+", re.sub(r"\((?:tm|r|c)\)", " ", text.lower())))


def _begins(asked: frozenset[str], words: frozenset[str]) -> bool:
    return all(any(word.startswith(beginning) for word in words) for beginning in asked)


@lru_cache
def _words() -> tuple[tuple[PciEntry, tuple[frozenset[str], ...]], ...]:
    """The words of each name of each card, and of every name those that drivers and people add."""
    found = []
    for entry in entries():
        codename = entry.name.partition("[")[0]
        names = (entry.name, *(f"{codename} {product}" for product in entry.products))
        apart = re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", codename)  # VanGogh, Phoenix1
        more = f"{entry.vendor} {codename.replace(' ', '')} {apart} {_SAID_OF_ALL}"
        found.append((entry, tuple(words_of(f"{name} {more}") for name in names)))
    return tuple(found)


@lru_cache
def _table(vendor: str) -> str:
    return Path(__file__).with_name(TABLES[vendor]).read_text(encoding="utf-8")


def _entry(line: str, vendor: str) -> PciEntry:
    pci_id, target, card, kind, said_by, _, name, also, note = line.split("\t")
    known = None if target == "-" else target
    return PciEntry(
        id=pci_id,
        vendor=vendor,
        gfx=known if vendor == "amd" else None,
        name=name,
        integrated=_CARDS[card],
        capability=known if vendor == "nvidia" else None,
        kind=kind,
        sources=tuple(said_by.split(",")),
        products=() if also == "-" else tuple(also.split("; ")),
        note="" if note == "-" else note,
    )
