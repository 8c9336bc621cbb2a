"""Check that pip and uv would pick the newest build from an index and new wheels; else say why.

Which build is the newest, why one version sorts above another (PEP 440), and a spelling of its local part
that sorts. pip and uv are asked, and run for real; nothing is installed. An index in a folder is read as it
lies there (``file:``). Of a Python without a GIL (``3.13t``) pip is asked alone: uv resolves for one only
where it is installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, installation, log, parallel, process
from rocm_wheels.index import reader
from rocm_wheels.index.folder import parse_file_name
from rocm_wheels.index.platform_tags import PLATFORM_TAGS
from rocm_wheels.models import facts
from rocm_wheels.wheels import dist_info, python_tags

_UV_LINUX = PLATFORM_TAGS["linux"][0].removesuffix("_x86_64")
_UV_PLATFORMS = {"linux": f"x86_64-{_UV_LINUX}", "windows": "x86_64-pc-windows-msvc"}
_PIP_VARIABLES = ("PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY")  # what stays of the user's options for pip
_BUILD_DATE = re.compile(r"(?<![0-9])20[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?![0-9])")
_ROCM_LOCAL = re.compile(r"(?P<before>(?:.*\.)?)(?P<kind>(?:dev)?rocm)(?P<rocm>[0-9].*)")


@dataclass(frozen=True)
class ResolveRequest:
    """What is to be found out. ``platform`` is that of the new wheels where it is "".

    ``published``: the index has the new wheels already, and is asked alone.
    """

    new: Sequence[Path]
    pythons: Sequence[str] = ()
    platform: str = ""
    pre: bool = False
    expect: Mapping[str, Version] | None = None
    published: bool = False


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


_Answer = tuple[Mapping[str, Version], str]  # what a tool takes, by project, or why it ended


@dataclass(frozen=True)
class WheelCandidate:
    """A wheel that may be picked: of the index, or new."""

    version: Version
    tags: frozenset[Tag]
    new: bool


def check_picks(index: str, request: ResolveRequest, env: Mapping[str, str]) -> list[ResolveCheck]:
    """Ask pip and uv for every new distribution and Python, and compare with what is expected.

    Each is asked for without a version; and as ``name==version`` for new wheels of an older version than the
    newest. Where no Python is named, they are asked for those that take a new wheel of it. UsageError when it
    cannot be told what is expected.
    """
    base = reader.resolve_index_url(index)
    # pip does not read variant wheels, and uv ranks them otherwise
    new = [path for path in request.new if parse_file_name(path.name)[2] is None]
    if not new:
        raise errors.UsageError(
            f"{request.new[0].name} is a variant wheel: those are chosen by properties, not by version alone",
            tip="name the plain wheels of the release",
        )
    if left_out := [path.name for path in request.new if path not in new]:
        log.log_note(f"left out, as variants are chosen by properties: {', '.join(left_out)}")
    for number, path in enumerate(new):
        if path.name in [other.name for other in new[:number]]:
            raise errors.UsageError(f"two new wheels are called {path.name}", tip="name one of them")
    request = replace(request, new=new, platform=request.platform or _find_platform(new))
    projects: list[str] = sorted({parse_file_name(path.name)[0] for path in new})
    tags = {
        python: tags_for_python(python, request.platform) for python in request.pythons or _list_pythons(new)
    }
    reach = reader.IndexReader()
    candidates = {name: find_candidates(base, name, new, reach) for name in projects}
    names = {**dict(zip(projects, projects, strict=True)), **list_older_releases(candidates, request)}
    asked = {python: dict[str, str]() for python in tags}
    for requirement, name in names.items():
        new_wheels = [wheel for wheel in _list_fitting(requirement, candidates[name]) if wheel.new]
        taking = [python for python in tags if any(wheel.tags & tags[python] for wheel in new_wheels)]
        for python in request.pythons or taking or tags:
            asked[python][requirement] = name
    checks = []
    for python, requirement, name in [(p, *item) for p, names in asked.items() for item in names.items()]:
        wheels = [wheel for wheel in candidates[name] if wheel.tags & tags[python]]
        version, why = find_expected_version(requirement, wheels, request)
        for tool in _list_tools(python):
            check = ResolveCheck(requirement, python, tool, expected=str(version or ""), why=why)
            checks.append((check, name, version, wheels))
    answers = _ask_installers(base, asked, request, env)
    results = []
    for check, name, version, wheels in checks:
        versions, failure = answers[check.requirement, check.python, check.tool]
        results.append(_compare_with_expected(check, versions.get(name), failure, version, wheels))
    return results


def _compare_with_expected(
    check: ResolveCheck,
    picked: Version | None,
    failure: str,
    expected: Version | None,
    wheels: Sequence[WheelCandidate],
) -> ResolveCheck:
    """Return a check with what was picked, and what is wrong with it."""
    if picked is None:
        return replace(check, fault=failure or f"{check.tool} took nothing for {check.requirement}")
    if expected is None or picked == expected:
        return replace(check, picked=str(picked), expected=check.expected or str(picked))
    fault = f"{check.tool} takes {picked}, not {expected} ({check.why})"
    if picked > expected:
        fault += f": {explain_order(picked, expected)}"
    better = find_sorting_spelling(expected, [wheel.version for wheel in wheels])
    tip = f"spelled {better} it would be taken" if better else ""
    return replace(check, picked=str(picked), fault=fault, tip=tip)


def _group_requirements(names: Mapping[str, str]) -> list[list[str]]:
    """Return requirements as they are asked about at once: none with another of its project (the values).

    Most of the time of pip is its start.
    """
    groups: list[list[str]] = []
    for requirement, name in names.items():
        with_room = [group for group in groups if name not in map(names.get, group)]
        if with_room:
            with_room[0].append(requirement)
        else:
            groups.append([requirement])
    return groups


def _ask_installers(
    base: str, asked: Mapping[str, Mapping[str, str]], request: ResolveRequest, env: Mapping[str, str]
) -> dict[tuple[str, str, str], _Answer]:
    """Return what is taken by requirement, Python and tool; ``asked`` has projects by the first two."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        for path in () if request.published else request.new:
            try:
                Path(folder, path.name).symlink_to(path.resolve())
            except OSError:  # Windows, without the right to
                shutil.copyfile(path, Path(folder, path.name))
        options = ["--only-binary", ":all:", "--find-links", folder, "--no-deps"]
        options += ["--index-url", base, *["--pre"] * request.pre]

        def ask(tool: str, python: str, group: Sequence[str]) -> dict[tuple[str, str, str], _Answer]:
            try:
                versions = _ASK[tool](group, python, options, request.platform, env)
            except errors.RocmWheelsError as failure:
                if len(group) == 1:
                    return {(group[0], python, tool): ({}, str(failure))}
                apart = [ask(tool, python, [requirement]) for requirement in group]  # which is it?
                return {key: answer for answers in apart for key, answer in answers.items()}
            return {(requirement, python, tool): (versions, "") for requirement in group}

        questions = [
            (tool, python, group)
            for python, names in asked.items()
            for tool, group in product(_list_tools(python), _group_requirements(names))
        ]
        taken = parallel.run_in_parallel(lambda group: ask(*group), questions, jobs=os.cpu_count() or 1)
    return {key: answer for answers in taken for key, answer in answers.items()}


def _ask_pip(
    requirements: Sequence[str], python: str, options: list[str], platform: str, env: Mapping[str, str]
) -> dict[str, Version]:
    has_pip = importlib.util.find_spec("pip") is not None
    pip = [sys.executable, "-m", "pip"] if has_pip else [str(installation.find_uv()), "tool", "run", "pip"]
    # --isolated leaves the user's files out; what variables say is left out here, but for certificates
    kept = {key: value for key, value in env.items() if not key.startswith("PIP_") or key in _PIP_VARIABLES}
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        report = Path(folder) / "report.json"
        words = [*pip, "--isolated", "install", "--dry-run", "--quiet", "--report", str(report)]
        # a pip before 23.3 asks for other platforms with --target only, to which a dry run writes nothing
        words += ["--target", f"{folder}/target", "--ignore-installed", "--no-cache-dir"]
        words += ["--disable-pip-version-check", "--python-version", python.rstrip("t")]
        words += ["--implementation", "cp"]
        words += ["--abi", f"cp{python.replace('.', '')}"] if python.endswith("t") else []
        words += [word for tag in PLATFORM_TAGS[platform] for word in ("--platform", tag)]
        process.capture_output(
            [*words, *options, *requirements], env=kept, description="pip install --dry-run"
        )
        taken = [item["metadata"] for item in json.loads(report.read_text(encoding="utf-8"))["install"]]
    return {canonicalize_name(metadata["name"]): Version(metadata["version"]) for metadata in taken}


def _ask_uv(
    requirements: Sequence[str], python: str, options: list[str], platform: str, env: Mapping[str, str]
) -> dict[str, Version]:
    words = [str(installation.find_uv()), "pip", "compile", "-", "--no-config", "--no-cache", "--no-header"]
    words += ["--no-annotate", "--no-progress", "--no-python-downloads", "--python", sys.executable]
    words += ["--python-version", python, "--python-platform", _UV_PLATFORMS[platform], *options]
    kept = {key: value for key, value in env.items() if not key.startswith("UV_")}
    output = process.capture_output(
        words, env=kept, stdin="\n".join(requirements).encode(), description="uv pip compile"
    )
    pinned = [line.partition("==") for line in output.splitlines() if "==" in line]
    return {canonicalize_name(name): Version(version.split()[0]) for name, _, version in pinned}


_ASK = {"pip": _ask_pip, "uv": _ask_uv}


def _list_tools(python: str) -> Sequence[str]:
    return ["pip"] if python.endswith("t") else list(_ASK)


def parse_requirement_name(requirement: str) -> str:
    """Return the normalized project of a requirement; UsageError when it is none."""
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement as cause:
        raise errors.UsageError(f"{requirement!r} is not a requirement") from cause


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


def tags_for_python(python: str, platform: str) -> frozenset[Tag]:
    """Return the tags of wheels that a CPython (``3.12``) can use; UsageError for any other."""
    if not re.fullmatch(r"3\.[0-9]{1,2}t?", python):
        raise errors.UsageError(
            f"--python {python!r} is not a Python that tools can resolve for", tip="--python 3.12"
        )
    return frozenset(python_tags.list_accepted_tags(python, PLATFORM_TAGS[platform]))


def _list_pythons(new: Sequence[Path]) -> list[str]:
    """Return the Pythons that new wheels are for, and one for each that none of these takes (``abi3``).

    That is this one, if it can be.
    """
    wheels = [dist_info.parse_wheel_name(path.name).tags for path in new]
    pythons = set[str]().union(*map(python_tags.list_pythons, wheels))
    known = [f"3.{minor}" for minor in (sys.version_info.minor, *range(100))]
    for tags in wheels:
        if not any(python_tags.accepts_python(tags, python) for python in pythons):
            pythons.update([python for python in known if python_tags.accepts_python(tags, python)][:1])
    return sorted(pythons or known[:1], key=facts.get_python_key)


def _find_platform(new: Sequence[Path]) -> str:
    """Return the platform that new wheels are for; linux for wheels for any. UsageError for several."""
    tags = {tag.platform for path in new for tag in dist_info.parse_wheel_name(path.name).tags}
    platforms = [name for name, platform_tags in PLATFORM_TAGS.items() if tags.intersection(platform_tags)]
    if len(platforms) > 1:
        raise errors.UsageError(
            f"the new wheels are for {' and '.join(platforms)}", tip="one at a time: --platform"
        )
    return (platforms or ["linux"])[0]


def find_candidates(
    base: str, project: str, new: Sequence[Path], reach: reader.IndexReader
) -> list[WheelCandidate]:
    """Return the wheels of a project in an index (none that is yanked) and among new files."""
    links = reach.read_page(base, f"{base}{project}/", project=project) or ()
    listed = [(reader.file_name_of_link(link), False) for link in links if link.yanked is None]
    candidates = []
    for name, is_new in [*((path.name, True) for path in new), *listed]:
        try:
            wheel = dist_info.parse_wheel_name(name)
        except errors.DataError:
            if is_new:
                raise
            continue  # no installer reads it either
        if wheel.name == project and wheel.label is None:  # variants are chosen by other rules
            candidates.append(WheelCandidate(wheel.version, wheel.tags, is_new))
    return candidates


def _filter_prereleases(wheels: Sequence[WheelCandidate], request: ResolveRequest) -> list[WheelCandidate]:
    """Return what may be picked at all: pre-releases only when asked for, or when there is nothing else."""
    final = [wheel for wheel in wheels if not wheel.version.is_prerelease]
    return list(wheels) if request.pre or not final else final


def list_older_releases(
    candidates: Mapping[str, Sequence[WheelCandidate]], request: ResolveRequest
) -> dict[str, str]:
    """Return ``name==version`` for new wheels that an unversioned requirement cannot lead to, with names."""
    older = {}
    for name, wheels in candidates.items():
        newest = max(Version(wheel.version.base_version) for wheel in _filter_prereleases(wheels, request))
        for wheel in wheels:
            if wheel.new and Version(wheel.version.base_version) < newest:
                older[f"{name}=={wheel.version.public}"] = name
    return older


def _list_fitting(requirement: str, wheels: Sequence[WheelCandidate]) -> list[WheelCandidate]:
    specifier = Requirement(requirement).specifier
    return [wheel for wheel in wheels if specifier.contains(wheel.version, prereleases=True)]


def find_expected_version(
    requirement: str, wheels: Sequence[WheelCandidate], request: ResolveRequest
) -> tuple[Version | None, str]:
    """Return the version that should be picked, and why that one; None when no wheel fits, as tools will say.

    Among the wheels of the newest version (local parts aside): the one of ``--expect``, else of the latest
    build date, else the only new one. UsageError when that does not decide.
    """
    name = parse_requirement_name(requirement)
    fitting = _filter_prereleases(_list_fitting(requirement, wheels), request)
    if not fitting:
        return None, ""
    if request.expect and name in request.expect:
        return request.expect[name], "--expect"
    newest = max(Version(wheel.version.base_version) for wheel in fitting)
    group = {wheel.version for wheel in fitting if Version(wheel.version.base_version) == newest}
    new = sorted({wheel.version for wheel in fitting if wheel.new} & group)
    dates = {version: find_build_date(version) for version in group}
    if any(dates.values()) and all(dates[version] for version in new):
        latest = max(dates.values())
        dated = sorted(version for version, date in dates.items() if date == latest)
        chosen = [version for version in dated if version in new] or dated
        if len(chosen) == 1 or chosen == dated:
            return chosen[-1], f"the latest build ({latest})"
    if len(new) > 1:
        listed = ", ".join(map(str, new))
        raise errors.UsageError(
            f"{name}: which of {listed} is the newest?", tip=f"say so: --expect {name}=={new[-1]}"
        )
    return (new[0], "the only new one") if new else (max(group), "the highest version; nothing new is of it")


def find_build_date(version: Version) -> str:
    """Return the date of a build that a version states (``20260821``), the last one; "" when none."""
    dates = _BUILD_DATE.findall(str(version))
    return dates[-1] if dates else ""


def explain_order(higher: Version, lower: Version) -> str:
    """Say in words why installers prefer one version to another."""
    if higher.public != lower.public:
        return f"{higher.public} is a later version than {lower.public}"
    if not lower.local:
        return "a version with a local part is above the same without"
    fields = [(version.local or "").split(".") for version in (higher, lower)]
    different = [pair for pair in zip(*fields, strict=False) if pair[0] != pair[1]]
    if not different:
        return "its local part is the other's and more"
    first, second = different[0]
    if first.isdigit() and second.isdigit():
        return f"in the local parts {first} is a higher number than {second}"
    if first.isdigit():
        return f"in the local parts {first!r} is a number and {second!r} is text, and numbers are above text"
    return f"in the local parts {first!r} and {second!r} are compared as text, letter by letter"


def find_sorting_spelling(version: Version, others: Iterable[Version]) -> Version | None:
    """Return another spelling of a version with ``rocm<version>`` in its local part that is above all others.

    A field of its own (``rocm.7.1``) has numbers compared as numbers; another word (``rocmsdk.7.1``) is above
    every ``rocm7``, too; the date of the build first says nothing of ROCm's version to a resolver.
    """
    match = _ROCM_LOCAL.fullmatch(version.local or "")
    if not match:
        return None
    before, kind, rocm = match.groups()
    date = find_build_date(version)
    spelled = [f"{before}{kind}.{rocm}", f"{before}{kind}sdk.{rocm}"]
    spelled += [f"{date}.{before}{kind}{rocm}"] if date else []
    rivals = [other for other in others if other != version]
    for local in spelled:
        better = Version(f"{version.public}+{local}")
        if all(better > other for other in rivals):
            return better
    return None
