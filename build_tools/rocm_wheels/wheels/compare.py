"""Compare two wheels without inflating what they hold: names, sizes, CRCs, modes, and their METADATA."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.dist_info import parse_wheel_record, split_wheel_name
from rocm_wheels.wheels.edit import MetadataField, get_dist_info_folder, get_field_value, read_metadata_fields
from rocm_wheels.wheels.zip_format import ZipEntry


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
    def is_empty(self) -> bool:
        """Tell whether there is no difference."""
        return not any(asdict(self).values())


@dataclass(frozen=True)
class _ComparedWheel:
    members: dict[str, ZipEntry]
    metadata: bytes
    record: dict[str, tuple[str, int | None]]


def compare_wheels(old: Path, new: Path) -> WheelDiff:
    """Compare two wheels; DataError when one is damaged, hostile or no wheel."""
    old_name, new_name = split_wheel_name(old.name), split_wheel_name(new.name)
    old_wheel, new_wheel = _read_wheel(old), _read_wheel(new)
    common = old_wheel.members.keys() & new_wheel.members.keys()
    dist_info_files = {"*.dist-info/RECORD", "*.dist-info/METADATA"}
    old_fields, old_description = read_metadata_fields(old_wheel.metadata, "METADATA")
    new_fields, new_description = read_metadata_fields(new_wheel.metadata, "METADATA")
    return WheelDiff(
        fields={
            name: (value, asdict(new_name)[name])
            for name, value in asdict(old_name).items()
            if value != asdict(new_name)[name]
        },
        added=sorted(new_wheel.members.keys() - common),
        removed=sorted(old_wheel.members.keys() - common),
        changed=sorted(
            n
            for n in common - dist_info_files
            if _get_content(old_wheel.members[n]) != _get_content(new_wheel.members[n])
        ),
        modes={
            name: (f"{old_wheel.members[name].mode:o}", f"{new_wheel.members[name].mode:o}")
            for name in sorted(common)
            if old_wheel.members[name].mode != new_wheel.members[name].mode
        },
        metadata=_compare_metadata(old_fields, new_fields),
        description=old_description != new_description,
        record=sorted(
            name
            for name in common & old_wheel.record.keys() & new_wheel.record.keys()
            if old_wheel.record[name] != new_wheel.record[name]
            and _get_content(old_wheel.members[name]) == _get_content(new_wheel.members[name])
        ),
    )


def _read_wheel(path: Path) -> _ComparedWheel:
    with WheelArchive.open(path) as archive:
        archive.require_sound()
        folder = get_dist_info_folder(entry.name for entry in archive.members)
        stem = folder.removesuffix(".dist-info")
        entries = {entry.name: entry for entry in archive.members}
        texts = {
            name: archive.read(entries[f"{folder}/{name}"])
            for name in ("METADATA", "RECORD")
            if f"{folder}/{name}" in entries
        }
        record = parse_wheel_record(texts.get("RECORD", b""), name=f"{path}: RECORD", files=len(entries))
    listed = {_mask_version(entry.path, stem): (entry.digest, entry.size) for entry in record}
    return _ComparedWheel(
        {_mask_version(n, stem): e for n, e in entries.items()}, texts.get("METADATA", b""), listed
    )


def _mask_version(name: str, stem: str) -> str:
    for kind in (".dist-info", ".data"):
        if name.startswith(f"{stem}{kind}/"):
            return f"*{kind}{name[len(stem) + len(kind) :]}"
    return name


def _get_content(entry: ZipEntry) -> tuple[int, int]:
    return entry.size, entry.crc


def _compare_metadata(
    old: list[MetadataField], new: list[MetadataField]
) -> dict[str, tuple[list[str], list[str]]]:
    """Return the values that only one side has, by field; a change of order alone is none."""
    counts = [
        Counter((metadata_field[0], get_field_value(metadata_field)) for metadata_field in side)
        for side in (old, new)
    ]
    removed, added = counts[0] - counts[1], counts[1] - counts[0]
    names = dict.fromkeys(name for name, _ in [*removed, *added])
    return {
        name: ([v for n, v in removed if n == name], [v for n, v in added if n == name]) for name in names
    }
