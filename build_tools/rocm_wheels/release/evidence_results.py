"""Results as our own commands print them with ``--json``, and as the smoke tests write them."""

from __future__ import annotations

import re
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
from rocm_wheels.model.gfx import base_target
from rocm_wheels.model.lock import Sha256
from rocm_wheels.release.evidence import Counts, Evidence
from rocm_wheels.release.evidence_given import NO_GPU, Given
from rocm_wheels.release.gate.needed import pythons_of
from rocm_wheels.shell import shell_line
from rocm_wheels.wheels.members import digest_of_file
from rocm_wheels.wheels.names import parse_wheel_name, split_wheel_name

T = TypeVar("T")
_FIRST = 3
_SHOWN = 60
_VERIFY = "rocm-wheels verify"
_ON_GPU = re.compile(r"[\[-]gpu[\]-]| @gfx")  # in the name of a smoke test that ran on one
# what changes how results are shown, and not which tests are run; a test that -x kept from running is a crash
_CHOOSES_NOTHING = re.compile(
    r"--|-[vqsxl]+|-r[A-Za-z]+|--exitfirst|--verbose|--quiet|--showlocals|--full-trace|--no-header|--no-summary"
    r"|--(?:tb|color|durations|durations-min|capture|junitxml|junit-xml|show-capture|maxfail)=\S*"
)


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


class _Test(BaseModel):
    name: str
    outcome: Literal["passed", "failed", "crashed", "timeout", "skipped", "missing"]


class _Selection(BaseModel):
    pytest_args: tuple[str, ...] = ()
    deselected: int = 0


class _Smoke(BaseModel):
    schema_version: Literal[1] = Field(alias="schema")
    tool: str
    when: AwareDatetime
    host: str
    gfx: tuple[str, ...]
    files: Mapping[str, Sha256]
    tests: tuple[_Test, ...]
    counts: Mapping[str, int]
    selection: _Selection | None = None


def evidence_of_verify(value: object, source: Path, given: Given) -> list[Evidence]:
    """Return what ``verify --json`` found: one of all wheels that passed, one of each that did not."""
    reports = _read(tuple[_Report, ...], value, source)
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
        made.append(make(Counts(**checks), passed.values(), detail=f"{len(passed)} wheels"))
    return made


def evidence_of_resolver(value: object, source: Path, given: Given) -> list[Evidence]:
    """Return what ``resolve-check --json`` found, of those of the given wheels that it speaks of.

    It speaks of those that a check picked; when a check failed, of all whose projects were asked for.
    """
    found = _read(_Resolved, value, source)
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
            detail=f"{len(about)} wheels",
            failed=bad,
        )
    ]


def evidence_of_smoke(value: object, source: Path, given: Given) -> list[Evidence]:
    """Return what the smoke tests found, on the GPUs of one target or on none."""
    found = _read(_Smoke, value, source)
    counted = Counter[str](one.outcome for one in found.tests)
    if (said := Counter({k: n for k, n in found.counts.items() if n})) != counted:
        raise DataError(
            f"{source} counts {_counted(said)}, and lists {_counted(counted)}",
            tip="it is not whole: run again",
        )
    counts = Counts(**counted)
    _refuse_other_tools(found, counts, source)
    projects = {file.project for file in given.document.files}
    own = {name: sha for name, sha in found.files.items() if _distribution(name) in projects}
    if others := sorted(set(found.files) - set(own)):
        log.note(f"{source}: also there, and not of this set: {', '.join(others)}")
    if not own:
        tip = "run the smoke tests where the wheels of the set are installed, from its own index"
        raise DataError(f"{source} names no wheel of {given.document.id}", tip=tip)
    hashes = given.of_the_set(own, source)
    bad = [one.name for one in found.tests if one.outcome not in {"passed", "skipped"}]
    return [
        given.make(
            "smoke",
            counts,
            hashes,
            source=source,
            tool=found.tool,
            when=found.when,
            host=found.host,
            gfx=_target(found.gfx, counts, source, given),
            failed=bad,
            selected=_selected(found),
            digest=digest_of_file(source),
        )
    ]


def _refuse_other_tools(found: _Smoke, counts: Counts, source: Path) -> None:
    """Raise DataError for results that are not of our smoke tests, or name a GPU that no test passed on."""
    if not (found.tool.startswith("rocm-wheels ") and " smoke tests" in found.tool):
        raise DataError(
            f"{source} is of another tool ({found.tool[:_SHOWN]})",
            tip="run build_tools/run_pytorch_smoke_tests.py; of other tests, hand in the JUnit files",
        )
    on_gpu = any(_ON_GPU.search(one.name) and one.outcome == "passed" for one in found.tests)
    if found.gfx and counts.outcome() == "pass" and not on_gpu:
        raise DataError(f"{source} names {', '.join(found.gfx)}, and no test passed on a GPU")


def _selected(found: _Smoke) -> str:
    """Return how tests were chosen; "" where all were run, or those left out failed to run.

    Of the words that pytest was given those are known that choose nothing; any other may.
    """
    if found.selection is None:  # of a version that put the words behind its name
        return found.tool.partition(" smoke tests")[2].strip(" ()")
    words = [word for word in found.selection.pytest_args if not _CHOOSES_NOTHING.fullmatch(word)]
    left_out = f"{found.selection.deselected} left out" if found.selection.deselected else ""
    return ", ".join(filter(None, [shell_line(words) if words else "", left_out]))


def _target(said: tuple[str, ...], counts: Counts, source: Path, given: Given) -> str | None:
    """Return the target that a result is of; what people say must agree, or explain a failure."""
    found = sorted({base_target(one) for one in said})
    if len(found) > 1:
        raise UsageError(
            f"{source} is of {' and '.join(found)} together: one may have skipped what another passed",
            tip=f"add those that are beside it: results-{found[0]}.json and the others",
        )
    own = found[0] if found else None
    if given.gfx in {None, own} or (given.gfx == NO_GPU and own is None):
        return own
    if own is not None or counts.outcome() == "pass":
        raise UsageError(f"{source} {f'ran on {own}' if own else 'saw no GPU'}, not on {given.gfx}")
    return given.gfx  # it died before it had seen the GPU


def _speaks_of(asked: set[tuple[str, str, str]], name: str) -> bool:
    project, pythons, version = _distribution(name), pythons_of(name), parse_wheel_name(name).version
    return any(
        project == one and (not pythons or python in pythons) and (not picked or _is(version, picked))
        for one, python, picked in asked
    )


def _is(version: Version, picked: str) -> bool:
    try:
        return Version(picked) == version
    except InvalidVersion:
        return False


def _distribution(name: str) -> str:
    return canonicalize_name(split_wheel_name(name).distribution)


def _project(requirement: str, source: Path) -> str:
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        raise DataError(f"{source}: {requirement!r} is no requirement") from None


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "nothing"


def _read(model: type[T], value: object, source: Path) -> T:
    try:
        return TypeAdapter(model).validate_python(value)
    except ValidationError as wrong:
        one = wrong.errors()[0]
        place = ".".join(map(str, one["loc"]))
        raise DataError(
            f"{source}: {place}: {one['msg']}", tip="it is not whole, or of another version"
        ) from None
