"""Read what came of a night, and what people get of it: the facts of the pages in ``dashboard_pages``.

A night is a day (UTC). Of each family, platform and line of torch its newest set of that day counts, and is
compared with the newest of the days before; a line without one is missing. Sets and locks never change, and
all evidence counts that is there now: the same store and day are the same facts.

Of the results of a Python the newest of a kind, a GPU and a kind of machine stands, as at the gate. A cell
is ``failed`` or ``lost`` where such a result stands, ``missing`` where a wheel is, ``promoted`` where a
channel shows the set, else ``untested``, ``held`` or ``passed``. What is not written down is empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from rocm_wheels.core import (
    DataError,
    NotInStoreError,
    Store,
    explain_error,
    log_warning,
    run_in_parallel,
    summarize_faults,
)
from rocm_wheels.index import parse_snapshot
from rocm_wheels.models import Lock, Platform
from rocm_wheels.package import parse_stored_statement
from rocm_wheels.release.channel import Channel, read_channel
from rocm_wheels.release.evidence.evidence import Evidence, describe_evidence
from rocm_wheels.release.evidence.store import read_all_evidence
from rocm_wheels.release.gate import judge_set
from rocm_wheels.release.kept_policy import find_kept_policy
from rocm_wheels.release.layout import FamilyPaths, StoreLayout
from rocm_wheels.release.policy import CHANNEL_NAMES, Policy, Verdict
from rocm_wheels.release.set_list import SetRow, list_sets
from rocm_wheels.release.views import SupportDocument, derive_whole_support
from rocm_wheels.release.wheel_set import (
    SetDocument,
    SetFile,
    list_families_of_target,
    list_set_targets,
    list_wheel_pythons,
    read_set,
)
from rocm_wheels.sources import LockDiff, compare_locks, parse_lock
from rocm_wheels.wheels import BUILD_TYPE, ProvenanceStatement, walk_statements

CellState = Literal["promoted", "passed", "failed", "held", "lost", "untested", "missing"]
CELL_STATES: tuple[CellState, ...] = ("promoted", "passed", "failed", "held", "lost", "untested", "missing")
_GPU_KINDS = ("smoke", "tests")
_LOST = "lost"  # the outcome of a run whose GPU stopped calculating
_ROW_DAYS = 14  # so long a line is missed that has no set
_READ_JOBS = 8


@dataclass(frozen=True)
class NightCell:
    """What came of a Python of a row. ``why`` is a line, ``results`` one for each result that stands."""

    python: str
    state: CellState
    why: str = ""
    results: tuple[str, ...] = ()


@dataclass(frozen=True)
class NightFailure:
    """A test or check that fails on a set. ``new``: not on the set before. ``log`` is an address, or ""."""

    family: str
    os: Platform
    line: str
    kind: str
    name: str
    set: str
    outcome: str
    gfx: tuple[str, ...]
    pythons: tuple[str, ...]
    detail: str = ""
    log: str = ""
    new: bool = True

    @property
    def key(self) -> str:
        """Its name among all failures of a store, for good."""
        parts = (self.family, self.os, self.line, self.kind, self.name)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """Return it in a line."""
        return f"{self.name} fails ({self.kind}, {self.family}, torch {self.line}, {self.os})"


@dataclass(frozen=True)
class NightNote:
    """A test that passed when it was tried again, or a GPU that was lost: of what, and where."""

    family: str
    os: Platform
    line: str
    set: str
    what: str
    gfx: str
    host: str
    pythons: tuple[str, ...]


@dataclass(frozen=True)
class BuildTime:
    """How long the wheel of a project took for a Python, in seconds; ``cache`` is "3 of 4 hits", or ""."""

    project: str
    python: str
    started: str
    seconds: float
    cache: str = ""


@dataclass(frozen=True)
class InstallCheck:
    """What came of installing a set from a channel on a bare system, up to the ``step`` that failed."""

    image: str
    family: str
    set: str
    version: str
    python: str
    gfx: str
    passed: bool
    step: str = ""
    detail: str = ""

    @property
    def name(self) -> str:
        """Its name among what can fail."""
        return f"install on {self.image}"


class _InstallStep(BaseModel):
    step: str
    detail: str = ""


class _InstallResult(BaseModel):
    family: str
    set: str
    version: str
    python: str
    gfx: str
    passed: bool
    steps: tuple[_InstallStep, ...]


class _InstallReport(BaseModel):
    """What ``build_tools/validate_published.py`` writes."""

    schema_version: Literal[1] = Field(alias="schema")
    image: str
    results: tuple[_InstallResult, ...]


@dataclass(frozen=True)
class SourceChange:
    """What changed in the sources of a line since the set before; ``sets`` are (family, set before, set).

    ``diff`` is None where a lock is gone.
    """

    line: str
    sets: tuple[tuple[str, str, str], ...]
    diff: LockDiff | None


@dataclass(frozen=True)
class NightRow:
    """A line of torch for a family and a platform. ``set`` is "" where the night has none.

    ``covered`` are kind, GPU and Python of the runs that came to their end, with all that failed named.
    """

    family: str
    os: Platform
    line: str
    set: str = ""
    version: str = ""
    rocm: str = ""
    created: str = ""
    channels: tuple[str, ...] = ()
    before: str = ""
    before_created: str = ""
    others: tuple[str, ...] = ()
    cells: tuple[NightCell, ...] = ()
    blocked: tuple[str, ...] = ()
    times: tuple[BuildTime, ...] = ()
    covered: tuple[tuple[str, str, str], ...] = ()

    @property
    def title(self) -> str:
        """Return what it is of, in a line."""
        return f"torch {self.line}, {self.family}, {self.os}"


@dataclass(frozen=True)
class ChannelState:
    """A channel of a family: how many sets it shows, what of it is signed, and what is being changed."""

    family: str
    channel: str
    sets: int
    current: str
    index: str
    signed_until: str = ""
    expired: bool = False
    pending: str = ""


@dataclass(frozen=True)
class Dashboard:
    """All facts. ``channel`` is the one whose gate was asked; ``support`` is what installers are told."""

    day: date
    store: str
    channel: str
    rows: tuple[NightRow, ...]
    failures: tuple[NightFailure, ...]
    flaky: tuple[NightNote, ...]
    lost: tuple[NightNote, ...]
    changes: tuple[SourceChange, ...]
    channels: tuple[ChannelState, ...]
    support: SupportDocument
    unread: tuple[str, ...] = ()
    installs: tuple[InstallCheck, ...] = ()

    @property
    def pythons(self) -> tuple[str, ...]:
        """All Pythons of the night."""
        names = {cell.python for row in self.rows for cell in row.cells}
        return tuple(sorted(names, key=_rank_python))

    def count_states(self) -> dict[CellState, int]:
        """Return how many cells are in each state; a row without a set is one that is missing."""
        states = [cell.state for row in self.rows for cell in row.cells]
        states += ["missing" for row in self.rows if not row.set]
        return {state: states.count(state) for state in CELL_STATES if state in states}


@dataclass(frozen=True)
class DashboardReader:
    """One who reads a store. ``policy`` is asked what ``channel`` needs; ``now`` ends signatures.

    ``named``: somebody named the policy; else sets are judged by the one that the channel keeps.
    """

    store: Store
    layout: StoreLayout
    policy: Policy
    channel: str
    day: date
    now: datetime
    env: Mapping[str, str]
    named: bool = True
    installs: tuple[InstallCheck, ...] = ()

    def read(self) -> Dashboard:
        """Return the facts. Raises ReleaseError and DataError for a store that cannot be read."""
        support = SupportDocument.model_validate_json(derive_whole_support(self.store, self.layout))
        nights: list[_SetNight] = []
        unread: list[str] = []
        for overview in list_sets(self.store, self.layout):
            unread += overview.damaged
            unread += [f"{name} of {overview.family} is not finished" for name in overview.unfinished]
            nights += self._list_nights(overview.family, overview.rows)
        nights.sort(key=lambda night: (_rank_line(night.line), night.family, night.os))
        read = run_in_parallel(lambda night: night.read(), nights, jobs=_READ_JOBS)
        failures = [failure for night in read for failure in night.failures]
        failures += [_make_install_failure(check) for check in self.installs if not check.passed]
        return Dashboard(
            self.day,
            support.public_url or self.store.url,
            self.channel,
            tuple(night.row for night in read),
            tuple(sorted(failures, key=lambda item: (not item.new, item.line, item.name, item.family))),
            tuple(note for night in read for note in night.flaky),
            tuple(note for night in read for note in night.lost),
            tuple(self._compare_sources(nights)),
            tuple(self._read_channels(support)),
            support,
            tuple(unread),
            self.installs,
        )

    def _list_nights(self, family: str, rows: Sequence[SetRow]) -> Iterator[_SetNight]:
        """Yield the night of each line of a family that has a set, or had one lately."""
        begin, end = f"{self.day}T", f"{self.day + timedelta(days=1)}T"
        oldest = f"{self.day - timedelta(days=_ROW_DAYS)}T"
        paths = FamilyPaths(self.layout, family, "release")
        channels = [read_channel(self.store, paths, name).channel for name in CHANNEL_NAMES]
        policy = self.policy
        for item in channels if not self.named else ():
            if item.channel == self.channel:
                policy = find_kept_policy(item, policy, self.day)
        by_line: dict[tuple[str, Platform], list[SetRow]] = {}
        for row in rows:  # the newest first
            if row.created < end:
                by_line.setdefault((find_torch_line(row.version), row.os or "linux"), []).append(row)
        for (line, platform), sets in by_line.items():
            tonight = [row for row in sets if row.created >= begin]
            earlier = [row for row in sets if row.created < begin]
            if tonight or earlier[0].created >= oldest:
                yield _SetNight(self, policy, family, platform, line, channels, tonight, earlier[:1])

    def _compare_sources(self, nights: Iterable[_SetNight]) -> list[SourceChange]:
        """Return what changed for each pair of locks, with all sets that were built from them."""
        pairs: dict[tuple[str, str, str], list[_SetNight]] = {}
        for night in nights:
            if night.document is not None and night.before is not None:
                for digests in _pair_locks(night.before, night.document):
                    pairs.setdefault((night.line, *digests), []).append(night)
        changes: list[SourceChange] = []
        for (line, old, new), members in pairs.items():
            first = members[0]
            before, now = first.read_lock(first.before, old), first.read_lock(first.document, new)
            diff = compare_locks(before, now) if before is not None and now is not None else None
            sets = tuple(
                (night.family, night.before.id if night.before else "", night.document.id)
                for night in members
                if night.document is not None
            )
            same = [n for n, item in enumerate(changes) if (item.line, item.diff) == (line, diff)]
            if same and diff is not None:  # locks of families that differ in their targets alone
                changes[same[0]] = replace(changes[same[0]], sets=(*changes[same[0]].sets, *sets))
            else:
                changes.append(SourceChange(line, sets, diff))
        return changes

    def _read_channels(self, support: SupportDocument) -> Iterator[ChannelState]:
        for item in support.channels:
            paths = FamilyPaths(self.layout, item.family, "release")
            channel = read_channel(self.store, paths, item.channel).channel
            expires, expired = self._read_end_of_signature(paths.channel_snapshot(item.channel))
            index = item.url or self.store.url_of(f"{paths.channel_pages(item.channel)}/")
            pending = str(channel.pending) if channel.pending is not None else ""
            yield ChannelState(
                item.family,
                item.channel,
                len(channel.sets),
                item.current,
                index,
                expires,
                expired,
                pending,
            )

    def _read_end_of_signature(self, path: str) -> tuple[str, bool]:
        """Return when the snapshot of a channel ends, "" where there is none, and whether it has."""
        if self.store.head(path) is None:
            return "", False
        snapshot = parse_snapshot(self.store.read(path).content, self.store.url_of(path))[0]
        return snapshot.expires, bool(snapshot.find_time_fault(self.now))


@dataclass(frozen=True)
class _NightFacts:
    row: NightRow
    failures: tuple[NightFailure, ...] = ()
    flaky: tuple[NightNote, ...] = ()
    lost: tuple[NightNote, ...] = ()


@dataclass
class _SetNight:
    """The sets of a line: of the night, and the newest before it."""

    reader: DashboardReader
    policy: Policy
    family: str
    os: Platform
    line: str
    channels: Sequence[Channel]
    tonight: Sequence[SetRow]
    earlier: Sequence[SetRow]

    @cached_property
    def document(self) -> SetDocument | None:
        """The set of the night."""
        return self._read_document(self.tonight)

    @cached_property
    def before(self) -> SetDocument | None:
        """The set before it."""
        return self._read_document(self.earlier)

    def read(self) -> _NightFacts:
        """Return what came of it."""
        document, before = self.document, self.before
        row = NightRow(
            self.family,
            self.os,
            self.line,
            before=before.id if before is not None else "",
            before_created=before.created if before is not None else "",
        )
        if document is None:
            return _NightFacts(row)
        reader = self.reader
        results, log = read_all_evidence(
            reader.store, reader.layout, document, signers=self.policy.signers, env=reader.env
        )
        moment = _end_of(reader.day, [stored.evidence for stored in results])
        verdict = judge_set(self.policy, reader.channel, document, results, moment, log=log)
        standing = list_standing_results(stored.evidence for stored in results)
        shown_on = tuple(item.channel for item in self.channels if document.id in item.shown)
        cells = tuple(
            self._describe_cell(document, python, standing, verdict, shown_on)
            for python in _list_pythons(document)
        )
        row = NightRow(
            self.family,
            self.os,
            self.line,
            document.id,
            document.version,
            document.rocm_in_words,
            document.created,
            shown_on,
            row.before,
            row.before_created,
            tuple(item.id for item in self.tonight[1:]),
            cells,
            tuple(f"{rule.title}: {rule.why}" for rule in verdict.failures),
            tuple(self._read_times(document)),
            tuple(sorted(_list_covered(document, standing))),
        )
        return _NightFacts(
            row,
            tuple(self._list_failures(document, standing)),
            tuple(self._list_flaky(document, standing)),
            tuple(self._list_lost(document, standing)),
        )

    def read_lock(self, document: SetDocument | None, digest: str) -> Lock | None:
        """Return a lock of a set; None where it is gone, or another one lies there."""
        assert document is not None
        paths = FamilyPaths(self.reader.layout, self.family)
        path = next(item.path for item in document.sources if item.digest == digest)
        where = f"{paths.set_folder(document.id)}/{path}"
        try:
            content = self.reader.store.read(where).content
        except NotInStoreError:
            return None
        if hashlib.sha256(content).hexdigest() != digest:
            log_warning(f"{self.reader.store.url_of(where)} is not the lock that {document.id} names")
            return None
        return parse_lock(content.decode(errors="replace"), name=self.reader.store.url_of(where))

    def _read_document(self, rows: Sequence[SetRow]) -> SetDocument | None:
        if not rows:
            return None
        return read_set(self.reader.store, self.family, rows[0].id, layout=self.reader.layout)

    def _describe_cell(
        self,
        document: SetDocument,
        python: str,
        standing: Sequence[Evidence],
        verdict: Verdict,
        shown_on: tuple[str, ...],
    ) -> NightCell:
        results = [item for item in standing if python in _list_result_pythons(document, item)]
        lines = tuple(describe_evidence(item) for item in results)
        missing = [str(cell) for cell in document.missing if cell.python == python]
        failed = [item for item in results if not item.passed and item.outcome != _LOST]
        lost = [item for item in results if item.outcome == _LOST]
        tested = any(item.kind in _GPU_KINDS and item.passed for item in results)
        if failed:
            return NightCell(python, "failed", describe_evidence(failed[0]), lines)
        if lost:
            return NightCell(python, "lost", describe_evidence(lost[0]), lines)
        if missing:
            return NightCell(python, "missing", f"not built: {', '.join(missing)}", lines)
        untested = "" if tested else self._explain_untested(document)
        if shown_on:
            why = f"on {', '.join(shown_on)}{f', not tested: {untested}' if untested else ''}"
            return NightCell(python, "promoted", why, lines)
        if untested:
            return NightCell(python, "untested", untested, lines)
        if not verdict.passed:
            rule = verdict.failures[0]
            return NightCell(python, "held", f"{rule.title}: {rule.why}", lines)
        return NightCell(python, "passed", f"its gate lets it pass to {self.reader.channel}", lines)

    def _explain_untested(self, document: SetDocument) -> str:
        """Return why no result of a GPU is there, by the data of families and the policy."""
        reasons = []
        for gfx in list_set_targets(document):
            families = list_families_of_target(document, gfx)
            family, place = self.policy.find_test_place(families, self.os)
            if place.bypass_tests_for_releases:
                reasons.append(f"{family} is a named exception")
            elif place.runner:
                reasons.append(f"no result came from {place.runner}")
            else:
                reasons.append(f"no machine has a GPU of {family or self.family}")
        return "; ".join(dict.fromkeys(reasons)) or "it is for no GPU"

    def _list_failures(self, document: SetDocument, standing: Sequence[Evidence]) -> Iterator[NightFailure]:
        before = {(_name_kind(item), name) for item in self._read_before() for name in _name_failures(item)}
        by_name: dict[tuple[str, str], list[Evidence]] = {}
        for item in standing:
            for name in _name_failures(item):
                by_name.setdefault((_name_kind(item), name), []).append(item)
        for (kind, name), items in by_name.items():
            last = items[-1]
            pythons = {python for item in items for python in _list_result_pythons(document, item)}
            yield NightFailure(
                self.family,
                self.os,
                self.line,
                kind,
                name,
                document.id,
                "fail" if last.outcome == _LOST else last.outcome,
                tuple(sorted({item.gfx for item in items if item.gfx})),
                tuple(sorted(pythons, key=_rank_python)),
                "" if name in last.failed else last.detail,  # which is of the whole run
                next((item.log for item in reversed(items) if item.log), ""),
                (kind, name) not in before,
            )

    def _read_before(self) -> list[Evidence]:
        """Return the results of the set before that stand."""
        reader, before = self.reader, self.before
        if before is None:
            return []
        results, _ = read_all_evidence(
            reader.store, reader.layout, before, signers=self.policy.signers, env=reader.env
        )
        return list_standing_results(stored.evidence for stored in results)

    def _list_flaky(self, document: SetDocument, standing: Sequence[Evidence]) -> Iterator[NightNote]:
        for item in standing:
            names = [*item.flaky]
            unnamed = item.counts.flaky - len(names)
            names += [f"{unnamed} more" if names else f"{unnamed} of its tests"] if unnamed > 0 else []
            for name in names:
                yield self._make_note(document, item, f"{_name_kind(item)}: {name}")

    def _list_lost(self, document: SetDocument, standing: Sequence[Evidence]) -> Iterator[NightNote]:
        """Yield each GPU that was lost, also where tests went on with others."""
        for item in standing:
            gpus = _list_details(item, "lost ")
            if item.outcome == _LOST and not gpus:
                gpus = [item.detail or str(item.counts)]
            for gpu in gpus:
                yield self._make_note(document, item, f"{_name_kind(item)}: {gpu}")

    def _make_note(self, document: SetDocument, item: Evidence, what: str) -> NightNote:
        return NightNote(
            self.family,
            self.os,
            self.line,
            document.id,
            what,
            item.gfx or "",
            item.host.short,
            tuple(sorted(_list_result_pythons(document, item), key=_rank_python)),
        )

    def _read_times(self, document: SetDocument) -> list[BuildTime]:
        """Return when wheels were built, the longest first, as their statements say, or those in them."""
        paths, store = FamilyPaths(self.reader.layout, self.family), self.reader.store

        def read(file: SetFile) -> list[BuildTime]:
            path = paths.set_statement(document.id, file.name)
            try:
                content = store.read(path).content
                statement = parse_stored_statement(
                    content, name=store.url_of(path), wheel=file.name, sha256=file.sha256
                )
                builds = [statement, *(inner for inner, _ in walk_statements(statement))]
            except (NotInStoreError, DataError) as fault:
                log_warning(f"{file.name}: no build time is known: {explain_error(fault)}")
                return []
            python = ", ".join(sorted(list_wheel_pythons(file.name), key=_rank_python)) or "any"
            times = (
                _make_build_time(str(build.parameters.get("project", file.project)), python, build)
                for build in builds
                if build.build_type == BUILD_TYPE
            )
            return [item for item in times if item is not None]

        files = [file for file in document.files if file.statement]
        read_times = run_in_parallel(read, files, jobs=_READ_JOBS)
        times = {item for items in read_times for item in items}  # host and device wheels are of one build
        return sorted(times, key=lambda item: (-item.seconds, item.project, item.python))


def read_install_checks(folder: Path) -> tuple[InstallCheck, ...]:
    """Return what ``validate_published.py`` has written into a folder. DataError for a file that is none."""
    checks = []
    for path in sorted(folder.glob("*.json")):
        try:
            report = _InstallReport.model_validate_json(path.read_bytes())
        except ValidationError as wrong:
            raise DataError(f"{path}: {summarize_faults(wrong, _InstallReport)}") from None
        for result in report.results:
            last = result.steps[-1] if result.steps and not result.passed else _InstallStep(step="")
            values = result.model_dump(exclude={"steps"})
            checks.append(InstallCheck(report.image, **values, step=last.step, detail=last.detail))
    return tuple(checks)


def _make_install_failure(check: InstallCheck) -> NightFailure:
    line, detail = find_torch_line(check.version), f"{check.step}: {check.detail}"
    return NightFailure(
        check.family,
        "linux",
        line,
        "install",
        check.name,
        check.set,
        "fail",
        (check.gfx,),
        (check.python,),
        detail,
    )


def list_standing_results(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Return the newest result of each kind, part of a suite, GPU, kind of machine and wheels, in order."""
    newest: dict[tuple[object, ...], Evidence] = {}
    for item in sorted(evidence, key=lambda item: (item.when, item.added, item.id)):
        key = (item.kind, str(item.suite or ""), item.gfx, item.host.kind, item.hashes)
        newest.pop(key, None)
        newest[key] = item
    return list(newest.values())


def find_torch_line(version: str) -> str:
    """Return the line of a version: 2.11 of 2.11.0a0+rocm7.1.0."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def _make_build_time(project: str, python: str, build: ProvenanceStatement) -> BuildTime | None:
    """Return how long a build took, by its statement; None where nobody wrote it down."""
    details = build.predicate["runDetails"]
    metadata = details.get("metadata", {})
    try:
        started, finished = (
            datetime.fromisoformat(str(metadata[key]).replace("Z", "+00:00"))
            for key in ("startedOn", "finishedOn")
        )
    except (KeyError, ValueError, TypeError):
        return None
    cache = ""
    for product in details.get("byproducts", ()):
        if isinstance(product, Mapping) and product.get("name") == "compiler-cache":
            notes = product.get("annotations", {})
            cache = f"{notes.get('hits', '?')} of {notes.get('cacheable', '?')}"
    seconds = (finished - started).total_seconds()
    return BuildTime(project, python, str(metadata["startedOn"]), seconds, cache)


def _list_details(evidence: Evidence, prefix: str) -> list[str]:
    """Return what a result says of something, of the parts of its detail."""
    return [part.removeprefix(prefix) for part in evidence.detail.split("; ") if part.startswith(prefix)]


def _name_failures(evidence: Evidence) -> tuple[str, ...]:
    """Return what failed of a result: tests by name, or how the run ended; a lost GPU is no failure."""
    if evidence.passed:
        return ()
    ended = () if evidence.outcome == _LOST else (f"{_name_kind(evidence)}: {evidence.outcome}",)
    return evidence.failed or ended


def _list_covered(document: SetDocument, standing: Iterable[Evidence]) -> set[tuple[str, str, str]]:
    """Return what was run to its end: a test of it that is not named as failed did not fail.

    Of a suite in shards all of one plan must have been.
    """
    shards: dict[tuple[str, str, str], dict[str, set[int]]] = {}
    covered = set()
    for item in standing:
        if not item.passed and (item.outcome != "fail" or item.counts.failed != len(item.failed)):
            continue
        suite = item.suite
        for python in _list_result_pythons(document, item):
            place = (_name_kind(item), item.gfx or "", python)
            if suite is None:
                covered.add(place)
                continue
            complete = shards.setdefault(place, {}).setdefault(suite.plan, set())
            complete.add(suite.shard)
            if len(complete) == suite.shards:
                covered.add(place)
    return covered


def _name_kind(evidence: Evidence) -> str:
    """Return what was run: ``smoke``, ``tests``, ``tests (full)``."""
    return evidence.kind if evidence.suite is None else f"{evidence.kind} ({evidence.suite.name})"


def _list_result_pythons(document: SetDocument, evidence: Evidence) -> frozenset[str]:
    """Return the Pythons whose wheels a result speaks of; of wheels for every Python alone, all."""
    hashes = frozenset(evidence.hashes)
    pythons = {
        python for file in document.files if file.sha256 in hashes for python in list_wheel_pythons(file.name)
    }
    return frozenset(pythons) or frozenset(_list_pythons(document))


def _list_pythons(document: SetDocument) -> list[str]:
    planned = {cell.python for cell in (*document.planned, *document.missing) if cell.python}
    built = {python for file in document.files for python in list_wheel_pythons(file.name)}
    return sorted(planned | built, key=_rank_python)


def _pair_locks(before: SetDocument, document: SetDocument) -> Iterator[tuple[str, str]]:
    """Yield the digests of locks to compare: those for one ROCm, or the only ones."""
    old, new = before.sources, document.sources
    if len(old) == len(new) == 1:
        yield old[0].digest, new[0].digest
        return
    by_rocm = {lock.rocm: lock.digest for lock in old}
    for lock in new:
        if lock.rocm in by_rocm:
            yield by_rocm[lock.rocm], lock.digest


def _end_of(day: date, evidence: Iterable[Evidence]) -> datetime:
    """Return the moment to judge at: the end of a day, or the last result that came after it."""
    end = datetime.combine(day, time(23, 59, 59), timezone.utc)
    return max([end, *(max(item.when, item.added) for item in evidence)])


def _rank_python(python: str) -> tuple[int, ...] | tuple[int, int, int]:
    digits = [int(part) for part in python.rstrip("t").split(".") if part.isdigit()]
    return (*digits, int(python.endswith("t")))


def _rank_line(line: str) -> tuple[int, ...]:
    """Return what lines are ordered by: the newest first."""
    return tuple(-int(part) for part in line.split(".") if part.isdigit())
