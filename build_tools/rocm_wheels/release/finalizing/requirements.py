"""What becomes of a requirement: pins on what is renamed follow, all else stays as it is written."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import ReleaseError
from rocm_wheels.release.staging.wheel import ROCM_NAMES

_PIN = re.compile(r"(?P<pin>===?\s*)(?P<version>[^\s,;()]+)")
Moved = Mapping[str, Mapping[Version, Version]]  # by project: new versions by old ones


def moved_requirement(text: str, moved: Moved, rocm: Mapping[Version, Version]) -> str:
    """Return a requirement (the value of Requires-Dist) with the pins of the new set.

    ``rocm`` maps versions of ROCm's packages, where they are renamed. Name, extras and marker stay.
    Raises ReleaseError for one that admitted the old version and not the new one.
    """
    requirement = Requirement(text)
    name = canonicalize_name(requirement.name)
    pairs = moved.get(name) or (rocm if ROCM_NAMES.fullmatch(name) else {})
    if requirement.url or not pairs:
        return text
    head, semicolon, marker = text.partition(";")  # no name, extra or version has one

    def follow(found: re.Match[str]) -> str:
        return found["pin"] + _followed(found["version"], pairs)

    new = _PIN.sub(follow, head) + semicolon + marker
    found = Requirement(new)
    if (found.name, found.extras, str(found.marker)) != (
        requirement.name,
        requirement.extras,
        str(requirement.marker),
    ):
        raise ReleaseError(f"{text!r} cannot be rewritten: it would become {new!r}")
    for old, version in pairs.items():
        was = requirement.specifier.contains(old, prereleases=True)
        if was and not found.specifier.contains(version, prereleases=True):
            raise ReleaseError(f"it requires {text}, which {version} is not")
    return new


def _followed(pinned: str, pairs: Mapping[Version, Version]) -> str:
    try:
        version = Version(pinned)
    except InvalidVersion:
        return pinned  # 2.9.*
    for old, new in pairs.items():
        if version == old:
            return pinned if new == old else str(new)
        if version.local is None and version.public == old.public:
            return pinned if new.public == old.public else new.public
    return pinned
