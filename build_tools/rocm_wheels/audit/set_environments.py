"""Read requirements as installers do on the machines that a set is for: each of its Pythons and systems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.audit import audited_set, audited_wheel, metadata
from rocm_wheels.audit.definition import Skip
from rocm_wheels.core import errors
from rocm_wheels.index import folder
from rocm_wheels.models import project_names
from rocm_wheels.wheels import dist_info, python_tags, required_packages

TRITON_NAMES = frozenset({"triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm"})
"""What the triton that belongs to a torch has been called (pytorch/pytorch, ROCm/triton)."""
ROCM_PROJECT, TORCH_PROJECT = "rocm", "torch"


@dataclass(frozen=True, order=True)
class SetEnvironment:
    """A machine that a set is for: its CPython (``3.12``, ``3.13t``), system and architecture."""

    python: str
    system: str
    architecture: str

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"Python {self.python} on {self.system}"

    @property
    def platform(self) -> required_packages.WheelPlatform:
        """The platform of a wheel that is for it alone."""
        python, threads = self.python.rstrip("t").replace(".", ""), "t" * self.python.endswith("t")
        fields = dist_info.WheelNameFields("", "", "", f"cp{python}", f"cp{python}{threads}", "", "")
        return required_packages.WheelPlatform(self.system, self.architecture, fields)

    def accepts(self, wheel: str) -> bool:
        """Tell whether a wheel can be installed there, by its file name."""
        return self.platform.accepts(dist_info.split_wheel_name(wheel))

    def applies(self, requirement: Requirement, extra: str = "") -> bool:
        """Tell whether a requirement holds there with an extra, or without one."""
        marker = requirement.marker
        return marker is None or marker.evaluate({**self.platform.markers, "extra": extra})


@dataclass(frozen=True)
class SetRequirement:
    """A requirement of a wheel, and the extras (``""``: none) that it is read with, of one machine."""

    wheel: audited_wheel.AuditedWheel
    requirement: Requirement
    extras: tuple[str, ...]
    environment: SetEnvironment

    @property
    def file_name(self) -> str:
        """The wheel's file name."""
        return self.wheel.scan.path.name

    @property
    def way(self) -> str:
        """What requires it, for people: ``its extra devel``, or ``it``."""
        return next((f"its extra {extra}" for extra in self.extras if extra), "it")

    @property
    def project(self) -> str:
        """The project that is required (normalized)."""
        return canonicalize_name(self.requirement.name)


def list_stack_projects(subject: audited_set.AuditedSet) -> frozenset[str]:
    """Return the projects of a set that belong together: those of recipes, and those that pin torch."""
    stack = {TORCH_PROJECT, *TRITON_NAMES, *project_names.find_wheel_projects()}
    for project, wheels in subject.wheels_by_project.items():
        for wheel in wheels:
            pins = (metadata.get_exact_version(r) for r in wheel.requirements if r.name == TORCH_PROJECT)
            if any(pins):
                stack.add(project)
    return frozenset(stack & set(subject.wheels_by_project))


def require_stack(subject: audited_set.AuditedSet) -> list[str]:
    """Return the projects of the stack, sorted; ``Skip`` of a set that has none."""
    stack = sorted(list_stack_projects(subject))
    if not stack:
        raise Skip("the set has no torch, and nothing that is built for one")
    return stack


def list_environments(subject: audited_set.AuditedSet) -> tuple[SetEnvironment, ...]:
    """Return the machines that a set is for: those of its wheels for one CPython, of a stack if it has one.

    A set without such wheels (ROCm's packages alone) is for its systems, and for the oldest Python of ours.
    """
    stack = list_stack_projects(subject)
    environments: set[SetEnvironment] = set()
    for project, wheels in subject.wheels_by_project.items():
        if not stack or project in stack:
            environments.update(env for wheel in wheels for env in list_tagged_environments(wheel))
    if environments:
        return tuple(sorted(environments))
    platforms = {wheel.wheel_platform for wheels in subject.wheels_by_project.values() for wheel in wheels}
    systems = {(p.system, p.architecture) for p in platforms if p is not None} or {("linux", "x86_64")}
    return tuple(SetEnvironment("3.10", *system) for system in sorted(systems))


def list_tagged_environments(wheel: audited_wheel.AuditedWheel) -> list[SetEnvironment]:
    """Return the machines that a wheel's tags name, of wheels for one CPython each."""
    platform = wheel.wheel_platform
    if platform is None:
        return []
    pythons = sorted(python_tags.list_pythons(wheel.name.tags))
    return [SetEnvironment(python, platform.system, platform.architecture) for python in pythons]


def iterate_requirements(subject: audited_set.AuditedSet) -> Iterator[SetRequirement]:
    """Yield what the wheels of a set require, for each machine that they can be installed on."""
    environments = list_environments(subject)
    for wheels in subject.wheels_by_project.values():
        for wheel in wheels:
            requirements = [(line, _list_named_extras(line, wheel)) for line in wheel.requirements]
            for environment in environments:
                if not environment.accepts(wheel.scan.path.name):
                    continue
                for requirement, extras in requirements:
                    applied = tuple(extra for extra in extras if environment.applies(requirement, extra))
                    if applied:
                        yield SetRequirement(wheel, requirement, applied, environment)


def _list_named_extras(requirement: Requirement, wheel: audited_wheel.AuditedWheel) -> tuple[str, ...]:
    """Return the extras that a requirement's marker is read with: those that it names, or none ("")."""
    marker = str(requirement.marker or "")
    if "extra" not in marker:
        return ("",)
    named = [extra for extra in list_extras(wheel) if f'"{extra}"' in marker]
    return ("", *named)


def list_extras(wheel: audited_wheel.AuditedWheel) -> tuple[str, ...]:
    """Return the extras (normalized) that a wheel provides."""
    return tuple(map(canonicalize_name, wheel.scan.metadata.provides_extra)) if wheel.scan.metadata else ()


def find_candidates(
    subject: audited_set.AuditedSet, project: str, environment: SetEnvironment
) -> list[audited_wheel.AuditedWheel]:
    """Return the wheels of a project that can be installed on a machine."""
    wheels = subject.wheels_by_project.get(project, ())
    return [wheel for wheel in wheels if environment.accepts(wheel.scan.path.name)]


def list_older_versions(
    subject: audited_set.AuditedSet, project: str, environment: SetEnvironment
) -> list[Version]:
    """Return the versions of a project that an index has beside the newest, for a machine."""
    versions = []
    for name in subject.files.older:
        try:
            older_project, version, _ = folder.parse_file_name(name)
            fits = name.endswith(".whl") and environment.accepts(name)
        except (errors.DataError, InvalidVersion):
            continue
        if fits and older_project == project:
            versions.append(version)
    return versions
