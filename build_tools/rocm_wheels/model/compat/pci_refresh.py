"""Keep the tables of PCI ids up with pci.ids: read it, say what differs, make the tables anew.

Names, and which GPUs there are, come from pci.ids. Targets, kinds and notes are made by hand and stay.
A new GPU of AMD gets no target: the table does not guess. The chip in an NVIDIA name says the capability,
the family in an Intel name the kind of card; the ``#chip`` lines of the tables hold these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rocm_wheels.errors import DataError
from rocm_wheels.gpus import pci
from rocm_wheels.model.compat.pci_table import Row, Table

NEW, RENAMED, GONE = "new", "renamed", "gone"
SOURCE = "pci.ids"
_LOST = "older pci.ids"  # what a name is from that pci.ids no longer has
_HEAD = re.compile(r"(?m)^#\s*Version:\s*(\d{4}\.\d\d\.\d\d)\s*$\s*^#\s*Date:\s*(\d{4}-\d\d-\d\d)\b")
_VENDOR = re.compile(r"([0-9a-f]{4})  (\S.*)")
_DEVICE = re.compile(r"\t([0-9a-f]{4})  (\S.*)")
_OTHER = re.compile(r"\t\t[0-9a-f]{2}(?:[0-9a-f]{2} [0-9a-f]{4})?  ?\S|\t[0-9a-f]{2}  \S|C [0-9a-f]{2}  \S")
_LAST = "C ff  "  # the last class, which ends the file
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
class Difference:
    """Where a table and pci.ids differ: ``new``, ``renamed`` or ``gone``, the name before and now."""

    what: str
    id: str
    before: str
    now: str


def read_pci_ids(text: str, where: str) -> PciIds:
    """Read a pci.ids; ``where`` names it in errors.

    DataError when it is none, when a line is not of its form, and when its end is missing.
    """
    head = _HEAD.search(text[:4096])
    if head is None:
        raise DataError(
            f"{where} is no pci.ids: its head names no version and date",
            tip=f"take the file of the package pci.ids or hwdata, or {pci.PCI_IDS_URL}",
        )
    names: dict[str, str] = {}
    vendor = last = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        last = line
        if device := _DEVICE.fullmatch(line):
            names[f"{vendor}:{device[1]}"] = device[2].strip()
        elif found := _VENDOR.fullmatch(line):
            vendor = found[1]
        elif not _OTHER.match(line):
            raise DataError(f"{where}:{number} is no line of a pci.ids: {line[:60]!r}")
    if not last.startswith(_LAST) or set(pci.VENDORS) - {name[:4] for name in names}:
        raise DataError(f"{where} is not whole: vendors or its end are missing", tip="fetch it again")
    return PciIds(head[1], head[2], names)


def differences(table: Table, ids: PciIds) -> tuple[Difference, ...]:
    """Say where a table and ``ids`` differ: by id.

    DataError when ``ids`` is older than what the table was made from: then the table is right.
    """
    made_from = table.source(SOURCE).at
    if ids.version < made_from:
        raise DataError(
            f"pci.ids {ids.version} is older than the {made_from} that the table of {table.vendor} is from",
            tip=f"name a newer file with --pci-ids, or fetch one with --url {pci.PCI_IDS_URL}",
        )
    found = []
    for row in table.rows:
        now = ids.names.get(row.id, "")
        if row.named == SOURCE and not now:
            found.append(Difference(GONE, row.id, row.name, ""))
        elif now and (now != row.name or row.named != SOURCE):
            found.append(Difference(RENAMED, row.id, row.name, now))
    known = {row.id for row in table.rows}
    for pci_id, name in ids.names.items():
        if pci_id not in known and _is_gpu(pci_id, name, table):
            found.append(Difference(NEW, pci_id, "", name))
    return tuple(sorted(found, key=lambda difference: difference.id))


def refreshed(table: Table, ids: PciIds) -> Table:
    """Return the table with the names of ``ids`` and its new GPUs; what is made by hand stays as it is.

    A GPU that is gone from pci.ids stays too, with its last name: cards do not vanish.
    """
    rows = {row.id: row for row in table.rows}
    for difference in differences(table, ids):
        if difference.what == NEW:
            rows[difference.id] = _new_row(difference, table)
        elif difference.what == GONE:
            rows[difference.id] = replace(rows[difference.id], named=_LOST)
        else:
            rows[difference.id] = replace(rows[difference.id], named=SOURCE, name=difference.now)
    return table.with_rows(rows.values()).with_source(SOURCE, ids.version, ids.date)


def _is_gpu(pci_id: str, name: str, table: Table) -> bool:
    vendor, device = pci_id.split(":")
    return (
        pci.VENDORS.get(vendor) == table.vendor
        and not any(first <= device <= last for first, last in table.older)
        and not _NO_GPU.search(name)
        and _GPU[table.vendor].match(name) is not None
    )


def _new_row(difference: Difference, table: Table) -> Row:
    chip = next((chip for chip in table.chips if difference.now.startswith(chip.name)), None)
    if chip is None:
        blank = "-"
        return Row(
            difference.id,
            blank,
            blank,
            "believed",
            SOURCE,
            SOURCE,
            difference.now,
            blank,
            "new, nobody has looked",
        )
    return Row(
        difference.id, chip.target, chip.card, chip.kind, chip.source, SOURCE, difference.now, "-", "-"
    )
