"""Names of members that lead out, that collide, or that two readers read in two ways."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from rocm_wheels.wheels.archive.faults import Fault
from rocm_wheels.wheels.archive.records import Entry

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN = re.compile(r"[\w+@~-][\w.+@~, -]*(?:/[\w+@~-][\w.+@~, -]*)*/?", re.ASCII)  # nearly all names
_DRIVE = re.compile(r"[A-Za-z]:")


def name_fault(entry: Entry) -> Fault | None:
    """Return what is wrong with one name; None when nothing."""
    name = entry.name
    if _PLAIN.fullmatch(name):
        return None
    parts = name.split("/")
    if not name:
        return Fault("name-empty", name, "a member has no name")
    if _CONTROL.search(name):
        return Fault("name-control", name, f"a control character in the name {name!r}")
    if "\\" in name:
        return Fault(
            "name-backslash", name, "a backslash: this name leads out of the folder it is unpacked to"
        )
    if name.startswith("/"):
        return Fault("name-absolute", name, "this name leads out of the folder it is unpacked to: absolute")
    if _DRIVE.match(name):
        return Fault("name-drive", name, "this name leads out of the folder it is unpacked to: a drive")
    if ".." in parts:
        return Fault("name-upward", name, "this name leads out of the folder it is unpacked to")
    if "." in parts or "" in parts[:-1]:
        return Fault("name-dots", name, "a part of the name is empty or '.': readers drop it")
    return None


def colliding(entries: Sequence[Entry], *, folding: bool) -> Iterator[Fault]:
    """Yield names that several members have, or that one has as file and others as folder.

    With ``folding`` also those that are one on file systems of Windows and macOS.
    """
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.name] = counts.get(entry.name, 0) + 1
    for name, count in counts.items():
        if count > 1:
            yield Fault("name-twice", name, f"{count} members of this name")
    keys: dict[str, str] = {}
    for name in counts:
        key = _unpacked(name, folding)
        if keys.setdefault(key, name) != name:
            yield Fault("name-collides", name, f"unpacked, this is the same file as {keys[key]}")
    ordered = sorted(keys)  # the folders of all names would be gigabytes where names have thousands of parts
    for key, name in keys.items():
        inside = key + "/"
        at = bisect_left(ordered, inside)
        if at < len(ordered) and ordered[at].startswith(inside) and not name.endswith("/"):
            yield Fault("file-and-folder", name, "a file that is a folder to other members")


def _unpacked(name: str, folding: bool) -> str:
    """Return the one spelling of all names that are unpacked to the same place."""
    if "." in name or "//" in name or name.endswith("/"):
        name = "/".join(part for part in name.split("/") if part not in ("", "."))
    if not folding:
        return name
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
