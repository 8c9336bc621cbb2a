"""Read the ``.dist-info`` folder of a wheel, and compare METADATA, WHEEL, RECORD and the file name.

Source: "Core metadata" and "Binary distribution format" of the PyPA specifications.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Protocol, TypeVar

from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import DataError, explain_error
from rocm_wheels.wheels.names import WheelName, parse_wheel_name
from rocm_wheels.wheels.record_file import RecordEntry, parse_wheel_record

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

_MOST_TAGS = 10_000
_PROJECT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class WheelMetadata:
    """What METADATA says that we use. Requirements are kept as written, in their order."""

    name: str
    version: Version
    requires_python: SpecifierSet
    requires_dist: tuple[str, ...]
    provides_extra: tuple[str, ...]


@dataclass(frozen=True)
class WheelFormat:
    """What WHEEL says."""

    wheel_version: str
    generator: str
    pure: bool
    tags: frozenset[Tag]


def parse_metadata(content: bytes, *, name: str) -> WheelMetadata:
    """Read METADATA; DataError that names the field when one that we use is missing or wrong.

    Markers that ``packaging`` does not know (those of wheel variants) are an error too:
    no installer of today reads such a wheel.
    """
    from email.errors import MessageError

    from packaging.metadata import parse_email
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        raw, unread = parse_email(content)
    except (ValueError, LookupError, MessageError) as cause:
        raise DataError(f"{name} cannot be read") from cause
    for key in ("name", "version", "requires-python", "requires-dist", "provides-extra"):
        if key in unread:
            raise DataError(f"{name}: {key} cannot be read: {unread[key]!r}")
    if not _PROJECT_NAME.fullmatch(raw.get("name", "")):
        raise DataError(f"{name}: {raw.get('name', '')!r} is not the name of a project")
    try:
        version = Version(raw.get("version", ""))
        python = SpecifierSet(raw.get("requires_python", ""))
        requirements = tuple(raw.get("requires_dist", ()))
        for requirement in requirements:
            Requirement(requirement)
    except (InvalidVersion, InvalidSpecifier, InvalidRequirement, RecursionError) as cause:
        raise DataError(f"{name}: a field cannot be read") from cause
    return WheelMetadata(raw["name"], version, python, requirements, tuple(raw.get("provides_extra", ())))


def parse_wheel_file(content: bytes, *, name: str) -> WheelFormat:
    """Read WHEEL; DataError when its version is not 1.x or it has no tags."""
    from email.parser import BytesParser
    from email.policy import compat32

    message = BytesParser(policy=compat32).parsebytes(content)
    version = str(message.get("Wheel-Version", "")).strip()
    if not re.fullmatch(r"1\.[0-9]+", version):
        raise DataError(f"{name}: Wheel-Version is {version!r}, not 1.x")
    pure = str(message.get("Root-Is-Purelib", "")).strip().lower()
    if pure not in ("true", "false"):
        raise DataError(f"{name}: Root-Is-Purelib is {pure!r}, not true or false")
    lines = [str(line).strip() for line in message.get_all("Tag", [])]
    if sum(map(_count_tags, lines)) > _MOST_TAGS:
        raise DataError(f"{name}: its Tag lines stand for more than {_MOST_TAGS} tags")
    try:
        tags = frozenset(tag for line in lines for tag in parse_tag(line))
    except ValueError as cause:
        raise DataError(f"{name}: a Tag cannot be read: {lines}") from cause
    if not tags:
        raise DataError(f"{name}: no Tag")
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
    except DataError as fault:
        faults.append(explain_error(fault))
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
        faults.append(f"WHEEL does not state the tags {', '.join(missing)} of the file name")
    if extra := sorted(str(tag) for tag in file.tags - wheel.tags):
        faults.append(f"WHEEL states the tags {', '.join(extra)} that are not in the file name")
    if file.pure and any(tag.platform != "any" for tag in wheel.tags):
        faults.append("WHEEL says Root-Is-Purelib: true, the file name is for a platform")
    return faults
