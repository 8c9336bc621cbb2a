"""Known issues of finished torch builds. Owns ``data/known_issues.yaml``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from packaging.version import Version
from pydantic import field_validator

from rocm_wheels.model.compat.facts import Fact, FactTable, Source
from rocm_wheels.model.compat.index_rows import Layout
from rocm_wheels.model.compat.versions import SpecifierField
from rocm_wheels.model.gfx import base_target
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import load

TABLE = "known_issues.yaml"
_ISSUE = re.compile(r"[\w.-]+/[\w.-]+#[1-9]\d*\Z")


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
    layouts: tuple[Layout, ...] = ()
    workaround: str = ""
    state: Literal["open", "fixed", "closed"]
    fixed: str = ""
    issue: str | None = None

    @field_validator("issue")
    @classmethod
    def _names_a_thread(cls, value: str | None) -> str | None:
        if value is not None and not _ISSUE.match(value):
            raise ValueError("an issue is written owner/repository#number")
        return value


class IssueTable(FactTable):
    """The whole of ``data/known_issues.yaml``."""

    issues: tuple[KnownIssue, ...]


@lru_cache
def issue_table() -> IssueTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return load(data_folder() / TABLE, IssueTable)


def all_issues() -> tuple[KnownIssue, ...]:
    """Return every known issue, in the order of the table."""
    return issue_table().issues


def address(one: KnownIssue) -> str:
    """Return where an issue can be read."""
    if one.issue is None:
        return source_of(one).url
    repository, _, number = one.issue.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


def source_of(one: KnownIssue) -> Source:
    """Return where an issue was read."""
    return issue_table().sources[one.source]


def known_issues(
    torch: Version | None = None,
    rocm: Version | None = None,
    target: str | None = None,
    platform: str | None = None,
    layout: str | None = None,
) -> tuple[KnownIssue, ...]:
    """Return the issues that everything given fits; what is not given (None) fits every issue."""
    gfx = base_target(target) if target else None
    return tuple(
        one
        for one in all_issues()
        if (torch is None or one.torch.contains(torch.public, prereleases=True))
        and (rocm is None or one.rocm.contains(rocm.public, prereleases=True))
        and (gfx is None or not one.targets or gfx in one.targets)
        and (platform is None or not one.platforms or platform in one.platforms)
        and (layout is None or not one.layouts or layout in one.layouts)
    )


def show_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
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
            one.effect,
            one.title,
            str(one.torch) or "all",
            str(one.rocm) or "all",
            " ".join(one.targets) or "all",
            " ".join(one.platforms) or "all",
            " ".join(one.layouts) or "all",
            f"{one.state} ({one.fixed})" if one.fixed else one.state,
            one.workaround,
            one.kind,
            source_of(one).retrieved.isoformat(),
            address(one),
        )
        for one in all_issues()
    ]
    return header, rows
