"""Known issues of finished torch builds. Owns ``data/known_issues.yaml``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from packaging.version import Version
from pydantic import field_validator

from rocm_wheels.model.compat.facts import Fact, FactTable, FactSource
from rocm_wheels.model.compat.index_rows import IndexLayout
from rocm_wheels.model.compat.versions import SpecifierField
from rocm_wheels.model.gfx import strip_features
from rocm_wheels.model.names import get_data_folder
from rocm_wheels.records import load_record

ISSUES_TABLE = "known_issues.yaml"
_ISSUE_NAME = re.compile(r"[\w.-]+/[\w.-]+#[1-9]\d*\Z")


class KnownIssue(Fact):
    """Something that goes wrong with builds of torch; empty ``targets``, ``platforms``, ``layouts``: all.

    ``issue`` is like ``ROCm/TheRock#7081``; None: nobody opened one, ``source`` is the evidence.
    """

    title: str
    effect: Literal["wrong", "crash", "hang", "kernels", "import", "install", "slow", "documentation"]
    torch: SpecifierField
    rocm: SpecifierField
    targets: tuple[str, ...] = ()
    platforms: tuple[Literal["linux", "windows"], ...] = ()
    layouts: tuple[IndexLayout, ...] = ()
    workaround: str = ""
    state: Literal["open", "fixed", "closed"]
    fixed: str = ""
    issue: str | None = None

    @field_validator("issue")
    @classmethod
    def _names_a_thread(cls, value: str | None) -> str | None:
        if value is not None and not _ISSUE_NAME.match(value):
            raise ValueError("an issue is written owner/repository#number")
        return value


class IssueTable(FactTable):
    """The whole of ``data/known_issues.yaml``."""

    issues: tuple[KnownIssue, ...]


@lru_cache
def load_issue_table() -> IssueTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return load_record(get_data_folder() / ISSUES_TABLE, IssueTable)


def get_issues() -> tuple[KnownIssue, ...]:
    """Return every known issue, in the order of the table."""
    return load_issue_table().issues


def get_issue_url(issue: KnownIssue) -> str:
    """Return where an issue can be read."""
    if issue.issue is None:
        return get_issue_source(issue).url
    repository, _, number = issue.issue.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


def get_issue_source(issue: KnownIssue) -> FactSource:
    """Return where an issue was read."""
    return load_issue_table().sources[issue.source]


def find_issues(
    torch: Version | None = None,
    rocm: Version | None = None,
    target: str | None = None,
    platform: str | None = None,
    layout: str | None = None,
) -> tuple[KnownIssue, ...]:
    """Return the issues that everything given fits; what is not given (None) fits every issue."""
    gfx = strip_features(target) if target else None
    return tuple(
        issue
        for issue in get_issues()
        if (torch is None or issue.torch.contains(torch.public, prereleases=True))
        and (rocm is None or issue.rocm.contains(rocm.public, prereleases=True))
        and (gfx is None or not issue.targets or gfx in issue.targets)
        and (platform is None or not issue.platforms or platform in issue.platforms)
        and (layout is None or not issue.layouts or layout in issue.layouts)
    )


def tabulate_issues() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: an issue a row."""
    header = (
        "effect",
        "title",
        "torch",
        "rocm",
        "targets",
        "platforms",
        "layouts",
        "state",
        "workaround",
        "kind",
        "read",
        "source",
    )
    rows: list[tuple[str, ...]] = [
        (
            issue.effect,
            issue.title,
            str(issue.torch) or "all",
            str(issue.rocm) or "all",
            " ".join(issue.targets) or "all",
            " ".join(issue.platforms) or "all",
            " ".join(issue.layouts) or "all",
            f"{issue.state} ({issue.fixed})" if issue.fixed else issue.state,
            issue.workaround,
            issue.kind,
            get_issue_source(issue).retrieved.isoformat(),
            get_issue_url(issue),
        )
        for issue in get_issues()
    ]
    return header, rows
