"""Do packages belong together: what each requires against what is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.hosts.installed.distributions import InstalledDistribution

InstalledVersions = Mapping[str, str]


def list_unmet_requirements(
    requires: Sequence[str], versions: InstalledVersions, markers: Mapping[str, str]
) -> list[str]:
    """Return the requirements that are not met by the versions that are there (by normalized name).

    Those of extras are left out: whether an extra is wanted, an installation does not say.
    """
    unmet = []
    for text in requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            unmet.append(f"{text} (not readable)")
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({**markers, "extra": ""}):
            continue
        version = versions.get(canonicalize_name(requirement.name))
        if version is None:
            unmet.append(f"{requirement.name}{requirement.specifier}, which is not there")
        elif not _is_met(requirement, version):
            unmet.append(f"{requirement.name}{requirement.specifier}, and {version} is there")
    return unmet


def list_broken_requirements(
    changed: Iterable[str],
    distributions: Iterable[InstalledDistribution],
    versions: InstalledVersions,
    markers: Mapping[str, str],
) -> list[str]:
    """Return what other packages of an environment require of changed ones, and no longer get."""
    names = set(changed)
    broken = []
    for distribution in distributions:
        if distribution.name in names:
            continue
        requirements = [text for text in distribution.requires if _get_project(text) in names]
        broken += [
            f"{distribution} requires {message}"
            for message in list_unmet_requirements(requirements, versions, markers)
        ]
    return broken


def _get_project(text: str) -> str:
    try:
        return canonicalize_name(Requirement(text).name)
    except InvalidRequirement:
        return ""


def _is_met(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
