"""Which build should be picked: the newest, and what that means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import UsageError
from rocm_wheels.index.installers import parse_requirement_name
from rocm_wheels.index.spelling import find_build_date


@dataclass(frozen=True)
class WheelCandidate:
    """A wheel that may be picked: of the index, or new."""

    name: str
    version: Version
    tags: frozenset[Tag]
    new: bool


@dataclass(frozen=True)
class ExpectedVersion:
    """The version that a requirement should lead to, and why that one."""

    version: Version
    why: str


@dataclass(frozen=True)
class ResolveRequest:
    """What is to be found out. ``platform`` is that of the new wheels where it is ""."""

    new: Sequence[Path]
    requirements: Sequence[str] = ()
    pythons: Sequence[str] = ()
    platform: str = ""
    pre: bool = False
    deps: bool = False
    expect: Mapping[str, Version] | None = None


def list_older_releases(
    candidates_by_project: Mapping[str, list[WheelCandidate]],
    request: ResolveRequest,
    names: Mapping[str, str],
) -> dict[str, str]:
    """Return ``name==version`` for new wheels that an unversioned requirement cannot lead to."""
    if request.requirements:
        return {}
    names_by_requirement = {}
    for name in names.values():
        top = max(
            Version(wheel.version.base_version)
            for wheel in _filter_prereleases(candidates_by_project[name], request)
        )
        for wheel in candidates_by_project[name]:
            if wheel.new and Version(wheel.version.base_version) < top:
                names_by_requirement[f"{name}=={wheel.version.public}"] = name
    return names_by_requirement


def _filter_prereleases(wheels: Sequence[WheelCandidate], request: ResolveRequest) -> list[WheelCandidate]:
    """Return what may be picked at all: pre-releases only when asked for, or when there is nothing else."""
    final = [wheel for wheel in wheels if not wheel.version.is_prerelease]
    return list(wheels) if request.pre or not final else final


def find_expected_version(
    requirement: str, wheels: Sequence[WheelCandidate], request: ResolveRequest
) -> ExpectedVersion | None:
    """Return the version that should be picked; None when no wheel fits (which the tools will say).

    Among the wheels of the newest version (local parts aside): the one of ``--expect``, else of the latest
    build date, else the only new one. UsageError when that does not decide.
    """
    parsed = Requirement(requirement)
    name = parse_requirement_name(requirement)
    fitting = [wheel for wheel in wheels if parsed.specifier.contains(wheel.version, prereleases=True)]
    fitting = _filter_prereleases(fitting, request)
    if not fitting:
        return None
    if request.expect and name in request.expect:
        return ExpectedVersion(request.expect[name], "--expect")
    newest = max(Version(wheel.version.base_version) for wheel in fitting)
    group = [wheel for wheel in fitting if Version(wheel.version.base_version) == newest]
    new = sorted({wheel.version for wheel in group if wheel.new})
    dates = {wheel.version: find_build_date(wheel.version) for wheel in group}
    if any(dates.values()) and all(dates[version] for version in new):
        latest = max(dates.values())
        dated = sorted(version for version, date in dates.items() if date == latest)
        chosen = [version for version in dated if version in new] or dated
        if len(chosen) == 1 or chosen == dated:
            return ExpectedVersion(chosen[-1], f"the latest build ({latest})")
    if len(new) > 1:
        listed = ", ".join(map(str, new))
        raise UsageError(
            f"{name}: which of {listed} is the newest?", tip=f"say so: --expect {name}=={new[-1]}"
        )
    if new:
        return ExpectedVersion(new[0], "the only new one")
    return ExpectedVersion(max(wheel.version for wheel in group), "the highest version; nothing new is of it")


def parse_expected_versions(texts: Sequence[str]) -> dict[str, Version]:
    """Read ``--expect name==version``; UsageError when it is not that."""
    versions = {}
    for text in texts:
        name, equals, version = text.partition("==")
        try:
            versions[parse_requirement_name(name)] = Version(version if equals else "")
        except InvalidVersion:
            raise UsageError(f"--expect {text!r} is not name==version") from None
    return versions
