"""A table of PCI ids as a file: read whole, checked, and written with everything that people put into it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

from rocm_wheels.errors import DataError
from rocm_wheels.gpus import pci

_KINDS = ("documented", "packaged", "tested", "believed")
_CARDS = ("discrete", "integrated", "-")
_TARGETS = {"amd": r"-|gfx[0-9]+[0-9a-f]{2}", "nvidia": r"-|\d+\.\d", "intel": "-"}
_CHIP, _OLDER, _COLUMNS = "#chip\t", "#older\t", "#columns\t"


@dataclass(frozen=True)
class PciRow:
    """A GPU as its line has it: ``-`` where there is nothing. Names as in ``gpus.pci.COLUMNS``."""

    id: str
    target: str
    card: str
    kind: str
    sources: str
    named: str
    name: str
    also: str
    note: str


@dataclass(frozen=True)
class PciChip:
    """What a chip or family, with which names begin, says of a card."""

    name: str
    target: str
    card: str
    kind: str
    source: str


@dataclass(frozen=True)
class PciTable:
    """A table: its head as it is written, its rows by id, and for each row the comments above it.

    ``older_ranges`` are ranges of devices (first, last) with nothing but GPUs from before the table begins.
    """

    vendor: str
    head: tuple[str, ...]
    rows: tuple[PciRow, ...]
    comments: tuple[tuple[str, tuple[str, ...]], ...] = ()
    end: tuple[str, ...] = ()

    @property
    def chips(self) -> tuple[PciChip, ...]:
        """The chips of the head."""
        return tuple(PciChip(*line.split("\t")[1:]) for line in self.head if line.startswith(_CHIP))

    @property
    def older_ranges(self) -> tuple[tuple[str, str], ...]:
        """The ranges of the head."""
        ranges = (line.split("\t")[1].split("-") for line in self.head if line.startswith(_OLDER))
        return tuple((first, last) for first, last in ranges)

    def get_source(self, key: str) -> pci.PciSource:
        """Return a source of the head."""
        return pci.parse_pci_sources(self.head)[key]

    def with_rows(self, rows: Iterable[PciRow]) -> PciTable:
        """Return the table with other rows, sorted by id."""
        return replace(self, rows=tuple(sorted(rows, key=lambda row: row.id)))

    def with_source(self, key: str, at: str, date: str) -> PciTable:
        """Return the table with another state of a source."""
        start = f"{pci.SOURCE_MARK}{key}\t"
        head = [
            "\t".join([*line.split("\t")[:2], at, date, line.split("\t")[4].split(" (")[0]])
            if line.startswith(start) and (at, date) != tuple(line.split("\t")[2:4])
            else line
            for line in self.head
        ]
        return replace(self, head=tuple(head))

    def format_text(self) -> str:
        """Return what the file holds."""
        above = dict(self.comments)
        lines = list(self.head)
        for row in self.rows:
            lines += [*above.get(row.id, ()), "\t".join(astuple(row))]
        return "\n".join([*lines, *self.end, ""])


def read_pci_table(path: Path, vendor: str) -> PciTable:
    """Read the table of a vendor (``amd``, ``nvidia``, ``intel``).

    DataError with the line for a row that is not of the form, out of order, twice there, or that names a
    source, kind, card or target that there is none of.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"{path} cannot be read") from cause
    marks = [number for number, line in enumerate(lines) if line.startswith(_COLUMNS)]
    if not marks or lines[marks[0]] != _COLUMNS + "\t".join(pci.PCI_TABLE_COLUMNS):
        raise DataError(
            f"{path} is no table of PCI ids: a line {_COLUMNS.strip()} with its columns is missing"
        )
    head = tuple(lines[: marks[0] + 1])
    rows: dict[str, PciRow] = {}
    comments: list[tuple[str, tuple[str, ...]]] = []
    pending_comments: list[str] = []
    for number, line in enumerate(lines[len(head) :], len(head) + 1):
        if line.startswith("#") or not line:
            pending_comments.append(line)
            continue
        row = _read_row(line, vendor, frozenset(pci.parse_pci_sources(head)), f"{path}:{number}")
        if rows and row.id <= next(reversed(rows)):
            raise DataError(f"{path}:{number}: {row.id} is not after {next(reversed(rows))}")
        rows[row.id] = row
        if pending_comments:
            comments.append((row.id, tuple(pending_comments)))
            pending_comments = []
    return PciTable(vendor, head, tuple(rows.values()), tuple(comments), tuple(pending_comments))


def _read_row(line: str, vendor: str, sources: frozenset[str], where: str) -> PciRow:
    cells = line.split("\t")
    if len(cells) != len(fields(PciRow)) or not all(cell == cell.strip() and cell for cell in cells):
        raise DataError(
            f"{where}: a row has {len(fields(PciRow))} cells, separated by tabs; nothing is written -"
        )
    row = PciRow(*cells)
    faults = [
        (
            row.id[:5] not in {f"{key}:" for key, name in pci.PCI_VENDORS.items() if name == vendor},
            "id",
            row.id,
        ),
        (pci.normalize_pci_id(row.id) != row.id, "id", row.id),
        (not re.fullmatch(_TARGETS[vendor], row.target), "target", row.target),
        (row.card not in _CARDS, "card", row.card),
        (row.kind not in _KINDS, "kind", row.kind),
        (
            row.kind == "believed" and row.target != "-" and row.note == "-" and vendor == "amd",
            "note",
            row.note,
        ),
    ]
    faults += [(key not in sources, "source", key) for key in row.sources.split(",")]
    for is_wrong, column, value in faults:
        if is_wrong:
            raise DataError(f"{where}: {value} is no {column} of this table")
    return row
