"""An audited set: the wheels that people install together, as they were read, and the report on them.

A set is a folder, what an index offers, what a lock lists, or a set of a store. Its checks look at the same
``AuditedWheel``s as the checks of each wheel: no wheel is read a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from rocm_wheels.audit.audited_wheel import AuditedWheel, CheckReport
from rocm_wheels.audit.definition import Findings, check, error

SetKind = Literal["folder", "index", "lock", "set"]


@dataclass(frozen=True)
class PlannedWheel:
    """What a plan has: a project (normalized) for a Python (``3.12``), a platform, and targets.

    ``targets`` are those that there must be device code for; none: the project has no device code. ``line``
    is what its version begins with (``2.13``), "" where that is not planned.
    """

    project: str
    python: str
    platform: str
    targets: tuple[str, ...] = ()
    line: str = ""


@dataclass(frozen=True)
class SetFiles:
    """What a set lists, before any of it was read.

    ``origin`` names it to people. ``wheels`` and ``sdists`` are files here; ``digests`` are the sha256 that
    it states, by file name; ``absent`` says why a listed file could not be had. ``older``: the files of an
    index that newer ones of the same tags stand before; they are not read. ``index_url`` is that of an
    index, "" for anything else; ``planned`` is None where it does not say what it should hold. ``named`` are
    the wheels that are to be added to it.
    """

    origin: str
    kind: SetKind
    wheels: tuple[Path, ...]
    sdists: tuple[Path, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    older: tuple[str, ...] = ()
    index_url: str = ""
    planned: tuple[PlannedWheel, ...] | None = None
    named: tuple[Path, ...] = ()


@dataclass(frozen=True)
class ComparedSet:
    """The set that another is compared with: what was named for it, and the file names of its wheels."""

    origin: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class AuditedSet:
    """A set as its wheels were read.

    ``unreadable`` are the wheels that are no archives, which their reports say, with their sha256.
    ``compared`` is an older set.
    """

    files: SetFiles
    wheels: tuple[AuditedWheel, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    compared: ComparedSet | None = None

    @property
    def origin(self) -> str:
        """What was named, for people."""
        return self.files.origin

    @cached_property
    def sha256_by_name(self) -> dict[str, str]:
        """The digests of its wheels, of those that cannot be read, too."""
        return {**self.unreadable, **{wheel.scan.path.name: wheel.scan.sha256 for wheel in self.wheels}}

    @cached_property
    def wheels_by_project(self) -> Mapping[str, tuple[AuditedWheel, ...]]:
        """The wheels of each project (normalized), in the order of their names; without unreadable names."""
        wheels: dict[str, list[AuditedWheel]] = {}
        for wheel in sorted(self.wheels, key=lambda wheel: wheel.scan.path.name):
            if wheel.scan.name is not None:
                wheels.setdefault(wheel.scan.name.name, []).append(wheel)
        return {project: tuple(wheels[project]) for project in sorted(wheels)}


@dataclass(frozen=True, kw_only=True)
class SetReport(CheckReport):
    """What the checks of sets said: ``wheels`` are those of the set, with their SHA-256.

    ``older``: how many files of an index were not read, because newer ones stand before them.
    """

    origin: str
    kind: SetKind
    wheels: Mapping[str, str] = field(default_factory=dict)
    older: int = 0

    @property
    def title(self) -> str:
        """What was named as the set."""
        return f"set {self.origin}"

    def to_json(self) -> dict[str, object]:
        """Return the report as plain JSON values."""
        return {
            "origin": self.origin,
            "kind": self.kind,
            "wheels": dict(self.wheels),
            "older": self.older,
            **self.describe_checks(),
        }


@check("RW061 set-files (error)", kind="set")
def check_set_files(subject: AuditedSet) -> Findings:
    """The files that the index, lock or set lists are there, with the digests that it states.

    Why: Installers refuse them, or install something else than was tested.
    Fix: Publish the files again, as they were listed; a file of a name is never replaced by another.
    """
    for name, reason in sorted(subject.files.absent.items()):
        yield error(reason, name)
    for name, sha256 in sorted(subject.sha256_by_name.items()):
        if (stated := subject.files.digests.get(name, sha256)) != sha256:
            yield error(f"has the sha256 {sha256}, and {subject.origin} says {stated}", name)
    for wheel in subject.wheels:
        name, sha256 = wheel.scan.path.name, subject.sha256_by_name[wheel.scan.path.name]
        if sha256 != wheel.scan.sha256:
            message = f"is there twice, with the sha256 {wheel.scan.sha256} and {sha256}"
            yield error(message, name, "name one of them")
