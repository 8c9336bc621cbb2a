"""Read the names, METADATA, WHEEL and RECORD of a wheel, each by one reader; write their lines.

Sources: "Binary distribution format", "Core metadata" and "Recording installed projects" of the PyPA
specifications; PEP 825 for the label. ``packaging`` decides what a name, version, build tag and tag may be;
it does not know the label yet, so that one is taken off first.

Texts are read as strictly as the strictest installer reads them, so that nobody reads another wheel out of
the same bytes: UTF-8 without byte order mark, every line of a head a field or the continuation of one, and
``Wheel-Version`` spelled like that (uv).
"""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Literal, TypeVar

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
# Python reads no number of more than 4,300 digits (sys.set_int_max_str_digits), and nobody counts so far
_LONG_NUMBER = re.compile(r"(?<!\d)\d{1000}")
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
        front = (self.distribution, self.version, self.build)
        back = (self.python, self.abi, self.platform, self.label)
        return "-".join(part for part in (*front, *back) if part) + ".whl"


def split_wheel_name(file_name: str) -> WheelNameFields:
    """Take a wheel's file name (no folders) apart; DataError when its fields or its label are wrong."""
    stem = file_name.removesuffix(".whl")
    parts, odd = stem.split("-"), _NOT_IN_NAMES.search(stem)
    # with six fields the third is a build tag (begins with a digit) or the last a label:
    # a Python tag never begins with a digit (PEP 825)
    has_build = len(parts) > 5 and parts[2][:1].isdigit()
    label = parts.pop() if len(parts) == 7 or (len(parts) == 6 and not has_build) else None
    fault = ""
    if stem == file_name:
        fault = "it does not end with .whl"
    elif odd:
        fault = f"it has {odd[0]!r}"
    elif _LONG_NUMBER.search(stem):
        fault = "it has a number of 1000 digits or more"
    elif not 5 <= len(parts) <= 6:
        fault = f"{len(stem.split('-'))} fields between dashes, not 5 to 7"
    elif label is not None and not _LABEL.fullmatch(label):
        fault = f"{label!r} is not a variant label"
    if fault:
        spelled = repr(file_name) if odd else file_name
        raise errors.DataError(f"{spelled} is not the name of a wheel: {fault}", tip=_NAME_TIP)
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

# RECORD

SIGNATURE_SUFFIXES = (".jws", ".p7s")
_MOST_SHOWN = 3
_MORE_LINES = 1000
_MOST_A_FILE, _MORE_BYTES = 4096, 1 << 20
_SIZE = re.compile("[0-9]{1,19}")
_DIGEST = re.compile(r"sha256=(?:(?P<right>[A-Za-z0-9_-]{43})(?P<padding>=?)|(?P<hex>[0-9a-fA-F]{64}))")


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """One line: ``digest`` like ``sha256=47DEQ…`` ("" when none), ``size`` in bytes (None when none)."""

    path: str
    digest: str
    size: int | None


def encode_record_digest(sha256: bytes) -> str:
    """Return a raw SHA-256 digest as RECORD writes it: URL-safe base64 without padding."""
    return "sha256=" + base64.urlsafe_b64encode(sha256).rstrip(b"=").decode("ascii")


def correct_record_digest(digest: str) -> str | None:
    """Return a digest as RECORD must spell it, which some producers pad or write in hex; None for others."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        return None
    return f"sha256={match['right']}" if match["right"] else encode_record_digest(bytes.fromhex(match["hex"]))


def read_record_rows(
    content: bytes, *, name: str, files: int | None = None
) -> Iterator[tuple[RecordEntry, str]]:
    """Yield the lines of RECORD with the text that each was read from.

    DataError with line number when it is not UTF-8, CSV or of three fields. With ``files``, how many the
    wheel has, also when its lines would fill the memory: the bounds are wide, as lines may be ended by CR and
    LF, and be there twice (which is told by name).
    """
    lines = content.count(b"\n") + content.count(b"\r")
    if files is not None and (
        lines > 4 * files + _MORE_LINES or len(content) > _MOST_A_FILE * files + _MORE_BYTES
    ):
        raise errors.DataError(
            f"{name} has {lines} lines and {len(content)} bytes, for a wheel of {files} files"
        )
    taken: list[str] = []

    def keep_lines(text: str) -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            taken.append(line)
            yield line

    try:
        rows = csv.reader(keep_lines(content.decode("utf-8")), strict=True)
        for row in rows:
            if len(row) != 3:
                raise errors.DataError(
                    f"{name}:{rows.line_num}: {len(row)} fields instead of path, digest and size"
                )
            path, digest, size = row
            if size and not _SIZE.fullmatch(size):
                raise errors.DataError(f"{name}:{rows.line_num}: {size!r} is not a size")
            yield RecordEntry(path, digest, int(size) if size else None), "".join(taken)
            taken.clear()
    except (UnicodeDecodeError, csv.Error) as cause:
        raise errors.DataError(f"{name} is not CSV in UTF-8") from cause


def parse_wheel_record(content: bytes, *, name: str, files: int | None = None) -> list[RecordEntry]:
    """Read RECORD; DataError as ``read_record_rows``."""
    return [entry for entry, _ in read_record_rows(content, name=name, files=files)]


def format_record_row(entry: RecordEntry) -> str:
    """Return a line of RECORD; quoted where the path asks for it."""
    text = io.StringIO()
    size = "" if entry.size is None else str(entry.size)
    csv.writer(text, lineterminator="\n").writerow((entry.path, entry.digest, size))
    return text.getvalue()


_NO_DIGEST_FAULT, _NO_SIZE_FAULT = "is listed without a digest", "is listed without a size"
_NO_TAG_FAULT, _MORE_TAGS_FAULT = "WHEEL does not state the tags", "WHEEL states the tags"
_PURELIB_FAULT = "WHEEL says Root-Is-Purelib: true"
_PADDED_FAULT = "is listed with a padded digest; the specification wants it without '='"
_HEX_FAULT = "is listed with a digest in hex; the specification wants URL-safe base64 without padding"
_NAMES_FAULT = re.compile(
    r"(?:METADATA (?:names the project|says version)|the folder [^/]+ is not of the (?:project|version)) "
)
_MARKER_FAULT = "has variant markers in its requirements, which no installer of today reads"


def compare_wheel_record(
    entries: Iterable[RecordEntry], members: Mapping[str, tuple[int, bytes | None]], *, record: str
) -> list[str]:
    """Return what RECORD and the archive disagree about; [] when nothing.

    ``members`` are sizes and raw SHA-256 digests by name, None for a content that was not read; ``record`` is
    RECORD's own path. The same fault of many files is one line: a wheel can have twenty thousand.
    """
    exempt = {record, *(record + suffix for suffix in SIGNATURE_SUFFIXES)}
    faults: dict[str, list[str]] = {}
    listed_paths: set[str] = set()
    for entry in entries:
        texts: Iterable[str] = ()
        if entry.path in listed_paths:
            texts = ["is listed twice"]
        elif entry.path in exempt:
            if entry.digest or entry.size is not None:
                texts = ["must be listed without digest and size"]
        elif entry.path not in members:
            texts = ["is listed but not in the wheel"]
        else:
            texts = _compare_entry(entry, *members[entry.path])
        listed_paths.add(entry.path)
        for text in texts:
            faults.setdefault(text, []).append(entry.path)
    if record not in listed_paths:
        faults["does not list itself"] = [record]
    if unlisted := [path for path in members if path not in exempt and path not in listed_paths]:
        faults["is in the wheel but not listed"] = unlisted
    lines = []
    for text, paths in faults.items():
        if len(paths) > _MOST_SHOWN + 1:
            paths[_MOST_SHOWN:] = [f"{len(paths) - _MOST_SHOWN} more files"]
        lines.append(f"{record}: {', '.join(paths)}{':' if len(paths) > 1 else ''} {text}")
    return lines


def _compare_entry(entry: RecordEntry, size: int, sha256: bytes | None) -> Iterator[str]:
    if entry.size is None:
        yield _NO_SIZE_FAULT
    elif entry.size != size:
        yield f"has {size} bytes, listed with {entry.size}"
    right = correct_record_digest(entry.digest) if sha256 is None else encode_record_digest(sha256)
    if not entry.digest:
        yield _NO_DIGEST_FAULT
    elif not entry.digest.startswith("sha256="):
        yield f"is listed with a {entry.digest.partition('=')[0]} instead of a sha256 digest"
    elif right is None or correct_record_digest(entry.digest) != right:
        yield "does not have the digest it is listed with"
    elif entry.digest != right:
        yield _PADDED_FAULT if entry.digest.endswith("=") else _HEX_FAULT


def is_repaired_fault(fault: str) -> bool:
    """Tell whether rewriting puts a fault of a wheel right, or leaves it where no content is in doubt.

    A digest that is spelled wrongly is right all the same. Tags, and a version that two parts state
    differently, are what some rewrite a wheel for: whether the new one says one thing, its plan says.
    """
    if fault.endswith((_NO_DIGEST_FAULT, _NO_SIZE_FAULT)):
        return False
    is_planned = fault.endswith(_PADDED_FAULT) or _NAMES_FAULT.search(fault) is not None
    return is_planned or get_fault_kind(fault) != "archive"


def is_spelling_fault(fault: str) -> bool:
    """Tell whether a fault of ``compare_wheel_record`` is the spelling of digests that are right."""
    return fault.endswith(_HEX_FAULT)


FaultKind = Literal["archive", "tags", "purelib", "digests", "markers"]


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


# METADATA and WHEEL

MetadataField = tuple[str, list[bytes]]
"""A field: its name as it is spelled, and its lines with their ends: the first and its folded ones."""

_FIELD_NAME = re.compile(rb"[!-9;-~]+(?=:)")
# what versions are read from; elsewhere a long number is text
_NUMBERED_FIELDS = frozenset(
    (
        "metadata-version",
        "version",
        "requires-python",
        "requires-dist",
        "requires-external",
        "wheel-version",
        "build",
        "tag",
    )
)
_LONE_RETURN = re.compile(rb"\r(?!\n|\Z)")


def read_metadata_fields(content: bytes, name: str) -> tuple[list[MetadataField], bytes]:
    """Take the head of METADATA or WHEEL apart: its fields, and the rest from the empty line on.

    DataError for what installers read in different ways, or not at all: no UTF-8, a line that is no field
    (readers of mail end the head there), a carriage return within a line (some end a line there), a number
    that is too long for one.
    """
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise errors.DataError(f"{name} is not UTF-8") from cause
    fields: list[MetadataField] = []
    at = 0
    while at < len(content):
        end = content.find(b"\n", at) + 1 or len(content)
        line = content[at:end]
        if not line.strip(b"\r\n"):
            break
        if _LONE_RETURN.search(line):
            raise errors.DataError(f"{name}: {line[:80]!r} has a carriage return that ends no line")
        if line[:1] in (b" ", b"\t") and fields:
            fields[-1][1].append(line)
        elif match := _FIELD_NAME.match(line):
            fields.append((match[0].decode("ascii"), [line]))
        else:
            raise errors.DataError(f"{name}: {line[:80]!r} is not a field")
        at = end
    for numbered in fields:
        if numbered[0].lower() in _NUMBERED_FIELDS and _LONG_NUMBER.search(get_field_value(numbered)):
            raise errors.DataError(f"{name}: {numbered[0]} has a number of 1000 digits or more")
    return fields, content[at:]


def get_field_value(field: MetadataField) -> str:
    """Return the value of a field, unfolded."""
    text = b"".join(field[1]).partition(b":")[2].decode("utf-8")
    return " ".join(part.strip() for part in re.split(r"\r?\n", text)).strip()


def get_field_values(fields: Iterable[MetadataField], name: str) -> tuple[str, ...]:
    """Return the values of all fields of one name."""
    return tuple(get_field_value(field) for field in fields if field[0].lower() == name.lower())


def replace_field_values(content: bytes, changes: Mapping[str, Sequence[str]], name: str) -> bytes:
    """Return METADATA or WHEEL with other values for the named fields; no values remove a field.

    They stand where the first one stood, else behind the last field. A value that stays keeps its lines
    as they are written.
    """
    fields, rest = read_metadata_fields(content, name)
    end = b"\r\n" if fields and fields[0][1][0].endswith(b"\r\n") else b"\n"
    for key, values in changes.items():
        old = [field for field in fields if field[0].lower() == key.lower()]
        if [get_field_value(field) for field in old] == list(values):
            continue
        by_value = {get_field_value(field): field for field in old}
        new = [by_value.get(v) or (key, [f"{key}: {v}".encode() + end]) for v in values]
        at = fields.index(old[0]) if old else len(fields)
        fields[at:] = [*new, *(field for field in fields[at:] if field not in old)]
    for _, lines in fields:  # the last line of a file may lack its end, and may no longer be the last
        if not lines[-1].endswith(b"\n"):
            lines[-1] += end
    return b"".join(line for _, lines in fields for line in lines) + rest


_PROJECT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_EXTERNAL_ROCM = re.compile(r"rocm\s*\(\s*==\s*(?P<version>[^\s)]+)\s*\)")
_VARIANT_MARKER = re.compile(r"\bvariant_(?:label|namespaces|features|properties)\b")
_EMPTY_SPECIFIER = re.compile(r"[^@;]*,\s*(?:[,;)]|\Z)")  # pip 22.3 refuses it
_MOST_TAGS = 10_000


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
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    fields, _ = read_metadata_fields(content, name)
    single = {key: _get_only_value(fields, key, name) for key in ("Name", "Version", "Requires-Python")}
    requirements, extras, external = (
        get_field_values(fields, key) for key in ("Requires-Dist", "Provides-Extra", "Requires-External")
    )
    if not _PROJECT_NAME.fullmatch(single["Name"]):
        raise errors.DataError(f"{name}: {single['Name']!r} is not the name of a project")
    try:
        version, python = Version(single["Version"]), SpecifierSet(single["Requires-Python"])
        for requirement in requirements:
            is_marked = has_variant_marker(requirement)
            if is_marked and not variant_markers:
                raise errors.DataError(f"{name} {_MARKER_FAULT}")
            Requirement(requirement.partition(";")[0] if is_marked else requirement)
            if _EMPTY_SPECIFIER.match(requirement):
                raise errors.DataError(f"{name}: Requires-Dist: {requirement}: nothing follows a comma")
    except (InvalidVersion, InvalidSpecifier, InvalidRequirement, RecursionError) as cause:
        raise errors.DataError(f"{name}: a field cannot be read") from cause
    return WheelMetadata(single["Name"], version, python, requirements, extras, external)


def _get_only_value(fields: Sequence[MetadataField], key: str, name: str) -> str:
    """Return the value of a field; "" when it is not there, DataError when it is there twice."""
    values = get_field_values(fields, key)
    if len(values) > 1:
        raise errors.DataError(f"{name}: {key} is there {len(values)} times: {', '.join(values[:3])}")
    return values[0] if values else ""


def read_external_rocm(lines: Iterable[str]) -> str:
    """Return the version of ROCm that Requires-External names; "" where it names none."""
    matches = (_EXTERNAL_ROCM.fullmatch(line.strip()) for line in lines)
    return next((match["version"] for match in matches if match is not None), "")


def format_external_rocm(version: str) -> str:
    """Return the Requires-External of what was built on an installed ROCm (core metadata specification)."""
    return f"rocm (=={version})"


def parse_wheel_file(content: bytes, *, name: str) -> WheelFormat:
    """Read WHEEL; DataError when its version is not 1.x or it has no tags."""
    fields, _ = read_metadata_fields(content, name)
    versions = [field for field in fields if field[0] == "Wheel-Version"]
    version = _get_only_value(versions, "Wheel-Version", name)
    if not re.fullmatch(r"1\.[0-9]+", version):
        raise errors.DataError(f"{name}: Wheel-Version is {version!r}, not 1.x")
    pure = _get_only_value(fields, "Root-Is-Purelib", name).lower()
    if pure not in ("true", "false"):
        raise errors.DataError(f"{name}: Root-Is-Purelib is {pure!r}, not true or false")
    lines = get_field_values(fields, "Tag")
    # a compressed tag (``py2.py3-none-any``) is expanded to the product of its parts
    if sum(prod(part.count(".") + 1 for part in line.split("-")) for line in lines) > _MOST_TAGS:
        raise errors.DataError(f"{name}: its Tag lines stand for more than {_MOST_TAGS} tags")
    try:
        tags = frozenset(tag for line in lines for tag in parse_tag(line))
    except ValueError as cause:
        raise errors.DataError(f"{name}: a Tag cannot be read: {lines}") from cause
    if not tags:
        raise errors.DataError(f"{name}: no Tag")
    return WheelFormat(", ".join(get_field_values(fields, "Generator")), pure == "true", tags)


# the folder as a whole

ParsedT = TypeVar("ParsedT")
_DIST_INFO_NAME = re.compile(r"(?P<name>[^/]+)-(?P<version>[^/-]+)\.dist-info")


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

    ``members`` are all names in the archive, folders too; ``texts`` the contents of those three.
    """
    faults: list[str] = []
    names = list(members)

    def try_parse(parse: Callable[[], ParsedT]) -> ParsedT | None:
        try:
            return parse()
        except errors.DataError as fault:
            faults.append(errors.explain_error(fault))
            return None

    name = try_parse(lambda: parse_wheel_name(file_name))
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
        return try_parse(lambda: parse(content, f"{folder}/{file}"))

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


def list_dist_info_folders(members: Iterable[str]) -> list[str]:
    """Return the ``.dist-info`` folders at the top of a wheel, in order; there must be one.

    A file of such a name counts: installers tell them by their names alone.
    """
    tops = {name.split("/", 1)[0] for name in members}
    return sorted(top for top in tops if top.endswith(".dist-info"))


def compare_names(wheel: WheelName, folder: str, metadata: WheelMetadata) -> list[str]:
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
    except ValueError:  # no version, or a number of more digits than Python reads
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
