"""Explain whether a torch with a ROCm serves a GPU, a Python and a platform: yes, no or unknown, and why.

The tables are not whole: what no source says is ``unknown``, and ``no`` needs somebody who says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from packaging.version import Version

from rocm_wheels.core import suggest_name
from rocm_wheels.models.facts import FactKind, is_in_series
from rocm_wheels.models.gfx import get_attribute_fact, get_gfx_targets, strip_features
from rocm_wheels.models.release_lines import TorchLine, get_release_lines
from rocm_wheels.models.torch_builds import (
    LINES_READ_ON,
    KnownIssue,
    TorchBuild,
    find_builds,
    find_images,
    find_issues,
    get_issue_source,
    get_issue_url,
    list_rocm_versions,
    list_torch_versions,
)

CompatAnswer = Literal["yes", "no", "unknown"]
# of these ROCm AMD also published wheels on repo.radeon.com, file by file, which no table here has
_ON_RADEON = (Version("6.0"), Version("7.9"))


@dataclass(frozen=True)
class Statement:
    """One thing that is known, for or against (``answer``; "" for neither); who says so, read when."""

    answer: Literal["yes", "no", "unknown", ""]
    text: str
    kind: FactKind
    source: str
    retrieved: date
    note: str = ""


@dataclass(frozen=True)
class Explanation:
    """The answer, the statements that it rests on, the builds that fit, and known issues of those."""

    answer: CompatAnswer
    summary: str
    statements: tuple[Statement, ...]
    builds: tuple[TorchBuild, ...]
    issues: tuple[KnownIssue, ...]


def explain_compatibility(
    torch: Version,
    rocm: Version,
    target: str,
    python: str | None = None,
    platform: str = "linux",
) -> Explanation:
    """Say whether there is a build of ``torch`` with ``rocm`` for a gfx target, a Python and a platform.

    Versions may be series (2.13, 7.14); a target's features do not matter. The target must be one of
    ``get_gfx_targets()`` and the platform linux or windows, which callers check.
    """
    target = strip_features(target)
    builds = find_builds(torch, rocm)
    if not builds:
        return _explain_missing_build(torch, rocm)
    statements: list[Statement] = []
    fitting, verdicts = [], []
    for build in builds:
        parts = (
            _state_platform(build, target, platform),
            _state_target(build, target, platform),
            _state_python(build, torch, python),
        )
        build_statements = [item for item in parts if item is not None]
        verdict = _find_worst(build_statements)
        verdicts.append(verdict)
        statements += build_statements
        if verdict == "yes":
            fitting.append(build)
    answer = _find_best(verdicts)
    issues = _find_issues(fitting or builds, torch, rocm, target, platform)
    statements += _list_exclusions(target)
    where = f"{target} on {platform}" + (f" with Python {python}" if python else "")
    names = ", ".join(dict.fromkeys(item.index.name for item in fitting))
    summary = {
        "yes": f"torch {torch} with ROCm {rocm} serves {where}: {names}",
        "no": f"torch {torch} with ROCm {rocm} does not serve {where}",
        "unknown": f"nobody says whether torch {torch} with ROCm {rocm} serves {where}",
    }[answer]
    return Explanation(answer, summary, tuple(dict.fromkeys(statements)), tuple(fitting), issues)


def _explain_missing_build(torch: Version, rocm: Version) -> Explanation:
    """Answer for a pair that no index has: no where the release line says which ROCm it has, else unknown."""
    pair = f"torch {torch} with ROCm {rocm}"
    line = next(
        (
            candidate
            for candidate in get_release_lines()
            if candidate.torch and is_in_series(torch, Version(candidate.torch))
        ),
        None,
    )
    statements = _make_line_statements(line) if line else []
    statements += [
        _make_build_statement(candidate) for candidate in find_builds(torch) if candidate.line is None
    ]
    if images := find_images(torch, rocm):
        statements += [
            Statement(
                "",
                f"the image {candidate.name} has it",
                candidate.kind,
                candidate.source.url,
                candidate.source.retrieved,
            )
            for candidate in images
        ]
        summary = f"no index of the tables has {pair}, container images do; they do not say for which GPUs"
        return Explanation("unknown", summary, tuple(statements), (), ())
    if not line or not _is_certain(line) or _names_rocm(line, rocm) or _ON_RADEON[0] <= rocm < _ON_RADEON[1]:
        summary = f"no table has {pair}{_suggest_version(torch, rocm)}"
        return Explanation("unknown", summary, tuple(statements), (), ())
    released_with = ", ".join(line.rocm.list_versions())
    summary = f"{pair} was not released: torch {line.torch} is with ROCm {released_with}"
    return Explanation("no", summary, tuple(statements), (), ())


def _suggest_version(torch: Version, rocm: Version) -> str:
    for name, version, versions in (
        ("torch", torch, list_torch_versions()),
        ("ROCm", rocm, list_rocm_versions()),
    ):
        if not any(is_in_series(other, version) or is_in_series(version, other) for other in versions):
            version_names = [str(other) for other in versions]
            hint = suggest_name(str(version), version_names)
            return f": {name} {version} is in none of them{hint or '; known: ' + ', '.join(version_names)}"
    return ""


def _is_certain(line: TorchLine) -> bool:
    return all(fact.kind in {"read", "documented"} for fact in (line.rocm.pytorch_org, line.rocm.amd))


def _names_rocm(line: TorchLine, rocm: Version) -> bool:
    return any(
        is_in_series(rocm, version) or is_in_series(version, rocm)
        for version in map(Version, line.rocm.list_versions())
    )


def _make_line_statements(line: TorchLine) -> list[Statement]:
    statements = []
    for who, fact in (("pytorch.org", line.rocm.pytorch_org), ("AMD", line.rocm.amd)):
        text = (
            f"{who} released torch {line.torch} with ROCm {', '.join(fact.values) or 'of no known version'}"
        )
        kind: FactKind = "documented" if fact.kind in {"read", "documented"} else "believed"
        statements.append(Statement("", text, kind, fact.source, LINES_READ_ON, f"release line {line.name}"))
    return statements


def _make_build_statement(build: TorchBuild) -> Statement:
    text = f"{build.index.name} has torch {build.torch} with ROCm {build.rocm}"
    return Statement("", text, build.kind, build.source.url, build.source.retrieved, build.note)


def _state_platform(build: TorchBuild, target: str, platform: str) -> Statement:
    served = platform in build.index.platforms
    text = f"{build.index.name} ({build.index.url}) has torch {build.torch} with ROCm {build.rocm}"
    text += f" for {', '.join(build.index.platforms)}"
    answer: CompatAnswer = "yes" if served else "no"
    note = build.note if target in build.note or "gfx" not in build.note else ""
    return Statement(answer, text, build.kind, build.source.url, build.source.retrieved, note)


def _state_target(build: TorchBuild, target: str, platform: str) -> Statement | None:
    if platform not in build.index.platforms:
        return None
    name = build.index.name
    kind = build.kinds.get((platform, target))
    source_fields = (build.source.url, build.source.retrieved)
    if kind is not None:
        return Statement(
            "yes", f"{name}: torch {build.torch} has code for {target} on {platform}", kind, *source_fields
        )
    listed = build.targets.get(platform, ())
    if not listed:
        text = f"{name}: nobody says what torch {build.torch} with ROCm {build.rocm} has on {platform}"
        return Statement("unknown", text, build.kind, *source_fields)
    text = (
        f"{name}: {target} is not among the targets of torch {build.torch} on {platform} ({' '.join(listed)})"
    )
    if build.kind == "documented" and build.index.layout == "multi-arch":
        note = "the page gives no command for it, which does not say that there is no package"
        return Statement("unknown", text, build.kind, *source_fields, note)
    return Statement("no", text, build.kind, *source_fields)


def _state_python(build: TorchBuild, torch: Version, python: str | None) -> Statement | None:
    if python is None:
        return None
    source_fields = (build.kind, build.source.url, build.source.retrieved)
    listed = " ".join(build.pythons)
    if python in build.pythons:
        return Statement(
            "yes", f"{build.index.name}: torch {build.torch} is there for Python {python}", *source_fields
        )
    text = f"{build.index.name}: Python {python} is not among those of torch {build.torch} ({listed})"
    line = next(
        (
            candidate
            for candidate in get_release_lines()
            if candidate.torch and is_in_series(torch, Version(candidate.torch))
        ),
        None,
    )
    if line and python in (*line.pythons.values, *line.free_threaded.values) and build.line is None:
        return Statement(
            "unknown", text, *source_fields, f"torch {line.torch} was released for it by pytorch.org"
        )
    return Statement("no", text, *source_fields)


def _list_exclusions(target: str) -> list[Statement]:
    fact, source = get_attribute_fact(target, "excluded")
    return [
        Statement(
            "", f"{target}: ROCm is built without {project}", fact.kind, issue or source.url, source.retrieved
        )
        for project, issue in get_gfx_targets()[target].excluded.items()
    ]


def _find_issues(
    builds: Sequence[TorchBuild], torch: Version, rocm: Version, target: str, platform: str
) -> tuple[KnownIssue, ...]:
    issues: dict[str, KnownIssue] = {}
    for layout in dict.fromkeys(item.index.layout for item in builds):
        for item in find_issues(torch, rocm, target, platform, layout):
            issues[item.title] = item
    return tuple(issues.values())


def make_issue_statement(issue: KnownIssue) -> Statement:
    """Return a known issue as a statement."""
    text = f"{issue.effect}: {issue.title}" + (f"; {issue.workaround}" if issue.workaround else "")
    state = f"{issue.state}: {issue.fixed}" if issue.fixed else issue.state
    return Statement(
        "",
        text,
        issue.kind,
        get_issue_url(issue),
        get_issue_source(issue).retrieved,
        "; ".join(filter(None, (state, issue.note))),
    )


def _find_worst(statements: Sequence[Statement]) -> CompatAnswer:
    answers = [statement.answer for statement in statements]
    return "no" if "no" in answers else "unknown" if "unknown" in answers else "yes"


def _find_best(verdicts: Sequence[CompatAnswer]) -> CompatAnswer:
    return "yes" if "yes" in verdicts else "unknown" if "unknown" in verdicts else "no"
