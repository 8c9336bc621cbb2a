"""Parse and make wheel file names, the variant label of PEP 825 included.

``packaging`` decides what a name, version, build tag and tag may be; it does not know the
label yet, so that one is taken off first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from packaging.tags import Tag
from packaging.utils import BuildTag, InvalidWheelFilename, NormalizedName, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import DataError

# nowhere in a name, whatever ``packaging`` lets through: build tags and platforms may hold anything there
_NOT_IN_NAMES = re.compile(r"[\x00-\x20\x7f-\x9f/\\:*?\"'<>|]")
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
        raise DataError(f"{file_name} is not the name of a wheel: it does not end with .whl")
    if odd := _NOT_IN_NAMES.search(stem):
        raise DataError(f"{file_name!r} is not the name of a wheel: it has {odd[0]!r}")
    parts = stem.split("-")
    if not 5 <= len(parts) <= 7:
        raise DataError(
            f"{file_name} is not the name of a wheel: {len(parts)} fields between dashes, not 5 to 7"
        )
    # with six fields the third is a build tag (begins with a digit) or the last a label:
    # a Python tag never begins with a digit (PEP 825)
    has_build = len(parts) > 5 and parts[2][:1].isdigit()
    label = parts.pop() if len(parts) == 7 or (len(parts) == 6 and not has_build) else None
    if label is not None and not _LABEL.fullmatch(label):
        raise DataError(f"{file_name} is not the name of a wheel: {label!r} is not a variant label")
    build = parts.pop(2) if len(parts) == 6 else ""
    distribution, version, python, abi, platform = parts
    return WheelNameFields(distribution, version, build, python, abi, platform, label or "")


def parse_wheel_name(file_name: str) -> WheelName:
    """Read a wheel's file name (no folders); DataError with the reason when it is none."""
    fields = split_wheel_name(file_name)
    try:
        name, version, build, tags = parse_wheel_filename(replace(fields, label="").file_name)
    except (InvalidWheelFilename, InvalidVersion, ValueError) as cause:
        raise DataError(f"{file_name} is not the name of a wheel") from cause
    return WheelName(fields.distribution, name, version, build, tags, fields.label or None)
