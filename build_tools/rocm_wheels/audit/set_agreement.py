"""Check that the wheels of a set agree, and that none is missing: versions, ROCm, Pythons, the plan."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.version import InvalidVersion, Version

from rocm_wheels.audit import kernels, libraries, metadata, set_environments
from rocm_wheels.audit.audited_set import AuditedSet, PlannedWheel
from rocm_wheels.audit.audited_wheel import AuditedWheel, list_base_targets
from rocm_wheels.audit.definition import Findings, Skip, check, error, join_names
from rocm_wheels.core import tables
from rocm_wheels.models import gfx, versions
from rocm_wheels.models.project import find_project_of
from rocm_wheels.wheels import hazards

_ROCM_LOCAL = re.compile(r"(?:^|\.)(?:dev)?rocm(?:sdk|v)?\.?(?P<version>[0-9].*)")
_DEVICE_PACKAGE = "rocm-sdk-device-"


@check("RW063 set-versions (error)", kind="set")
def check_set_versions(subject: AuditedSet) -> Findings:
    """One version of each project, and one ROCm, on each system.

    Why: Parts of several builds are installed together, with another ROCm below.
    Fix: Build or stamp them again, from one lock; or leave the older wheels out.

    Variants are for several ROCms, and are compared with themselves alone.
    """
    rocms: dict[str, dict[str, list[AuditedWheel]]] = {}
    for project in set_environments.require_stack(subject):
        versions: dict[str, dict[str, list[AuditedWheel]]] = {}
        for wheel in subject.wheels_by_project[project]:
            stated = list_stated_rocms(wheel)
            if len(set(stated.values())) > 1:
                sides = " and ".join(f"{rocm} by its {source}" for source, rocm in stated.items())
                yield error(f"is for ROCm {sides}", wheel.scan.path.name)
            if wheel.name.label is None:
                system = wheel.system or "any system"
                of_version = versions.setdefault(system, {}).setdefault(str(wheel.name.version), [])
                of_version.append(wheel)
                if stated:
                    rocms.setdefault(system, {}).setdefault(next(iter(stated.values())), []).append(wheel)
        for groups in versions.values():
            yield from _judge_groups(groups, f"{project} is there in {{count}}: {{groups}}")
    for groups in rocms.values():
        yield from _judge_groups(groups, "wheels are for {count} of ROCm: {groups}")


def _judge_groups(groups: Mapping[str, list[AuditedWheel]], message: str) -> Findings:
    """Yield what is wrong where there is more than one group; it is about the first wheel of the smallest."""
    if len(groups) > 1:
        names = {word: sorted(wheel.scan.path.name for wheel in wheels) for word, wheels in groups.items()}
        described = "; ".join(f"{word} ({join_names(names[word])})" for word in sorted(names))
        count = tables.format_count(len(groups), "version")
        smallest = min(groups.values(), key=len)[0].scan.path.name
        yield error(message.format(count=count, groups=described), smallest)


def list_stated_rocms(wheel: AuditedWheel) -> dict[str, str]:
    """Return the ROCm that a wheel is for, as its version and its pin of rocm say, spelled alike."""
    stated: dict[str, str] = {}
    if match := _ROCM_LOCAL.search(wheel.name.version.local or ""):
        stated["version"] = versions.strip_version_marks(match["version"])
    for requirement in wheel.requirements:
        pin = metadata.get_exact_version(requirement)
        if requirement.name == set_environments.ROCM_PROJECT and pin is not None:
            stated["pin of rocm"] = versions.strip_version_marks(_spell_as_local(pin))
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


@check("RW072 set-abi (error)", kind="set")
def check_set_abi(subject: AuditedSet) -> Findings:
    """All was built with the C++ strings that torch was built with.

    Why: Loading it ends with: undefined symbol.
    Fix: Build both with one setting of _GLIBCXX_USE_CXX11_ABI.

    A mangled name has ``std::__cxx11`` in it where it was compiled with the newer strings of libstdc++, and
    ``Ss`` with the older ones (libstdc++ manual, "Dual ABI"; Itanium C++ ABI, 5.1.9).
    """
    abis: dict[str, str] = {}
    of_torch: set[str] = set()
    for project in set_environments.list_stack_projects(subject):
        for wheel in subject.wheels_by_project[project]:
            if (abi := find_string_abi(wheel)) is not None:
                abis[wheel.scan.path.name] = abi
                of_torch |= {abi} if project == set_environments.TORCH_PROJECT else set()
    if not of_torch:
        raise Skip("no symbol of a torch in the set tells which C++ strings it was built with")
    for name, abi in sorted(abis.items()):
        if others := of_torch - {abi}:
            yield error(f"was built with {_ABI_WORDS[abi]}, and torch with {_ABI_WORDS[others.pop()]}", name)


def find_string_abi(wheel: AuditedWheel) -> str | None:
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


@check("RW073 set-targets (error)", kind="set")
def check_set_targets(subject: AuditedSet) -> Findings:
    """All wheels of the stack, and all of ROCm's databases, serve the same targets.

    Why: One part of what is installed fails on a GPU that the others run on.
    Fix: Build what lacks a target again, from one list of targets.

    Wheels for one system are compared, without variants, which are for different targets by intention; so are
    ROCm's device packages for one system, of one version.
    """
    by_system: dict[str, dict[tuple[str, str], set[str]]] = {}
    for project in sorted(set_environments.list_stack_projects(subject)):
        for wheel in subject.wheels_by_project[project]:
            if wheel.wheel_platform is not None and wheel.name.label is None:
                held = _list_libraries_for_all(wheel)
                groups = by_system.setdefault(wheel.system, {})
                groups.update({(wheel.scan.path.name, member): targets for member, targets in held.items()})
    for groups in by_system.values():
        every = set().union(*groups.values())
        for (name, member), targets in groups.items():
            if missing := sorted(every - targets):
                others = next(other for (other, _), held in groups.items() if held - targets)
                yield error(f"{member} has no code for {' '.join(missing)}, and {others} has some", name)
    releases: dict[tuple[str, str], dict[str, AuditedWheel]] = {}
    for project, wheels in subject.wheels_by_project.items():
        for wheel in wheels if project.startswith(_DEVICE_PACKAGE) else ():
            key = wheel.system, str(wheel.name.version)
            releases.setdefault(key, {})[project.removeprefix(_DEVICE_PACKAGE)] = wheel
    for by_target in releases.values():
        kinds = {target: kernels.list_kinds(wheel.members) for target, wheel in by_target.items()}
        for target, own in sorted(kinds.items()):
            fact = gfx.get_gfx_targets().get(target)
            for library, kind in sorted(set().union(*kinds.values()) - own):
                if fact is not None and library not in fact.excluded:
                    message = f"{library} has {kind} for other targets of the set, and not for {target}"
                    yield error(message, by_target[target].scan.path.name)
    if not any(by_system.values()) and not releases:
        raise Skip("no wheel must have code for all targets")


def _list_libraries_for_all(wheel: AuditedWheel) -> dict[str, set[str]]:
    """Return the targets of the libraries that must hold code for all, by the recipe of the wheel's project.

    Where none must, and together they do, it is the wheel.
    """
    recipe = find_project_of(wheel.name.name)
    if recipe is None:
        return {}
    rules = recipe.list_device_code_rules(wheel.expected.platform)
    names = {name for rule in rules if rule.expect == "all" for name in wheel.find_members(rule.files)}
    ruled = sorted(names & {*wheel.device_code, *wheel.moved_code})
    if not ruled and not wheel.moved_code and wheel.targets:
        return {"it": set(wheel.targets)}
    held = {member: set(list_base_targets(wheel.list_member_targets(member))) for member in ruled}
    return {member: targets for member, targets in held.items() if targets}


@check("RW074 set-runtimes (error)", kind="set")
def check_set_runtimes(subject: AuditedSet) -> Findings:
    """The wheels bring one OpenMP runtime.

    Why: Two OpenMP runtimes start twice the threads, and wait for their own alone.
    Fix: Repair all wheels in one image, so that they take in one library.
    """
    stack, told = set_environments.require_stack(subject), set[str]()
    for environment in set_environments.list_environments(subject):
        first: dict[str, str] = {}
        for project in stack:
            for wheel in set_environments.find_candidates(subject, project, environment)[:1]:
                own, name = libraries.list_openmp_runtimes(wheel), wheel.scan.path.name
                if first and own and not own.keys() & first.keys() and name not in told:
                    told.add(name)
                    other = next(iter(first.values()))
                    yield error(f"brings {next(iter(own.values()))}, and {other} is another", name)
                first |= {digest: f"{name}: {member}" for digest, member in own.items()}


@check("RW075 set-overlaps (error)", kind="set")
def check_set_overlaps(subject: AuditedSet) -> Findings:
    """No two projects install different files under one name.

    Why: Which of both is there depends on the order of installation; removing one breaks the other.
    Fix: Take the file out of one of the wheels.
    """
    told = set[str]()
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
                if shared and name not in told:
                    told.add(name)
                    yield error(f"has {join_names(shared)}; {owners[shared[0]][1]} has another", name)


@check("RW064 set-complete (error)", kind="set")
def check_set_complete(subject: AuditedSet) -> Findings:
    """Every project has a wheel for each Python that another one has a wheel for.

    Why: With that Python installers take torch from here, and the rest from elsewhere, or nothing.
    Fix: Build what is missing, or leave that Python out.
    """
    stack = sorted(set_environments.list_stack_projects(subject))
    projects: dict[set_environments.SetEnvironment, set[str]] = {}
    systems: dict[str, set[str]] = {}
    for project in stack:
        for wheel in subject.wheels_by_project[project]:
            for environment in set_environments.list_tagged_environments(wheel):
                projects.setdefault(environment, set()).add(project)
                systems.setdefault(project, set()).add(environment.system)
    if not projects:
        raise Skip("no torch in the set, and nothing that is built for one, is for one Python alone")
    for project in stack:
        for environment in sorted(projects):
            is_for = environment.system in systems.get(project, ())
            if is_for and not set_environments.find_candidates(subject, project, environment):
                others = ", ".join(sorted(projects[environment]))
                yield error(f"there is no {project} for {environment}, and there is {others}")


@check("RW065 set-plan (error)", kind="set")
def check_set_plan(subject: AuditedSet) -> Findings:
    """Every wheel that was planned is there, with code for every target.

    Why: A release has gaps that nobody decided on.
    Fix: Build what is missing, or plan without it.
    """
    planned = subject.files.planned
    if planned is None:
        raise Skip("nothing says what was planned: the set.json of a staged set does")
    for cell in planned:
        yield from _judge_cell(subject, cell)
    if not any(project.startswith(_DEVICE_PACKAGE) for project in subject.wheels_by_project):
        return
    systems = {environment.system: environment for environment in set_environments.list_environments(subject)}
    for target, platform in sorted({(target, cell.platform) for cell in planned for target in cell.targets}):
        project = f"{_DEVICE_PACKAGE}{gfx.strip_features(target)}"
        environment = systems.get(platform)
        if environment and not set_environments.find_candidates(subject, project, environment):
            message = f"there is no {project} for {platform}, and {target} was planned"
            yield error(message)


def _judge_cell(subject: AuditedSet, cell: PlannedWheel) -> Findings:
    # a plan names no architecture
    architectures = ("amd64", "arm64") if cell.platform == "windows" else ("x86_64", "aarch64")
    wheels = [
        wheel
        for architecture in architectures
        for wheel in set_environments.find_candidates(
            subject, cell.project, set_environments.SetEnvironment(cell.python, cell.platform, architecture)
        )
        if wheel.scan.name is not None
        and f"{wheel.scan.name.version.base_version}.".startswith(f"{cell.line}." if cell.line else "")
    ]
    name = f"{cell.project} {cell.line}".rstrip()
    words = f"{name} for Python {cell.python} on {cell.platform}"
    if not wheels:
        yield error(f"there is no {words}, which was planned")
        return
    held = {target for wheel in wheels for target in wheel.targets}
    if missing := sorted({gfx.strip_features(target) for target in cell.targets} - held):
        message = f"{words} has no code for {' '.join(missing)}, which was planned"
        yield error(message, wheels[0].scan.path.name)
