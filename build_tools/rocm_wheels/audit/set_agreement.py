"""Check that the wheels of a set agree, and that none is missing: versions, ROCm, Pythons, the plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from packaging.version import InvalidVersion, Version

from rocm_wheels.audit.audited_set import AuditedSet, PlannedWheel
from rocm_wheels.audit.audited_wheel import AuditedWheel, SkippedCheck
from rocm_wheels.audit.metadata import get_exact_version
from rocm_wheels.audit.set_environments import (
    ROCM_PROJECT,
    SetEnvironment,
    find_candidates,
    get_version,
    list_environments,
    list_stack_projects,
    list_tagged_environments,
    parse_requirements,
)
from rocm_wheels.core import Finding, format_count
from rocm_wheels.models import strip_features

_VERSION_TIP = "build or stamp them again, from one lock; or leave the older wheels out"
_ROCM_LOCAL = re.compile(r"(?:^|\.)(?:dev)?rocm(?:sdk|v)?\.?(?P<version>[0-9].*)")
_MOST_NAMED = 4


def check_set_versions(subject: AuditedSet) -> list[Finding] | SkippedCheck:
    """Each project of the stack has one version, and all are for one ROCm, on each system.

    Variants are for several ROCms, and are compared with themselves alone.
    """
    stack = list_stack_projects(subject)
    if not stack:
        return SkippedCheck("the set has no torch, and nothing that is built for one")
    findings: list[Finding] = []
    rocms: dict[str, dict[str, list[AuditedWheel]]] = {}
    for project in sorted(stack):
        versions: dict[str, dict[str, list[AuditedWheel]]] = {}
        for wheel in subject.wheels_by_project[project]:
            stated = list_stated_rocms(wheel)
            if len(set(stated.values())) > 1:
                said = " and ".join(f"{rocm} by its {source}" for source, rocm in stated.items())
                findings.append(
                    Finding("error", f"is for ROCm {said}", _VERSION_TIP, subject=wheel.scan.path.name)
                )
            if wheel.scan.name is not None and wheel.scan.name.label is None:
                system = wheel.wheel_platform.system if wheel.wheel_platform else "any system"
                versions.setdefault(system, {}).setdefault(str(get_version(wheel)), []).append(wheel)
                if stated:
                    rocms.setdefault(system, {}).setdefault(next(iter(stated.values())), []).append(wheel)
        for groups in versions.values():
            findings += _judge_groups(groups, f"{project} is there in {{count}}: {{groups}}")
    for groups in rocms.values():
        findings += _judge_groups(groups, "wheels are for {count} of ROCm: {groups}")
    return findings


def _judge_groups(groups: Mapping[str, list[AuditedWheel]], message: str) -> Iterator[Finding]:
    """Yield what is wrong where there is more than one group; it is about the first wheel of the smallest."""
    if len(groups) < 2:
        return
    smallest = min(groups.values(), key=len)[0].scan.path.name
    described = "; ".join(f"{word} ({_join_names(wheels)})" for word, wheels in sorted(groups.items()))
    text = message.format(count=format_count(len(groups), "version"), groups=described)
    yield Finding("error", text, _VERSION_TIP, subject=smallest)


def _join_names(wheels: Iterable[AuditedWheel]) -> str:
    names = sorted(wheel.scan.path.name for wheel in wheels)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def list_stated_rocms(wheel: AuditedWheel) -> dict[str, str]:
    """Return the ROCm that a wheel is for, as its version and its pin of rocm say, spelled alike."""
    stated: dict[str, str] = {}
    version = get_version(wheel)
    if match := _ROCM_LOCAL.search(version.local or ""):
        stated["version"] = match["version"]
    for requirement in parse_requirements(wheel):
        pin = get_exact_version(requirement)
        if requirement.name == ROCM_PROJECT and pin is not None:
            stated["pin of rocm"] = _spell_as_local(pin)
    return stated


def _spell_as_local(version: str) -> str:
    """Return a version as it is spelled in the local part of another: ``7.1.0+x`` is ``7.1.0.x``."""
    try:
        return Version(f"0+{re.sub('[^0-9A-Za-z]+', '.', version)}").local or version
    except InvalidVersion:
        return version


def check_set_complete(subject: AuditedSet) -> list[Finding] | SkippedCheck:
    """Every project of the stack has a wheel for each Python that another one has a wheel for."""
    stack = list_stack_projects(subject)
    by_environment: dict[SetEnvironment, set[str]] = {}
    for project in stack:
        for wheel in subject.wheels_by_project[project]:
            for environment in list_tagged_environments(wheel):
                by_environment.setdefault(environment, set()).add(project)
    if not by_environment:
        return SkippedCheck("the set has no torch, and nothing that is built for one Python")
    findings = []
    for project in sorted(stack):
        systems = {
            environment.system
            for wheel in subject.wheels_by_project[project]
            for environment in list_tagged_environments(wheel)
        }
        for environment in sorted(by_environment):
            if environment.system in systems and not find_candidates(subject, project, environment):
                others = ", ".join(sorted(by_environment[environment]))
                message = f"there is no {project} for {environment}, and there is {others}"
                findings.append(Finding("error", message, "build it, or leave that Python out"))
    return findings


def check_set_plan(subject: AuditedSet) -> list[Finding] | SkippedCheck:
    """Every wheel that was planned is there, with code for every target; so are ROCm's packages for these."""
    planned = subject.files.planned
    if planned is None:
        return SkippedCheck(
            "nothing says what was planned: --plan FILE (of `matrix --json` or `plan --json`)"
        )
    findings = [finding for cell in planned for finding in _judge_cell(subject, cell)]
    if any(project.startswith("rocm-sdk-device-") for project in subject.wheels_by_project):
        targets = {(target, cell.platform) for cell in planned for target in cell.targets}
        systems = {environment.system: environment for environment in list_environments(subject)}
        for target, platform in sorted(targets):
            project = f"rocm-sdk-device-{strip_features(target)}"
            if platform in systems and not find_candidates(subject, project, systems[platform]):
                message = f"there is no {project} for {platform}, and {target} was planned"
                findings.append(Finding("error", message, "add ROCm's package for that GPU"))
    return findings


def _judge_cell(subject: AuditedSet, cell: PlannedWheel) -> Iterator[Finding]:
    wheels = [
        wheel
        for architecture in ("x86_64", "amd64", "aarch64")
        for wheel in find_candidates(
            subject, cell.project, SetEnvironment(cell.python, cell.platform, architecture)
        )
    ]
    words = f"{cell.project} for Python {cell.python} on {cell.platform}"
    if not wheels:
        yield Finding("error", f"there is no {words}, which was planned", "build it, or plan without it")
        return
    held = {target for wheel in wheels for target in wheel.targets}
    if missing := sorted({strip_features(target) for target in cell.targets} - held):
        message = f"{words} has no code for {' '.join(missing)}, which was planned"
        yield Finding(
            "error", message, "build it for all targets of the plan", subject=wheels[0].scan.path.name
        )
