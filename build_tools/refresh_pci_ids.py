#!/usr/bin/env python3
"""Compare this clone's tables of PCI ids with pci.ids, and write its names and new GPUs into them.

refresh_pci_ids.py [--pci-ids FILE | --url URL] [--write | --check] [--json] [--tables DIR]

Names, and which GPUs there are, come from pci.ids. Targets, kinds and notes are made by hand and stay.
A new GPU of AMD gets no target: the table does not guess. The chip in an NVIDIA name says the
capability, the family in an Intel name the kind of card; the ``#chip`` lines of the tables hold these.
A table is read whole, checked, and written with everything that people put into it.
Upkeep of the repository, not a part of the product.
"""

from __future__ import annotations

if __name__ == "__main__":  # before imports that the Python which runs this may lack
    import _script

    _script.run("refresh_pci_ids:refresh_pci_ids")

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from rocm_wheels.cli import command
from rocm_wheels.core import errors, files
from rocm_wheels.gpus import pci
from rocm_wheels.index import reader

TABLE_FOLDER = Path(__file__).resolve().parent / "rocm_wheels" / "gpus"
GONE, RENAMED, NEW = "gone", "renamed", "new"
_KIND_ORDER = (GONE, RENAMED, NEW)
PCI_IDS_URL = "https://pci-ids.ucw.cz/v2.2/pci.ids"
_SYSTEM_FILES = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))
_KINDS = ("documented", "packaged", "tested", "believed")
_CARDS = ("discrete", "integrated", "-")
_TARGETS = {"amd": r"-|gfx[0-9]+[0-9a-f]{2}", "nvidia": r"-|\d+\.\d", "intel": "-|before-xe"}
_CHIP, _OLDER, _COLUMNS = "#chip\t", "#older\t", "#columns\t"


@dataclass(frozen=True)
class PciRow:
    """A GPU as its line has it: ``-`` where there is nothing. Names as in ``PCI_TABLE_COLUMNS``."""

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
        raise errors.DataError(f"{path} cannot be read") from cause
    marks = [number for number, line in enumerate(lines) if line.startswith(_COLUMNS)]
    if not marks or lines[marks[0]] != _COLUMNS + "\t".join(pci.PCI_TABLE_COLUMNS):
        raise errors.DataError(
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
            raise errors.DataError(f"{path}:{number}: {row.id} is not after {next(reversed(rows))}")
        rows[row.id] = row
        if pending_comments:
            comments.append((row.id, tuple(pending_comments)))
            pending_comments = []
    return PciTable(vendor, head, tuple(rows.values()), tuple(comments), tuple(pending_comments))


def _read_row(line: str, vendor: str, sources: frozenset[str], where: str) -> PciRow:
    cells = line.split("\t")
    if len(cells) != len(fields(PciRow)) or not all(cell == cell.strip() and cell for cell in cells):
        raise errors.DataError(
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
            raise errors.DataError(f"{where}: {value} is no {column} of this table")
    return row


PCI_IDS_SOURCE = "pci.ids"
_LOST = "older pci.ids"  # what a name is from that pci.ids no longer has
_FILE_HEAD = re.compile(r"(?m)^#\s*Version:\s*(\d{4}\.\d\d\.\d\d)\s*$\s*^#\s*Date:\s*(\d{4}-\d\d-\d\d)\b")
_VENDOR_LINE = re.compile(r"([0-9a-f]{4})  (\S.*)")
_DEVICE_LINE = re.compile(r"\t([0-9a-f]{4})  (\S.*)")
_OTHER_LINE = re.compile(
    r"\t\t[0-9a-f]{2}(?:[0-9a-f]{2} [0-9a-f]{4})?  ?\S|\t[0-9a-f]{2}  \S|C [0-9a-f]{2}  \S"
)
_LAST_CLASS = "C ff  "  # the last class, which ends the file
_NO_GPU = re.compile(
    r"(?i)\b(audio|hdmi|usb|ucsi|serial|bridge|(nv)?switch|port|rp|host|hub|sata|ide|smbus|isa|agp|modem|codec"
    r"|tuner|encoder|decoder|theater|tv wonder|xilleon|coprocessor|function|reserved|root complex"
    r"|memory controller)\b"
)
_GPU = {
    "amd": re.compile(r"(?i)(?!.*\bcontroller\b)"),
    "nvidia": re.compile(r"(?!GF|GT|NV|CK|NF|.*\bController\b)[A-Z]{2}\d{2}[\dA-Z]"),
    "intel": re.compile(r"(?i).*\b(graphics|arc|iris|data center gpu)\b"),
}


@dataclass(frozen=True)
class PciIds:
    """What a pci.ids says: its version, its day, and names by vendor:device."""

    version: str
    date: str
    names: Mapping[str, str]


@dataclass(frozen=True)
class PciDifference:
    """Where a table and pci.ids differ: ``new``, ``renamed`` or ``gone``, the name before and now."""

    kind: str
    id: str
    before: str
    now: str


def read_pci_ids(text: str, where: str) -> PciIds:
    """Read a pci.ids; ``where`` names it in errors.

    DataError when it is none, when a line is not of its form, and when its end is missing.
    """
    head = _FILE_HEAD.search(text[:4096])
    if head is None:
        raise errors.DataError(
            f"{where} is no pci.ids: its head names no version and date",
            tip=f"take the file of the package pci.ids or hwdata, or {PCI_IDS_URL}",
        )
    names: dict[str, str] = {}
    vendor = last = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        last = line
        if device := _DEVICE_LINE.fullmatch(line):
            names[f"{vendor}:{device[1]}"] = device[2].strip()
        elif vendor_line := _VENDOR_LINE.fullmatch(line):
            vendor = vendor_line[1]
        elif not _OTHER_LINE.match(line):
            raise errors.DataError(f"{where}:{number} is no line of a pci.ids: {line[:60]!r}")
    if not last.startswith(_LAST_CLASS) or set(pci.PCI_VENDORS) - {name[:4] for name in names}:
        raise errors.DataError(f"{where} is not whole: vendors or its end are missing", tip="fetch it again")
    return PciIds(head[1], head[2], names)


def find_pci_differences(table: PciTable, ids: PciIds) -> tuple[PciDifference, ...]:
    """Say where a table and ``ids`` differ: by id.

    DataError when ``ids`` is older than what the table was made from: then the table is right.
    """
    made_from = table.get_source(PCI_IDS_SOURCE).at
    if ids.version < made_from:
        raise errors.DataError(
            f"pci.ids {ids.version} is older than the {made_from} that the table of {table.vendor} is from",
            tip=f"name a newer file with --pci-ids, or fetch one with --url {PCI_IDS_URL}",
        )
    pci_differences = []
    for row in table.rows:
        current_name = ids.names.get(row.id, "")
        if row.named == PCI_IDS_SOURCE and not current_name:
            pci_differences.append(PciDifference(GONE, row.id, row.name, ""))
        elif current_name and (current_name != row.name or row.named != PCI_IDS_SOURCE):
            pci_differences.append(PciDifference(RENAMED, row.id, row.name, current_name))
    known_ids = {row.id for row in table.rows}
    for pci_id, name in ids.names.items():
        if pci_id not in known_ids and _is_gpu(pci_id, name, table):
            pci_differences.append(PciDifference(NEW, pci_id, "", name))
    return tuple(sorted(pci_differences, key=lambda difference: difference.id))


def refresh_pci_table(table: PciTable, ids: PciIds) -> PciTable:
    """Return the table with the names of ``ids`` and its new GPUs; what is made by hand stays as it is.

    A GPU that is gone from pci.ids stays too, with its last name: cards do not vanish.
    """
    rows = {row.id: row for row in table.rows}
    for difference in find_pci_differences(table, ids):
        if difference.kind == NEW:
            rows[difference.id] = _make_row(difference, table)
        elif difference.kind == GONE:
            rows[difference.id] = replace(rows[difference.id], named=_LOST)
        else:
            rows[difference.id] = replace(rows[difference.id], named=PCI_IDS_SOURCE, name=difference.now)
    return table.with_rows(rows.values()).with_source(PCI_IDS_SOURCE, ids.version, ids.date)


def _is_gpu(pci_id: str, name: str, table: PciTable) -> bool:
    vendor, device = pci_id.split(":")
    return (
        pci.PCI_VENDORS.get(vendor) == table.vendor
        and not any(first <= device <= last for first, last in table.older_ranges)
        and not _NO_GPU.search(name)
        and _GPU[table.vendor].match(name) is not None
    )


def _make_row(difference: PciDifference, table: PciTable) -> PciRow:
    chip = next((chip for chip in table.chips if difference.now.startswith(chip.name)), None)
    if chip is None:
        blank = "-"
        return PciRow(
            difference.id,
            blank,
            blank,
            "believed",
            PCI_IDS_SOURCE,
            PCI_IDS_SOURCE,
            difference.now,
            blank,
            "new, nobody has looked",
        )
    return PciRow(
        difference.id,
        chip.target,
        chip.card,
        chip.kind,
        chip.source,
        PCI_IDS_SOURCE,
        difference.now,
        "-",
        "-",
    )


@command.command("refresh_pci_ids")
@command.option(
    "--pci-ids",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The pci.ids to compare with [default: the system's, in /usr/share/misc or /usr/share/hwdata].",
)
@command.option("--url", metavar="URL", help="Fetch the pci.ids from there.")
@command.option(
    "--tables",
    "folder",
    type=click.Path(path_type=Path),
    default=TABLE_FOLDER,
    metavar="DIR",
    help="Folder of the tables [default: that of this clone].",
)
@command.option("--write", is_flag=True, help="Write names and new GPUs into the tables; the rest stays.")
@command.option("--check", is_flag=True, help="Fail (exit code 17) when anything differs.")
@command.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def refresh_pci_ids(
    *, file: Path | None, url: str | None, folder: Path, write: bool, check: bool, as_json: bool
) -> None:
    """Compare the tables of PCI ids with pci.ids: GPUs that are new, renamed or gone.

    A new AMD GPU gets no target: that is for people to find out. What they wrote stays.
    """
    if write and check:
        raise errors.UsageError("--write and --check exclude each other")
    if file and url:
        raise errors.UsageError("--pci-ids and --url exclude each other")
    paths = {vendor: folder / name for vendor, name in pci.PCI_TABLES.items()}
    tables = {vendor: read_pci_table(path, vendor) for vendor, path in paths.items()}
    where, content = _fetch_pci_ids(url) if url else _read_pci_ids(file)
    try:
        ids = read_pci_ids(content.decode("utf-8"), where)
    except UnicodeDecodeError as cause:
        raise errors.DataError(f"{where} is no pci.ids: it is no text") from cause
    differing = {vendor: find_pci_differences(table, ids) for vendor, table in tables.items()}
    click.echo(
        _make_differences_json(ids, where, differing)
        if as_json
        else _format_differences(ids, where, differing)
    )
    counts = _count_kinds([difference for differences in differing.values() for difference in differences])
    if write:
        texts = {
            paths[vendor]: refresh_pci_table(table, ids).format_text() for vendor, table in tables.items()
        }
        for path, text in texts.items():
            files.write_atomically(path, text)
    elif check and counts:
        raise errors.HostError(
            f"the tables of PCI ids differ from pci.ids {ids.version}: {counts}",
            tip="build_tools/refresh_pci_ids.py --write, then find out the targets of what is new",
        )


def _read_pci_ids(file: Path | None) -> tuple[str, bytes]:
    path = file or next((place for place in _SYSTEM_FILES if place.is_file()), None)
    if path is None:
        raise errors.UsageError(
            f"there is no pci.ids at {' or '.join(map(str, _SYSTEM_FILES))}",
            tip=f"install the package pci.ids or hwdata, name a file with --pci-ids, or --url {PCI_IDS_URL}",
        )
    try:
        return str(path), path.read_bytes()
    except OSError as cause:
        raise errors.UsageError(f"{path} cannot be read") from cause


def _fetch_pci_ids(url: str) -> tuple[str, bytes]:
    if urlsplit(url).scheme not in ("http", "https"):
        raise errors.UsageError(f"{url} is no http or https URL")
    try:
        answer = reader.IndexReader().get(url)
    except reader.UnreachableError as cause:
        raise errors.HostError(f"{url} does not answer", tip="name a file with --pci-ids") from cause
    if answer.status != 200:
        raise errors.HostError(f"{url} answers {answer.status}", tip="name a file with --pci-ids")
    return url, answer.content


def _count_kinds(differences: Iterable[PciDifference]) -> str:
    kinds = [difference.kind for difference in differences]
    return ", ".join(
        f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(sorted(kinds, key=_KIND_ORDER.index))
    )


def _format_differences(ids: PciIds, where: str, differing: Mapping[str, tuple[PciDifference, ...]]) -> str:
    lines = [f"pci.ids {ids.version} ({where})"]
    for vendor, differences in differing.items():
        lines.append(f"{vendor}: {_count_kinds(differences) or 'nothing differs'}")
        for kind in _KIND_ORDER:
            for difference in differences:
                if difference.kind == kind:
                    change = " -> ".join(filter(None, (difference.before, difference.now)))
                    lines.append(f"  {kind:7}  {difference.id}  {change}")
    return "\n".join(lines)


def _make_differences_json(
    ids: PciIds, where: str, differing: Mapping[str, tuple[PciDifference, ...]]
) -> str:
    return json.dumps(
        {
            "pci_ids": {"version": ids.version, "date": ids.date, "where": where},
            "tables": {
                vendor: [
                    {
                        "what": difference.kind,
                        "id": difference.id,
                        "before": difference.before,
                        "now": difference.now,
                    }
                    for difference in differences
                ]
                for vendor, differences in differing.items()
            },
        },
        indent=1,
    )
