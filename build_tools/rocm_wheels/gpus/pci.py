"""What PCI ids mean: cards by their ids and names, and the GPU that an id tells of.

Three tables stand beside this module, a row a PCI id: ``pci_ids.tsv`` (AMD), ``pci_ids_nvidia.tsv`` and
``pci_ids_intel.tsv``. Their heads name the sources. ``build_tools/refresh_pci_ids.py`` keeps up the names.
A target looked up here is second best: one PCI id can stand for two chips, and drivers name the target.
A table is read when the first card is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .gpu import INTEGRATED_TARGETS, OLDER_TARGETS, Gpu
from .vendors import GPU_VENDORS

PCI_TABLES = {name: vendor.pci_table for name, vendor in GPU_VENDORS.items() if vendor.pci_table}
PCI_VENDORS = {GPU_VENDORS[name].pci_id: name for name in PCI_TABLES}
PCI_TABLE_COLUMNS = ("id", "target", "card", "kind", "sources", "named", "name", "also", "note")
SOURCE_MARK = "#source\t"
_ADDED_WORDS = "graphics gpu igpu"  # in names that drivers give, whatever the table's name is
_CARD_KINDS = {"discrete": False, "integrated": True, "-": None}
_PCI_ID = re.compile(r"(?:(?:0x)?([0-9a-f]{4})[:-])?(?:0x)?([0-9a-f]{4})")


@dataclass(frozen=True)
class PciEntry:
    """A GPU of the tables.

    ``id`` is vendor:device (``1002:74a1``), ``vendor`` ``amd``, ``nvidia`` or ``intel``. ``gfx`` is the
    target of an AMD GPU, ``capability`` as in ``Gpu``; None: not known. ``name``
    and ``products`` are for people: one id stands for cards of several names. ``integrated`` is None when
    nothing tells. ``kind`` says how ``gfx`` or ``capability`` is known (``documented``, ``packaged``,
    ``tested``, ``believed``), ``sources`` who says it: keys of ``list_pci_sources()``, the one that
    decided first. ``note`` says what to mind, "" mostly.
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


def normalize_pci_id(text: str) -> str | None:
    """Return vendor:device of a PCI id as people and tools write it; None for anything else.

    ``1002:74a1``, ``0x1002:0x74A1``, ``1002-74a1``; a device alone (``74a1``, ``0x74a1``) is one of AMD.
    """
    match = _PCI_ID.fullmatch(text.strip().lower())
    return f"{match[1] or '1002'}:{match[2]}" if match else None


def find_pci_entry(pci_id: str | None) -> PciEntry | None:
    """Return the GPU of a PCI id, None for one that the tables do not have and for what is no PCI id."""
    normal = normalize_pci_id(pci_id or "")
    vendor = PCI_VENDORS.get(normal[:4]) if normal else None
    if normal is None or vendor is None:
        return None
    table = _read_table(vendor)
    start = table.find(f"\n{normal}\t")
    return _parse_entry(table[start + 1 : table.index("\n", start + 1)], vendor) if start >= 0 else None


@lru_cache
def list_pci_entries() -> tuple[PciEntry, ...]:
    """Return every GPU of the tables, each by id."""
    return tuple(
        _parse_entry(line, vendor)
        for vendor in PCI_TABLES
        for line in _read_table(vendor).splitlines()
        if line and not line.startswith("#")
    )


def search_pci_entries(text: str) -> tuple[PciEntry, ...]:
    """Return the GPUs of which one name has every word of ``text``, whatever the case.

    AMD's first, of these the ones that no ROCm of today compiles for last: a 7900 is not of 2012.

    ``RX 7900 XTX``, ``rx7900xtx``, ``mi300x``, ``780M``, ``Strix Halo``. Where no GPU has the words whole,
    beginnings count: ``mi300`` finds MI300A and MI300X. No words, no GPUs.
    """
    query_words = split_words(text)
    parts = frozenset(re.findall(r"[a-z]+|[0-9]+", " ".join(query_words)))
    for terms, matches in (
        (query_words, frozenset.issubset),
        (parts, frozenset.issubset),
        (query_words, _match_beginnings),
    ):
        matching = tuple(
            entry
            for entry, names in _index_words()
            if terms and any(matches(terms, name_words) for name_words in names)
        )
        if matching:
            return tuple(
                sorted(matching, key=lambda entry: (entry.vendor != "amd", entry.gfx in OLDER_TARGETS))
            )
    return ()


def list_pci_sources(vendor: str = "amd") -> dict[str, PciSource]:
    """Return the sources of a vendor's table by key."""
    return parse_pci_sources(_read_table(vendor).splitlines())


def parse_pci_sources(lines: Iterable[str]) -> dict[str, PciSource]:
    """Return the sources that the lines of a table name."""
    rows = [line.split("\t") for line in lines if line.startswith(SOURCE_MARK)]
    return {key: PciSource(at, "" if date == "-" else date, where) for _, key, at, date, where in rows}


def split_words(text: str) -> frozenset[str]:
    """Return the words of a name, in lower case: letters and digits that stand together; no ``(TM)``."""
    return frozenset(re.findall(r"[a-z0-9]+", re.sub(r"\((?:tm|r|c)\)", " ", text.lower())))


def _match_beginnings(beginnings: frozenset[str], words: frozenset[str]) -> bool:
    return all(any(word.startswith(beginning) for word in words) for beginning in beginnings)


@lru_cache
def _index_words() -> tuple[tuple[PciEntry, tuple[frozenset[str], ...]], ...]:
    """The words of each name of each card, and of every name those that drivers and people add."""
    index = []
    for entry in list_pci_entries():
        codename = entry.name.partition("[")[0]
        names = (entry.name, *(f"{codename} {product}" for product in entry.products))
        apart = re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", codename)  # VanGogh, Phoenix1
        added_words = f"{entry.vendor} {codename.replace(' ', '')} {apart} {_ADDED_WORDS}"
        index.append((entry, tuple(split_words(f"{name} {added_words}") for name in names)))
    return tuple(index)


@lru_cache
def _read_table(vendor: str) -> str:
    return Path(__file__).with_name(PCI_TABLES[vendor]).read_text(encoding="utf-8")


def _parse_entry(line: str, vendor: str) -> PciEntry:
    pci_id, target, card, kind, said_by, _, name, also, note = line.split("\t")
    value = None if target == "-" else target
    return PciEntry(
        id=pci_id,
        vendor=vendor,
        gfx=value if GPU_VENDORS[vendor].target_field == "gfx" else None,
        name=name,
        integrated=_CARD_KINDS[card],
        capability=value if GPU_VENDORS[vendor].target_field == "capability" else None,
        kind=kind,
        sources=tuple(said_by.split(",")),
        products=() if also == "-" else tuple(also.split("; ")),
        note="" if note == "-" else note,
    )


def make_amd_gpu(
    chip: str | None,
    source: str,
    *,
    pci_id: str | None = None,
    name: str = "",
    integrated: bool | None = None,
    notes: tuple[str, ...] = (),
    **fields: Any,
) -> Gpu:
    """Return an AMD GPU as a driver or a tool tells of it: its target is looked up where ``chip`` is None.

    ``name`` and ``integrated`` are what the source says: a name comes before that of the table, the table
    knows better what is inside a processor. ``fields`` are further ones of ``Gpu``.
    """
    entry = find_pci_entry(pci_id)
    target = chip or (entry.gfx if entry else None)
    if entry and entry.integrated is not None:
        integrated = entry.integrated
    elif integrated is None:
        integrated = target in INTEGRATED_TARGETS or None
    return Gpu(
        vendor="amd",
        gfx=target,
        native=target,
        name=name or (entry.name if entry else ""),
        pci_id=pci_id,
        integrated=integrated,
        source=source,
        confidence="read" if chip else "derived" if target else "unknown",
        notes=(*notes, entry.note) if entry and entry.note and not chip else notes,
        **fields,
    )
