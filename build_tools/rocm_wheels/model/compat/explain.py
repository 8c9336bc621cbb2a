"""Whether a torch with a ROCm serves a GPU, a Python and a platform: yes, no or unknown, and why.

The tables are not whole: what no source says is ``unknown``, and ``no`` needs somebody who says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from packaging.version import Version

from rocm_wheels.model.compat.builds import LINES_READ, Build, builds_of, rocm_versions, torch_versions
from rocm_wheels.model.compat.facts import FactKind
from rocm_wheels.model.compat.images import images_with
from rocm_wheels.model.compat.known import KnownIssue, address, known_issues, source_of
from rocm_wheels.model.compat.versions import starts_with
from rocm_wheels.model.gfx import base_target, fact_of, gfx_targets
from rocm_wheels.model.line_facts import Line
from rocm_wheels.model.lines import all_lines
from rocm_wheels.records import did_you_mean

Answer = Literal["yes", "no", "unknown"]
# of these ROCm AMD also published wheels on repo.radeon.com, file by file, which no table here has
_ON_RADEON = (Version("6.0"), Version("7.9"))


@dataclass(frozen=True)
class Statement:
    """One thing that is known, for or against (``says``; "" for neither); who says so, read when."""

    says: Literal["yes", "no", "unknown", ""]
    text: str
    kind: FactKind
    source: str
    retrieved: date
    note: str = ""


@dataclass(frozen=True)
class Explanation:
    """The answer, the statements that it rests on, the builds that fit, and known issues of those."""

    answer: Answer
    summary: str
    statements: tuple[Statement, ...]
    builds: tuple[Build, ...]
    issues: tuple[KnownIssue, ...]


def explain(
    torch: Version,
    rocm: Version,
    target: str,
    python: str | None = None,
    platform: str = "linux",
) -> Explanation:
    """Say whether there is a build of ``torch`` with ``rocm`` for a gfx target, a Python and a platform.

    Versions may be series (2.13, 7.14); a target's features do not matter. The target must be one of
    ``gfx_targets()`` and the platform linux or windows, which callers check.
    """
    target = base_target(target)
    made = builds_of(torch, rocm)
    if not made:
        return _not_made(torch, rocm)
    statements: list[Statement] = []
    fitting, verdicts = [], []
    for build in made:
        parts = (
            _platform(build, target, platform),
            _target(build, target, platform),
            _python(build, torch, python),
        )
        said = [one for one in parts if one is not None]
        verdict = _worst(said)
        verdicts.append(verdict)
        statements += said
        if verdict == "yes":
            fitting.append(build)
    answer = _best(verdicts)
    issues = _issues(fitting or made, torch, rocm, target, platform)
    statements += _excluded(target)
    where = f"{target} on {platform}" + (f" with Python {python}" if python else "")
    names = ", ".join(dict.fromkeys(one.index.name for one in fitting))
    summary = {
        "yes": f"torch {torch} with ROCm {rocm} serves {where}: {names}",
        "no": f"torch {torch} with ROCm {rocm} does not serve {where}",
        "unknown": f"nobody says whether torch {torch} with ROCm {rocm} serves {where}",
    }[answer]
    return Explanation(answer, summary, tuple(dict.fromkeys(statements)), tuple(fitting), issues)


def _not_made(torch: Version, rocm: Version) -> Explanation:
    """Answer for a pair that no index has: no where the release line says which ROCm it has, else unknown."""
    pair = f"torch {torch} with ROCm {rocm}"
    line = next((one for one in all_lines() if one.torch and starts_with(torch, Version(one.torch))), None)
    statements = _of_line(line) if line else []
    statements += [_made(one) for one in builds_of(torch) if one.line is None]
    if inside := images_with(torch, rocm):
        statements += [
            Statement("", f"the image {one.name} has it", one.kind, one.source.url, one.source.retrieved)
            for one in inside
        ]
        summary = f"no index of the tables has {pair}, container images do; they do not say for which GPUs"
        return Explanation("unknown", summary, tuple(statements), (), ())
    if not line or not _sure(line) or _names(line, rocm) or _ON_RADEON[0] <= rocm < _ON_RADEON[1]:
        summary = f"no table has {pair}{_nearest(torch, rocm)}"
        return Explanation("unknown", summary, tuple(statements), (), ())
    others = ", ".join(line.rocm.all())
    summary = f"{pair} was not released: torch {line.torch} is with ROCm {others}"
    return Explanation("no", summary, tuple(statements), (), ())


def _nearest(torch: Version, rocm: Version) -> str:
    for what, version, known in (("torch", torch, torch_versions()), ("ROCm", rocm, rocm_versions())):
        if not any(starts_with(one, version) or starts_with(version, one) for one in known):
            words = [str(one) for one in known]
            hint = did_you_mean(str(version), words)
            return f": {what} {version} is in none of them{hint or '; known: ' + ', '.join(words)}"
    return ""


def _sure(line: Line) -> bool:
    return all(fact.kind in {"read", "documented"} for fact in (line.rocm.pytorch_org, line.rocm.amd))


def _names(line: Line, rocm: Version) -> bool:
    return any(starts_with(rocm, one) or starts_with(one, rocm) for one in map(Version, line.rocm.all()))


def _of_line(line: Line) -> list[Statement]:
    found = []
    for who, fact in (("pytorch.org", line.rocm.pytorch_org), ("AMD", line.rocm.amd)):
        text = (
            f"{who} released torch {line.torch} with ROCm {', '.join(fact.values) or 'of no known version'}"
        )
        kind: FactKind = "documented" if fact.kind in {"read", "documented"} else "believed"
        found.append(Statement("", text, kind, fact.source, LINES_READ, f"release line {line.name}"))
    return found


def _made(build: Build) -> Statement:
    text = f"{build.index.name} has torch {build.torch} with ROCm {build.rocm}"
    return Statement("", text, build.kind, build.source.url, build.source.retrieved, build.note)


def _platform(build: Build, target: str, platform: str) -> Statement:
    served = platform in build.index.platforms
    text = f"{build.index.name} ({build.index.url}) has torch {build.torch} with ROCm {build.rocm}"
    text += f" for {', '.join(build.index.platforms)}"
    says: Answer = "yes" if served else "no"
    note = build.note if target in build.note or "gfx" not in build.note else ""
    return Statement(says, text, build.kind, build.source.url, build.source.retrieved, note)


def _target(build: Build, target: str, platform: str) -> Statement | None:
    if platform not in build.index.platforms:
        return None
    name = build.index.name
    kind = build.kinds.get((platform, target))
    at = (build.source.url, build.source.retrieved)
    if kind is not None:
        return Statement("yes", f"{name}: torch {build.torch} has code for {target} on {platform}", kind, *at)
    listed = build.targets.get(platform, ())
    if not listed:
        text = f"{name}: nobody says what torch {build.torch} with ROCm {build.rocm} has on {platform}"
        return Statement("unknown", text, build.kind, *at)
    text = (
        f"{name}: {target} is not among the targets of torch {build.torch} on {platform} ({' '.join(listed)})"
    )
    if build.kind == "documented" and build.index.layout == "multi-arch":
        note = "the page gives no command for it, which does not say that there is no package"
        return Statement("unknown", text, build.kind, *at, note)
    return Statement("no", text, build.kind, *at)


def _python(build: Build, torch: Version, python: str | None) -> Statement | None:
    if python is None:
        return None
    at = (build.kind, build.source.url, build.source.retrieved)
    listed = " ".join(build.pythons)
    if python in build.pythons:
        return Statement("yes", f"{build.index.name}: torch {build.torch} is there for Python {python}", *at)
    text = f"{build.index.name}: Python {python} is not among those of torch {build.torch} ({listed})"
    line = next((one for one in all_lines() if one.torch and starts_with(torch, Version(one.torch))), None)
    if line and python in (*line.pythons.values, *line.free_threaded.values) and build.line is None:
        return Statement("unknown", text, *at, f"torch {line.torch} was released for it by pytorch.org")
    return Statement("no", text, *at)


def _excluded(target: str) -> list[Statement]:
    fact, source = fact_of(target, "excluded")
    return [
        Statement(
            "", f"{target}: ROCm is built without {project}", fact.kind, issue or source.url, source.retrieved
        )
        for project, issue in gfx_targets()[target].excluded.items()
    ]


def _issues(
    made: Sequence[Build], torch: Version, rocm: Version, target: str, platform: str
) -> tuple[KnownIssue, ...]:
    found: dict[str, KnownIssue] = {}
    for layout in dict.fromkeys(one.index.layout for one in made):
        for one in known_issues(torch, rocm, target, platform, layout):
            found[one.title] = one
    return tuple(found.values())


def issue_statement(one: KnownIssue) -> Statement:
    """Return a known issue as a statement."""
    text = f"{one.effect}: {one.title}" + (f"; {one.workaround}" if one.workaround else "")
    state = f"{one.state}: {one.fixed}" if one.fixed else one.state
    return Statement(
        "", text, one.kind, address(one), source_of(one).retrieved, "; ".join(filter(None, (state, one.note)))
    )


def _worst(said: Sequence[Statement]) -> Answer:
    words = [one.says for one in said]
    return "no" if "no" in words else "unknown" if "unknown" in words else "yes"


def _best(verdicts: Sequence[Answer]) -> Answer:
    return "yes" if "yes" in verdicts else "unknown" if "unknown" in verdicts else "no"
