"""Plan what an edited wheel becomes, before a byte is written; compare two wheels.

Decided are its file name, its dist-info files and RECORD; METADATA, WHEEL and RECORD are edited by the
line: what is not meant stays as it is, byte for byte. Digests in hex or with padding, as some producers
write them into RECORD, are put right on the way.

Sources: "Binary distribution format", "Core metadata", "Recording installed projects" of the PyPA
specifications; PEP 825 for the label.

Two wheels are compared without inflating what they hold: names, sizes, CRCs, modes, and their METADATA.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.wheels import dist_info, sbom, stored_member, zip_format
from rocm_wheels.wheels.archive import WheelArchive

_VERSIONED_FOLDER = re.compile(r"(?P<name>[^/]+)-(?P<version>[^/-]+)\.(?P<kind>dist-info|data)")
_BUILD_TAG = re.compile(r"[0-9][a-z0-9_.]*")
_EDITED_FILES = ("METADATA", "WHEEL", "RECORD", "RECORD.jws", "RECORD.p7s")


@dataclass(frozen=True)
class WheelEdit:
    """What a wheel becomes. None: as it is; "" takes a part away.

    ``version`` is the whole new version, ``local`` its local part; both follow in METADATA and the names of
    the ``.dist-info`` and ``.data`` folders. ``platforms`` also go into WHEEL, ``build`` too; a wheel for a
    platform is no longer said to be pure.
    ``requirements`` maps the old Requires-Dist values to the new ones, ``extras`` those of Provides-Extra,
    ``external`` those of Requires-External.
    ``put`` and ``drop`` are files in ``*.dist-info``, named without that folder. ``members`` are new contents
    of files elsewhere, by the whole names that they have; ``stored`` are larger ones, new files among them,
    and ``drop_members`` the files elsewhere that go. ``license_files`` maps the old License-File values to
    the new.
    ``step`` is what the wheel's bill of materials, where it has one of ours, says was done (``retag``);
    ``undone`` begins the step that this one takes back: where that is the last one, both go. ``contained``
    are packages whose files are now inside. The version in it follows by itself. ``parts``: a new one.
    ``plain_modes``: files are of mode 0644 or, those that their owner may run, 0755, whatever umask they had.
    """

    version: str | None = None
    local: str | None = None
    build: str | None = None
    platforms: tuple[str, ...] | None = None
    label: str | None = None
    requirements: Callable[[tuple[str, ...]], Sequence[str]] | None = None
    extras: Callable[[tuple[str, ...]], Sequence[str]] | None = None
    external: Callable[[tuple[str, ...]], Sequence[str]] | None = None
    put: Mapping[str, bytes] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()
    members: Mapping[str, bytes] = field(default_factory=dict)
    stored: Mapping[str, stored_member.StoredMember] = field(default_factory=dict)
    drop_members: frozenset[str] = frozenset()
    license_files: Callable[[tuple[str, ...]], Sequence[str]] | None = None
    step: str = ""
    undone: str = ""
    contained: tuple[sbom.PackagePart, ...] = ()
    parts: sbom.WheelParts | None = None
    plain_modes: bool = False


@dataclass(frozen=True)
class EditPlan:
    """The new wheel: its file name, its folders by their old names, and the files that are written anew.

    ``texts`` are contents by new name, RECORD among them when it changed; ``dropped`` are members of the
    source, by old name, that it no longer has.
    """

    file_name: str
    folders: Mapping[str, str]
    texts: Mapping[str, bytes]
    dropped: frozenset[str]

    def get_new_name(self, name: str) -> str:
        """Return the new name of a member."""
        if not self.folders:
            return name
        top, slash, rest = name.partition("/")
        return self.folders.get(top, top) + slash + rest


def get_edited_name(file_name: str, edit: WheelEdit) -> str:
    """Return the file name that a wheel gets; UsageError or DataError as ``plan_wheel_edit``."""
    version = _plan_version(dist_info.parse_wheel_name(file_name).version, edit)
    return _plan_name(dist_info.split_wheel_name(file_name), edit, version).file_name


def plan_wheel_edit(archive: WheelArchive, edit: WheelEdit) -> EditPlan:
    """Return what a wheel becomes; DataError or UsageError when it cannot."""
    file_name, folder = archive.path.name, archive.info_folder
    metadata, wheel, bill = (f"{folder}/{name}" for name in ("METADATA", "WHEEL", sbom.SBOM_MEMBER))
    texts = {f"{folder}/{name}": archive.read_info(name) for name in ("METADATA", "WHEEL", "RECORD")}
    if bill in archive.member_by_name:
        texts[bill] = archive.read_info(sbom.SBOM_MEMBER)
    old = dist_info.split_wheel_name(file_name)
    version = _plan_version(dist_info.parse_wheel_name(file_name).version, edit)
    new = _plan_name(old, edit, version)
    folders = _plan_folders(archive.member_by_name, folder, old, version)
    edited = {
        metadata: _edit_metadata(texts[metadata], metadata, edit, version),
        wheel: _edit_wheel_file(texts[wheel], wheel, old, new),
    }
    if version is not None and edit.version is None:  # only the local part is new: the rest must be one
        _require_agreement(file_name, folder, texts[metadata], variant_markers=True)
    dist_info.parse_wheel_file(edited[wheel], name=wheel)
    is_same = edited[metadata] == texts[metadata]
    new_folder = folders.get(folder, folder)
    _require_agreement(new.file_name, new_folder, edited[metadata], variant_markers=is_same)
    new_bill = _edit_sbom(texts.get(bill), edited[metadata], metadata, edit, version)
    if new_bill is not None:
        edited[bill] = new_bill
    put, dropped = _plan_files(archive, edit)
    new_texts = {**edited, **put, **edit.members}
    contents = {name: text for name, text in new_texts.items() if texts.get(name) != text}
    plan = EditPlan(new.file_name, folders, contents, dropped)
    return _plan_record(plan, texts[f"{folder}/RECORD"], archive, edit.stored)


def _edit_sbom(
    content: bytes | None, metadata: bytes, name: str, edit: WheelEdit, version: Version | None
) -> bytes | None:
    """Return the bill of materials that the wheel gets; None: it stays as it is."""
    if edit.parts is not None:
        fields, _ = dist_info.read_metadata_fields(metadata, name)
        keys = ("Name", "Version", "License-Expression")
        values = [dist_info.get_field_values(fields, key) for key in keys]
        content, version = sbom.format_sbom(edit.parts, *map("".join, values)), None
        if not edit.step:
            return content
    if content is None or not (version is not None or edit.step):
        return None
    return sbom.revise_sbom(
        content,
        version=None if version is None else str(version),
        step=edit.step,
        undone=edit.undone,
        contained=[sbom.describe_contained(part) for part in edit.contained],
    )


def _plan_files(archive: WheelArchive, edit: WheelEdit) -> tuple[dict[str, bytes], frozenset[str]]:
    """Return what is put into the dist-info folder, and all that goes; raises for what cannot be."""
    file_name, folder, names = archive.path.name, archive.info_folder, archive.member_by_name.keys()
    put = {f"{folder}/{_check_file_name(name)}": content for name, content in edit.put.items()}
    dropped = {f"{folder}/{_check_file_name(name)}" for name in edit.drop}
    if contradicting := sorted(dropped & put.keys()):
        raise errors.UsageError(f"{', '.join(contradicting)} is to be put and to be left out")
    dropped |= edit.drop_members
    if absent := sorted(dropped - names):
        raise errors.DataError(f"{file_name} has no {', '.join(absent)} to leave out")
    _require_free(put.keys(), names)
    foreign = (name for name in edit.members if name not in names or name.startswith(f"{folder}/"))
    if unknown_members := sorted(foreign):
        raise errors.UsageError(f"{file_name} has no {', '.join(unknown_members)} outside {folder}")
    _require_free(edit.stored.keys() - names, names)
    return put, frozenset(dropped)


def _plan_record(
    plan: EditPlan,
    old: bytes,
    archive: WheelArchive,
    stored: Mapping[str, stored_member.StoredMember],
) -> EditPlan:
    """Return a plan whose ``texts`` have their old names with RECORD, all by the new names.

    RECORD's lines of new members come before its own, sorted. DataError when it does not have each file once,
    with its size and a sha256 digest: a digest that is taken over must be one.
    """
    record = f"{archive.info_folder}/RECORD"
    rows = list(dist_info.read_record_rows(old, name=record, files=len(archive.members)))
    unread = {name: (entry.size, None) for name, entry in archive.member_by_name.items()}
    differences = dist_info.compare_wheel_record((entry for entry, _ in rows), unread, record=record)
    if faults := [text for text in differences if not dist_info.is_repaired_fault(text)]:
        raise errors.DataError("\n".join(faults))
    texts = {plan.get_new_name(name): text for name, text in plan.texts.items()}
    changed = {name: make_record_entry(name, text) for name, text in texts.items()}
    for name, member in stored.items():
        new_name = plan.get_new_name(name)
        changed[new_name] = dist_info.RecordEntry(new_name, member.digest, member.entry.size)

    def edit_record(dropped: Collection[str]) -> bytes:
        lines, listed = [], set[str]()
        for entry, text in rows:
            if entry.path in dropped or entry.path == record:
                continue
            name, right = plan.get_new_name(entry.path), dist_info.correct_record_digest(entry.digest) or ""
            new = changed.get(name, dist_info.RecordEntry(name, right, entry.size))
            lines.append(text if new == entry and text.endswith("\n") else dist_info.format_record_row(new))
            listed.add(name)
        added = [entry for path, entry in sorted(changed.items()) if path not in listed]
        added.append(dist_info.RecordEntry(plan.get_new_name(record), "", None))
        return "".join([*lines, *map(dist_info.format_record_row, added)]).encode()

    dropped = plan.dropped
    content = edit_record(dropped)
    if content != old:
        signatures = {record + suffix for suffix in dist_info.SIGNATURE_SUFFIXES}
        if signed := signatures & archive.member_by_name.keys():  # they are of the old RECORD
            dropped |= signed
            content = edit_record(dropped)
        texts[plan.get_new_name(record)] = content
    return replace(plan, texts=texts, dropped=dropped)


def _plan_version(old: Version, edit: WheelEdit) -> Version | None:
    """Return the new version; None when it stays."""
    if edit.version is None and edit.local is None:
        return None
    try:
        version = old if edit.version is None else Version(edit.version)
        if edit.local is not None:
            version = Version(f"{version.public}+{edit.local}" if edit.local else version.public)
    except ValueError as cause:  # no version, or a number of more digits than Python reads
        raise errors.UsageError("the new version is none") from cause
    return version


def _plan_name(
    old: dist_info.WheelNameFields, edit: WheelEdit, version: Version | None
) -> dist_info.WheelNameFields:
    new = old if version is None else replace(old, version=str(version))
    if edit.build is not None:
        if edit.build and not _BUILD_TAG.fullmatch(edit.build):
            raise errors.UsageError(
                f"{edit.build!r} is not a build tag", tip="it begins with a digit: 1 or 2local"
            )
        new = replace(new, build=edit.build)
    if edit.platforms is not None:
        new = replace(new, platform=".".join(dict.fromkeys(edit.platforms)))
    if edit.label is not None:
        new = replace(new, label=edit.label)
    dist_info.parse_wheel_name(new.file_name)
    return new


def _plan_folders(
    names: Iterable[str], folder: str, old: dist_info.WheelNameFields, version: Version | None
) -> dict[str, str]:
    """Return the new names of the folders that hold the version in their name."""
    if version is None:
        return {}
    tops, project = {name.split("/", 1)[0] for name in names}, canonicalize_name(old.distribution)
    folders = {}
    for top in tops:
        match = _VERSIONED_FOLDER.fullmatch(top)
        is_data = match and match["kind"] == "data" and canonicalize_name(match["name"]) == project
        if match and (top == folder or is_data):
            folders[top] = f"{match['name']}-{version}.{match['kind']}"
    if existing := sorted(set(folders.values()) & (tops - folders.keys())):
        raise errors.DataError(f"the wheel already has a folder {existing[0]}")
    return {top: name for top, name in folders.items() if top != name}


def _edit_metadata(content: bytes, name: str, edit: WheelEdit, version: Version | None) -> bytes:
    fields, _ = dist_info.read_metadata_fields(content, name)
    changes: dict[str, Sequence[str]] = {} if version is None else {"Version": [str(version)]}
    for key, change in (
        ("Requires-Dist", edit.requirements),
        ("Provides-Extra", edit.extras),
        ("Requires-External", edit.external),
        ("License-File", edit.license_files),
    ):
        if change is not None:
            old = dist_info.get_field_values(fields, key)
            changes[key] = new = list(change(old))
            if key == "Requires-Dist":
                _check_requirements(value for value in new if value not in old)
    return dist_info.replace_field_values(content, changes, name)


def _edit_wheel_file(
    content: bytes, name: str, old: dist_info.WheelNameFields, new: dist_info.WheelNameFields
) -> bytes:
    changes: dict[str, Sequence[str]] = {}
    if new.platform != old.platform:
        fields = (new.python.split("."), new.abi.split("."), new.platform.split("."))
        changes["Tag"] = ["-".join(tag) for tag in product(*fields)]
        if new.platform != "any":
            changes["Root-Is-Purelib"] = ["false"]
    if new.build != old.build:
        changes["Build"] = [new.build] if new.build else []
    return dist_info.replace_field_values(content, changes, name)


def _check_requirements(texts: Iterable[str]) -> None:
    from packaging.requirements import InvalidRequirement, Requirement

    for text in texts:
        try:
            Requirement(text)
        except InvalidRequirement as cause:
            raise errors.UsageError(f"{text!r} is not a requirement") from cause
        if "\n" in text or "\r" in text:
            raise errors.UsageError(f"{text!r} is not a requirement of one line")


def _check_file_name(name: str) -> str:
    """Return the name of a file to put into the dist-info folder; UsageError when it cannot be one."""
    if name in _EDITED_FILES:
        raise errors.UsageError(f"{name} is written by the edit of a wheel, and cannot be put or left out")
    if any(part in ("", ".", "..") for part in name.split("/")) or not re.fullmatch(
        r"[^\\\x00-\x1f\x7f:]+", name
    ):
        raise errors.UsageError(f"{name!r} is not the name of a file in a dist-info folder")
    return name


def _require_free(new_names: Collection[str], names: Iterable[str]) -> None:
    """Raise UsageError when a new file would be in the way of another file or folder of the wheel.

    Names are compared without case, as some file systems do.
    """
    present = {name.casefold(): name for name in names if name not in new_names}
    ordered = sorted(present)  # the folders of all names would be gigabytes where names have many parts
    for name in sorted(new_names):
        folded = name.casefold()
        places = [folded, *(folded[:at] for at, character in enumerate(folded) if character == "/")]
        at = bisect_left(ordered, f"{folded}/")
        places += [place for place in ordered[at : at + 1] if place.startswith(f"{folded}/")]
        if obstacle := next((present[place] for place in places if place in present), None):
            raise errors.UsageError(f"{name} cannot be put into the wheel, which has {obstacle}")


def make_record_entry(path: str, content: bytes) -> dist_info.RecordEntry:
    """Return the entry of a content that is at hand."""
    return dist_info.RecordEntry(
        path, dist_info.encode_record_digest(hashlib.sha256(content).digest()), len(content)
    )


def _require_agreement(file_name: str, folder: str, metadata: bytes, *, variant_markers: bool) -> None:
    """Raise DataError when METADATA cannot be read, or file name, METADATA and folder disagree.

    ``variant_markers``: there may be some, as no edit put them there.
    """
    place = f"{folder}/METADATA"
    stated = dist_info.parse_metadata(metadata, name=place, variant_markers=variant_markers)
    if faults := dist_info.compare_names(dist_info.parse_wheel_name(file_name), folder, stated):
        raise errors.DataError("; ".join(faults))


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
    members: dict[str, zip_format.ZipEntry]
    metadata: bytes
    record: dict[str, tuple[str, int | None]]


def compare_wheels(old: Path, new: Path) -> WheelDiff:
    """Compare two wheels; DataError when one is damaged, hostile or no wheel."""
    old_name, new_name = dist_info.split_wheel_name(old.name), dist_info.split_wheel_name(new.name)
    old_wheel, new_wheel = _read_wheel(old), _read_wheel(new)
    old_fields, old_description = dist_info.read_metadata_fields(old_wheel.metadata, "METADATA")
    new_fields, new_description = dist_info.read_metadata_fields(new_wheel.metadata, "METADATA")
    before, after = asdict(old_name), asdict(new_name)
    difference = WheelDiff(
        fields={name: (value, after[name]) for name, value in before.items() if value != after[name]},
        added=sorted(new_wheel.members.keys() - old_wheel.members.keys()),
        removed=sorted(old_wheel.members.keys() - new_wheel.members.keys()),
        metadata=_compare_metadata(old_fields, new_fields),
        description=old_description != new_description,
    )
    for name in sorted(old_wheel.members.keys() & new_wheel.members.keys()):
        old_entry, new_entry = old_wheel.members[name], new_wheel.members[name]
        is_same = (old_entry.size, old_entry.crc) == (new_entry.size, new_entry.crc)
        if not is_same and name not in ("*.dist-info/RECORD", "*.dist-info/METADATA"):
            difference.changed.append(name)
        if old_entry.mode != new_entry.mode:
            difference.modes[name] = (f"{old_entry.mode:o}", f"{new_entry.mode:o}")
        rows = old_wheel.record.get(name), new_wheel.record.get(name)
        if is_same and None not in rows and rows[0] != rows[1]:
            difference.record.append(name)
    return difference


def _read_wheel(path: Path) -> _ComparedWheel:
    with WheelArchive.open(path) as archive:
        stem = archive.info_folder.removesuffix(".dist-info")
        metadata, listing = archive.read_info("METADATA"), archive.read_info("RECORD")
        members = {mask_version(name, stem): entry for name, entry in archive.member_by_name.items()}
    record = dist_info.parse_wheel_record(listing, name=f"{path}: RECORD", files=len(members))
    listed = {mask_version(entry.path, stem): (entry.digest, entry.size) for entry in record}
    return _ComparedWheel(members, metadata, listed)


def mask_version(name: str, stem: str) -> str:
    """Return the name of a member with ``*`` for the version in that of its dist-info or data folder.

    ``stem`` is the name of the dist-info folder, without its suffix.
    """
    for kind in (".dist-info", ".data"):
        if name.startswith(f"{stem}{kind}/"):
            return f"*{kind}{name[len(stem) + len(kind) :]}"
    return name


def _compare_metadata(
    old: list[dist_info.MetadataField], new: list[dist_info.MetadataField]
) -> dict[str, tuple[list[str], list[str]]]:
    """Return the values that only one side has, by field; a change of order alone is none."""
    before, after = (
        Counter((field[0].lower(), dist_info.get_field_value(field)) for field in side) for side in (old, new)
    )
    removed, added = before - after, after - before
    names = dict.fromkeys(name for name, _ in [*removed, *added])
    return {
        name: ([v for n, v in removed if n == name], [v for n, v in added if n == name]) for name in names
    }
