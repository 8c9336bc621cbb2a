"""Describe evidence: what was found out about the wheels of a set, by whom, when and on what machine.

A result is a file of its own beside the set (``evidence/<set>/<when>-<12 hex>.json``). Its name holds the
hash of what it says, files are only ever created, and the hashes of the wheels are in it: what was tested
cannot be exchanged behind it, and what was said stays said. ``EvidenceSubmission`` is what somebody says
beside a result: who, on what machine, about which files; it makes evidence of both.

JUnit reports are read as evidence counts them: what is truncated, empty or missing is never a pass. The
shards of a run are several files; the outcome is that of the worst.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints, ValidationError, model_validator

from rocm_wheels.core import errors, junit, records, tables
from rocm_wheels.models import lock, test_results, tested_machine
from rocm_wheels.release import wheel_set

SIGSTORE_KEY = "sigstore"
CLOCK_SKEW = timedelta(minutes=5)  # two clocks that are both right enough
EvidenceKind = test_results.ResultKind
EvidenceOutcome = Literal["pass", "fail", "crash", "timeout", "missing", "lost"]
_MOST_NAMED = 2000  # failed and flaky tests that are named; all are counted


def _convert_to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(timezone.utc).replace(microsecond=0)
    except OverflowError:  # in UTC it would be of the year 0
        raise ValueError("there is no such time in UTC") from None


Moment = Annotated[AwareDatetime, AfterValidator(_convert_to_utc)]
GfxName = Annotated[str, records.require_pattern(r"gfx[0-9]+[0-9a-f]{2}", "a GPU target such as gfx942")]
PrintableLine = Annotated[
    str,
    StringConstraints(max_length=1000),
    records.require_pattern(r"[^\x00-\x1f\x7f]*", "one printable line"),
]
PrintableName = Annotated[PrintableLine, StringConstraints(min_length=1)]
Measurement = Annotated[float, Field(allow_inf_nan=False)]


class OutcomeCounts(records.Record):
    """How many tests, or checks, ended how."""

    passed: int = Field(default=0, ge=0)
    failed: int = Field(default=0, ge=0)
    crashed: int = Field(default=0, ge=0)
    timeout: int = Field(default=0, ge=0)
    skipped: int = Field(default=0, ge=0)
    missing: int = Field(default=0, ge=0)
    flaky: int = Field(default=0, ge=0)

    def __str__(self) -> str:
        """Return them for people: ``70 passed, 2 failed``."""
        parts = [f"{number} {name}" for name, number in self.model_dump().items() if number]
        return ", ".join(parts) or "nothing ran"

    @property
    def has_bad(self) -> bool:
        """Whether a test failed, crashed or was stopped."""
        return bool(self.failed or self.crashed or self.timeout)

    def decide_outcome(self) -> EvidenceOutcome:
        """Return what they come to: nothing that passed is no pass, skipped tests are none.

        Where a test did not come to its turn, nobody knows what the others come to. How many may be flaky,
        the policy of a channel says.
        """
        if self.crashed:
            return "crash"
        if self.timeout:
            return "timeout"
        if self.failed:
            return "fail"
        if self.missing:
            return "missing"
        return "pass" if self.passed else "missing"


class TestedSuite(records.Record):
    """A suite of torch's own tests, or one ``shard`` of ``shards`` of it: ``plan`` names who has which files.

    Shards of two plans do not make one suite: a file may be in two of them, and another one in none.
    """

    __test__ = False  # pytest takes classes of this name for tests

    name: PrintableName
    shard: int = Field(default=1, ge=1, le=test_results.MOST_SHARDS)
    shards: int = Field(default=1, ge=1, le=test_results.MOST_SHARDS)
    plan: PrintableLine = ""

    def __str__(self) -> str:
        """Return it for people: ``full 2/6``."""
        return self.name if self.shards == 1 else f"{self.name} {self.shard}/{self.shards}"

    @model_validator(mode="after")
    def _check_shard(self) -> TestedSuite:
        if self.shard > self.shards:
            raise ValueError(f"there is no shard {self.shard} of {self.shards}")
        return self


class EvidenceHost(records.Record):
    """The machine that a result is from. ``kind`` says which machines are alike: a later result of one of
    them takes the place of an earlier one, and none of another kind does."""

    name: PrintableName
    kind: PrintableName = "any"

    @property
    def short(self) -> str:
        """Its name without what it says of itself behind that (``runner-3 (Linux, x86_64)``)."""
        return self.name.partition(" (")[0] or self.name


class Signature(records.Record):
    """A signature by ssh-keygen: the public key (``ssh-ed25519 AAAA…``) and the armored signature.

    Where ``key`` is ``sigstore``, ``value`` is a Sigstore bundle, whose certificate names who attested it.
    """

    key: str
    value: str

    @property
    def is_bundle(self) -> bool:
        """Whether it is a Sigstore bundle."""
        return self.key == SIGSTORE_KEY


class Evidence(records.Record):
    """One result. ``hashes`` are the sha256 of the wheels that it speaks of, ``when`` is when it was found.

    ``gfx`` is None for what no GPU had a part in. ``added`` is when it was written down, ``by`` whom, and
    ``detail`` what there is to say of it in a line. ``failed`` names tests, not all where there are many.
    ``source`` is the sha256 of the results that it was made of, where they say when they were found;
    ``selected`` says by what the tests were chosen, where not all of them were run;
    ``machine`` is what the tests ran on, where they say it;
    ``flaky`` names tests that passed when they were tried again, not all where there are many;
    ``suite`` is that of torch's own tests (None: results that name none, which count as the suite default);
    ``measurements`` are what tests that passed measured, by name (``tflops:gemm-float16-4096``), of several
    GPUs the least; ``about`` is the digest of the set's document as a whole.
    """

    schema_version: Literal[2] = Field(default=2, alias="schema")
    kind: EvidenceKind
    set: wheel_set.SetId
    hashes: tuple[lock.Sha256Digest, ...] = Field(min_length=1)
    gfx: GfxName | None = None
    outcome: EvidenceOutcome
    counts: OutcomeCounts
    tool: PrintableName
    host: EvidenceHost
    by: PrintableName
    when: Moment
    added: Moment
    detail: PrintableLine = ""
    failed: tuple[PrintableLine, ...] = Field(default=(), max_length=_MOST_NAMED)
    flaky: tuple[PrintableLine, ...] = Field(default=(), max_length=_MOST_NAMED)
    source: lock.Sha256Digest | Literal[""] = ""
    selected: PrintableLine = ""
    about: lock.Sha256Digest | Literal[""] = ""
    machine: tested_machine.TestedMachine | None = None
    suite: TestedSuite | None = None
    measurements: Annotated[Mapping[PrintableName, Measurement], Field(max_length=_MOST_NAMED)] = {}
    signature: Signature | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> Evidence:
        if list(self.hashes) != sorted(set(self.hashes)):
            raise ValueError("hashes must be sorted, and each there once")
        if self.passed and self.counts.decide_outcome() != "pass":
            raise ValueError(f"it cannot have passed: {self.counts}")
        return self

    @property
    def passed(self) -> bool:
        """Tell whether it speaks for the set."""
        return self.outcome == "pass"

    @property
    def part(self) -> str:
        """Which part of the tests it is of, for people: a shard of a suite, chosen tests; "" for all."""
        suite, parts = self.suite, []
        if suite is not None and suite.shards > 1:
            parts.append(f"shard {suite.shard} of {suite.shards}")
        if self.selected:
            parts.append(f"chosen tests: {self.selected}")
        return f"a part, {'; '.join(parts)}" if parts else ""

    @property
    def payload(self) -> bytes:
        """What is hashed and signed: canonical JSON (sorted, no spaces, ASCII) without ``added``."""
        return _canonical_json(self._dump("added", "signature"))

    @property
    def claim(self) -> str:
        """What tells one finding from another, whoever hands it in."""
        content = self._dump("added", "signature", "by")
        return self.source or hashlib.sha256(_canonical_json(content)).hexdigest()

    @property
    def id(self) -> str:
        """Its name: when, and what. The same said twice is one; signed and unsigned are two."""
        signed = self.signature.value.encode() if self.signature else b""
        return f"{self.when:%Y%m%dT%H%M%SZ}-{hashlib.sha256(self.payload + signed).hexdigest()[:12]}"

    def to_json(self) -> bytes:
        """Return its file."""
        values = self._dump()
        return (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()

    def _dump(self, *without: str) -> Mapping[str, object]:
        return self.model_dump(mode="json", by_alias=True, exclude=set(without))


def parse_evidence(content: bytes, *, where: str, name: str) -> Evidence:
    """Read the file of an evidence. DataError when it is none, or not what was written under its name."""
    tip = "it may have said that a test failed: put it back from a copy of the store, do not delete it"
    try:
        evidence = Evidence.model_validate_json(content)
    except ValidationError as cause:
        raise errors.DataError(
            f"{where} cannot be read as evidence: {records.summarize_faults(cause, Evidence)}", tip=tip
        ) from None
    if evidence.id != name:
        raise errors.DataError(
            f"{where} was changed after it was written: what it says is {evidence.id}", tip=tip
        )
    return evidence


def describe_evidence(evidence: Evidence) -> str:
    """Return an evidence in a line: ``smoke on gfx942: pass (70 passed), 2026-11-21 18:00 on runner-3``.

    One of a part of the tests is named as such: ``smoke on gfx942 (a part, chosen tests: -k conv): …``.
    """
    return f"{name_subject(evidence)}: {summarize_evidence(evidence)}"


def name_subject(evidence: Evidence) -> str:
    """Return what an evidence is of: kind, suite, target, and which part of the tests, where not of all."""
    suite = f" ({evidence.suite.name})" if evidence.suite is not None else ""
    part = f" ({evidence.part})" if evidence.part else ""
    return f"{evidence.kind}{suite}{f' on {evidence.gfx}' if evidence.gfx else ''}{part}"


def summarize_evidence(evidence: Evidence) -> str:
    """Return what came of it, when and where, for a line that says of what."""
    result = f"{evidence.outcome} ({evidence.counts}), {evidence.when:%Y-%m-%d %H:%M} UTC"
    return f"{result} on {evidence.host.short}"


def _canonical_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


NO_GPU_WORD = "none"
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]+")
_LONGEST_LINE = 300


@dataclass(frozen=True)
class EvidenceSubmission:
    """What is said beside a result. ``wheels`` are the sha256 of files that were hashed here, by name.

    What is None or "" is taken from the result (``gfx``: a target, or NO_GPU); ``here`` is this machine's
    name, for results that name none. ``reports`` is how many JUnit reports there must be, ``suite`` the one
    of torch's tests that they are of.
    """

    document: wheel_set.SetDocument
    by: str
    added: datetime
    here: str
    wheels: Mapping[str, str] = field(default_factory=dict)
    gfx: str | None = None
    host_kind: str = "any"
    reports: int | None = None
    suite: str = ""

    def make_evidence(
        self, path: Path, *, when: datetime | None = None, host: str = "", **facts: Any
    ) -> Evidence:
        """Return the evidence of results in a file; ``facts`` are fields of it, texts as they were found.

        Results that do not say when they were found are as old as their file; of no ``host`` they are of this
        one. Raises DataError for what no evidence can hold.
        """
        try:
            found_at = _convert_to_utc(when or datetime.fromtimestamp(path.stat().st_mtime, timezone.utc))
        except (ValueError, OverflowError, OSError) as wrong:  # of the year 0, or 10000
            raise errors.DataError(f"{path} says when it was found, and {wrong}") from None
        for name in ("tool", "detail", "selected"):
            facts[name] = make_printable_line(facts.get(name, ""))
        for name in ("failed", "flaky"):
            facts[name] = tuple(map(make_printable_line, facts.get(name, ())[:_MOST_NAMED]))
        measured = facts.pop("measurements", {})
        try:
            return Evidence(
                **facts,
                set=self.document.id,
                about=self.document.digest,
                host=EvidenceHost(
                    name=make_printable_line(host or self.here), kind=make_printable_line(self.host_kind)
                ),
                by=make_printable_line(self.by),
                when=found_at,
                added=self.added,
                measurements={make_printable_line(name): number for name, number in measured.items()},
            )
        except ValidationError as wrong:
            raise errors.DataError(
                f"{path} makes no evidence: {records.summarize_faults(wrong, Evidence)}"
            ) from None

    def require_set_hashes(self, wheels_by_name: Mapping[str, str], source: Path) -> list[str]:
        """Return the sha256 of wheels by name, all of which must be in the set as they are.

        Raises ReleaseError for a wheel that is not, or that has other bytes there.
        """
        sha256_by_name = {file.name: file.sha256 for file in self.document.files}
        for name, sha256 in wheels_by_name.items():
            if sha256 in self.document.hashes:
                continue
            if name in sha256_by_name:
                raise errors.ReleaseError(
                    f"{source}: {name} has other bytes than in the set: sha256 {sha256[:12]}…, "
                    f"not {sha256_by_name[name][:12]}…",
                    tip="another build was tested; test the wheels of the set",
                )
            raise errors.ReleaseError(
                f"{source}: {name} is not in {self.document.id}", tip="name the set that it is of"
            )
        return sorted(set(wheels_by_name.values()))

    def require_given_hashes(self, source: Path, result_kind: str) -> list[str]:
        """Return the sha256 of the wheels that were given, for a result that names none.

        Raises UsageError when none were given.
        """
        if not self.wheels:
            raise errors.UsageError(
                f"{source} is {result_kind}, which does not say by hash which wheels it is about",
                tip="name the wheels that were tested: --wheels DIR",
            )
        return self.require_set_hashes(self.wheels, source)


def make_printable_line(text: str) -> str:
    """Return text as one line that can be printed, cut where it is long."""
    line = _CONTROL_CHARACTERS.sub(" ", text).strip()
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


@dataclass(frozen=True)
class JunitRun:
    """What JUnit files say together. ``faults`` are sentences about files that do not say all they should.

    ``when`` is the earliest time that a suite gives, None where none does: a run is as old as its oldest
    part. ``hosts`` are its machines, ``digests`` the sha256 of the files.
    """

    outcome: EvidenceOutcome
    counts: OutcomeCounts
    failed: tuple[str, ...]
    faults: tuple[str, ...]
    when: datetime | None
    hosts: tuple[str, ...]
    digests: tuple[str, ...]


def list_report_files(paths: Sequence[Path], expected: int | None) -> list[Path]:
    """Return the files among paths, those in folders (``*.xml`` at any depth) included.

    Of a folder nobody can tell what is missing: UsageError unless ``expected`` says how many there must be.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            if expected is None:
                raise errors.UsageError(
                    f"{path} is a folder: a shard that died left no file in it, and nobody would know",
                    tip="say how many reports there must be: --reports N",
                )
            files += sorted(path.rglob("*.xml"))
        else:
            files.append(path)
    return list(dict.fromkeys(files))


def read_junit_run(files: Sequence[Path], expected: int | None = None) -> JunitRun:
    """Read the shards of a run: a file that is not whole is a crash, fewer than expected are ``missing``.

    A shard that is there twice is counted once, and makes the run ``missing``: the other one is not there.
    """
    reports_by_digest: dict[str, junit.JunitReport] = {}
    faults, names = [], dict[str, str]()
    for file in files:
        report = junit.read_junit_report(file)
        if report.digest in reports_by_digest:
            faults.append(f"{file.name} is the same as {names[report.digest]}")
            continue
        reports_by_digest[report.digest], names[report.digest] = report, file.name
    reports = list(reports_by_digest.values())
    broken = [report.fault for report in reports if report.fault]
    faults = [*broken, *faults]
    if expected is not None and len(files) < expected:
        faults.append(f"{len(files)} of {tables.format_count(expected, 'report is', 'reports are')} there")
    totals = Counter[str](crashed=len(broken))
    for report in reports:
        totals.update(report.counts)
    counts = OutcomeCounts(**totals)
    outcome = counts.decide_outcome()
    return JunitRun(
        outcome="missing" if outcome == "pass" and faults else outcome,
        counts=counts,
        failed=tuple(name for report in reports for name in report.reasons),
        faults=tuple(faults),
        when=min((report.when for report in reports if report.when), default=None),
        hosts=tuple(dict.fromkeys(host for report in reports for host in report.hosts)),
        digests=tuple(sorted(reports_by_digest)),
    )
