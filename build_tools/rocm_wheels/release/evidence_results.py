"""Results as our own commands print them with ``--json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from rocm_wheels import log
from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.model.lock import Sha256
from rocm_wheels.records import say
from rocm_wheels.release.evidence import Counts, Evidence
from rocm_wheels.release.evidence_given import Given
from rocm_wheels.release.gate.needed import pythons_of
from rocm_wheels.wheels.members import digest_of_file
from rocm_wheels.wheels.names import parse_wheel_name, split_wheel_name
from rocm_wheels.words import counted

T = TypeVar("T")
_FIRST = 3
_VERIFY = "rocm-wheels verify"


class _Finding(BaseModel):
    severity: Literal["error", "warning"]
    what: str
    check: str = ""


class _Report(BaseModel):
    wheel: str
    passed: bool
    sha256: Sha256 | None = None  # a file that could not be read has none
    unreadable: str = ""
    findings: tuple[_Finding, ...] = ()
    ran: tuple[str, ...] = ()
    skipped: Mapping[str, str] = {}
    when: AwareDatetime | None = None
    tool: str = ""


class _Check(BaseModel):
    requirement: str
    python: str
    tool: str
    fault: str
    picked: str = ""


class _Resolved(BaseModel):
    checks: tuple[_Check, ...] = Field(min_length=1)
    when: AwareDatetime | None = None
    tool: str = ""


def evidence_of_verify(value: object, source: Path, given: Given) -> list[Evidence]:
    """Return what ``verify --json`` found: one of all wheels that passed, one of each that did not."""
    reports = read_as(tuple[_Report, ...], value, source)
    if not reports:
        raise DataError(f"{source} has no report in it", tip="verify the wheels of the set")
    made, passed = [], dict[str, str]()
    checks: Counter[str] = Counter()
    whens = [one.when for one in reports if one.when is not None]
    said_when = min(whens) if len(whens) == len(reports) else None
    make = partial(
        given.make,
        "verify",
        source=source,
        tool=next((one.tool for one in reports if one.tool), _VERIFY),
        when=said_when,
        digest=digest_of_file(source) if said_when else "",
    )
    for one in reports:
        sha256 = one.sha256 or given.wheels.get(one.wheel)
        if sha256 is None:
            tip = "name it too: --wheels DIR"
            raise UsageError(
                f"{source}: {one.wheel} could not be read, so nothing says which it was", tip=tip
            )
        hashes = given.of_the_set({one.wheel: sha256}, source)
        errors = [f"{f.check}: {f.what}" for f in one.findings if f.severity == "error"]
        if one.passed and not errors and one.ran:
            passed[one.wheel] = hashes[0]
            checks.update(passed=len(one.ran), skipped=len(one.skipped))
            continue
        said = [*errors, *filter(None, [one.unreadable])] or ["no check ran"]
        counts = Counts(passed=max(len(one.ran) - len(said), 0), failed=len(said), skipped=len(one.skipped))
        made.append(make(counts, hashes, detail=f"{one.wheel}: {said[0]}"))
    if passed:
        made.append(make(Counts(**checks), passed.values(), detail=counted(len(passed), "wheel")))
    return made


def evidence_of_resolver(value: object, source: Path, given: Given) -> list[Evidence]:
    """Return what ``resolve-check --json`` found, of those of the given wheels that it speaks of.

    It speaks of those that a check picked; when a check failed, of all whose projects were asked for.
    """
    found = read_as(_Resolved, value, source)
    checks, failed = found.checks, any(one.fault for one in found.checks)
    asked = {(_project(one.requirement, source), one.python, "" if failed else one.picked) for one in checks}
    given.hashed_here(source, "of `resolve-check`")
    about = {name: sha for name, sha in given.wheels.items() if _speaks_of(asked, name)}
    if left := sorted(set(given.wheels) - set(about)):
        log.note(f"{source} says nothing of {', '.join(left[:_FIRST])}{' and others' * (len(left) > _FIRST)}")
    if not about:
        raise UsageError(
            f"{source} speaks of none of the wheels that were given: what was picked are others",
            tip="check the wheels of the set: rocm-wheels resolve-check INDEX WHEELS --json",
        )
    bad = [
        f"{one.requirement}, Python {one.python}, {one.tool}: {(one.fault.splitlines() or [''])[0]}"
        for one in checks
        if one.fault
    ]
    counts = Counts(passed=len(checks) - len(bad), failed=len(bad))
    return [
        given.make(
            "resolver",
            counts,
            given.of_the_set(about, source),
            source=source,
            tool=found.tool or "rocm-wheels resolve-check",
            when=found.when,
            digest=digest_of_file(source) if found.when else "",
            detail=counted(len(about), "wheel"),
            failed=bad,
        )
    ]


def _speaks_of(asked: set[tuple[str, str, str]], name: str) -> bool:
    project, pythons, version = distribution_of(name), pythons_of(name), parse_wheel_name(name).version
    return any(
        project == one and (not pythons or python in pythons) and (not picked or _is(version, picked))
        for one, python, picked in asked
    )


def _is(version: Version, picked: str) -> bool:
    try:
        return Version(picked) == version
    except InvalidVersion:
        return False


def distribution_of(name: str) -> str:
    """Return the project (normalized) of a wheel by its file name."""
    return canonicalize_name(split_wheel_name(name).distribution)


def tested_hashes(files: Mapping[str, str], source: Path, given: Given, *, tip: str) -> list[str]:
    """Return the digests of the set's wheels that were tested, of ``files`` (sha256 by name) that were there.

    Others are named. Raises DataError with ``tip`` where none is of the set.
    """
    projects = {file.project for file in given.document.files}
    own = {name: sha for name, sha in files.items() if distribution_of(name) in projects}
    if others := sorted(set(files) - set(own)):
        log.note(f"{source}: also there, and not of this set: {', '.join(others)}")
    if not own:
        raise DataError(f"{source} names no wheel of {given.document.id}", tip=tip)
    return given.of_the_set(own, source)


def _project(requirement: str, source: Path) -> str:
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        raise DataError(f"{source}: {requirement!r} is no requirement") from None


def read_as(model: type[T], value: object, source: Path) -> T:
    """Read JSON into a model. Raises DataError with the places of mistakes."""
    try:
        return TypeAdapter(model).validate_python(value)
    except ValidationError as wrong:
        tip = "it is not whole, or of another version"
        raise DataError(f"{source}: {say(wrong, model)}", tip=tip) from None
