"""Two wheels compared without inflating what they hold: names, sizes, CRCs, modes, and their METADATA."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rocm_wheels.wheels.archive.edit_texts import Field, read_fields, value_of
from rocm_wheels.wheels.archive.edits import dist_info_folder
from rocm_wheels.wheels.archive.records import Entry
from rocm_wheels.wheels.members import WheelArchive
from rocm_wheels.wheels.names import split_wheel_name
from rocm_wheels.wheels.record import parse_record


@dataclass(frozen=True)
class WheelDiff:
    """What two wheels differ in; empty where they do not.

    Members are named as in the second wheel, with ``*`` for the version in the names of the dist-info and
    data folders: those that only follow the version are no difference. ``fields`` and ``metadata``
    map a part of the file name, and a field of METADATA, to the old and the new.
    """

    fields: dict[str, tuple[str, str]] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    modes: dict[str, tuple[str, str]] = field(default_factory=dict)
    metadata: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    description: bool = False
    record: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Tell whether there is no difference."""
        return not any(asdict(self).values())


@dataclass(frozen=True)
class _Side:
    members: dict[str, Entry]
    metadata: bytes
    record: dict[str, tuple[str, int | None]]


def compare_wheels(old: Path, new: Path) -> WheelDiff:
    """Compare two wheels; DataError when one is damaged, hostile or no wheel."""
    before, after = split_wheel_name(old.name), split_wheel_name(new.name)
    one, two = _read(old), _read(new)
    both = one.members.keys() & two.members.keys()
    own = {"*.dist-info/RECORD", "*.dist-info/METADATA"}
    said, rest = read_fields(one.metadata, "METADATA")
    said_then, rest_then = read_fields(two.metadata, "METADATA")
    return WheelDiff(
        fields={
            name: (value, asdict(after)[name])
            for name, value in asdict(before).items()
            if value != asdict(after)[name]
        },
        added=sorted(two.members.keys() - both),
        removed=sorted(one.members.keys() - both),
        changed=sorted(n for n in both - own if _content(one.members[n]) != _content(two.members[n])),
        modes={
            name: (f"{one.members[name].mode:o}", f"{two.members[name].mode:o}")
            for name in sorted(both)
            if one.members[name].mode != two.members[name].mode
        },
        metadata=_metadata(said, said_then),
        description=rest != rest_then,
        record=sorted(
            name
            for name in both & one.record.keys() & two.record.keys()
            if one.record[name] != two.record[name]
            and _content(one.members[name]) == _content(two.members[name])
        ),
    )


def _read(path: Path) -> _Side:
    with WheelArchive.open(path) as archive:
        archive.require_sound()
        folder = dist_info_folder(entry.name for entry in archive.members)
        stem = folder.removesuffix(".dist-info")
        entries = {entry.name: entry for entry in archive.members}
        texts = {
            name: archive.read(entries[f"{folder}/{name}"])
            for name in ("METADATA", "RECORD")
            if f"{folder}/{name}" in entries
        }
        record = parse_record(texts.get("RECORD", b""), name=f"{path}: RECORD", files=len(entries))
    listed = {_plain(entry.path, stem): (entry.digest, entry.size) for entry in record}
    return _Side({_plain(n, stem): e for n, e in entries.items()}, texts.get("METADATA", b""), listed)


def _plain(name: str, stem: str) -> str:
    for kind in (".dist-info", ".data"):
        if name.startswith(f"{stem}{kind}/"):
            return f"*{kind}{name[len(stem) + len(kind) :]}"
    return name


def _content(entry: Entry) -> tuple[int, int]:
    return entry.size, entry.crc


def _metadata(old: list[Field], new: list[Field]) -> dict[str, tuple[list[str], list[str]]]:
    """Return the values that only one side has, by field; a change of order alone is none."""
    counts = [Counter((one[0], value_of(one)) for one in side) for side in (old, new)]
    gone, come = counts[0] - counts[1], counts[1] - counts[0]
    names = dict.fromkeys(name for name, _ in [*gone, *come])
    return {name: ([v for n, v in gone if n == name], [v for n, v in come if n == name]) for name in names}
