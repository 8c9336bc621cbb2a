"""Check that what the wheels of a set require is in the set: pins, extras, device wheels, ROCm's packages.

Only what the set has something of is judged: what else is required (numpy, filelock) comes from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.audit import audited_wheel, metadata, set_environments
from rocm_wheels.audit.audited_set import AuditedSet
from rocm_wheels.audit.definition import Findings, Skip, check, error, note, warning
from rocm_wheels.audit.set_environments import ROCM_PROJECT, TRITON_NAMES, SetRequirement, find_candidates
from rocm_wheels.core import errors, tables
from rocm_wheels.index import folder
from rocm_wheels.models import gfx
from rocm_wheels.models.project import load_project
from rocm_wheels.variants import device_names

_ROCM_PREFIX = "rocm-sdk-"
_TARGET_PACKAGE = re.compile(r"(?:rocm-sdk-(?:device|libraries|devel)|amd-.+-device)-(?P<key>gfx[\w-]+)")


@check("RW062 set-pins (error)", kind="set")
def check_set_pins(subject: AuditedSet) -> Findings:
    """What a wheel requires of a project in the set is there, in that version and with those extras.

    Why: Installers find nothing to install, or take another build from elsewhere: segmentation faults.
    Fix: Build or stamp both again, from one lock.
    """
    for required in set_environments.iterate_requirements(subject):
        name, project, specifier = required.file_name, required.project, required.requirement.specifier
        wanted = f"requires {_spell(required)}, and"
        if project not in subject.wheels_by_project:
            if _is_built_with(subject, required):
                yield error(f"{wanted} the set has no {project}", name)
            others = sorted(TRITON_NAMES & set(subject.wheels_by_project))
            if project in TRITON_NAMES and others:
                message = f"requires {required.requirement.name}, and the set has it as {others[0]}"
                tip = "require it by the name that it is published under, or publish it under that name"
                yield error(message, name, tip)
            sdists = _list_sdist_versions(subject, project)
            if sdists and not any(specifier.contains(version, True) for version in sdists):
                yield error(f"{wanted} the set has {', '.join(map(str, sdists))}", name)
            continue
        candidates = find_candidates(subject, project, required.environment)
        if not candidates:
            continue  # that there is none for a Python is told as incomplete
        fitting = [wheel for wheel in candidates if specifier.contains(wheel.name.version, True)]
        older = set_environments.list_older_versions(subject, project, required.environment)
        if not fitting and not any(specifier.contains(version, True) for version in older):
            versions = sorted({str(wheel.name.version) for wheel in candidates})
            yield error(f"{wanted} the set has {', '.join(versions)}", name)
        for extra in sorted(map(canonicalize_name, required.requirement.extras)):
            if fitting and not any(extra in set_environments.list_extras(wheel) for wheel in fitting):
                yield error(f"{wanted} {fitting[0].scan.path.name} has no extra {extra}", name)
    yield from _find_loose_wheels(subject)


def _find_loose_wheels(subject: AuditedSet) -> Findings:
    """Yield the wheels that installers put beside another torch, triton or ROCm than the set's.

    A torch for GPUs that requires no triton or no ROCm, though the set has one for that machine; and what a
    recipe builds against another project, and pins it to no version: packaging writes such pins into our
    wheels.
    """
    for environment in set_environments.list_environments(subject):
        for wheel in find_candidates(subject, set_environments.TORCH_PROJECT, environment):
            if wheel.scan.metadata is None or not (wheel.targets or wheel.moved_code):
                continue  # a torch for CPUs alone needs neither
            name, has_own_rocm = wheel.scan.path.name, wheel.rocm_folder is not None or wheel.installed_rocm
            applied = [line for line in wheel.requirements if environment.applies(line)]
            for word, projects in (("triton", TRITON_NAMES), ("rocm", {ROCM_PROJECT})):
                lines = [line for line in applied if canonicalize_name(line.name) in projects]
                if not any(find_candidates(subject, project, environment) for project in projects):
                    continue
                if not lines and not (word == "rocm" and has_own_rocm):
                    yield error(f"requires no {word}, and the set has one", name)
                elif lines and wheel.has_recipe and not any(map(metadata.get_exact_version, lines)):
                    yield error(f"requires {lines[0]}, and belongs to the one of the set", name)
    for wheel in (wheel for wheel in subject.wheels if wheel.has_recipe and wheel.scan.metadata):
        for project in (load_project(pin.project).distribution for pin in wheel.project.build.pins):
            lines = [line for line in wheel.requirements if audited_wheel.is_same_name(line.name, project)]
            in_set = canonicalize_name(project) in subject.wheels_by_project
            if in_set and not any(map(metadata.get_exact_version, lines)):
                message = f"requires no exact version of {project}, and belongs to the one of the set"
                yield error(message, wheel.scan.path.name)


def _is_built_with(subject: AuditedSet, required: SetRequirement) -> bool:
    """Tell whether what is required can only be a build of ours: a version with a local part, in no index.

    ROCm's packages and device wheels have checks of their own, and sets are published beside those. A store's
    set without a torch is of a companion alone: what it needs is asked of the channel that is to show it.
    """
    if subject.files.kind == "set" and set_environments.TORCH_PROJECT not in subject.wheels_by_project:
        return False
    version = metadata.get_exact_version(required.requirement)
    if version is None or "+" not in version:
        return False
    if _ROCM_PROJECT.match(required.project) or device_names.find_host_project(required.project):
        return False
    listed = [*subject.files.absent, *(path.name for path in subject.files.sdists)]
    return not any(canonicalize_name(name.partition("-")[0]) == required.project for name in listed)


_ROCM_PROJECT = re.compile(r"rocm(?:$|-sdk-|-profiler)")


def _list_sdist_versions(subject: AuditedSet, project: str) -> list[Version]:
    """Return the versions of a project's source distributions in a set."""
    versions = []
    for path in subject.files.sdists:
        with suppress(errors.DataError):
            sdist_project, version, _ = folder.parse_file_name(path.name)
            versions += [version] if sdist_project == project else []
    return sorted(versions)


def _spell(required: SetRequirement) -> str:
    """Return a requirement without its marker."""
    requirement = required.requirement
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


@check("RW066 set-devices (error)", kind="set")
def check_set_devices(subject: AuditedSet) -> Findings:
    """Of split wheels: each extra leads to a device wheel, each of these has an extra, selectors are there.

    Why: Installers find nothing to install for that GPU, or nobody ever gets the device wheel.
    Fix: Publish host and device wheels of one split, all together; or split the host wheel again.
    """
    hosts = {
        project: host
        for project in subject.wheels_by_project
        if (host := device_names.find_host_project(project))
    }
    requirements = set_environments.iterate_requirements(subject)
    required = [item for item in requirements if device_names.find_host_project(item.project)]
    if not hosts and not required:
        raise Skip("no wheel is split: there is no device wheel, and none is required")
    led_to: set[str] = set()
    ways: dict[tuple[str, str], set[str]] = {}  # by wheel and extra: the device wheels that it leads to
    for item in required:
        for extra in item.extras:
            ways.setdefault((item.file_name, extra), set()).add(item.project)
        wheels = find_candidates(subject, item.project, item.environment)
        led_to.update(wheel.scan.path.name for wheel in wheels if item.wheel is not wheel)
        if not wheels:
            message = f"requires {item.requirement.name}, which the set has not for {item.environment}"
            yield error(f"{item.way} {message}", item.file_name)
    # an extra for all GPUs leads to each of them, and is no way to the code of one
    alone = {next(iter(projects)) for projects in ways.values() if len(projects) == 1}
    alone.update(project for (_, extra), projects in ways.items() if not extra for project in projects)
    for project, host in hosts.items():
        names = [wheel.name for wheel in subject.wheels_by_project.get(host, ())]
        for wheel in subject.wheels_by_project[project]:
            name = wheel.scan.path.name
            same = [other.tags for other in names if other.version == wheel.name.version]
            if same and wheel.name.tags not in same:
                yield error(f"has other tags than every wheel of {host} of its version", name)
            elif name not in led_to:
                yield error(f"no wheel of {host} in the set has an extra that leads to it", name)
            elif project not in alone:
                yield error(f"no extra of {host} leads to it alone, only with the code of other GPUs", name)


@check("RW067 metapackage (error)", kind="set")
def check_metapackage(subject: AuditedSet) -> Findings:
    """Rocm is one file for all systems, and what its extras bring is there.

    Why: Which ROCm is installed depends on the system, on which job uploaded last, or on the machine.
    Fix: Build it once, as a wheel for any platform, from what all have; publish it with all its packages.
    """
    wheels = subject.wheels_by_project.get(ROCM_PROJECT, ())
    sdists = sorted(p.name for p in subject.files.sdists if p.name.startswith(f"{ROCM_PROJECT}-"))
    parts = [project for project in subject.wheels_by_project if project.startswith(_ROCM_PREFIX)]
    if not wheels and not sdists:
        if not parts:
            raise Skip("the set has no packages of ROCm")
        count = tables.format_count(len(parts), "package")
        yield error(f"there is no {ROCM_PROJECT}, and there are {count} of it")
        return
    for name in sdists if not wheels else ():
        yield note("is built on the user's machine: what it requires is decided there", name)
    first = {str(wheel.name.version): wheel.scan for wheel in reversed(wheels)}
    for wheel in wheels:
        name, owner = wheel.scan.path.name, first[str(wheel.name.version)]
        if owner.sha256 != wheel.scan.sha256:
            message = f"is {ROCM_PROJECT} {wheel.name.version}, as {owner.path.name} is, with other bytes"
            yield error(message, name)
        if not name.endswith("-any.whl"):
            yield warning("is for one system, and decides for all what they install", name)
    for item in set_environments.iterate_requirements(subject) if parts else ():
        is_part = item.wheel in wheels and item.project.startswith((_ROCM_PREFIX, "rocm-profiler"))
        if not is_part or _TARGET_PACKAGE.fullmatch(item.project):
            continue
        if not find_candidates(subject, item.project, item.environment):
            message = f"requires {item.project}, which the set has not for {item.environment.system}"
            yield error(f"{item.way} {message}", item.file_name)


@check("RW068 set-target-packages (error)", kind="set")
def check_set_target_packages(subject: AuditedSet) -> Findings:
    """Packages for a GPU that are required are for that GPU, and there.

    Why: The libraries of another GPU are installed, or none: nothing runs.
    Fix: Make METADATA and code from one list of targets; add ROCm's packages for all of them.
    """
    requirements = set_environments.iterate_requirements(subject)
    required = [(item, match) for item in requirements if (match := _TARGET_PACKAGE.fullmatch(item.project))]
    if not required:
        raise Skip("no wheel requires a package for one GPU")
    has_rocm = any(project.startswith(_ROCM_PREFIX) for project in subject.wheels_by_project)
    for item, match in required:
        package = item.requirement.name
        for served, source in _list_served(item):
            if _list_covered_targets(match["key"]).isdisjoint(served):
                yield error(f"{source} requires {package}, which is for another GPU", item.file_name)
        is_judged = has_rocm and item.project.startswith(_ROCM_PREFIX)
        if is_judged and not find_candidates(subject, item.project, item.environment):
            message = f"requires {package}, which the set has not for {item.environment.system}"
            yield error(message, item.file_name)
    for project in subject.wheels_by_project:
        key = device_names.find_device_key(project)
        package = f"{_ROCM_PREFIX}device-{key}" if key else ""
        for wheel in subject.wheels_by_project[project] if package in subject.wheels_by_project else ():
            if package not in {canonicalize_name(line.name) for line in wheel.requirements}:
                message = f"requires no {package}, which has ROCm's kernels for that GPU"
                yield error(message, wheel.scan.path.name)


def _list_served(item: SetRequirement) -> Iterator[tuple[set[str], str]]:
    """Yield the targets that a requirement must be for, and what says so: an extra, or the wheel's own."""
    if match := _TARGET_PACKAGE.fullmatch(item.wheel.name.name):
        yield _list_covered_targets(match["key"]), "it"
        return
    for extra in item.extras:
        if extra.startswith("device-gfx"):
            yield _list_covered_targets(extra.removeprefix("device-")), f"its extra {extra}"
    if "" in item.extras and item.wheel.targets:
        yield set(item.wheel.targets), "it"


def _list_covered_targets(key: str) -> set[str]:
    """Return the targets that a package is for, by the end of its name: a target, or a family."""
    families = {name.lower(): targets for name, targets in gfx.get_gfx_families().items()}
    if key in families:
        return set(families[key])
    spelled = key.replace("-", "_")
    targets = gfx.get_gfx_targets()
    return {key, *(target for target in targets if spelled in device_names.get_package_chain(target))}


@check("RW069 device-default (warning)", kind="set")
def check_device_default(subject: AuditedSet) -> Findings:
    """A wheel without kernels of its own brings some, or says which extra does.

    Why: It installs, finds the GPU, and nothing runs.
    Fix: Say at import which extra brings kernels, require a default, or publish variants beside it.
    """
    hosts = [
        wheel
        for project, wheels in subject.wheels_by_project.items()
        for wheel in wheels
        if project != ROCM_PROJECT and not wheel.device_code
        if any(extra.startswith("device-") for extra in set_environments.list_extras(wheel))
    ]
    if not hosts:
        raise Skip("no wheel leaves its device code to extras")
    led_by_default: set[str] = set()  # projects
    for item in set_environments.iterate_requirements(subject):
        if "" in item.extras and device_names.find_device_key(item.project):
            led_by_default.add(item.wheel.name.name)
        elif item.requirement.extras and device_names.is_selector(item.wheel.name.name):
            led_by_default.add(item.project)
    for host in hosts:
        is_variant = host.name.label is not None  # which is chosen for the machine
        modules = [text for member, text in host.scan.texts.items() if member.endswith(".py")]
        tells = any(b"device-" in text for text in modules)  # import says: torch[device-gfx942]
        if host.name.name not in led_by_default and not is_variant and not tells:
            message = "installed without an extra it has no kernels, and says so nowhere: nothing runs"
            yield warning(f"{message} on any GPU", host.scan.path.name)
