"""What the plans of this room have in common: a wheel, what it becomes, and how large it is before and after.

A plan is decided before anything is written; new contents lie in files without a name meanwhile, which an
``ExitStack`` closes. What a plan shows of itself (``repr``) is what its command prints as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, tables
from rocm_wheels.device_code import code_objects
from rocm_wheels.wheels import dist_info, rewrite, stored_member, zip_format
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit, get_edited_name


class WheelSizes(NamedTuple):
    """How large a wheel is, in bytes: what it holds, and its file."""

    content: int
    archive: int


@dataclass(frozen=True)
class WheelPlan:
    """What becomes of a wheel, which is open and hashed: ``edit``, and its sizes before and after."""

    wheel: Path
    before: WheelSizes
    after: WheelSizes
    archive: WheelArchive = field(repr=False)
    edit: WheelEdit = field(repr=False)

    def find_target(self, folder: Path | None) -> Path:
        """Return the path of the new wheel in ``folder`` (None: beside the old one)."""
        return (folder or self.wheel.parent) / get_edited_name(self.wheel.name, self.edit)

    def write(self, folder: Path) -> Path:
        """Write the new wheel into ``folder``, whole or not at all. Raises as ``rewrite_wheel``."""
        return rewrite.rewrite_wheel(self.archive, folder, self.edit)

    def describe_sizes(self) -> str:
        """Return both sizes for people."""
        files, contents = (
            f"{tables.format_size(before)} -> {tables.format_size(after)}"
            for before, after in ((self.before[1], self.after[1]), (self.before[0], self.after[0]))
        )
        return f"{files} (unpacked {contents})"


def open_wheel(wheel: Path, stack: ExitStack) -> WheelArchive:
    """Open a wheel that is to be changed; PackageError for a variant, whose properties would be false."""
    if dist_info.split_wheel_name(wheel.name).label:
        raise errors.PackageError(
            f"{wheel.name} is a variant, whose properties would no longer be true",
            tip="`rocm-wheels wheel retag --label ''` makes a plain wheel of it: stamp it afterwards",
        )
    return stack.enter_context(WheelArchive.open(wheel))


def measure_edit(archive: WheelArchive, edit: WheelEdit) -> tuple[WheelSizes, WheelSizes]:
    """Return the sizes of a wheel as it is, and with other members; PackageError for what PyPI refuses."""
    entries = archive.member_by_name
    before = WheelSizes(sum(entry.size for entry in archive.members), archive.size)
    new = [member.entry for member in edit.stored.values()]
    old = [entries[name] for name in {*edit.stored, *edit.drop_members} if name in entries]
    content = before.content + sum(entry.size for entry in new) - sum(entry.size for entry in old)
    size = before.archive + sum(entry.compressed for entry in new) - sum(entry.compressed for entry in old)
    after = WheelSizes(content, size)
    if after != before and zip_format.exceeds_ratio(*after):
        raise errors.PackageError(
            f"{archive.path}: its content ({content} bytes) would be more than 50 times its archive"
            f" ({size} bytes), which PyPI refuses",
        )
    return before, after


def list_outside_info(archive: WheelArchive) -> list[str]:
    """Return the names of the members that are not in a dist-info folder."""
    return [entry.name for entry in archive.members if not entry.name.startswith(f"{archive.info_folder}/")]


def read_metadata(archive: WheelArchive) -> dist_info.WheelMetadata:
    """Return METADATA of a wheel. Raises DataError."""
    return dist_info.parse_metadata(archive.read_info("METADATA"), name=f"{archive.path}: METADATA")


def list_stored_members(archive: WheelArchive) -> dict[str, stored_member.StoredMember]:
    """Return the members of a wheel outside its dist-info folder as they lie in it, for another wheel.

    DataError where RECORD has no digest of one.
    """
    record = dist_info.parse_wheel_record(
        archive.read_info("RECORD"), name=f"{archive.path}: RECORD", files=len(archive.members)
    )
    digests = {row.path: dist_info.correct_record_digest(row.digest) for row in record}
    members = {}
    for name in list_outside_info(archive):
        if not (digest := digests.get(name)):
            raise errors.DataError(f"{archive.path}: RECORD has no sha256 digest of {name}")
        entry = archive.member_by_name[name]
        members[name] = stored_member.StoredMember(entry, digest, archive.descriptor, entry.data)
    return members


def format_targets(targets: Iterable[code_objects.TargetId]) -> tuple[str, ...]:
    """Return targets as text, once each, sorted as people do."""
    return tuple(map(str, sorted(set(targets), key=code_objects.TargetId.get_sort_key)))


def is_rocm_package(name: str) -> bool:
    """Tell whether a distribution is one of the ROCm packages themselves."""
    return canonicalize_name(name) == "rocm" or canonicalize_name(name).startswith("rocm-sdk")


def list_rocm_pins(requirements: Iterable[str]) -> dict[str, str]:
    """Return the exact versions of ROCm's packages that a wheel requires, by the requirement as written.

    A requirement with a variant marker, which no installer reads, is left out.
    """
    pins = {}
    for text in requirements:
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, RecursionError):
            continue
        for pin in requirement.specifier if is_rocm_package(requirement.name) else ():
            if pin.operator in ("==", "===") and "*" not in pin.version:
                pins[text] = pin.version
    return pins
