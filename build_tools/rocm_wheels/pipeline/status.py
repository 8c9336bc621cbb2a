"""Steps at work: how they are shown, what they take, and where a run is now, as another terminal may ask.

On a terminal there is a live line for each step; on GitHub all output is shown, folded, because log files
are lost with the machine; in a pipe there are begin, end and a line a minute of each step. At the end there
is a table of wheels. Text that others wrote is made safe to print.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from rocm_wheels.core import page_templates, progress, tables
from rocm_wheels.core.log import is_log_on_github, log_note, paint_text
from rocm_wheels.pipeline import run_record


def measure_tree_memory(root: int) -> int | None:
    """Return the resident bytes of a process and its descendants; ``None`` when it is gone.

    Memory that several of them share counts for each.
    """
    import psutil

    try:
        leader = psutil.Process(root)
        everyone = [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return None
    total = 0
    for process in everyone:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue  # it has just ended
    return total


_SAMPLE_SECONDS = 0.5


class ResourceUsage:
    """Watches a process and all that it starts, from a thread. ``peak``: bytes, as ``measure_tree_memory``
    counts.
    """

    def __init__(self) -> None:
        self.peak = 0
        self.cpu_seconds = 0.0
        self._pid: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def start(self, pid: int) -> None:
        """Begin to watch a process."""
        self._pid = pid
        self._thread.start()

    def __enter__(self) -> ResourceUsage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self) -> None:
        import psutil

        assert self._pid is not None
        try:
            leader = psutil.Process(self._pid)
            while True:
                times = leader.cpu_times()
                spent = times.user + times.system + times.children_user + times.children_system
                self.cpu_seconds = max(self.cpu_seconds, spent)
                self.peak = max(self.peak, measure_tree_memory(self._pid) or 0)
                if self._over.wait(_SAMPLE_SECONDS):
                    return
        except psutil.NoSuchProcess:
            return  # it has ended


_REDRAW_SECONDS = 0.5
_HEARTBEAT_SECONDS = 60.0
_TAIL_BYTES = 32768  # a few commands of a compiler


class StepDisplay:
    """Shows the steps of a run. One of them has a GitHub group at a time; the lines of others wait."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[float, Path]] = {}
        self._lines: dict[str, list[str]] = {}
        self._open = ""  # the step whose group is open on GitHub
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._redraw, daemon=True)
        self._thread.start()

    def begin_step(self, step: str, why: str, log_file: Path) -> None:
        """Say that a step begins, and why. Where its log is, the run has said."""
        title = f"{step}: starting ({shorten_digests(why)})" if why else f"{step}: starting"
        with self._lock:
            self._running[step] = (time.monotonic(), log_file)
            if not is_log_on_github():
                log_note(paint_text(title, "bold"))
                return
            self._lines[step] = [f"::group::{title}"]
            self._open_next_group()

    def show_line(self, step: str, text: str) -> None:
        """Show a line that a step has printed."""
        with self._lock:
            if not is_log_on_github():
                if text.strip():
                    log_note(f"[{step}] {text}")
            elif step == self._open:
                log_note(text)
            else:
                self._lines[step].append(text)

    def end_step(self, step: str, outcome: str, colour: str) -> None:
        """Say how a step ended."""
        with self._lock:
            seconds = time.monotonic() - self._running.pop(step)[0]
            message = f"{step}: {paint_text(outcome, colour)} {tables.format_duration(seconds)}"
            if not is_log_on_github():
                log_note(message)
            elif step == self._open:
                log_note("::endgroup::")
                log_note(message)
                self._open = ""
                self._open_next_group()
            else:
                self._lines[step] += ["::endgroup::", message]

    def _open_next_group(self) -> None:
        """Print the groups that have ended, whole, and open that of a step at work: groups do not nest."""
        while not self._open and self._lines:
            step = next((name for name in self._lines if name not in self._running), next(iter(self._lines)))
            for text in self._lines.pop(step):
                log_note(text)
            self._open = step if step in self._running else ""

    def close(self) -> None:
        """Stop drawing."""
        self._over.set()
        self._thread.join()
        progress.show_live_lines([])

    def _redraw(self) -> None:
        live = progress.can_draw()
        if is_log_on_github():
            return
        while not self._over.wait(_REDRAW_SECONDS if live else _HEARTBEAT_SECONDS):
            with self._lock:
                now = time.monotonic()
                lines = [
                    f"{step}  {tables.format_duration(now - begun)}  {read_last_log_line(path)}".rstrip()
                    for step, (begun, path) in self._running.items()
                    if live or now - begun >= _HEARTBEAT_SECONDS / 2
                ]
                if live:
                    progress.show_live_lines(lines)
                else:
                    for line in lines:
                        log_note(line)


def read_last_log_line(path: Path) -> str:
    """Return the last line of a log that is being written, empty when there is none that can be read."""
    return find_last_line(_read_log_tail(path))


def _read_log_tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
            return file.read()
    except (OSError, ValueError):
        return b""  # not written yet, cleaned away, or no path at all: the step is shown without


@dataclass(frozen=True)
class NinjaCount:
    """How many commands a ninja has done, of how many."""

    done: int
    commands: int


_NINJA_COUNT = re.compile(r"\[(?P<done>\d{1,7})/(?P<commands>\d{1,7})\] ")


def parse_ninja_count(line: str) -> NinjaCount | None:
    """Return what ninja's ``[14/19]`` says at the begin of a line; ``None`` for other lines."""
    match = _NINJA_COUNT.match(line)
    if match is None:
        return None
    count = NinjaCount(int(match["done"]), int(match["commands"]))
    return count if 0 < count.done <= count.commands else None


@dataclass(frozen=True)
class StepStatus:
    """A step at work. ``seconds`` since its begin; ``line`` is the last of its log; ``memory`` in bytes now.

    ``expected`` is the estimate of the plan in seconds. ``seconds_left``: to its expected end, negative when
    that is over; ``None``: nobody can tell. ``source`` says what it comes from: the commands that ninja has
    done and has to do, else the estimate.
    """

    id: str
    seconds: float
    line: str
    log: str | None
    memory: int | None
    expected: float | None
    seconds_left: float | None
    source: str | None
    ninja: NinjaCount | None = None


@dataclass(frozen=True)
class RunStatus:
    """A run and its steps at work. ``seconds`` since its begin; ``to_come`` is ``None`` when not recorded.

    ``seconds_left``: seconds that it takes at least, by the estimates of what is not done yet.
    """

    run: run_record.RecordedRun
    seconds: float
    running: tuple[StepStatus, ...]
    to_come: int | None
    seconds_left: float | None

    def as_json(self) -> dict[str, object]:
        """Return what ``runs show --json`` says of now. Keys are added later, never renamed."""
        return {
            "seconds": round(self.seconds, 3),
            "to_come": self.to_come,
            "left": None if self.seconds_left is None else round(self.seconds_left, 3),
            "running": [
                {
                    "step": step.id,
                    "seconds": round(step.seconds, 3),
                    "line": step.line,
                    "log": step.log,
                    "memory": step.memory,
                    "expected": step.expected,
                    "left": None if step.seconds_left is None else round(step.seconds_left, 3),
                    "source": step.source,
                    "ninja": None if step.ninja is None else asdict(step.ninja),
                }
                for step in self.running
            ],
        }


def read_run_status(
    run: run_record.RecordedRun,
    now: run_record.Moment,
    memory: Callable[[int], int | None] = measure_tree_memory,
) -> RunStatus:
    """Look at every step that is at work: its log, its processes, how long it has been."""
    working = [step for step in run.steps.values() if step.state == "running"]
    steps = run.begun.get("steps")
    if run.state == "running":
        seconds = _seconds_since(run, run.begun, now)
    else:
        seconds = run.seconds or 0.0
    running = tuple(_read_step_status(run, step, now, memory) for step in working)
    return RunStatus(
        run=run,
        seconds=seconds,
        running=running,
        seconds_left=_estimate_seconds_left(run, running) if run.state == "running" else None,
        to_come=None if steps is None else max(steps - len(run.steps), 0),
    )


def _estimate_seconds_left(run: run_record.RecordedRun, running: tuple[StepStatus, ...]) -> float | None:
    """Return the seconds of the longest way through what is left, as if all that can run side by side did.

    A step without an estimate counts for nothing; ``None`` when none of them has one.
    """
    at_work = {step.id: step for step in running}
    ends: dict[str, float] = {}
    has_estimate = False
    for step in run.planned:
        begin = max((ends.get(name, 0.0) for name in step.after), default=0.0)
        if step.id in at_work:
            seconds_left = at_work[step.id].seconds_left
            has_estimate = has_estimate or seconds_left is not None
            ends[step.id] = max(seconds_left or 0.0, 0.0)
        elif step.id not in run.steps:
            has_estimate = has_estimate or step.seconds is not None
            ends[step.id] = begin + (step.seconds or 0.0)
    return max(ends.values()) if has_estimate else None


def _read_step_status(
    run: run_record.RecordedRun,
    step: run_record.RecordedStep,
    now: run_record.Moment,
    memory: Callable[[int], int | None],
) -> StepStatus:
    pid, estimate = step.begun.get("pid"), step.begun.get("estimate") or {}
    tail = _read_log_tail(step.log) if step.log else b""
    seconds, expected = _seconds_since(run, step.begun, now), estimate.get("seconds")
    left, source = None if expected is None else expected - seconds, estimate.get("source")
    ninja = _find_ninja_count(tail)
    begins = step.events_of_kind("ninja-begun")
    if ninja is not None and begins:
        by_ninja = _extrapolate_ninja(begins[-1], ninja, _seconds_since(run, begins[-1], now), step)
        if by_ninja is not None:
            left, source = by_ninja, f"ninja: {ninja.done} of {ninja.commands} commands"
    return StepStatus(
        id=step.id,
        seconds=seconds,
        line=find_last_line(tail),
        log=None if step.log is None else str(step.log),
        memory=None if pid is None or run.elsewhere else memory(pid),
        expected=expected,
        seconds_left=left,
        source=source,
        ninja=ninja,
    )


def _find_ninja_count(tail: bytes) -> NinjaCount | None:
    lines = re.split("[\r\n]+", tail.decode("utf-8", "replace"))
    counts = (parse_ninja_count(line) for line in reversed(lines))
    return next((count for count in counts if count is not None), None)


def _extrapolate_ninja(
    begin: run_record.Event, count: NinjaCount, seconds: float, step: run_record.RecordedStep
) -> float | None:
    """Return the seconds that ninja's other commands take, if they go on as those since ``begin`` did.

    ``None`` while that says nothing: fewer are done than run side by side; and when all are done, for what
    comes after them is not ninja's.
    """
    done = count.done - (begin.get("done") or 0)
    left = count.commands - count.done
    if done < max(int(step.begun.get("jobs") or 1), 1) or not left:
        return None
    return seconds * left / done


def _seconds_since(run: run_record.RecordedRun, event: run_record.Event, now: run_record.Moment) -> float:
    """Return the seconds since an event: by the clock, unless that is another machine's."""
    if not event:
        return 0.0
    day, clock = now
    passed = (
        (day - run_record.parse_event_time(event)).total_seconds()
        if run.elsewhere
        else clock - event["clock"]
    )
    return max(passed, 0.0)


_LONG_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{12,}\b")


def join_lines(text: str) -> str:
    """Return text on one line, with single blanks."""
    return " ".join(page_templates.strip_controls(text).split())


def shorten_digests(text: str) -> str:
    """Return text with 12 digits of each long digest or commit in it."""
    return _LONG_DIGEST.sub(r"\1…", text)


_NINJA_EDGE = re.compile(r"(?P<count>\[\d+/\d+\]) .* -o (?P<file>[^\s\"]+)")


def find_last_line(tail: bytes) -> str:
    """Return the last line with anything on it; of one that was drawn over, what was drawn last.

    Of a command that ninja runs, it is the count and the file that is written.
    """
    text = tail.decode("utf-8", "replace")
    line = next((line for part in reversed(re.split("[\r\n]+", text)) if (line := join_lines(part))), "")
    edge = _NINJA_EDGE.match(line)
    return f"{edge['count']} {edge['file'].rpartition('/')[2]}" if edge else line


@dataclass(frozen=True)
class SummaryRow:
    """A project's outcome. ``seconds`` is this run's; ``size`` in bytes; ``sha256`` in hex.

    ``targets`` is ``None`` when nobody looked into the wheel.
    """

    project: str
    outcome: str  # built | up to date | failed | not built | …
    wheel: str = ""
    version: str = ""
    targets: tuple[str, ...] | None = ()
    size: int | None = None
    seconds: float | None = None
    sha256: str = ""
    checked: str = ""  # "verified", "not verified (--no-verify)"
    note: str = ""
    lock: str = ""  # SHA-256 of the lock that it was built from
    python: str = ""  # ABI tag
    dropped: tuple[str, ...] = ()  # targets left out, because nothing compiles for them
    target_set: str = ""  # with --per-target: the folder of the output that it is in


SUMMARY_HEADERS = ("wheel", "version", "targets", "size", "time", "sha256", "outcome")


def format_cells(row: SummaryRow) -> tuple[str, ...]:
    """Return a row as text, in the order of ``SUMMARY_HEADERS``."""
    outcome = ", ".join(part for part in (row.outcome, row.checked, row.note) if part)
    return (
        "/".join(
            part for part in (row.target_set, row.wheel or f"{row.project} {row.python}".strip()) if part
        ),
        row.version,
        _format_targets(row) if row.wheel else "",
        tables.format_size(row.size, unknown=""),
        "" if row.seconds is None else tables.format_duration(row.seconds),
        row.sha256,
        outcome,
    )


def _format_targets(row: SummaryRow) -> str:
    if row.targets is None:
        return "not read"
    return ", ".join(sorted(row.targets, key=lambda name: (len(name), name))) or "none"


def format_summary(rows: Sequence[SummaryRow], *, width: int | None = None) -> str:
    """Write the table in aligned columns, or as some lines a wheel where ``width`` is too small for that.

    Names are whole, to be copied; digests are in JSON and Markdown only.
    """
    digest = SUMMARY_HEADERS.index("sha256")
    header, *cells = (
        (*line[:digest], *line[digest + 1 :]) for line in (SUMMARY_HEADERS, *map(format_cells, rows))
    )
    return tables.format_table(header, cells, width=width)


def format_markdown_summary(rows: Sequence[SummaryRow]) -> str:
    """Write the table for a GitHub step summary."""
    return tables.format_markdown_table(SUMMARY_HEADERS, [format_cells(row) for row in rows])


def format_json_summary(rows: Sequence[SummaryRow]) -> str:
    """Write the rows as JSON: a list of objects with the fields of ``SummaryRow``."""
    import json

    return json.dumps([asdict(row) for row in rows], indent=1)
