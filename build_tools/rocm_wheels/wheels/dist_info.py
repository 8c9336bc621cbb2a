"""The ``.dist-info`` folder of a wheel: its three files, and what they and the file name must agree on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import DataError, explain_error
from rocm_wheels.wheels.metadata import WheelFormat, WheelMetadata, parse_metadata, parse_wheel_file
from rocm_wheels.wheels.names import WheelName, parse_wheel_name
from rocm_wheels.wheels.record import RecordEntry, parse_wheel_record

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
