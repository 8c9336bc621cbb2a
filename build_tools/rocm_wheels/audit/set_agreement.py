"""Check that the wheels of a set agree, and that none is missing: versions, ROCm, Pythons, the plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from packaging.version import InvalidVersion, Version

from rocm_wheels.audit import (
    audited_set,
    audited_wheel,
    definition,
    kernels,
    libraries,
    metadata,
    set_environments,
)
from rocm_wheels.core import errors, tables
from rocm_wheels.models import gfx
from rocm_wheels.wheels import hazards

_ROCM_LOCAL = re.compile(r"(?:^|\.)(?:dev)?rocm(?:sdk|v)?\.?(?P<version>[0-9].*)")
_MOST_NAMED = 4


@definition.check(
    "RW063 set-versions (error)",
    why="Parts of several builds are installed together, with another ROCm below.",
    fix="Build or stamp them again, from one lock; or leave the older wheels out.",
    kind="set",
)
def check_set_versions(subject: audited_set.AuditedSet) -> list[errors.Finding] | definition.SkippedCheck:
    """One version of each project, and one ROCm, on each system.

    Variants are for several ROCms, and are compared with themselves alone.
    """
    stack = set_environments.list_stack_projects(subject)
    if not stack:
        return definition.SkippedCheck("the set has no torch, and nothing that is built for one")
    findings: list[errors.Finding] = []
    rocms: dict[str, dict[str, list[audited_wheel.AuditedWheel]]] = {}
    for project in sorted(stack):
        versions: dict[str, dict[str, list[audited_wheel.AuditedWheel]]] = {}
        for wheel in subject.wheels_by_project[project]:
            stated = list_stated_rocms(wheel)
            if len(set(stated.values())) > 1:
                said = " and ".join(f"{rocm} by its {source}" for source, rocm in stated.items())
                findings.append(errors.Finding("error", f"is for ROCm {said}", subject=wheel.scan.path.name))
            if wheel.scan.name is not None and wheel.scan.name.label is None:
                system = wheel.wheel_platform.system if wheel.wheel_platform else "any system"
                versions.setdefault(system, {}).setdefault(
                    str(set_environments.get_version(wheel)), []
                ).append(wheel)
                if stated:
                    rocms.setdefault(system, {}).setdefault(next(iter(stated.values())), []).append(wheel)
        for groups in versions.values():
            findings += _judge_groups(groups, f"{project} is there in {{count}}: {{groups}}")
    for groups in rocms.values():
        findings += _judge_groups(groups, "wheels are for {count} of ROCm: {groups}")
    return findings


def _judge_groups(
    groups: Mapping[str, list[audited_wheel.AuditedWheel]], message: str
) -> Iterator[errors.Finding]:
    """Yield what is wrong where there is more than one group; it is about the first wheel of the smallest."""
    if len(groups) < 2:
        return
    smallest = min(groups.values(), key=len)[0].scan.path.name
    described = "; ".join(f"{word} ({_join_names(wheels)})" for word, wheels in sorted(groups.items()))
    text = message.format(count=tables.format_count(len(groups), "version"), groups=described)
    yield errors.Finding("error", text, subject=smallest)


def _join_names(wheels: Iterable[audited_wheel.AuditedWheel]) -> str:
    names = sorted(wheel.scan.path.name for wheel in wheels)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def list_stated_rocms(wheel: audited_wheel.AuditedWheel) -> dict[str, str]:
    """Return the ROCm that a wheel is for, as its version and its pin of rocm say, spelled alike."""
    stated: dict[str, str] = {}
    version = set_environments.get_version(wheel)
    if match := _ROCM_LOCAL.search(version.local or ""):
        stated["version"] = match["version"]
    for requirement in set_environments.parse_requirements(wheel):
        pin = metadata.get_exact_version(requirement)
        if requirement.name == set_environments.ROCM_PROJECT and pin is not None:
            stated["pin of rocm"] = _spell_as_local(pin)
    return stated


def _spell_as_local(version: str) -> str:
    """Return a version as it is spelled in the local part of another: ``7.1.0+x`` is ``7.1.0.x``."""
    try:
        return Version(f"0+{re.sub('[^0-9A-Za-z]+', '.', version)}").local or version
    except InvalidVersion:
        return version


_TORCH_SYMBOL = re.compile(rb"_ZNK?(?:3c10|2at|5torch)")
_NEW_STRING, _OLD_STRING = b"7__cxx11", b"Ss"
# parts of a mangled name that have digits and are no identifier: substitutions, template parameters, literals
_MANGLED_NUMBER = re.compile(rb"S[0-9A-Z]*_|T[0-9]*_|L[a-z]n?[0-9]+E|A[0-9]+_")
_IDENTIFIER_LENGTH = re.compile(rb"[0-9]{1,9}")
_ABI_WORDS = {"new": "_GLIBCXX_USE_CXX11_ABI=1", "old": "_GLIBCXX_USE_CXX11_ABI=0"}


@definition.check(
    "RW072 set-abi (error)",
    why="Loading it ends with: undefined symbol.",
    fix="Build both with one setting of _GLIBCXX_USE_CXX11_ABI.",
    kind="set",
)
def check_set_abi(subject: audited_set.AuditedSet) -> list[errors.Finding] | definition.SkippedCheck:
    """All was built with the C++ strings that torch was built with.

    A mangled name has ``std::__cxx11`` in it where it was compiled with the newer strings of libstdc++, and
    ``Ss`` with the older ones (libstdc++ manual, "Dual ABI"; Itanium C++ ABI, 5.1.9).
    """
    abis = {
        wheel.scan.path.name: abi
        for project in set_environments.list_stack_projects(subject)
        for wheel in subject.wheels_by_project[project]
        if (abi := find_string_abi(wheel)) is not None
    }
    torch_names = {
        wheel.scan.path.name for wheel in subject.wheels_by_project.get(set_environments.TORCH_PROJECT, ())
    }
    torch_abis = {abi for name, abi in abis.items() if name in torch_names}
    if not torch_abis:
        return definition.SkippedCheck(
            "no symbol of a torch in the set tells which C++ strings it was built with"
        )
    findings = []
    for name, abi in sorted(abis.items()):
        if others := torch_abis - {abi}:
            message = f"was built with {_ABI_WORDS[abi]}, and torch with {_ABI_WORDS[others.pop()]}"
            findings.append(errors.Finding("error", message, subject=name))
    return findings


def find_string_abi(wheel: audited_wheel.AuditedWheel) -> str | None:
    """Return which C++ strings torch's functions are named with: ``new``, ``old``; None where no name tells.

    Where both are, it was built with the older ones: the newer ones bring no name of those.
    """
    abi = None
    for binary in wheel.binaries.values():
        if binary.symbols is None:
            continue
        for names in (*binary.symbols.exported.values(), *binary.symbols.undefined.values()):
            for name in names:
                if _NEW_STRING in name and _TORCH_SYMBOL.match(name):
                    abi = "new"
                elif _OLD_STRING in name and _TORCH_SYMBOL.match(name) and _names_old_string(name):
                    return "old"
    return abi


def _names_old_string(name: bytes) -> bool:
    """Tell whether a mangled name has ``Ss`` in it outside of identifiers, which stand there with lengths."""
    at = 0
    while at < len(name):
        if number := _MANGLED_NUMBER.match(name, at):
            at = number.end()
        elif length := _IDENTIFIER_LENGTH.match(name, at):
            at = length.end() + int(length[0])
        elif name.startswith(_OLD_STRING, at):
            return True
        else:
            at += 1
    return False


@definition.check(
    "RW073 set-targets (error)",
    why="One part of what is installed fails on a GPU that the others run on.",
    fix="Build what lacks a target again, from one list of targets.",
    kind="set",
)
def check_set_targets(subject: audited_set.AuditedSet) -> list[errors.Finding] | definition.SkippedCheck:
    """All wheels of the stack, and all of ROCm's databases, serve the same targets.

    Wheels for one system are compared, without variants, which are for different targets by intention.
    """
    targets_by_member: dict[str, dict[tuple[str, str], set[str]]] = {}
    for project in sorted(set_environments.list_stack_projects(subject)):
        recipe = audited_wheel.find_recipe(project)
        for wheel in subject.wheels_by_project[project]:
            if wheel.wheel_platform is None or wheel.scan.name is None or wheel.scan.name.label is not None:
                continue
            rules = recipe.list_device_code_rules(wheel.expected.platform) if recipe is not None else ()
            names = {
                name for rule in rules if rule.expect == "all" for name in wheel.find_members(rule.files)
            }
            groups = targets_by_member.setdefault(wheel.wheel_platform.system, {})
            ruled = sorted(names & {*wheel.device_code, *wheel.moved_code})
            for member in ruled:
                if held := set(audited_wheel.list_base_targets(wheel.list_member_targets(member))):
                    groups[wheel.scan.path.name, member] = held
            if recipe is not None and not ruled and not wheel.moved_code and wheel.targets:
                # no library of it must hold all, and together they do
                groups[wheel.scan.path.name, "it"] = set(wheel.targets)
    findings = []
    for groups in targets_by_member.values():
        every = set().union(*groups.values())
        for (name, member), held in groups.items():
            if missing := sorted(every - held):
                others = next(other for (other, _), targets in groups.items() if targets - held)
                message = f"{member} has no code for {' '.join(missing)}, and {others} has some"
                findings.append(errors.Finding("error", message, subject=name))
    kinds = {
        project.removeprefix(_DEVICE_PACKAGE): kernels.list_kinds(wheel.members)
        for project, wheels in subject.wheels_by_project.items()
        for wheel in wheels
        if project.startswith(_DEVICE_PACKAGE)
    }
    for target, own in sorted(kinds.items()):
        fact = gfx.get_gfx_targets().get(target)
        for library, kind in sorted(set().union(*kinds.values()) - own):
            if fact is not None and library not in fact.excluded:
                message = f"{library} has {kind} for other targets of the set, and not for {target}"
                name = subject.wheels_by_project[f"{_DEVICE_PACKAGE}{target}"][0].scan.path.name
                findings.append(errors.Finding("error", message, subject=name))
    if not any(targets_by_member.values()) and not kinds:
        return definition.SkippedCheck("no wheel must have code for all targets")
    return findings


_DEVICE_PACKAGE = "rocm-sdk-device-"


@definition.check(
    "RW074 set-runtimes (error)",
    why="Two OpenMP runtimes start twice the threads, and wait for their own alone.",
    fix="Repair all wheels in one image, so that they take in one library.",
    kind="set",
)
def check_set_runtimes(
    subject: audited_set.AuditedSet,
) -> list[errors.Finding] | definition.SkippedCheck:
    """The wheels bring one OpenMP runtime."""
    findings: dict[str, errors.Finding] = {}
    stack = sorted(set_environments.list_stack_projects(subject))
    if not stack:
        return definition.SkippedCheck("the set has no torch, and nothing that is built for one")
    for environment in set_environments.list_environments(subject):
        first: dict[str, str] = {}
        for project in stack:
            for wheel in set_environments.find_candidates(subject, project, environment)[:1]:
                own = libraries.list_openmp_runtimes(wheel)
                if first and own and not own.keys() & first.keys():
                    message = (
                        f"brings {next(iter(own.values()))}, and {next(iter(first.values()))} is another"
                    )
                    name = wheel.scan.path.name
                    findings.setdefault(name, errors.Finding("error", message, subject=name))
                first |= {digest: f"{wheel.scan.path.name}: {member}" for digest, member in own.items()}
    return list(findings.values())


@definition.check(
    "RW075 set-overlaps (error)",
    why="Which of both is there depends on the order of installation; removing one breaks the other.",
    fix="Take the file out of one of the wheels.",
    kind="set",
)
def check_set_overlaps(subject: audited_set.AuditedSet) -> list[errors.Finding]:
    """No two projects install different files under one name."""
    findings: dict[str, errors.Finding] = {}
    for environment in set_environments.list_environments(subject):
        owners: dict[str, tuple[str, str]] = {}  # path → digest, and whose
        for project in subject.wheels_by_project:
            for wheel in set_environments.find_candidates(subject, project, environment)[:1]:
                name, shared = wheel.scan.path.name, list[str]()
                for member, digest in wheel.digests.items():
                    place = hazards.locate_installed(member)
                    if place.is_library and ".dist-info/" not in member:
                        first, _ = owners.setdefault(place.path, (digest, name))
                        shared += [place.path] if first != digest else []
                if shared:
                    message = f"has {definition.join_names(shared)}; {owners[shared[0]][1]} has another"
                    findings.setdefault(name, errors.Finding("error", message, subject=name))
    return list(findings.values())


@definition.check(
    "RW064 set-complete (error)",
    why="With that Python installers take torch from here, and the rest from elsewhere, or nothing.",
    fix="Build what is missing, or leave that Python out.",
    kind="set",
)
def check_set_complete(subject: audited_set.AuditedSet) -> list[errors.Finding] | definition.SkippedCheck:
    """Every project has a wheel for each Python that another one has a wheel for."""
    stack = set_environments.list_stack_projects(subject)
    by_environment: dict[set_environments.SetEnvironment, set[str]] = {}
    for project in stack:
        for wheel in subject.wheels_by_project[project]:
            for environment in set_environments.list_tagged_environments(wheel):
                by_environment.setdefault(environment, set()).add(project)
    if not by_environment:
        return definition.SkippedCheck(
            "no torch in the set, and nothing that is built for one, is for one Python alone"
        )
    findings = []
    for project in sorted(stack):
        systems = {
            environment.system
            for wheel in subject.wheels_by_project[project]
            for environment in set_environments.list_tagged_environments(wheel)
        }
        for environment in sorted(by_environment):
            if environment.system in systems and not set_environments.find_candidates(
                subject, project, environment
            ):
                others = ", ".join(sorted(by_environment[environment]))
                message = f"there is no {project} for {environment}, and there is {others}"
                findings.append(errors.Finding("error", message, "build it, or leave that Python out"))
    return findings


@definition.check(
    "RW065 set-plan (error)",
    why="A release has gaps that nobody decided on.",
    fix="Build what is missing, or plan without it.",
    kind="set",
)
def check_set_plan(subject: audited_set.AuditedSet) -> list[errors.Finding] | definition.SkippedCheck:
    """Every wheel that was planned is there, with code for every target."""
    planned = subject.files.planned
    if planned is None:
        return definition.SkippedCheck(
            "nothing says what was planned: --plan FILE (of `matrix --json` or `plan --json`)"
        )
    findings = [finding for cell in planned for finding in _judge_cell(subject, cell)]
    if any(project.startswith("rocm-sdk-device-") for project in subject.wheels_by_project):
        targets = {(target, cell.platform) for cell in planned for target in cell.targets}
        systems = {
            environment.system: environment for environment in set_environments.list_environments(subject)
        }
        for target, platform in sorted(targets):
            project = f"rocm-sdk-device-{gfx.strip_features(target)}"
            if platform in systems and not set_environments.find_candidates(
                subject, project, systems[platform]
            ):
                message = f"there is no {project} for {platform}, and {target} was planned"
                findings.append(errors.Finding("error", message, "add ROCm's package for that GPU"))
    return findings


def _judge_cell(subject: audited_set.AuditedSet, cell: audited_set.PlannedWheel) -> Iterator[errors.Finding]:
    wheels = [
        wheel
        for wheel in subject.wheels_by_project.get(cell.project, ())
        if any(environment.accepts(wheel.scan.path.name) for environment in _list_cell_environments(cell))
    ]
    words = f"{cell.project} for Python {cell.python} on {cell.platform}"
    if not wheels:
        yield errors.Finding(
            "error", f"there is no {words}, which was planned", "build it, or plan without it"
        )
        return
    held = {target for wheel in wheels for target in wheel.targets}
    if missing := sorted({gfx.strip_features(target) for target in cell.targets} - held):
        message = f"{words} has no code for {' '.join(missing)}, which was planned"
        yield errors.Finding("error", message, subject=wheels[0].scan.path.name)


def _list_cell_environments(cell: audited_set.PlannedWheel) -> list[set_environments.SetEnvironment]:
    """Return the machines that a planned wheel may be for: a plan names no architecture."""
    architectures = ("amd64", "arm64") if cell.platform == "windows" else ("x86_64", "aarch64")
    return [
        set_environments.SetEnvironment(cell.python, cell.platform, architecture)
        for architecture in architectures
    ]
