"""METADATA and WHEEL of a wheel.

Source: "Core metadata" and "Binary distribution format" of the PyPA specifications.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from packaging.tags import Tag, parse_tag
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import DataError

if TYPE_CHECKING:  # imported by who parses: that takes longer than most of what else is done with a wheel
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
    for field in ("name", "version", "requires-python", "requires-dist", "provides-extra"):
        if field in unread:
            raise DataError(f"{name}: {field} cannot be read: {unread[field]!r}")
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
