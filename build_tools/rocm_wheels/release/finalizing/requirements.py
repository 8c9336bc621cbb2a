"""What becomes of a requirement: pins on what is renamed follow, all else stays as it is written."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import ReleaseError
from rocm_wheels.release.staging.wheel import ROCM_PROJECT_NAMES

_EXACT_PIN = re.compile(r"(?P<pin>===?\s*)(?P<version>[^\s,;()]+)")
NewVersions = Mapping[str, Mapping[Version, Version]]  # by project: new versions by old ones


def rewrite_requirement(text: str, new_versions: NewVersions, rocm: Mapping[Version, Version]) -> str:
    """Return a requirement (the value of Requires-Dist) with the pins of the new set.

    ``rocm`` maps versions of ROCm's packages, where they are renamed. Name, extras and marker stay.
    Raises ReleaseError for one that admitted the old version and not the new one.
    """
    requirement = Requirement(text)
    name = canonicalize_name(requirement.name)
    pairs = new_versions.get(name) or (rocm if ROCM_PROJECT_NAMES.fullmatch(name) else {})
    if requirement.url or not pairs:
        return text
    head, semicolon, marker = text.partition(";")  # no name, extra or version has one

    def follow(match: re.Match[str]) -> str:
        return match["pin"] + _follow_pin(match["version"], pairs)

    new = _EXACT_PIN.sub(follow, head) + semicolon + marker
    rewritten = Requirement(new)
    if (rewritten.name, rewritten.extras, str(rewritten.marker)) != (
        requirement.name,
        requirement.extras,
        str(requirement.marker),
    ):
        raise ReleaseError(f"{text!r} cannot be rewritten: it would become {new!r}")
    for old, version in pairs.items():
        was = requirement.specifier.contains(old, prereleases=True)
        if was and not rewritten.specifier.contains(version, prereleases=True):
            raise ReleaseError(f"it requires {text}, which {version} is not")
    return new


def _follow_pin(pinned: str, pairs: Mapping[Version, Version]) -> str:
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
