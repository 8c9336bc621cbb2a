"""Do packages belong together: what each requires against what is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.hosts.installed.distributions import Distribution

Versions = Mapping[str, str]


def unmet(requires: Sequence[str], there: Versions, markers: Mapping[str, str]) -> list[str]:
    """Return the requirements that are not met by the versions that are there (by normalized name).

    Those of extras are left out: whether an extra is wanted, an installation does not say.
    """
    found = []
    for text in requires:
        try:
            one = Requirement(text)
        except InvalidRequirement:
            found.append(f"{text} (not readable)")
            continue
        if one.marker is not None and not one.marker.evaluate({**markers, "extra": ""}):
            continue
        version = there.get(canonicalize_name(one.name))
        if version is None:
            found.append(f"{one.name}{one.specifier}, which is not there")
        elif not _fits(one, version):
            found.append(f"{one.name}{one.specifier}, and {version} is there")
    return found


def left_unmet(
    changed: Iterable[str], others: Iterable[Distribution], there: Versions, markers: Mapping[str, str]
) -> list[str]:
    """Return what other packages of an environment require of changed ones, and no longer get."""
    names = set(changed)
    found = []
    for one in others:
        if one.name in names:
            continue
        about = [text for text in one.requires if _name(text) in names]
        found += [f"{one} requires {said}" for said in unmet(about, there, markers)]
    return found


def _name(text: str) -> str:
    try:
        return canonicalize_name(Requirement(text).name)
    except InvalidRequirement:
        return ""


def _fits(one: Requirement, version: str) -> bool:
    try:
        return one.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
