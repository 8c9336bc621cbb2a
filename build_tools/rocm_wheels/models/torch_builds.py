"""Say what goes with a torch: its triton, its companions, known issues of builds.

Owns ``data/torch_builds.yaml`` (names of triton, builds that people made themselves) and
``data/known_issues.yaml``.
"""

from __future__ import annotations

from datetime import date, datetime, timezone
from functools import lru_cache
from typing import Annotated, Literal

from packaging.version import Version

from rocm_wheels.core import errors, records
from rocm_wheels.models import facts, package_indexes, project_names, release_lines
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.models.project import list_projects

_IssueName = Annotated[
    str, records.require_pattern(r"[\w.-]+/[\w.-]+#[1-9]\d*", "written owner/repository#number")
]


class TritonName(facts.Fact):
    """What the triton is called that goes with torch of an index. ``separate``: torch does not require it."""

    layouts: tuple[str, ...]
    platforms: tuple[str, ...]
    torch: facts.SpecifierField
    name: str
    separate: bool = False


class OwnBuild(facts.Fact):
    """A torch that people have compiled for a target that no index has one for."""

    target: str
    torch: facts.VersionField
    rocm: facts.VersionField


class TorchBuildTable(facts.FactTable):
    """The whole of ``data/torch_builds.yaml``."""

    own_builds: tuple[OwnBuild, ...] = ()
    triton: tuple[TritonName, ...]


@lru_cache
def load_build_table() -> TorchBuildTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return records.load_record(project_names.get_data_folder() / "torch_builds.yaml", TorchBuildTable)


def get_triton_name(
    torch_version: str | Version, index: package_indexes.PackageIndex, *, platform: str = "linux"
) -> str:
    """Return the name of the triton that goes with torch of an index; "" when none does.

    Torch's own metadata pins the version. Raises DataError for a version that is none.
    """
    row = _find_triton(_parse_torch(torch_version), index, platform)
    return row.name if row else ""


def find_separate_triton(
    torch_version: str | Version, index: package_indexes.PackageIndex, *, platform: str = "linux"
) -> str:
    """Return the requirement (``triton-windows==3.5.*``) of a triton on PyPI that torch does not require.

    "" where torch requires its own, or none goes with it; without a version where no release line tells it.
    """
    row = _find_triton(_parse_torch(torch_version), index, platform)
    if row is None or not row.separate:
        return ""
    series = find_companions(torch_version).get("triton")
    return f"{row.name}=={'.'.join(map(str, series.release[:2]))}.*" if series else row.name


def _find_triton(torch: Version, index: package_indexes.PackageIndex, platform: str) -> TritonName | None:
    for row in load_build_table().triton:
        if (
            index.layout in row.layouts
            and platform in row.platforms
            and row.torch.contains(torch, prereleases=True)
        ):
            return row
    return None


def find_companions(torch_version: str | Version) -> dict[str, Version]:
    """Return the series (0.28) of the projects around torch that go with it, by names of wheels.

    As its release line says; {} for a torch without a line. Raises DataError for a version that is none.
    """
    torch, versions = _parse_torch(torch_version), {}
    for line in release_lines.get_release_lines():
        if line.torch and facts.is_in_series(torch, Version(line.torch)):
            for project in list_projects():
                companion = line.get_companion(project)
                if companion and companion.version and companion.version.value:
                    versions[project.distribution] = Version(companion.version.value)
    return versions


def _parse_torch(text: str | Version) -> Version:
    try:
        return facts.parse_version(text)
    except ValueError as fault:
        raise errors.DataError(f"torch: {fault}") from None


class KnownIssue(facts.ReadRow):
    """An open issue of builds of torch; empty ``targets``, ``platforms``: all. It is told until ``ends``.

    ``issue`` is like ``ROCm/TheRock#7081``; None: nobody opened one, ``source`` is the evidence.
    """

    title: str
    effect: Literal["wrong", "crash", "hang", "kernels", "import", "install", "slow", "documentation"]
    torch: facts.SpecifierField
    rocm: facts.SpecifierField
    targets: tuple[str, ...] = ()
    platforms: tuple[Literal["linux", "windows"], ...] = ()
    workaround: str = ""
    ends: date
    issue: _IssueName | None = None
    source: str
    kind: facts.FactKind


class IssueTable(facts.FactTable):
    """The whole of ``data/known_issues.yaml``."""

    issues: tuple[KnownIssue, ...]


@lru_cache
def load_issue_table() -> IssueTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return records.load_record(project_names.get_data_folder() / "known_issues.yaml", IssueTable)


def get_issue_url(issue: KnownIssue) -> str:
    """Return where an issue can be read."""
    if issue.issue is None:
        return load_issue_table().sources[issue.source].url
    repository, _, number = issue.issue.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


def find_issues(
    torch: Version, rocm: Version, target: str, platform: str | None = None, *, today: date | None = None
) -> tuple[KnownIssue, ...]:
    """Return the issues of a torch, a ROCm and a GPU that are told on a day (today). No platform: any."""
    day = today or datetime.now(timezone.utc).date()
    return tuple(
        issue
        for issue in load_issue_table().issues
        if issue.ends >= day
        and issue.torch.contains(torch.public, prereleases=True)
        and issue.rocm.contains(rocm.public, prereleases=True)
        and (not issue.targets or strip_features(target) in issue.targets)
        and (platform is None or not issue.platforms or platform in issue.platforms)
    )
