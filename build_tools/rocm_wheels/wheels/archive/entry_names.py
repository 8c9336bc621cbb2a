"""Names of members that lead out, that collide, or that two readers read in two ways."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from rocm_wheels.wheels.archive.faults import ArchiveFault
from rocm_wheels.wheels.archive.records import ZipEntry

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN_NAME = re.compile(r"[\w+@~-][\w.+@~, -]*(?:/[\w+@~-][\w.+@~, -]*)*/?", re.ASCII)  # nearly all names
_DRIVE = re.compile(r"[A-Za-z]:")


def find_name_fault(entry: ZipEntry) -> ArchiveFault | None:
    """Return what is wrong with one name; None when nothing."""
    name = entry.name
    if _PLAIN_NAME.fullmatch(name):
        return None
    parts = name.split("/")
    if not name:
        return ArchiveFault("name-empty", name, "a member has no name")
    if _CONTROL_CHARACTER.search(name):
        return ArchiveFault("name-control", name, f"a control character in the name {name!r}")
    if "\\" in name:
        return ArchiveFault(
            "name-backslash", name, "a backslash: this name leads out of the folder it is unpacked to"
        )
    if name.startswith("/"):
        return ArchiveFault(
            "name-absolute", name, "this name leads out of the folder it is unpacked to: absolute"
        )
    if _DRIVE.match(name):
        return ArchiveFault(
            "name-drive", name, "this name leads out of the folder it is unpacked to: a drive"
        )
    if ".." in parts:
        return ArchiveFault("name-upward", name, "this name leads out of the folder it is unpacked to")
    if "." in parts or "" in parts[:-1]:
        return ArchiveFault("name-dots", name, "a part of the name is empty or '.': readers drop it")
    return None


def find_collisions(entries: Sequence[ZipEntry], *, folding: bool) -> Iterator[ArchiveFault]:
    """Yield names that several members have, or that one has as file and others as folder.

    With ``folding`` also those that are one on file systems of Windows and macOS.
    """
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.name] = counts.get(entry.name, 0) + 1
    for name, count in counts.items():
        if count > 1:
            yield ArchiveFault("name-twice", name, f"{count} members of this name")
    keys: dict[str, str] = {}
    for name in counts:
        key = _normalize_name(name, folding)
        if keys.setdefault(key, name) != name:
            yield ArchiveFault("name-collides", name, f"unpacked, this is the same file as {keys[key]}")
    ordered = sorted(keys)  # the folders of all names would be gigabytes where names have thousands of parts
    for key, name in keys.items():
        inside = key + "/"
        at = bisect_left(ordered, inside)
        if at < len(ordered) and ordered[at].startswith(inside) and not name.endswith("/"):
            yield ArchiveFault("file-and-folder", name, "a file that is a folder to other members")


def _normalize_name(name: str, folding: bool) -> str:
    """Return the one spelling of all names that are unpacked to the same place."""
    if "." in name or "//" in name or name.endswith("/"):
        name = "/".join(part for part in name.split("/") if part not in ("", "."))
    if not folding:
        return name
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
