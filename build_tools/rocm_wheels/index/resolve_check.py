"""Check that pip and uv would pick the newest build from an index and new wheels; else say why.

Which build is the newest, why one version sorts above another (PEP 440), and spellings of local parts
that sort as they should. pip and uv are asked, and run for real; nothing is installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, extras, log, parallel, process
from rocm_wheels.index import reader
from rocm_wheels.index.folder import parse_file_name
from rocm_wheels.index.platform_tags import PLATFORM_TAGS
from rocm_wheels.index.server import serve_folder
from rocm_wheels.wheels import dist_info

_UV_LINUX = PLATFORM_TAGS["linux"][0].removesuffix("_x86_64")
_UV_PLATFORMS = {"linux": f"x86_64-{_UV_LINUX}", "windows": "x86_64-pc-windows-msvc"}
INSTALLERS = ("pip", "uv")


@dataclass(frozen=True)
class ResolveSource:
    """Where both look: an index, a folder of new wheels; with ``deps`` requirements of what they take too."""

    index_url: str
    new: Path
    platform: str
    pre: bool = False
    deps: bool = False


@dataclass(frozen=True)
class ResolvedVersions:
    """What a tool takes: versions by normalized name; or why it takes nothing."""

    versions: Mapping[str, Version]
    failure: str = ""


def tags_for_python(python: str, platform: str) -> frozenset[Tag]:
    """Return the tags of wheels that a CPython can use."""
    version = parse_python_version(python)
    interpreter = f"cp{version[0]}{version[1]}"
    platforms = PLATFORM_TAGS[platform]
    return frozenset(
        (*cpython_tags(version, platforms=platforms), *compatible_tags(version, interpreter, platforms))
    )


def parse_python_version(python: str) -> tuple[int, int]:
    """Read ``3.12``; UsageError for anything else."""
    match = re.fullmatch(r"3\.([0-9]{1,2})", python)
    if not match:
        raise errors.UsageError(
            f"--python {python!r} is not a Python that both tools can resolve for", tip="--python 3.12"
        )
    return 3, int(match[1])


def parse_requirement_name(requirement: str) -> str:
    """Return the normalized project of a requirement; UsageError when it is none."""
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement as cause:
        raise errors.UsageError(f"{requirement!r} is not a requirement") from cause


def ask_installer(
    tool: str, requirements: Sequence[str], python: str, source: ResolveSource, env: Mapping[str, str]
) -> ResolvedVersions:
    """Ask ``pip`` or ``uv`` what they would take on a machine with this Python."""
    ask_tool = _ask_pip if tool == "pip" else _ask_uv
    try:
        return ask_tool(requirements, python, source, env)
    except errors.RocmWheelsError as failure:
        return ResolvedVersions({}, failure=str(failure))


def _ask_pip(
    requirements: Sequence[str], python: str, source: ResolveSource, env: Mapping[str, str]
) -> ResolvedVersions:
    has_pip = importlib.util.find_spec("pip") is not None
    pip = [sys.executable, "-m", "pip"] if has_pip else [str(extras.find_uv()), "tool", "run", "pip"]
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        report = Path(folder) / "report.json"
        words = [*pip, "--isolated", "install", "--dry-run", "--quiet", "--report", str(report)]
        words += [
            "--ignore-installed",
            "--only-binary",
            ":all:",
            "--no-cache-dir",
            "--disable-pip-version-check",
        ]
        words += ["--python-version", python, "--implementation", "cp"]
        words += [word for platform in PLATFORM_TAGS[source.platform] for word in ("--platform", platform)]
        words += ["--index-url", source.index_url, "--find-links", str(source.new)]
        words += ["--pre"] * source.pre + ["--no-deps"] * (not source.deps)
        process.capture_output(
            [*words, *requirements], env=_make_pip_environment(env), description="pip install --dry-run"
        )
        chosen = json.loads(report.read_text(encoding="utf-8"))["install"]
    return ResolvedVersions(
        {canonicalize_name(item["metadata"]["name"]): Version(item["metadata"]["version"]) for item in chosen}
    )


def _ask_uv(
    requirements: Sequence[str], python: str, source: ResolveSource, env: Mapping[str, str]
) -> ResolvedVersions:
    words = [
        str(extras.find_uv()),
        "pip",
        "compile",
        "-",
        "--no-config",
        "--no-cache",
        "--no-header",
        "--no-annotate",
    ]
    words += [
        "--no-progress",
        "--no-python-downloads",
        "--python",
        sys.executable,
        "--python-version",
        python,
    ]
    words += ["--python-platform", _UV_PLATFORMS[source.platform], "--only-binary", ":all:"]
    words += ["--default-index", source.index_url, "--find-links", str(source.new)]
    words += ["--prerelease", "allow"] * source.pre + ["--no-deps"] * (not source.deps)
    requirement_lines = "".join(f"{requirement}\n" for requirement in requirements)
    clean = {key: value for key, value in env.items() if not key.startswith("UV_")}
    output = process.capture_output(
        words, env=_bypass_proxy(clean), stdin=requirement_lines.encode(), description="uv pip compile"
    )
    pinned = [line.partition("==") for line in output.splitlines() if "==" in line]
    return ResolvedVersions(
        {canonicalize_name(name): Version(version.split()[0]) for name, _, version in pinned}
    )


def _make_pip_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Without the user's options for pip (``--isolated`` leaves those of files out); certificates stay."""
    kept_variables = ("PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY")
    return _bypass_proxy(
        {key: value for key, value in env.items() if not key.startswith("PIP_") or key in kept_variables}
    )


def _bypass_proxy(env: Mapping[str, str]) -> dict[str, str]:
    """An index in a folder is served on this machine: that is no matter for a proxy."""
    passing = ",".join(filter(None, [env.get("no_proxy") or env.get("NO_PROXY"), "127.0.0.1"]))
    return {**env, "NO_PROXY": passing, "no_proxy": passing}


_BUILD_DATE = re.compile(r"(?<![0-9])20[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?![0-9])")
_ROCM_LOCAL = re.compile(r"(?P<before>(?:.*\.)?)(?P<kind>(?:dev)?rocm)(?P<version>[0-9].*)")


@dataclass(frozen=True)
class VersionSpelling:
    """A way to write the local part: its name, the version, and what speaks for and against it."""

    scheme: str
    version: Version
    remark: str


def find_build_date(version: Version) -> str:
    """Return the date of a build that a version states (``20260821``), the last one; "" when none."""
    dates = _BUILD_DATE.findall(str(version))
    return dates[-1] if dates else ""


def explain_order(higher: Version, lower: Version) -> str:
    """Say in words why installers prefer one version to another."""
    if higher.public != lower.public:
        return f"{higher.public} is a later version than {lower.public}"
    higher_parts, lower_parts = (re.split(r"[.]", version.local or "") for version in (higher, lower))
    if not lower.local:
        return "a version with a local part is above the same without"
    for first, second in zip(higher_parts, lower_parts, strict=False):
        if first == second:
            continue
        kinds = first.isdigit(), second.isdigit()
        if all(kinds):
            return f"in the local parts {first} is a higher number than {second}"
        if any(kinds):
            return (
                f"in the local parts {first!r} is a number and {second!r} is text, and numbers are above text"
            )
        return f"in the local parts {first!r} and {second!r} are compared as text, letter by letter"
    return "its local part is the other's and more"


def list_spellings(version: Version) -> list[VersionSpelling]:
    """Return other ways to write a version with ``rocm<version>`` in its local part; none for another."""
    match = _ROCM_LOCAL.fullmatch(version.local or "")
    if not match:
        return []
    rocm, kind, before = match["version"], match["kind"], match["before"]
    date = find_build_date(version)
    listed = [
        (
            "own-field",
            f"{before}{kind}.{rocm}",
            "numbers are compared as numbers; for an index that has nothing of the old spelling",
        ),
        (
            "own-word",
            f"{before}{kind}sdk.{rocm}",
            "likewise, and above every rocm<number> of the same version: for an index that has some",
        ),
    ]
    if date:
        remark = "the latest build is always above; says nothing of ROCm's version to a resolver"
        listed.append(("date-first", f"{date}.{before}{kind}{rocm}", remark))
    return [
        VersionSpelling(name, Version(f"{version.public}+{local}"), remark) for name, local, remark in listed
    ]


def find_sorting_spelling(version: Version, other_versions: Iterable[Version]) -> VersionSpelling | None:
    """Return the first spelling of a version that is above all others."""
    rivals = [other for other in other_versions if other != version]
    return next(
        (
            spelling
            for spelling in list_spellings(version)
            if all(spelling.version > other for other in rivals)
        ),
        None,
    )


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
        raise errors.UsageError(
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
            raise errors.UsageError(f"--expect {text!r} is not name==version") from None
    return versions


@dataclass(frozen=True)
class ResolveCheck:
    """What one tool picked for one requirement and Python; ``fault`` is "" when it is what was expected."""

    requirement: str
    python: str
    tool: str
    picked: str = ""
    expected: str = ""
    why: str = ""
    fault: str = ""
    tip: str = ""


ResolveQuestion = tuple[ResolveCheck, "ExpectedVersion | None", "list[WheelCandidate]"]


def check_picks(index: str, request: ResolveRequest, env: Mapping[str, str]) -> list[ResolveCheck]:
    """Ask pip and uv for every requirement and Python, and compare with what is expected.

    Without a platform, it is that of the new wheels.

    By default each new distribution is asked for, without a version; and as ``name==version`` for new
    wheels of an older version than the newest. UsageError when it cannot be told what is expected.
    """
    base = reader.resolve_index_url(index)
    new = _leave_out_variants(request.new)
    request = replace(request, new=new, platform=request.platform or _find_platform(new))
    projects = sorted({parse_file_name(path.name)[0] for path in request.new})
    requirements = list(request.requirements) or projects
    names = {requirement: parse_requirement_name(requirement) for requirement in requirements}
    pythons = list(request.pythons) or _list_pythons(request.new)
    for python in pythons:
        parse_python_version(python)
    reach = reader.IndexReader()
    candidates_by_project = {
        name: find_candidates(base, name, request.new, reach) for name in sorted({*projects, *names.values()})
    }
    with _serve_index(base) as url, _gather_wheels(request.new) as folder:
        place = ResolveSource(url, folder, request.platform, request.pre, request.deps)
        questions: list[ResolveQuestion] = []
        for python in pythons:
            tags = tags_for_python(python, request.platform)
            for requirement, name in {
                **names,
                **list_older_releases(candidates_by_project, request, names),
            }.items():
                usable = [wheel for wheel in candidates_by_project[name] if wheel.tags & tags]
                expected = find_expected_version(requirement, usable, request)
                version, why = (str(expected.version), expected.why) if expected else ("", "")
                for tool in INSTALLERS:
                    check = ResolveCheck(requirement, python, tool, expected=version, why=why)
                    questions.append((check, expected, usable))

        def answers(group: Sequence[ResolveQuestion]) -> list[tuple[ResolveQuestion, ResolveCheck]]:
            first = group[0][0]
            taken = ask_installer(
                first.tool, [question.requirement for question, *_ in group], first.python, place, env
            )
            if taken.failure and len(group) > 1:  # one of them is not to be had: which?
                return [pair for question in group for pair in answers([question])]
            return [
                (question, _compare_with_expected(question[0], taken, *question[1:])) for question in group
            ]

        groups = parallel.run_in_parallel(
            answers, _group_questions(questions, deps=request.deps), jobs=os.cpu_count() or 1
        )
        checks_by_question = {id(question): check for group in groups for question, check in group}
        return [checks_by_question[id(question)] for question in questions]


def _group_questions(questions: Sequence[ResolveQuestion], *, deps: bool) -> list[list[ResolveQuestion]]:
    """Return what a tool can be asked at once: without ``deps``, other projects do not matter to one.

    Most of the time of pip is its start.
    """
    groups: dict[tuple[str, str, int], list[ResolveQuestion]] = {}
    times_asked: dict[tuple[str, str, str], int] = {}
    for question in questions:
        check = question[0]
        key = (check.tool, check.python, "" if deps else parse_requirement_name(check.requirement))
        times_asked[key] = times_asked.get(key, 0) + 1
        groups.setdefault((check.tool, check.python, times_asked[key]), []).append(question)
    return list(groups.values())


def _leave_out_variants(new: Sequence[Path]) -> list[Path]:
    """Leave variant wheels out: pip does not read them, uv ranks them otherwise; UsageError when all are."""
    plain_wheels = [path for path in new if parse_file_name(path.name)[2] is None]
    if not plain_wheels:
        raise errors.UsageError(
            f"{new[0].name} is a variant wheel: those are chosen by properties, not by version alone",
            tip="name the plain wheels of the release",
        )
    if left_out := [path.name for path in new if path not in plain_wheels]:
        log.log_note(f"left out, as variants are chosen by properties: {', '.join(left_out)}")
    return plain_wheels


def find_candidates(
    base: str, project: str, new: Sequence[Path], reach: reader.IndexReader
) -> list[WheelCandidate]:
    """Return the wheels of a project in an index (none that is yanked) and among new files."""
    wheels = [wheel for path in new if (wheel := _parse_candidate(path.name, new=True, project=project))]
    page = reach.read_page(base, f"{base}{project}/", project=project)
    for link in page.links if page else ():
        name = reader.file_name_of_link(link)
        if link.yanked is None and name.endswith(".whl"):
            wheel = _parse_candidate(name, new=False, project=project)
            wheels += [wheel] if wheel else []
    return wheels


def _parse_candidate(name: str, *, new: bool, project: str) -> WheelCandidate | None:
    try:
        parsed = dist_info.parse_wheel_name(name)
    except errors.DataError:
        if new:
            raise
        return None  # no installer reads it either
    if parsed.name != project or parsed.label is not None:
        return None  # variants are chosen by other rules, and only where a tool knows them
    return WheelCandidate(name, parsed.version, parsed.tags, new)


def _compare_with_expected(
    check: ResolveCheck,
    taken: ResolvedVersions,
    expected: ExpectedVersion | None,
    wheels: Sequence[WheelCandidate],
) -> ResolveCheck:
    """Return a check with what was picked, and what is wrong with it."""
    tool, name = check.tool, parse_requirement_name(check.requirement)
    picked = taken.versions.get(name)
    if picked is None:
        return replace(check, fault=taken.failure or f"{tool} took no {name}")
    if expected is None or picked == expected.version:
        return replace(check, picked=str(picked), expected=check.expected or str(picked))
    fault = f"{tool} takes {picked}, not {expected.version} ({expected.why})"
    if picked > expected.version:
        fault += f": {explain_order(picked, expected.version)}"
    better = find_sorting_spelling(expected.version, [wheel.version for wheel in wheels])
    tip = (
        f"spelled {better.version} it would be taken ({better.scheme}; see --version-scheme)"
        if better
        else ""
    )
    return replace(check, picked=str(picked), fault=fault, tip=tip)


def _list_pythons(new: Sequence[Path]) -> list[str]:
    """Return the Pythons that new wheels are for; this one for wheels for any."""
    tags = {tag.interpreter for path in new for tag in dist_info.parse_wheel_name(path.name).tags}
    minors = sorted(int(tag[3:]) for tag in tags if tag.startswith("cp3") and tag[3:].isdigit())
    return [f"3.{minor}" for minor in minors] or [f"3.{sys.version_info.minor}"]


def _find_platform(new: Sequence[Path]) -> str:
    """Return the platform that new wheels are for; linux for wheels for any. UsageError for several."""
    tags = {tag.platform for path in new for tag in dist_info.parse_wheel_name(path.name).tags}
    platforms = [name for name, platform_tags in PLATFORM_TAGS.items() if tags.intersection(platform_tags)]
    if len(platforms) > 1:
        raise errors.UsageError(
            f"the new wheels are for {' and '.join(platforms)}", tip="one at a time: --platform"
        )
    return (platforms or ["linux"])[0]


@contextmanager
def _serve_index(base: str) -> Iterator[str]:
    """Give the URL of an index; one in a folder is served while the block runs, with what it links to."""
    path = reader.path_of_url(base)
    if path is None:
        yield base
        return
    top = _find_enclosing_folder(path)
    with serve_folder(top) as server:
        below = path.relative_to(top).as_posix()
        yield server.url if below == "." else f"{server.url}{quote(below)}/"


def _find_enclosing_folder(index: Path) -> Path:
    """Return the folder of an index and of all that it links to: sets of a store have their files beside."""
    top = index
    for page in index.glob("*/index.html"):
        url = f"{page.parent.as_uri()}/"
        places = [
            reader.path_of_url(link.url)
            for link in reader.parse_page(page.read_bytes(), "text/html", url).links
        ]
        top = Path(os.path.commonpath([top, *(place for place in places if place is not None)]))
    if top == Path(top.anchor):
        raise errors.UsageError(
            f"{index} links to files that have no folder in common", tip="give its URL on a server"
        )
    return top


@contextmanager
def _gather_wheels(new: Sequence[Path]) -> Iterator[Path]:
    """Give a folder with the new wheels and nothing else."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as name:
        for path in new:
            target = Path(name) / path.name
            if target.exists():
                raise errors.UsageError(f"two new wheels are called {path.name}")
            try:
                target.symlink_to(path.resolve())
            except OSError:  # Windows, without the right to
                shutil.copyfile(path, target)
        yield Path(name)
