"""An audited wheel: what a check looks at, what it was asked to be, and the report of all checks.

What a check could not look at is a ``SkippedCheck``, which is no pass.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.audit import drift_limits
from rocm_wheels.audit.definition import Skip, SkippedCheck
from rocm_wheels.binaries import loader
from rocm_wheels.core.errors import DataError, Finding, Severity, find_errors
from rocm_wheels.device_code import code_objects, kpack
from rocm_wheels.models import gfx, project_names
from rocm_wheels.models.project import Project
from rocm_wheels.wheels import platform_promises, required_packages
from rocm_wheels.wheels.dist_info import RecordEntry, WheelMetadata, WheelName, list_dist_info_folders
from rocm_wheels.wheels.scan import WheelScan

if TYPE_CHECKING:
    from auditwheel.policy import WheelPolicies  # type: ignore[import-untyped]

_LIBRARY_NAME = re.compile(r"\.(so|dll|pyd)$|\.so\.[\d.]+$", re.IGNORECASE)
TEST_FOLDER = re.compile(r"(?:^|/)(?:tests?|testing|test[_-]?data|certs?|examples?)(?:/|_)", re.IGNORECASE)
"""What a path has in it whose file may be there for tests alone."""
EXTENSION_MODULE = re.compile(
    r"(?:^|/)(?P<module>[A-Za-z_]\w*)\.(?:(?P<python>"
    r"(?:cpython-|cp)3(?P<minor>[0-9]+)(?P<threads>t?)d?|abi3t?|pypy\w+-pp\w+)(?:-(?P<machine>[\w-]+))?\.)?"
    r"(?P<suffix>so|pyd)$"
)
"""An extension module by its file name; its tag says which Python, and machine, can import it."""
INSTALLED_ROOT = re.compile(r"^[^/]+\.data/(?:purelib|platlib)/")
"""What of a member's name is not in the folder that it is installed into."""
ORIGIN = re.compile(r"\$(?:ORIGIN|\{ORIGIN\})(?:/|$)")
"""The beginning of a run path's entry that is relative to its library."""


@dataclass(frozen=True)
class WheelExpectation:
    """What a wheel was asked to be. ``None`` means "not known": a check that needs it is skipped by name.

    ``project`` is the recipe that it is held to: without one it is anybody's wheel. ``targets`` are spelled
    as in ``--gfx``; ``python_tag`` is the ABI of the interpreter it is for (``cp312``, ``cp313t``);
    ``rocm_version`` is the SDK's; ``requirements`` are exact pins that METADATA must hold besides the
    recipe's own (``triton==3.5.0``). ``unrepaired``: it stays as it was built, for the machine that built it.
    ``strict``: WHEEL, RECORD and variant.json are as formats want them, whoever built it.
    """

    project: Project | None
    platform: project_names.Platform
    version: str | None = None
    python_tag: str | None = None
    targets: tuple[str, ...] | None = None
    rocm_version: str | None = None
    requirements: tuple[str, ...] = ()
    unrepaired: bool = False
    strict: bool = False

    @property
    def recipe(self) -> Project:
        """The recipe, for what is only done where there is one."""
        assert self.project is not None, "this needs a recipe"
        return self.project


@dataclass(frozen=True)
class AuditedWheel:
    """A wheel as one pass found it, and its expectation; ``parts`` are device wheels split off from it.

    ``required``: the packages that it requires, where some were given to look for them in. ``baseline``: the
    wheel that it is compared with.
    """

    scan: WheelScan
    expected: WheelExpectation
    parts: tuple[WheelScan, ...] = ()
    required: required_packages.RequiredPackages | None = None
    baseline: Baseline | None = None

    @property
    def project(self) -> Project:
        """The recipe, for checks that are only run where there is one."""
        return self.expected.recipe

    @property
    def compared(self) -> Baseline:
        """The wheel that it is compared with, for checks that are only run where there is one."""
        assert self.baseline is not None, "this needs a wheel to compare with"
        return self.baseline

    @property
    def has_recipe(self) -> bool:
        """Tell whether it is held to a recipe: then it is a wheel of ours."""
        return self.expected.project is not None

    @property
    def rocm_init(self) -> str | None:
        """The module that starts ROCm's packages: of its recipe, else as such modules are called."""
        if self.has_recipe:
            return self.project.checks.rocm_init
        return f"{self.scan.name.distribution}/_rocm_init.py" if self.scan.name is not None else None

    @property
    def severity(self) -> Severity:
        """How grave it is what is untidy in anybody's wheel, and works: in wheels of ours an error."""
        return "error" if self.has_recipe else "warning"

    @property
    def format_severity(self) -> Severity:
        """How grave it is that WHEEL is not as its format wants it, and works."""
        return "error" if self.expected.strict else self.severity

    @property
    def released_severity(self) -> Severity:
        """The same of what may be in a wheel that stays as it was built, for the builder's machine."""
        return "warning" if self.expected.unrepaired else self.severity

    @property
    def name(self) -> WheelName:
        """What the file name says; ``Skip`` where it is not a wheel's."""
        if self.scan.name is None:
            raise Skip("the file name is not a wheel's")
        return self.scan.name

    @property
    def metadata(self) -> WheelMetadata:
        """What METADATA says; ``Skip`` where it could not be read."""
        if self.scan.metadata is None:
            raise Skip("METADATA could not be read")
        return self.scan.metadata

    @property
    def metadata_member(self) -> str:
        """The member that METADATA is."""
        return f"{self.dist_info}/METADATA"

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """Requires-Dist; () of a wheel whose METADATA cannot be read."""
        return tuple(map(Requirement, self.scan.metadata.requires_dist)) if self.scan.metadata else ()

    @property
    def system(self) -> str:
        """``linux`` or ``windows``, "" where it is for neither, or for any."""
        return self.wheel_platform.system if self.wheel_platform is not None else ""

    @cached_property
    def wheel_platform(self) -> required_packages.WheelPlatform | None:
        """Where its tags say it is for; None for any machine, and for systems that have no ROCm."""
        try:
            return required_packages.read_wheel_platform(self.scan.path)
        except DataError:
            return None

    @property
    def is_manylinux(self) -> bool:
        """Tell whether its tags promise a kind of Linux, as a repair computes them."""
        return self.scan.name is not None and all("manylinux" in tag.platform for tag in self.scan.name.tags)

    def require_linux_libraries(self) -> required_packages.WheelPlatform:
        """Return the platform of a wheel for Linux that holds native libraries; ``Skip`` of any other."""
        if not self.binaries or self.wheel_platform is None or self.wheel_platform.system != "linux":
            raise Skip("holds no native library for Linux")
        return self.wheel_platform

    def load_policies(self) -> WheelPolicies:
        """Return what manylinux tags promise, for its architecture; ``Skip`` without auditwheel."""
        assert self.wheel_platform is not None, "this needs a wheel for one platform"
        try:
            return platform_promises.load_policies(self.wheel_platform.architecture)
        except ModuleNotFoundError:
            self.skip_without_tables()

    def skip_without_tables(self) -> NoReturn:
        """Say that the tables of what systems have are not there."""
        raise Skip("the tables of auditwheel and delvewheel are not installed: rocm-wheels[build]") from None

    @cached_property
    def binaries(self) -> dict[str, loader.HostBinary]:
        """The ELF programs and libraries of the architecture that it is for, by member."""
        binaries = dict(sorted(self.scan.binaries.items()))
        if self.wheel_platform is None or self.wheel_platform.system != "linux":
            return binaries
        architecture = self.wheel_platform.architecture
        return {name: binary for name, binary in binaries.items() if binary.architecture == architecture}

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digest of each whole member."""
        return {member.name: member.digest for member in self.scan.members}

    @cached_property
    def members(self) -> frozenset[str]:
        """The names of all files inside, damaged ones too."""
        return self.damaged_members.union(member.name for member in self.scan.members)

    @property
    def damaged_members(self) -> frozenset[str]:
        """The members of which nothing can be said, because they are damaged or their name is wrong."""
        return self.scan.damaged_members

    @cached_property
    def dist_info(self) -> str:
        """The name of the ``.dist-info`` folder; that it is missing is told by the archive's check."""
        return next(iter(list_dist_info_folders(self.members)), "*.dist-info")

    @cached_property
    def device_code(self) -> dict[str, tuple[str, ...]]:
        """The targets (features included) of each member that has code for; empty entries do not count."""
        targets_by_member = {
            name: tuple(code_objects.list_code_targets(objects))
            for name, objects in self.scan.device_code.items()
        }
        return {name: targets for name, targets in sorted(targets_by_member.items()) if targets}

    @property
    def moved_code(self) -> Mapping[str, tuple[str, ...]]:
        """The libraries whose device code was moved out, with the ``.kpack`` archives that they name."""
        return self.scan.moved_code

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The base targets of all device code, that in its device wheels included, sorted."""
        inside = [target for targets in self.device_code.values() for target in targets]
        return list_base_targets(
            [*inside, *(target for member in self.moved_code for target in self.list_member_targets(member))]
        )

    def find_archives(self, member: str) -> list[str]:
        """Return the archives of a library's device code, here or in a device wheel, that it names."""
        return kpack.find_kpack_archives(member, self.moved_code.get(member, ()), self._all_code)

    @cached_property
    def _all_code(self) -> dict[str, tuple[code_objects.CodeObject, ...]]:
        """The code objects of each member, here and in the device wheels."""
        scans = (self.scan, *self.parts)
        return {name: objects for scan in scans for name, objects in scan.device_code.items()}

    def list_member_targets(self, member: str) -> tuple[str, ...]:
        """Return the targets (features included) that a member has code for, moved out or not."""
        if member not in self.moved_code:
            return self.device_code.get(member, ())
        return tuple(code_objects.list_code_targets(self.list_moved_objects(member)))

    def list_moved_objects(self, member: str) -> list[code_objects.CodeObject]:
        """Return the code objects of a library whose code was moved out, as far as it is here."""
        objects = [code for archive in self.find_archives(member) for code in self._all_code[archive]]
        return [code for code in objects if kpack.is_kernel_of(code.section, member)]

    def has_moved_kernels(self, member: str) -> bool:
        """Tell whether an archive, here or in a device wheel, has kernels of a library."""
        codes = (code for objects in self._all_code.values() for code in objects)
        return any(code.kind == "kpack" and kpack.is_kernel_of(code.section, member) for code in codes)

    @cached_property
    def rocm_folder(self) -> str | None:
        """The folder of the ROCm that the wheel carries (``torch/_rocm/``); None when it carries none."""
        name = self.project.checks.import_name if self.has_recipe else "[^/]+"
        folders = (re.match(f"{name}/_rocm/", member) for member in self.members)
        return next((folder[0] for folder in folders if folder), None)

    def list_absent_packages(self) -> list[str]:
        """Return the projects (normalized) that it requires, all the way down, and that are not at hand."""
        if self.required is not None:
            lines: Iterable[str] = self.required.missing
        else:
            lines = self.scan.metadata.requires_dist if self.scan.metadata else ()
        environment = {**(self.wheel_platform.markers if self.wheel_platform else {}), "extra": ""}
        return [
            canonicalize_name(requirement.name)
            for requirement in map(Requirement, lines)
            if not requirement.marker or requirement.marker.evaluate(environment)
        ]

    @property
    def installed_rocm(self) -> str:
        """The version of the installed ROCm that it was built on; "" for others."""
        return self.scan.metadata.installed_rocm if self.scan.metadata is not None else ""

    @cached_property
    def libraries(self) -> tuple[str, ...]:
        """The members that are native libraries by their name, sorted."""
        return tuple(sorted(name for name in self.members if _LIBRARY_NAME.search(name)))

    @cached_property
    def loaded_libraries(self) -> frozenset[str]:
        """The members that an import loads: extension modules, and what those are linked to, all the way."""
        members = {**self.binaries, **self.scan.imports}
        by_name: dict[str, list[str]] = {}
        for member in members:
            binary = self.binaries.get(member)
            names = {
                posixpath.basename(member),
                binary.loader.soname if binary and binary.loader.soname else "",
            }
            for name in names:
                by_name.setdefault(name if binary else name.lower(), []).append(member)
        waiting = [*self.extension_modules]
        loaded = set(waiting)
        while waiting:
            member = waiting.pop()
            binary = self.binaries.get(member)
            needed = binary.loader.needed if binary else map(str.lower, self.scan.imports.get(member, ()))
            reached = {other for name in needed for other in by_name.get(name, ())} - loaded
            loaded |= reached
            waiting += reached
        return frozenset(loaded)

    @cached_property
    def extension_modules(self) -> frozenset[str]:
        """The libraries that Python imports, by the tag in their names, or by the function that it calls."""
        return frozenset(filter(self._is_extension_module, {**self.binaries, **self.scan.imports}))

    def _is_extension_module(self, member: str) -> bool:
        match = EXTENSION_MODULE.search(member)
        if match is None or match["python"] or match["suffix"] == "pyd":
            return match is not None
        return self.exports_module(member, match)

    def exports_module(self, member: str, match: re.Match[str]) -> bool:
        """Tell whether an ELF library has the function that the import of a module calls."""
        binary = self.binaries.get(member)
        name = f"PyInit_{match['module']}".encode()
        exported = binary.symbols.exported.values() if binary and binary.symbols else ()
        return any(name in block for names in exported for block in names.iterate_blocks())

    @cached_property
    def jit_sources(self) -> tuple[str, ...]:
        """The HIP sources that the user's machine compiles into kernels, as the recipe names them, sorted."""
        pattern = self.project.checks.jit_sources if self.has_recipe else None
        return tuple(sorted(self.find_members(pattern))) if pattern is not None else ()

    def find_members(self, pattern: str) -> frozenset[str]:
        """Return the members that a recipe's glob names; ``*`` crosses folders."""
        return frozenset(fnmatch.filter(self.members, pattern))


@dataclass(frozen=True)
class Baseline:
    """The wheel that a wheel is compared with, and the limits of what may differ."""

    wheel: AuditedWheel
    limits: drift_limits.DriftLimits


def list_base_targets(targets: Iterable[str]) -> tuple[str, ...]:
    """Return the base targets, sorted and once each."""
    return tuple(sorted({gfx.strip_features(target) for target in targets}))


def is_same_name(name: str, other: str) -> bool:
    """Tell whether two spellings name one distribution (PEP 503)."""
    return canonicalize_name(name) == canonicalize_name(other)


SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""The gravest first."""
SEVERITY_WORDS: Mapping[str, str] = {"error": "error", "warning": "warning", "info": "note"}
"""What people are told them as, the gravest first."""


def describe_finding(finding: Finding) -> dict[str, str]:
    """Return a finding as plain JSON values."""
    from rocm_wheels.audit import checks  # the table knows the checks, which know this module

    return {
        "id": checks.get_check_id(finding.check),
        "check": finding.check,
        "severity": finding.severity,
        "what": finding.message,
        "where": finding.subject,
        "tip": finding.tip,
    }


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What checks said about something: a wheel, a set.

    ``ran`` and ``skipped`` together name every check; ``ignored`` are findings that exceptions cover.
    ``compared_with``: the older wheel or set that it was compared with, "" for none.
    """

    findings: tuple[Finding, ...] = ()
    ran: tuple[str, ...] = ()
    skipped: tuple[SkippedCheck, ...] = ()
    ignored: tuple[Finding, ...] = ()
    compared_with: str = ""

    @property
    def title(self) -> str:
        """What it is about, for people."""
        raise NotImplementedError

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep it from counting."""
        return find_errors(self.findings)

    @property
    def passed(self) -> bool:
        """Tell whether it counts: warnings are shown, and do not reject anything."""
        return not self.errors

    def describe_checks(self) -> dict[str, object]:
        """Return what the checks said as plain JSON values."""
        return {
            **({"compared_with": self.compared_with} if self.compared_with else {}),
            "passed": self.passed,
            "findings": [describe_finding(finding) for finding in self.findings],
            "ignored": [describe_finding(finding) for finding in self.ignored],
            "ran": list(self.ran),
            "skipped": {skip.check: skip.reason for skip in self.skipped},
        }


@dataclass(frozen=True, kw_only=True)
class AuditReport(CheckReport):
    """What the checks said about one wheel.

    ``targets`` are the base gfx targets of all device code inside, ``size`` is in bytes. ``archives`` are
    the ``.kpack`` archives that libraries name as the place of theirs, ``parts`` the device wheels that
    were read with it, with their SHA-256.
    ``libraries``: the targets of each member with device code. ``jit_sources``: the HIP sources that the
    user's machine compiles. ``record``: its RECORD, as it was read. ``requirements``: what it requires on its
    platform without an extra. ``recipe``: the one that it was held to. ``largest``: its largest members,
    with their bytes. ``compared_size``: the bytes of the wheel that it was compared with.
    """

    wheel: Path
    size: int
    sha256: str
    targets: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    jit_sources: tuple[str, ...] = ()
    record: tuple[RecordEntry, ...] = ()
    requirements: tuple[str, ...] = ()
    recipe: str = ""
    largest: Mapping[str, int] = field(default_factory=dict)
    compared_size: int = 0

    @property
    def title(self) -> str:
        """The wheel's file name."""
        return self.wheel.name

    def to_json(self) -> dict[str, object]:
        """Return the report as plain JSON values."""
        return {
            "wheel": self.wheel.name,
            "size": self.size,
            "sha256": self.sha256,
            "recipe": self.recipe,
            "largest": dict(self.largest),
            "targets": list(self.targets),
            "archives": list(self.archives),
            "device_wheels": list(self.parts),
            "device_wheels_sha256": dict(self.parts),
            "jit_sources": list(self.jit_sources),
            **self.describe_checks(),
        }
