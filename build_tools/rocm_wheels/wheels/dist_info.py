"""Names, METADATA, WHEEL and RECORD of a wheel.

Source: "Core metadata" and "Binary distribution format" of the PyPA specifications.

``packaging`` decides what a name, version, build tag and tag may be; it does not know the
label yet, so that one is taken off first.

Source: "Recording installed projects" of the PyPA specifications: CSV; digests are
``sha256=`` and URL-safe base64 without padding; RECORD itself and its signatures have none.
"""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from packaging.tags import Tag, parse_tag
from packaging.utils import (
    BuildTag,
    InvalidWheelFilename,
    NormalizedName,
    canonicalize_name,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

# nowhere in a name, whatever ``packaging`` lets through: build tags and platforms may hold anything there
_NOT_IN_NAMES = re.compile(r"[\x00-\x20\x7f-\x9f/\\:*?\"'<>|]")
_NAME_TIP = "name a file such as torch-2.9.1-cp312-cp312-linux_x86_64.whl"
_LABEL = re.compile(r"[0-9a-z_.]+")  # PEP 825: no limit of length


@dataclass(frozen=True)
class WheelName:
    """The parts of ``torch-2.9.1+rocm7.1.0-1-cp311-cp311-linux_x86_64-rocm7.whl``.

    ``distribution`` is spelled as in the file name, ``name`` normalized (PEP 503); ``build`` is ()
    and ``label`` None when there is none. ``tags`` are all that a compressed tag set stands for.
    """

    distribution: str
    name: NormalizedName
    version: Version
    build: BuildTag
    tags: frozenset[Tag]
    label: str | None


@dataclass(frozen=True)
class WheelNameFields:
    """The fields of a wheel's file name as they are spelled there; "" for a build tag or label it has not."""

    distribution: str
    version: str
    build: str
    python: str
    abi: str
    platform: str
    label: str

    @property
    def file_name(self) -> str:
        """The file name of these fields."""
        fields = (
            self.distribution,
            self.version,
            self.build,
            self.python,
            self.abi,
            self.platform,
            self.label,
        )
        return "-".join(field for field in fields if field) + ".whl"


def split_wheel_name(file_name: str) -> WheelNameFields:
    """Take a wheel's file name (no folders) apart; DataError when its fields or its label are wrong."""
    stem = file_name.removesuffix(".whl")
    if stem == file_name:
        raise errors.DataError(
            f"{file_name} is not the name of a wheel: it does not end with .whl", tip=_NAME_TIP
        )
    if odd := _NOT_IN_NAMES.search(stem):
        raise errors.DataError(f"{file_name!r} is not the name of a wheel: it has {odd[0]!r}", tip=_NAME_TIP)
    parts = stem.split("-")
    if not 5 <= len(parts) <= 7:
        raise errors.DataError(
            f"{file_name} is not the name of a wheel: {len(parts)} fields between dashes, not 5 to 7",
            tip=_NAME_TIP,
        )
    # with six fields the third is a build tag (begins with a digit) or the last a label:
    # a Python tag never begins with a digit (PEP 825)
    has_build = len(parts) > 5 and parts[2][:1].isdigit()
    label = parts.pop() if len(parts) == 7 or (len(parts) == 6 and not has_build) else None
    if label is not None and not _LABEL.fullmatch(label):
        raise errors.DataError(
            f"{file_name} is not the name of a wheel: {label!r} is not a variant label", tip=_NAME_TIP
        )
    build = parts.pop(2) if len(parts) == 6 else ""
    distribution, version, python, abi, platform = parts
    return WheelNameFields(distribution, version, build, python, abi, platform, label or "")


def parse_wheel_name(file_name: str) -> WheelName:
    """Read a wheel's file name (no folders); DataError with the reason when it is none."""
    fields = split_wheel_name(file_name)
    try:
        name, version, build, tags = parse_wheel_filename(replace(fields, label="").file_name)
    except (InvalidWheelFilename, InvalidVersion, ValueError) as cause:
        raise errors.DataError(f"{file_name} is not the name of a wheel", tip=_NAME_TIP) from cause
    return WheelName(fields.distribution, name, version, build, tags, fields.label or None)


DEVICE_FILES = "device_files.json"
"""In a split wheel's ``.dist-info``: the digests, as in RECORD, of what its device wheels hold, by member."""
SIGNATURE_SUFFIXES = (".jws", ".p7s")
_MOST_SHOWN = 3
_MORE_LINES = 1000
_MOST_A_FILE, _MORE_BYTES = 4096, 1 << 20


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """One line: ``digest`` like ``sha256=47DEQ…`` ("" when none), ``size`` in bytes (None when none)."""

    path: str
    digest: str
    size: int | None


def encode_record_digest(sha256: bytes) -> str:
    """Return a raw SHA-256 digest as RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(sha256).rstrip(b"=").decode("ascii")


def require_record_size(files: int, content: bytes, *, name: str) -> None:
    """Raise DataError for a RECORD that cannot be one of so many files: its lines would fill the memory.

    The bounds are wide: lines may be ended by CR and LF, and be there twice (which is told by name).
    """
    lines = content.count(b"\n") + content.count(b"\r")
    if lines > 4 * files + _MORE_LINES or len(content) > _MOST_A_FILE * files + _MORE_BYTES:
        raise errors.DataError(
            f"{name} has {lines} lines and {len(content)} bytes, for a wheel of {files} files"
        )


def parse_wheel_record(content: bytes, *, name: str, files: int | None = None) -> list[RecordEntry]:
    """Read RECORD; DataError with line number when it is not UTF-8, CSV or of three fields.

    With ``files``, how many the wheel has, also when it is too large for that.
    """
    if files is not None:
        require_record_size(files, content, name=name)
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
        entries = []
        for row in rows:
            if not row:
                continue
            if len(row) != 3:
                raise errors.DataError(
                    f"{name}:{rows.line_num}: {len(row)} fields instead of path, digest and size"
                )
            path, digest, size = row
            if size and not re.fullmatch("[0-9]{1,19}", size):
                raise errors.DataError(f"{name}:{rows.line_num}: {size!r} is not a size")
            entries.append(RecordEntry(path, digest, int(size) if size else None))
    except (UnicodeDecodeError, csv.Error) as cause:
        raise errors.DataError(f"{name} is not CSV in UTF-8") from cause
    return entries


_NO_DIGEST_FAULT, _NO_SIZE_FAULT = "is listed without a digest", "is listed without a size"
_NO_TAG_FAULT, _MORE_TAGS_FAULT = "WHEEL does not state the tags", "WHEEL states the tags"
_PURELIB_FAULT = "WHEEL says Root-Is-Purelib: true"
_PADDED_FAULT = "is listed with a padded digest; the specification wants it without '='"
_HEX_FAULT = "is listed with a digest in hex; the specification wants URL-safe base64 without padding"


def compare_wheel_record(
    entries: list[RecordEntry], members: Mapping[str, tuple[int, bytes]], *, record: str
) -> list[str]:
    """Return what RECORD and the archive disagree about; [] when nothing.

    ``members`` are sizes and raw SHA-256 digests by name; ``record`` is RECORD's own path.
    """
    exempt = {record, *(record + suffix for suffix in SIGNATURE_SUFFIXES)}
    faults: list[tuple[str, str]] = []
    listed_paths: set[str] = set()
    for entry in entries:
        if entry.path in listed_paths:
            faults.append((entry.path, "is listed twice"))
            continue
        listed_paths.add(entry.path)
        if entry.path in exempt:
            if entry.digest or entry.size is not None:
                faults.append((entry.path, "must be listed without digest and size"))
        elif entry.path not in members:
            faults.append((entry.path, "is listed but not in the wheel"))
        else:
            faults += [(entry.path, text) for text in _compare_entry(entry, *members[entry.path])]
    if record not in listed_paths:
        faults.append((record, "does not list itself"))
    faults += [
        (path, "is in the wheel but not listed")
        for path in members
        if path not in exempt and path not in listed_paths
    ]
    return [f"{record}: {line}" for line in _group_faults(faults)]


def is_repaired_fault(fault: str) -> bool:
    """Tell whether rewriting puts a fault of ``compare_wheel_record`` right: no content is in doubt."""
    return fault.endswith((_HEX_FAULT, _PADDED_FAULT, _NO_DIGEST_FAULT, _NO_SIZE_FAULT))


def is_spelling_fault(fault: str) -> bool:
    """Tell whether a fault of ``compare_wheel_record`` is the spelling of digests that are right."""
    return fault.endswith(_HEX_FAULT)


FaultKind = Literal["archive", "tags", "purelib", "digests", "markers"]
_MARKER_FAULT = "has variant markers in its requirements, which no installer of today reads"
_VARIANT_MARKER = re.compile(r"\bvariant_(?:label|namespaces|features|properties)\b")


def get_fault_kind(fault: str) -> FaultKind:
    """Return what a fault of a wheel is about; ``archive`` is whatever else makes it another wheel.

    The others are passed over, or put right, by installers.
    """
    if fault.endswith((_HEX_FAULT, _NO_DIGEST_FAULT, _NO_SIZE_FAULT)):
        return "digests"
    if _PURELIB_FAULT in fault:
        return "purelib"
    if fault.endswith(_MARKER_FAULT):
        return "markers"
    return "tags" if _NO_TAG_FAULT in fault or _MORE_TAGS_FAULT in fault else "archive"


def _group_faults(faults: list[tuple[str, str]]) -> list[str]:
    """Put the same fault of many files into one line: a wheel can have twenty thousand."""
    by_text: dict[str, list[str]] = {}
    for path, text in faults:
        by_text.setdefault(text, []).append(path)
    lines = []
    for text, paths in by_text.items():
        shown_paths = (
            paths
            if len(paths) <= _MOST_SHOWN + 1
            else [*paths[:_MOST_SHOWN], f"{len(paths) - _MOST_SHOWN} more files"]
        )
        lines.append(
            f"{', '.join(shown_paths)}: {text}" if len(shown_paths) > 1 else f"{shown_paths[0]} {text}"
        )
    return lines


def _compare_entry(entry: RecordEntry, size: int, sha256: bytes) -> list[str]:
    differences = []
    if entry.size is None:
        differences.append(_NO_SIZE_FAULT)
    elif entry.size != size:
        differences.append(f"has {size} bytes, listed with {entry.size}")
    right = encode_record_digest(sha256)
    if entry.digest == right:
        return differences
    if not entry.digest:
        differences.append(_NO_DIGEST_FAULT)
    elif entry.digest == f"sha256={sha256.hex()}":
        differences.append(_HEX_FAULT)
    elif entry.digest == right + "=":
        differences.append(_PADDED_FAULT)
    elif not entry.digest.startswith("sha256="):
        differences.append(f"is listed with a {entry.digest.partition('=')[0]} instead of a sha256 digest")
    else:
        differences.append("does not have the digest it is listed with")
    return differences


_MOST_TAGS = 10_000
_PROJECT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


_EXTERNAL_ROCM = re.compile(r"rocm\s*\(\s*==\s*(?P<version>[^\s)]+)\s*\)")


@dataclass(frozen=True)
class WheelMetadata:
    """What METADATA says that we use. Requirements are kept as written, in their order."""

    name: str
    version: Version
    requires_python: SpecifierSet
    requires_dist: tuple[str, ...]
    provides_extra: tuple[str, ...]
    requires_external: tuple[str, ...] = ()

    @property
    def installed_rocm(self) -> str:
        """The version of the installed ROCm that it was built on, by Requires-External; "" for others."""
        return read_external_rocm(self.requires_external)


@dataclass(frozen=True)
class WheelFormat:
    """What WHEEL says."""

    wheel_version: str
    generator: str
    pure: bool
    tags: frozenset[Tag]


def has_variant_marker(requirement: str) -> bool:
    """Tell whether a Requires-Dist value has a variant marker (PEP 825)."""
    return _VARIANT_MARKER.search(requirement.partition(";")[2]) is not None


def parse_metadata(content: bytes, *, name: str, variant_markers: bool = False) -> WheelMetadata:
    """Read METADATA; DataError that names the field when one that we use is missing or wrong.

    Markers of wheel variants are an error too, as no installer of today reads such a wheel; with
    ``variant_markers`` they are not looked at.
    """
    from email.errors import MessageError

    from packaging.metadata import parse_email
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        raw, unread = parse_email(content)
    except (ValueError, LookupError, MessageError) as cause:
        raise errors.DataError(f"{name} cannot be read") from cause
    for key in ("name", "version", "requires-python", "requires-dist", "provides-extra"):
        if key in unread:
            raise errors.DataError(f"{name}: {key} cannot be read: {unread[key]!r}")
    if not _PROJECT_NAME.fullmatch(raw.get("name", "")):
        raise errors.DataError(f"{name}: {raw.get('name', '')!r} is not the name of a project")
    try:
        version = Version(raw.get("version", ""))
        python = SpecifierSet(raw.get("requires_python", ""))
        requirements = tuple(raw.get("requires_dist", ()))
        for requirement in requirements:
            is_marked = has_variant_marker(requirement)
            if is_marked and not variant_markers:
                raise errors.DataError(f"{name} {_MARKER_FAULT}")
            Requirement(requirement.partition(";")[0] if is_marked else requirement)
    except (InvalidVersion, InvalidSpecifier, InvalidRequirement, RecursionError) as cause:
        raise errors.DataError(f"{name}: a field cannot be read") from cause
    return WheelMetadata(
        raw["name"],
        version,
        python,
        requirements,
        tuple(raw.get("provides_extra", ())),
        tuple(raw.get("requires_external", ())),
    )


def read_external_rocm(lines: Iterable[str]) -> str:
    """Return the version of ROCm that Requires-External names; "" where it names none."""
    matches = (_EXTERNAL_ROCM.fullmatch(line.strip()) for line in lines)
    return next((match["version"] for match in matches if match is not None), "")


def format_external_rocm(version: str) -> str:
    """Return the Requires-External of what was built on an installed ROCm (core metadata specification)."""
    return f"rocm (=={version})"


def parse_wheel_file(content: bytes, *, name: str) -> WheelFormat:
    """Read WHEEL; DataError when its version is not 1.x or it has no tags."""
    from email.parser import BytesParser
    from email.policy import compat32

    message = BytesParser(policy=compat32).parsebytes(content)
    version = str(message.get("Wheel-Version", "")).strip()
    if not re.fullmatch(r"1\.[0-9]+", version):
        raise errors.DataError(f"{name}: Wheel-Version is {version!r}, not 1.x")
    pure = str(message.get("Root-Is-Purelib", "")).strip().lower()
    if pure not in ("true", "false"):
        raise errors.DataError(f"{name}: Root-Is-Purelib is {pure!r}, not true or false")
    lines = [str(line).strip() for line in message.get_all("Tag", [])]
    if sum(map(_count_tags, lines)) > _MOST_TAGS:
        raise errors.DataError(f"{name}: its Tag lines stand for more than {_MOST_TAGS} tags")
    try:
        tags = frozenset(tag for line in lines for tag in parse_tag(line))
    except ValueError as cause:
        raise errors.DataError(f"{name}: a Tag cannot be read: {lines}") from cause
    if not tags:
        raise errors.DataError(f"{name}: no Tag")
    return WheelFormat(version, str(message.get("Generator", "")).strip(), pure == "true", tags)


def _count_tags(tag: str) -> int:
    """Return how many tags a compressed one (``py2.py3-none-any``) is expanded to."""
    return prod(part.count(".") + 1 for part in tag.split("-"))


ParsedT = TypeVar("ParsedT")
_DIST_INFO_NAME = re.compile(r"(?P<name>[^/]+)-(?P<version>[^/-]+)\.dist-info")


class NamedVersion(Protocol):
    """The part of METADATA that a file name repeats."""

    @property
    def name(self) -> str:
        """The project, as it is spelled there."""

    @property
    def version(self) -> Version:
        """The version."""


@dataclass(frozen=True)
class DistInfo:
    """What could be read; a part that could not is None, and ``faults`` says why."""

    name: WheelName | None = None
    folder: str | None = None
    metadata: WheelMetadata | None = None
    format: WheelFormat | None = None
    record: list[RecordEntry] | None = None
    faults: list[str] = field(default_factory=list)


def read_dist_info(file_name: str, members: Iterable[str], texts: Mapping[str, bytes]) -> DistInfo:
    """Read METADATA, WHEEL and RECORD, and compare them with each other and the wheel's file name.

    ``members`` are all names in the archive, ``texts`` the contents of those three.
    """
    faults: list[str] = []
    names = list(members)
    name = _try_parse(lambda: parse_wheel_name(file_name), faults)
    folders = list_dist_info_folders(names)
    if len(folders) != 1:
        problem = (
            f"{len(folders)} .dist-info folders ({', '.join(folders)})" if folders else "no .dist-info folder"
        )
        return DistInfo(name, faults=[*faults, f"{problem}: a wheel has exactly one"])
    folder = folders[0]

    def read_file(file: str, parse: Callable[[bytes, str], ParsedT]) -> ParsedT | None:
        content = texts.get(f"{folder}/{file}")
        if content is None:
            faults.append(f"{folder}/{file} is missing or cannot be read")
            return None
        return _try_parse(lambda: parse(content, f"{folder}/{file}"), faults)

    metadata = read_file("METADATA", lambda content, place: parse_metadata(content, name=place))
    wheel = read_file("WHEEL", lambda content, place: parse_wheel_file(content, name=place))
    record = read_file(
        "RECORD", lambda content, place: parse_wheel_record(content, name=place, files=len(names))
    )
    if name and metadata:
        faults += compare_names(name, folder, metadata)
    if name and wheel:
        faults += compare_tags(name, wheel)
    return DistInfo(name, folder, metadata, wheel, record, faults)


def _try_parse(parse: Callable[[], ParsedT], faults: list[str]) -> ParsedT | None:
    try:
        return parse()
    except errors.DataError as fault:
        faults.append(errors.explain_error(fault))
        return None


def list_dist_info_folders(members: Iterable[str]) -> list[str]:
    """Return the ``.dist-info`` folders at the top of a wheel, in order; there must be one."""
    tops = {name.split("/", 1)[0] for name in members if "/" in name}
    return sorted(top for top in tops if top.endswith(".dist-info"))


def compare_names(wheel: WheelName, folder: str, metadata: NamedVersion) -> list[str]:
    """Return what file name, ``.dist-info`` folder and METADATA disagree about."""
    faults = []
    if canonicalize_name(metadata.name) != wheel.name:
        faults.append(f"METADATA names the project {metadata.name}, the file name says {wheel.distribution}")
    if metadata.version != wheel.version:
        faults.append(f"METADATA says version {metadata.version}, the file name {wheel.version}")
    match = _DIST_INFO_NAME.fullmatch(folder)
    if not match:
        return [*faults, f"{folder} is not named like name-version.dist-info"]
    if canonicalize_name(match["name"]) != wheel.name:
        faults.append(f"the folder {folder} is not of the project {wheel.distribution}")
    try:
        if Version(match["version"].replace("_", "-")) != wheel.version:
            faults.append(f"the folder {folder} is not of the version {wheel.version}")
    except InvalidVersion:
        faults.append(f"the folder {folder} has no valid version")
    return faults


def compare_tags(wheel: WheelName, file: WheelFormat) -> list[str]:
    """Return what the tags of file name and WHEEL disagree about; both must state the same."""
    faults = []
    if missing := sorted(str(tag) for tag in wheel.tags - file.tags):
        faults.append(f"{_NO_TAG_FAULT} {', '.join(missing)} of the file name")
    if extra := sorted(str(tag) for tag in file.tags - wheel.tags):
        faults.append(f"{_MORE_TAGS_FAULT} {', '.join(extra)} that are not in the file name")
    if file.pure and any(tag.platform != "any" for tag in wheel.tags):
        faults.append(f"{_PURELIB_FAULT}, the file name is for a platform")
    return faults
