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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from rocm_wheels.cli import command
from rocm_wheels.core import errors, files
from rocm_wheels.gpus import pci
from rocm_wheels.index import reader

TABLE_FOLDER = Path(__file__).resolve().parent / "rocm_wheels" / "gpus"
PCI_IDS_URL = "https://pci-ids.ucw.cz/v2.2/pci.ids"
_SYSTEM_FILES = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))
_COLUMNS_LINE = "\t".join(("#columns", *pci.PCI_TABLE_COLUMNS))
_TARGETS = {"amd": r"-|gfx[0-9]+[0-9a-f]{2}", "nvidia": r"-|\d+\.\d", "intel": "-|before-xe"}
_VALUES = {"card": "discrete|integrated|-", "kind": "documented|packaged|tested|believed"}
_LOST = "older pci.ids"  # what a name is from that pci.ids no longer has
_KIND_ORDER = ("gone", "renamed", "new")

_FILE_HEAD = re.compile(r"(?m)^#\s*Version:\s*(\d{4}\.\d\d\.\d\d)\s*$\s*^#\s*Date:\s*(\d{4}-\d\d-\d\d)\b")
_NAMED_LINE = re.compile(r"(\t?)([0-9a-f]{4})  (\S.*)")  # a vendor, or below it a device
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
class PciTable:
    """A table: the lines of its head, its rows by id, the comments above each, and those at the end.

    A row has a text for each column, ``-`` where there is nothing.
    """

    vendor: str
    head: list[str]
    rows: dict[str, dict[str, str]]
    above: dict[str, list[str]]
    end: list[str]

    def read_marks(self, mark: str) -> list[list[str]]:
        """Return the cells of the lines of the head that begin with a mark, such as ``#chip``."""
        return [line.split("\t")[1:] for line in self.head if line.startswith(f"{mark}\t")]

    def format_text(self) -> str:
        """Return what the file holds."""
        lines = list(self.head)
        for pci_id, row in sorted(self.rows.items()):
            lines += [*self.above.get(pci_id, ()), "\t".join(row.values())]
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
    if _COLUMNS_LINE not in lines:
        raise errors.DataError(f"{path} is no table of PCI ids: a line #columns with its columns is missing")
    start = lines.index(_COLUMNS_LINE) + 1
    table = PciTable(vendor, lines[:start], {}, {}, [])
    sources, last, comments = pci.parse_pci_sources(table.head), "", table.end
    for number, line in enumerate(lines[start:], start + 1):
        if line.startswith("#") or not line:
            comments.append(line)
            continue
        cells = line.split("\t")
        row = dict(zip(pci.PCI_TABLE_COLUMNS, cells, strict=False))
        if len(cells) != len(pci.PCI_TABLE_COLUMNS) or not all(
            cell and cell == cell.strip() for cell in cells
        ):
            fault = f"a row has {len(pci.PCI_TABLE_COLUMNS)} cells, separated by tabs; nothing is written -"
        else:
            fault = _find_fault(row, vendor, sources)
            if row["id"] <= last:
                fault = fault or f"{row['id']} is not after {last}"
        if fault:
            raise errors.DataError(f"{path}:{number}: {fault}")
        last = row["id"]
        table.rows[last], table.above[last] = row, [*comments]
        comments.clear()
    return table


def _find_fault(row: Mapping[str, str], vendor: str, sources: Mapping[str, pci.PciSource]) -> str:
    wrong = [
        column
        for column, form in {"target": _TARGETS[vendor], **_VALUES}.items()
        if not re.fullmatch(form, row[column])
    ]
    if pci.PCI_VENDORS.get(row["id"][:4]) != vendor or pci.normalize_pci_id(row["id"]) != row["id"]:
        wrong.insert(0, "id")
    if vendor == "amd" and row["kind"] == "believed" and row["target"] != "-" and row["note"] == "-":
        wrong.append("note")
    values = [(row[column], column) for column in wrong]
    values += [(key, "source") for key in row["sources"].split(",") if key not in sources]
    return f"{values[0][0]} is no {values[0][1]} of this table" if values else ""


@dataclass(frozen=True)
class PciIds:
    """What a pci.ids says: its version, its day, and names by vendor:device."""

    version: str
    date: str
    names: Mapping[str, str]


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
        last, named = line, _NAMED_LINE.fullmatch(line)
        if named and named[1]:
            names[f"{vendor}:{named[2]}"] = named[3].strip()
        elif named:
            vendor = named[2]
        elif not _OTHER_LINE.match(line):
            raise errors.DataError(f"{where}:{number} is no line of a pci.ids: {line[:60]!r}")
    if not last.startswith(_LAST_CLASS) or set(pci.PCI_VENDORS) - {name[:4] for name in names}:
        raise errors.DataError(f"{where} is not whole: vendors or its end are missing", tip="fetch it again")
    return PciIds(head[1], head[2], names)


def refresh_pci_table(table: PciTable, ids: PciIds) -> list[dict[str, str]]:
    """Give a table the names of ``ids`` and its new GPUs; return where they differed, by id.

    What is made by hand stays as it is. A GPU that is gone from pci.ids stays too, with its last name: cards
    do not vanish. DataError when ``ids`` is older than what the table was made from: then the table is right.
    """
    made_from = pci.parse_pci_sources(table.head)["pci.ids"].at
    if ids.version < made_from:
        raise errors.DataError(
            f"pci.ids {ids.version} is older than the {made_from} that the table of {table.vendor} is from",
            tip=f"name a newer file with --pci-ids, or fetch one with --url {PCI_IDS_URL}",
        )
    differences = []

    def note(what: str, pci_id: str, before: str, now: str) -> None:
        differences.append({"what": what, "id": pci_id, "before": before, "now": now})

    for pci_id, row in table.rows.items():
        name = ids.names.get(pci_id, "")
        if row["named"] == "pci.ids" and not name:
            note("gone", pci_id, row["name"], "")
            row["named"] = _LOST
        elif name and (name, "pci.ids") != (row["name"], row["named"]):
            note("renamed", pci_id, row["name"], name)
            row |= {"name": name, "named": "pci.ids"}
    older = [line[0].split("-") for line in table.read_marks("#older")]
    for pci_id, name in ids.names.items():
        vendor, device = pci_id.split(":")
        if pci.PCI_VENDORS.get(vendor) != table.vendor or pci_id in table.rows or _NO_GPU.search(name):
            continue
        if _GPU[table.vendor].match(name) and not any(first <= device <= last for first, last in older):
            note("new", pci_id, "", name)
            chips = [cells[1:] for cells in table.read_marks("#chip") if name.startswith(cells[0])]
            target, card, kind, source = [*chips, ["-", "-", "believed", "pci.ids"]][0]
            remark = "-" if chips else "new, nobody has looked"
            cells = (pci_id, target, card, kind, source, "pci.ids", name, "-", remark)
            table.rows[pci_id] = dict(zip(pci.PCI_TABLE_COLUMNS, cells, strict=True))
    for number, line in enumerate(table.head):
        if line.startswith(f"{pci.SOURCE_MARK}pci.ids\t") and made_from != ids.version:
            mark, key, _, _, place = line.split("\t")
            table.head[number] = "\t".join((mark, key, ids.version, ids.date, place.split(" (")[0]))
    return sorted(differences, key=lambda difference: difference["id"])


def _fetch_pci_ids(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise errors.UsageError(f"{url} is no http or https URL")
    try:
        answer = reader.IndexReader().get(url)
    except reader.UnreachableError as cause:
        raise errors.HostError(f"{url} does not answer", tip="name a file with --pci-ids") from cause
    if answer.status != 200:
        raise errors.HostError(f"{url} answers {answer.status}", tip="name a file with --pci-ids")
    return answer.content


def _count_kinds(differences: list[dict[str, str]]) -> str:
    counts = {kind: sum(each["what"] == kind for each in differences) for kind in _KIND_ORDER}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


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
    tables = {vendor: read_pci_table(folder / name, vendor) for vendor, name in pci.PCI_TABLES.items()}
    path = file or next((place for place in _SYSTEM_FILES if place.is_file()), None)
    if not url and path is None:
        raise errors.UsageError(
            f"there is no pci.ids at {' or '.join(map(str, _SYSTEM_FILES))}",
            tip=f"install the package pci.ids or hwdata, name a file with --pci-ids, or --url {PCI_IDS_URL}",
        )
    where = url or str(path)
    try:
        content = _fetch_pci_ids(url) if url else Path(where).read_bytes()
        ids = read_pci_ids(content.decode("utf-8"), where)
    except OSError as cause:
        raise errors.UsageError(f"{where} cannot be read") from cause
    except UnicodeDecodeError as cause:
        raise errors.DataError(f"{where} is no pci.ids: it is no text") from cause
    differing = {vendor: refresh_pci_table(table, ids) for vendor, table in tables.items()}
    if as_json:
        head = {"version": ids.version, "date": ids.date, "where": where}
        click.echo(json.dumps({"pci_ids": head, "tables": differing}, indent=1))
    else:
        click.echo(f"pci.ids {ids.version} ({where})")
        for vendor, differences in differing.items():
            click.echo(f"{vendor}: {_count_kinds(differences) or 'nothing differs'}")
            for each in sorted(differences, key=lambda difference: _KIND_ORDER.index(difference["what"])):
                change = " -> ".join(filter(None, (each["before"], each["now"])))
                click.echo(f"  {each['what']:7}  {each['id']}  {change}")
    if write:
        for vendor, table in tables.items():
            files.write_atomically(folder / pci.PCI_TABLES[vendor], table.format_text())
    elif check and (counts := _count_kinds([each for several in differing.values() for each in several])):
        raise errors.HostError(
            f"the tables of PCI ids differ from pci.ids {ids.version}: {counts}",
            tip="build_tools/refresh_pci_ids.py --write, then find out the targets of what is new",
        )
