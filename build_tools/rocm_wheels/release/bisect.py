"""Bisect sets: find the first one that a command fails with, between one that works and one that does not.

``find_line`` chooses the sets: of one family, platform and layout, and of one torch line where both ends
are of one. Each is tried in an environment of its own: the set is installed from its own index, then the
command runs. Each project comes from the first index that has it: the set's own, then those that were
named, then the user's or PyPI. uv takes indexes over http and in folders (``file:``), with links relative
to the page. A bucket answers for files alone and not for folders, and may be closed: of such a store the
set's pages and its wheels for one Python are copied.

Each outcome is written to a file at once, so that a killed run is carried on; each question has a folder
of its own, and what was found for another is never read. Sets that cannot be tested are skipped over
(``narrow_down``).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from rocm_wheels.core import errors, files, log, parallel, process, records, shell, tables
from rocm_wheels.release import policy, set_list, wheel_set
from rocm_wheels.release.channel import read_channel
from rocm_wheels.release.layout import Area, FamilyPaths, StoreLayout
from rocm_wheels.sdk import interpreters
from rocm_wheels.sources import lock, lock_diff
from rocm_wheels.stores.store import NotInStoreError, Store

ProbeOutcome = Literal["good", "bad", "skip"]


@dataclass(frozen=True)
class BisectRange:
    """What is known: the newest ``good`` place below the oldest ``bad`` one, and what is between them.

    ``skipped`` are those between that could not be tested, ``untested`` is how many nobody tried, and
    ``next`` is the one to try; ``None`` when it is known as well as it can be.
    """

    good: int
    bad: int
    skipped: tuple[int, ...]
    untested: int
    next: int | None


def narrow_down(count: int, outcomes: Mapping[int, ProbeOutcome]) -> BisectRange:
    """Return what outcomes come to, for so many places (two at least); the ends are what they are.

    The next is the middle of the longest row that nobody tried: away from those that cannot be tested, which
    are often neighbours.
    """
    bad = min([count - 1, *(place for place, outcome in outcomes.items() if outcome == "bad")])
    good = max([0, *(place for place, outcome in outcomes.items() if outcome == "good" and place < bad)])
    between = range(good + 1, bad)
    skipped = tuple(place for place in between if place in outcomes)
    rows: list[list[int]] = [[]]
    for place in between:
        if place in outcomes:
            rows.append([])
        else:
            rows[-1].append(place)
    longest = max(rows, key=len)
    following = longest[(len(longest) - 1) // 2] if longest else None
    return BisectRange(good, bad, skipped, sum(map(len, rows)), following)


def count_probes_at_most(untested: int) -> int:
    """Return how many places are tried at most, when each of them can be tested."""
    return untested.bit_length()


class SetProbe(records.Record):
    """A set that was tried. ``exit`` is the command's exit code, ``None`` where it was not come to."""

    set: str
    outcome: ProbeOutcome
    why: str
    exit: int | None = None
    seconds: float = 0.0


class _BisectStateFile(records.Record):
    schema_version: Literal[1] = Field(default=1, alias="schema")
    key: str
    command: str
    probes: tuple[SetProbe, ...] = ()


class BisectState:
    """The probes of one question, in the order in which they were made."""

    def __init__(self, folder: Path, key: str, command: str) -> None:
        """Read what is there. Raises DataError for a file that is no state, or another question's."""
        self.folder, self._key, self._command = folder, key, command
        self.probes: list[SetProbe] = []
        path = self._state_path
        if not path.exists():
            return
        try:
            state_file = _BisectStateFile.model_validate_json(path.read_bytes())
        except ValidationError as cause:
            raise errors.DataError(
                f"{path} is no state of a search", tip=f"delete it to start over: {path}"
            ) from cause
        if state_file.key != key:
            raise errors.DataError(
                f"{path} is of another question: {state_file.command}", tip="delete it to start over"
            )
        self.probes = list(state_file.probes)

    def find_probe(self, set_id: str) -> SetProbe | None:
        """Return what came of a set, ``None`` when it was not tried."""
        return next((probe for probe in self.probes if probe.set == set_id), None)

    def add_probe(self, probe: SetProbe) -> None:
        """Note what came of a set."""
        self._write_probes([*self.probes, probe])

    def remove_probe(self, set_id: str) -> None:
        """Have a set tried again next time."""
        self._write_probes([probe for probe in self.probes if probe.set != set_id])

    def clear(self) -> None:
        """Have the next run begin anew."""
        self._state_path.unlink(missing_ok=True)

    @property
    def _state_path(self) -> Path:
        return self.folder / "state.json"

    def _write_probes(self, probes: Sequence[SetProbe]) -> None:
        state_file = _BisectStateFile(key=self._key, command=self._command, probes=tuple(probes))
        files.write_json_file(self._state_path, state_file.model_dump(mode="json", by_alias=True))
        self.probes = list(probes)


_LOCK_JOBS = 8


def select_torch_line(
    store: Store, paths: FamilyPaths, rows: Sequence[set_list.SetRow]
) -> tuple[set_list.SetRow, ...]:
    """Return the sets of the line that the first and the last are of; all of them where these differ."""
    ends = {_read_torch_line(store, paths, row) for row in (rows[0], rows[-1])}
    if len(ends) > 1 or None in ends:
        return tuple(rows)
    lines = parallel.run_in_parallel(lambda row: _read_torch_line(store, paths, row), rows, jobs=_LOCK_JOBS)
    return tuple(row for row, line in zip(rows, lines, strict=True) if line in ends)


def _read_torch_line(store: Store, paths: FamilyPaths, row: set_list.SetRow) -> str | None:
    """Return the torch line of a set, as its lock says, else by the version of torch; ``None``: of none."""
    path = paths.set_lock(row.id)
    try:
        line = json.loads(store.read(path).content).get("line")
    except (NotInStoreError, ValueError, AttributeError):
        log.log_warning(f"{store.url_of(path)} is no lock: {row.id} is of the line of its torch")
        line = None
    if line or wheel_set.TORCH_PROJECT not in row.projects:
        return line or None
    return "{}.{}".format(*wheel_set.parse_torch_line(row.version))


_LARGE_FILE_BYTES = 64 << 20  # bytes


@dataclass(frozen=True)
class SetLine:
    """Sets in the order in which they were made, from the good one to the bad one; ``area`` is where."""

    store: Store
    layout: StoreLayout
    family: str
    area: Area
    rows: tuple[set_list.SetRow, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Their ids, the oldest first."""
        return tuple(row.id for row in self.rows)

    @property
    def paths(self) -> FamilyPaths:
        """Where they are."""
        return FamilyPaths(self.layout, self.family, self.area)

    def read_document(self, number: int) -> wheel_set.SetDocument:
        """Return a set."""
        return wheel_set.read_set(
            self.store, self.family, self.ids[number], area=self.area, layout=self.layout
        )


@dataclass(frozen=True)
class ProbeRequest:
    """How each set is tried. ``targets`` are the GPUs of which it must be for one.

    ``served`` is where the store is given out to installers, "" where nobody said. ``python`` is the program
    whose environments are made, ``python_version`` as wheels name it (``3.12``).
    """

    command: tuple[str, ...]
    cwd: Path
    projects: tuple[str, ...]
    python: Path
    python_version: str
    targets: tuple[str, ...] = ()
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    served: str = ""
    pre: bool = False

    def __str__(self) -> str:
        """Return the command for people."""
        return shell.hide_credentials(shell.format_command(self.command))


def find_line(
    store: Store, layout: StoreLayout, good: str, bad: str, *, family: str | None, channel: str | None
) -> SetLine:
    """Return the sets between two: those that a channel ever showed, or all staged ones of their layout.

    They are of the platform of the two, and where both are of one torch line, of that. Raises ReleaseError
    for sets that are not there or have no line between them, and UsageError where the good one is not older.
    """
    ends = [_find_end(store, layout, end, family=family, channel=channel) for end in (good, bad)]
    old, new = ends
    if old.id == new.id and old.family == new.family:
        raise errors.UsageError(f"{old.id} cannot be both good and bad", tip="name two sets")
    if (old.family, old.layout) != (new.family, new.layout):
        message = " and ".join(f"{end.id} is of {end.family} ({end.layout})" for end in ends)
        raise errors.ReleaseError(
            f"there is no line between them: {message}", tip="name two sets of one family and layout"
        )
    if wheel_set.find_set_platform(old) != wheel_set.find_set_platform(new):
        message = " and ".join(f"{end.id} is for {wheel_set.find_set_platform(end)}" for end in ends)
        tip = "name two sets of one platform: `rocm-wheels set list STORE` says which set is for which"
        raise errors.ReleaseError(f"there is no line between them: {message}", tip=tip)
    if old.layout == "variants":
        tip = "bisect the plain wheels that they were made of"
        raise errors.ReleaseError(
            "sets of variants cannot be tried: which wheel is taken is up to the machine", tip=tip
        )
    if (new.created, new.id) < (old.created, old.id):
        message = f"{old.id} is good and was made on {old.created}, after {new.id} ({new.created})"
        raise errors.UsageError(
            message, tip="the good set must be the older one: it is searched where it broke"
        )
    if channel is not None:
        return SetLine(store, layout, old.family, "release", _list_channel_rows(store, layout, channel, ends))
    (overview,) = set_list.list_sets(store, layout, family=old.family)
    for fault in overview.damaged:
        log.log_warning(f"left out: {fault}")
    return SetLine(
        store,
        layout,
        old.family,
        "staging",
        _select_between(store, FamilyPaths(layout, old.family), overview.rows, ends),
    )


def compute_bisect_key(line: SetLine, request: ProbeRequest) -> str:
    """Return what stands for a question: the same sets, tried in the same way by the same command.

    Files that the command names are part of it.
    """
    content = {
        "store": line.store.url,
        "area": line.area,
        "family": line.family,
        "sets": line.ids,
        **asdict(request),
        "files": [_fingerprint_file(request.cwd / word) for word in request.command],
    }
    return hashlib.sha256(json.dumps(content, default=str, sort_keys=True).encode()).hexdigest()[:16]


def _find_end(
    store: Store, layout: StoreLayout, beginning: str, *, family: str | None, channel: str | None
) -> wheel_set.SetDocument:
    """Return a set by how its id begins: a staged one, or one that a channel showed, in the release area."""
    if channel is None:
        return wheel_set.find_set(store, beginning, family=family, layout=layout)
    candidates = [
        (family_name, name)
        for family_name in wheel_set.list_families(store, area="release", layout=layout)
        if family in {None, family_name}
        for name in _list_ever_on_channel(store, layout, family_name, channel)
    ]
    of = f"{channel} of {family}" if family else channel
    if not candidates:
        raise errors.ReleaseError(
            f"nothing was promoted to {of} in {store.url}",
            tip=f"channels are {', '.join(policy.CHANNEL_NAMES)}",
        )
    matches = [pair for pair in candidates if pair[1].startswith(beginning)]
    exact = [pair for pair in matches if pair[1] == beginning] or matches
    if len(exact) == 1:
        return wheel_set.read_set(store, *exact[0], area="release", layout=layout)
    ids = [name for _, name in candidates]
    tip = f"it showed {', '.join(ids)}; without --channel all staged sets count"
    if not exact:
        raise errors.ReleaseError(
            f"{beginning} was never on {of}{tables.suggest_name(beginning, ids)}", tip=tip
        )
    raise errors.ReleaseError(
        f"{beginning} could be {', '.join(f'{name} of {family_name}' for family_name, name in exact)}",
        tip=tip,
    )


def _list_ever_on_channel(store: Store, layout: StoreLayout, family: str, channel: str) -> tuple[str, ...]:
    record = read_channel(store, FamilyPaths(layout, family, "release"), channel).channel
    promoted = [set_id for event in record.history if event.action == "promote" for set_id in event.sets]
    return tuple(dict.fromkeys([*promoted, *record.shown]))


def _list_channel_rows(
    store: Store, layout: StoreLayout, channel: str, ends: Sequence[wheel_set.SetDocument]
) -> tuple[set_list.SetRow, ...]:
    family = ends[0].family
    ids = _list_ever_on_channel(store, layout, family, channel)
    documents = [wheel_set.read_set(store, family, item, area="release", layout=layout) for item in ids]
    return _select_between(
        store,
        FamilyPaths(layout, family, "release"),
        [set_list.make_set_row(item) for item in documents],
        ends,
    )


def _select_between(
    store: Store, paths: FamilyPaths, rows: Sequence[set_list.SetRow], ends: Sequence[wheel_set.SetDocument]
) -> tuple[set_list.SetRow, ...]:
    """Return the sets between the ends that are as they are: of their layout, platform and torch line."""
    first, last = ((end.created, end.id) for end in ends)
    ordered = sorted(rows, key=lambda row: (row.created, row.id))
    between = [row for row in ordered if first <= (row.created, row.id) <= last]
    kind = ends[0].layout, wheel_set.find_set_platform(ends[0])
    return select_torch_line(store, paths, [row for row in between if (row.layout, row.os) == kind])


def _fingerprint_file(path: Path) -> str:
    """Return what tells a file from what it was before: its content, or of a large one size and time."""
    if not path.is_file():
        return ""
    status = path.stat()
    if status.st_size > _LARGE_FILE_BYTES:
        return f"{status.st_size} {status.st_mtime_ns}"
    return files.hash_file(path)


_FETCH_JOBS = 4


@contextmanager
def provide_index(
    line: SetLine, request: ProbeRequest, document: wheel_set.SetDocument, folder: Path
) -> Iterator[str]:
    """Give the address of a set's own index while the block runs; copies are below ``folder``, then gone."""
    path = f"{line.paths.set_index(document.id)}/"
    if request.served:
        yield f"{request.served}{path}"
    elif line.store.folder is not None:
        yield line.store.url_of(path)
    else:
        copied = folder / "copied"
        shutil.rmtree(copied, ignore_errors=True)  # of a run that was killed
        try:
            parallel.run_in_parallel(
                lambda file_path: _fetch_file(line, file_path, copied),
                _list_needed_files(line, request, document),
                jobs=_FETCH_JOBS,
            )
            yield f"{(copied / path).as_uri()}/"
        finally:
            shutil.rmtree(copied, ignore_errors=True)


def _list_needed_files(line: SetLine, request: ProbeRequest, document: wheel_set.SetDocument) -> list[str]:
    """Return pages, and the wheels that this Python and these GPUs could take, with their METADATA."""
    paths = [listed.path for listed in line.store.listing(line.paths.set_index(document.id))]
    for file in document.files:
        pythons = wheel_set.list_wheel_pythons(file.name)
        is_part = wheel_set.find_host_project(file.project) is not None
        if (pythons and request.python_version not in pythons) or (
            is_part and not {*file.targets} & {*request.targets}
        ):
            continue
        path = line.paths.wheel_file(file.sha256, file.name)
        paths += [path, f"{path}.metadata"]
    return paths


def _fetch_file(line: SetLine, path: str, copied: Path) -> None:
    target = copied / path
    target.parent.mkdir(parents=True, exist_ok=True)
    line.store.fetch(path, target)


SKIP_EXIT_CODE, STOP_EXIT_CODE = (
    125,
    128,
)  # exit codes of `git bisect run`: not to be tested; from here on: stop
_LONGEST_MESSAGE = 240


@dataclass(frozen=True)
class SetProber:
    """Tries sets in a folder of its own. ``keep``: the environments stay."""

    line: SetLine
    request: ProbeRequest
    folder: Path
    env: Mapping[str, str]
    keep: bool = False

    def probe_set(self, number: int) -> SetProbe:
        """Try a set. Raises ReleaseError where nothing can be said of it, now or at all.

        That is: no network, no space, a command that cannot be started or that asks to stop.
        """
        started = time.monotonic()
        document = self.line.read_document(number)
        exit_code, why = None, self._explain_unsuited(document)
        if not why:
            prefix = self.folder / "environments" / document.id
            log_file = self.folder / "logs" / f"{document.id}.log"
            log_file.unlink(missing_ok=True)
            try:
                with provide_index(self.line, self.request, document, self.folder) as index:
                    why = self._install_set(document, index, prefix, log_file)
                    exit_code = self._run_command(document, index, prefix, log_file) if not why else None
            finally:
                if not self.keep:
                    shutil.rmtree(prefix, ignore_errors=True)
        seconds = round(time.monotonic() - started, 1)
        if exit_code is None:
            return SetProbe(set=document.id, outcome="skip", why=why, seconds=seconds)
        outcome = "good" if exit_code == 0 else "skip" if exit_code == SKIP_EXIT_CODE else "bad"
        why = f"exit code {exit_code}"
        return SetProbe.model_validate(
            {"set": document.id, "outcome": outcome, "why": why, "exit": exit_code, "seconds": seconds}
        )

    def _explain_unsuited(self, document: wheel_set.SetDocument) -> str:
        """Return why a set cannot be installed here, by what its document says; "" when nothing does."""
        request = self.request
        targets = wheel_set.list_set_targets(document)
        if request.targets and not set(request.targets) & set(targets):
            return f"it is for {', '.join(targets) or 'no GPU'}, not for {', '.join(request.targets)}"
        for project in request.projects:
            pythons = [
                wheel_set.list_wheel_pythons(file.name) for file in document.files if file.project == project
            ]
            if not pythons:
                return f"it has no {project}"
            if not any(
                not wheel_pythons or request.python_version in wheel_pythons for wheel_pythons in pythons
            ):
                return f"it has no {project} for Python {request.python_version}"
        return ""

    def _install_set(self, document: wheel_set.SetDocument, index: str, prefix: Path, log_file: Path) -> str:
        """Make the environment and install the set; return why that cannot be done, "" when it was."""
        shutil.rmtree(prefix, ignore_errors=True)  # of a run that was killed
        prefix.parent.mkdir(parents=True, exist_ok=True)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        interpreters.make_venv(self.request.python, prefix, self.env)
        # in the environment: addresses may hold passwords, and arguments can be read by all
        indexes = " ".join([index, *self.request.extra_indexes])
        links = [word for place in self.request.find_links for word in ("--find-links", place)]
        with log_file.open("w", encoding="utf-8") as sink:
            try:
                interpreters.pip_install(
                    interpreters.locate_python(prefix),
                    ["--index-strategy", "first-index", *links, *self._list_requirements(document)],
                    interpreters.PackageSource(pre=self.request.pre),
                    {**self.env, "UV_INDEX": indexes},
                    activity=f"installing {document.id}",
                    cwd=self.folder,
                    on_line=lambda text: print(text, file=sink),
                )
            except errors.SdkError as failure:
                if interpreters.is_transient_failure(str(failure)):
                    tip = failure.tip or "run the same command again: it continues"
                    raise errors.ReleaseError(f"{document.id} could not be tried", tip=tip) from failure
                return f"it does not install: {_shorten_failure(failure)}"
        return ""

    def _list_requirements(self, document: wheel_set.SetDocument) -> list[str]:
        """Return the projects at the set's versions, with the parts that hold the kernels of the targets."""
        versions = {file.project: file.version for file in document.files}
        requirements = []
        for project in self.request.projects:
            extras = wheel_set.make_device_extras(document, project, self.request.targets)
            requirements.append(f"{project}{extras}=={versions[project]}")
        return requirements

    def _run_command(self, document: wheel_set.SetDocument, index: str, prefix: Path, log_file: Path) -> int:
        """Run the command with the environment's Python first; return its exit code, below 128."""
        programs = interpreters.locate_python(prefix).parent
        env = {name: value for name, value in self.env.items() if name != "PYTHONHOME"}
        env["PATH"] = os.pathsep.join([str(programs), *filter(None, [self.env.get("PATH")])])
        env["VIRTUAL_ENV"] = str(prefix)
        env |= {"ROCM_WHEELS_SET": document.id, "ROCM_WHEELS_INDEX": index}
        command = self.request.command
        program = shutil.which(command[0], path=env["PATH"])
        if program is None:
            raise errors.ReleaseError(
                f"there is no program {command[0]}",
                tip="it is looked for in the set's environment and on PATH",
            )
        completed = process.run_command(
            [program, *command[1:]],
            env=env,
            cwd=self.request.cwd,
            log=log_file,
            on_line=lambda text: log.log_note(f"  | {text}"),
            check=None,
        )
        code = completed.returncode if completed.returncode >= 0 else STOP_EXIT_CODE - completed.returncode
        if code >= STOP_EXIT_CODE:
            outcome = (
                f"was killed by signal {code - STOP_EXIT_CODE}"
                if code > STOP_EXIT_CODE
                else f"ended with exit code {code}"
            )
            tip = "0 is good, 125 cannot be tested, 1 to 127 is bad; the same command continues here"
            raise errors.ReleaseError(
                f"stopped at {document.id}: {self.request} {outcome} (see {log_file})", tip=tip
            )
        return code


def _shorten_failure(failure: errors.SdkError) -> str:
    lines = [line.strip(" |×╰─▶") for line in str(failure).splitlines()[1:]]
    message = " ".join(line for line in lines if line and not line.startswith(("Using Python", "tip:")))
    return (
        message[: _LONGEST_MESSAGE - 1] + "…" if len(message) > _LONGEST_MESSAGE else message or str(failure)
    )


ReportLine = Callable[[str], None]


def bisect_sets(
    prober: SetProber, state: BisectState, *, trust_ends: bool, report: ReportLine
) -> BisectRange:
    """Return what it comes to; what an earlier run has noted is not tried again.

    Raises ReleaseError for an end that is not what was said of it, where not one set could be tested, and
    what ``SetProber.probe_set`` raises.
    """
    ids = prober.line.ids
    if state.probes:
        report(f"an earlier run, which is carried on, tried {tables.format_count(len(state.probes), 'set')}")
    if not trust_ends:
        _check_end(prober, state, 0, "good", report)
        _check_end(prober, state, len(ids) - 1, "bad", report)
    while (between := find_range(prober, state)).next is not None:
        remaining = tables.format_count(between.untested, "set")
        report(f"trying {ids[between.next]}: {remaining} between good and bad")
        _try_set(prober, state, between.next, report)
    if between.skipped and all(probe.outcome == "skip" for probe in state.probes):
        state.clear()
        why = state.probes[-1].why
        tip = "--dependency-index and --find-links say where their requirements are, as ROCm's packages"
        raise errors.ReleaseError(
            f"could test none of {tables.format_count(len(state.probes), 'set')}; the last: {why}", tip=tip
        )
    return between


def find_range(prober: SetProber, state: BisectState) -> BisectRange:
    """Return what the probes so far come to."""
    number = {name: place for place, name in enumerate(prober.line.ids)}
    inner = {
        probe.set: probe.outcome
        for probe in state.probes
        if probe.set not in (prober.line.ids[0], prober.line.ids[-1])
    }
    outcomes: dict[int, ProbeOutcome] = {
        number[name]: outcome for name, outcome in inner.items() if name in number
    }
    return narrow_down(len(number), outcomes)


def _check_end(
    prober: SetProber, state: BisectState, number: int, expected: ProbeOutcome, report: ReportLine
) -> None:
    name = prober.line.ids[number]
    probe = state.find_probe(name)
    if probe is None:
        report(f"testing {name}, given as {expected}")
        probe = _try_set(prober, state, number, report)
    if probe.outcome == expected:
        return
    state.remove_probe(name)
    came = "cannot be tested" if probe.outcome == "skip" else f"is {probe.outcome}"
    message = f"{name} was given as {expected}, but {came}: {probe.why}"
    if probe.exit in {126, 127}:
        tip = "126 and 127 say that a program was not found or may not be run: see to the command"
    else:
        tip = f"name another set with --{expected}, or skip this check with --trust-ends"
        printed = prober.folder / "logs" / f"{name}.log"
        tip = f"see {printed}; {tip}" if printed.exists() else tip
    raise errors.ReleaseError(message, tip=tip)


def _try_set(prober: SetProber, state: BisectState, number: int, report: ReportLine) -> SetProbe:
    probe = prober.probe_set(number)
    state.add_probe(probe)
    report(f"{probe.set} is {'skipped' if probe.outcome == 'skip' else probe.outcome} ({probe.why})")
    return probe


@dataclass(frozen=True)
class BisectAnswer:
    """``skipped`` are sets between the two that could not be tested: any of them may be the first bad one.

    ``versions`` are those of projects that differ, as (project, old, new); ``locks`` the files of the two
    locks, ``diff`` is ``None`` where they cannot be compared, and ``why_not`` says why.
    """

    good: wheel_set.SetDocument
    bad: wheel_set.SetDocument
    skipped: tuple[SetProbe, ...]
    probes: tuple[SetProbe, ...]
    versions: tuple[tuple[str, str, str], ...]
    locks: tuple[Path, Path]
    diff: lock_diff.Document | None
    why_not: str = ""


def make_bisect_answer(line: SetLine, between: BisectRange, state: BisectState) -> BisectAnswer:
    """Return the answer; the two locks are copied into the folder of the question."""
    good, bad = line.read_document(between.good), line.read_document(between.bad)
    locks = tuple(state.folder / "locks" / f"{item.id}.lock.json" for item in (good, bad))
    diff, why_not = None, ""
    try:
        for item, path in zip((good, bad), locks, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            newest = item.locks[-1].path  # of several locks, that of the newest ROCm
            line.store.fetch(f"{line.paths.set_folder(item.id)}/{newest}", path)
        diff = lock_diff.compare_locks(lock.read_lock(locks[0]), lock.read_lock(locks[1]))
    except errors.RocmWheelsError as failure:  # the search took long: it is answered all the same
        why_not = errors.explain_error(failure).splitlines()[0]
    probes = {item.set: item for item in state.probes}
    skipped = tuple(probes[line.ids[number]] for number in between.skipped)
    versions = tuple(_list_version_changes(good, bad))
    return BisectAnswer(
        good, bad, skipped, tuple(state.probes), versions, (locks[0], locks[1]), diff, why_not
    )


def format_bisect_answer(answer: BisectAnswer) -> Iterator[str]:
    """Yield what a person reads."""
    if answer.skipped:
        yield "the first bad set is one of these; those that cannot be tested hide which:"
        for probe in answer.skipped:
            yield f"  {probe.set}: {probe.why}"
        yield f"  {_describe_set(answer.bad)}"
    else:
        yield f"the first bad set is {_describe_set(answer.bad)}"
    yield f"the last good set is {_describe_set(answer.good)}"
    yield "what differs:"
    for project, old, new in answer.versions:
        yield f"  {project}  {old} → {new}"
    if answer.good.rocms != answer.bad.rocms:
        yield f"  ROCm  {answer.good.rocm_in_words or 'unknown'} → {answer.bad.rocm_in_words or 'unknown'}"
    if answer.diff is None:
        yield f"  the locks cannot be compared: {answer.why_not}"
        return
    yield from (f"  {text}".rstrip() for text in lock_diff.format_diff_report(answer.diff))
    if not answer.diff["same"]:
        yield f"the commits between: {_diff_command(answer)}"


def convert_bisect_answer_to_json(answer: BisectAnswer) -> dict[str, Any]:
    """Return what ``bisect --help`` says."""
    return {
        "first_bad": answer.bad.id,
        "last_good": answer.good.id,
        "certain": not answer.skipped,
        "skipped": [{"set": probe.set, "why": probe.why} for probe in answer.skipped],
        "probes": [probe.model_dump(mode="json") for probe in answer.probes],
        "differs": {
            "versions": {project: {"old": old, "new": new} for project, old, new in answer.versions},
            "rocm": {"old": answer.good.rocm_in_words or None, "new": answer.bad.rocm_in_words or None},
            "lock": answer.diff,
            "lock_diff": None if answer.diff is None else _diff_command(answer),
            "why_not": answer.why_not or None,
        },
    }


def _describe_set(document: wheel_set.SetDocument) -> str:
    return f"{document.id}  ROCm {document.rocm_in_words or 'unknown'}  {document.created}"


def _diff_command(answer: BisectAnswer) -> str:
    return shell.format_command(["rocm-wheels", "lock", "diff", *map(str, answer.locks)])


def _list_version_changes(
    good: wheel_set.SetDocument, bad: wheel_set.SetDocument
) -> Iterator[tuple[str, str, str]]:
    """Yield projects that differ with their versions; "none" where a set has none."""
    old, new = ({file.project: file.version for file in document.files} for document in (good, bad))
    for project in sorted({*old, *new}):
        pair = old.get(project, "none"), new.get(project, "none")
        if pair[0] != pair[1]:
            yield project, *pair
