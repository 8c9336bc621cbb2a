"""Steps at work: how they are shown, what they take, and where a run is now, as another terminal may ask.

On a terminal there is a live line for each step; on GitHub all output is shown, folded, because log files
are lost with the machine; in a pipe there are begin, end and a line a minute of each step. At the end there
is a table of wheels. Text that others wrote is made safe to print.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rocm_wheels.core import page_templates, progress, tables
from rocm_wheels.core.log import is_log_on_github, log_note, paint_text
from rocm_wheels.pipeline import run_record

_SAMPLE_SECONDS = _REDRAW_SECONDS = 0.5
_HEARTBEAT_SECONDS = 60.0
_TAIL_BYTES = 32768  # a few commands of a compiler
_CHILDREN = Path("/proc/thread-self/children")  # where there are such files: not in every sandbox


def measure_tree_memory(root: int) -> int | None:
    """Return the resident bytes of a process and its descendants; ``None`` when it is gone.

    Memory that several of them share counts for each.
    """
    import psutil

    total, waiting = None, [root]
    while waiting:
        pid = waiting.pop()
        with suppress(psutil.Error, OSError):  # it has just ended
            process = psutil.Process(pid)
            total = (total or 0) + process.memory_info().rss
            if _CHILDREN.exists():
                waiting += _list_children(pid)
            else:
                waiting += [child.pid for child in process.children()]
    return total


def _list_children(pid: int) -> list[int]:
    """Return what a process has started, as Linux tells it (proc(5)): psutil looks at all that there are.

    A run looks twice a second for each of its steps, on machines with thousands of processes.
    """
    listed = (task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    return [int(child) for text in listed for child in text.split()]


class ResourceUsage:
    """Watches a process and all that it starts, from a thread, until it is left.

    ``peak``: bytes, as ``measure_tree_memory`` counts.
    """

    def __init__(self) -> None:
        self.peak, self.cpu_seconds = 0, 0.0
        self._over, self._thread = threading.Event(), threading.Thread()

    def start(self, pid: int) -> None:
        """Begin to watch a process."""
        self._thread = threading.Thread(target=self._sample, args=(pid,), daemon=True)
        self._thread.start()

    def __enter__(self) -> ResourceUsage:
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self, pid: int) -> None:
        import psutil

        with suppress(psutil.NoSuchProcess):  # it has ended
            leader = psutil.Process(pid)
            while True:
                spent = sum(leader.cpu_times()[:4])  # of its own, and of those that it waited for
                self.cpu_seconds = max(self.cpu_seconds, spent)
                self.peak = max(self.peak, measure_tree_memory(pid) or 0)
                if self._over.wait(_SAMPLE_SECONDS):
                    return


class StepDisplay:
    """Shows the steps of a run. One of them has a GitHub group at a time; the lines of others wait."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[float, Path]] = {}
        self._waiting: dict[str, list[str]] = {}  # lines by step, on GitHub
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
            if is_log_on_github():
                self._print_in_group(step, f"::group::{title}")
            else:
                log_note(paint_text(title, "bold"))

    def show_line(self, step: str, text: str) -> None:
        """Show a line that a step has printed."""
        with self._lock:
            if is_log_on_github():
                self._print_in_group(step, text)
            elif text.strip():
                log_note(f"[{step}] {text}")

    def end_step(self, step: str, outcome: str, colour: str) -> None:
        """Say how a step ended."""
        with self._lock:
            seconds = time.monotonic() - self._running.pop(step)[0]
            message = f"{step}: {paint_text(outcome, colour)} {tables.format_duration(seconds)}"
            if is_log_on_github():
                self._print_in_group(step, "::endgroup::", message)
            else:
                log_note(message)

    def _print_in_group(self, step: str, *lines: str) -> None:
        """Print lines of a step on GitHub once its group is open: they do not nest, ended ones go first."""
        self._waiting.setdefault(step, []).extend(lines)
        while self._waiting:
            ended = (name for name in self._waiting if name not in self._running)
            self._open = self._open or next(ended, next(iter(self._waiting)))
            for text in self._waiting.pop(self._open, []):
                log_note(text)
            if self._open in self._running:
                return  # what it prints comes as it comes; others wait
            self._open = ""

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


def _read_log_tail(path: Path) -> bytes:
    """Return the end of a log: nothing where it is not written yet or cleaned away, or is no path."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
            return file.read()
    except (OSError, ValueError):
        return b""


def read_last_log_line(path: Path) -> str:
    """Return the last line of a log that is being written, empty when there is none that can be read."""
    return find_last_line(_read_log_tail(path))


_NINJA_EDGE = re.compile(r"(?P<count>\[\d+/\d+\]) .* -o (?P<file>[^\s\"]+)")
_LONG_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{12,}\b")


def find_last_line(tail: bytes) -> str:
    """Return the last line with anything on it; of one that was drawn over, what was drawn last.

    Of a command that ninja runs, it is the count and the file that is written.
    """
    text = tail.decode("utf-8", "replace")
    line = next((line for part in reversed(re.split("[\r\n]+", text)) if (line := join_lines(part))), "")
    edge = _NINJA_EDGE.match(line)
    return f"{edge['count']} {edge['file'].rpartition('/')[2]}" if edge else line


def join_lines(text: str) -> str:
    """Return text on one line, with single blanks, and nothing in it that controls a terminal."""
    return " ".join(page_templates.strip_controls(text).split())


def shorten_digests(text: str) -> str:
    """Return text with 12 digits of each long digest or commit in it."""
    return _LONG_DIGEST.sub(r"\1…", text)


@dataclass(frozen=True)
class NinjaCount:
    """How many commands a ninja has done, of how many."""

    done: int
    commands: int


_NINJA_COUNT = re.compile(r"\[(\d{1,7})/(\d{1,7})\] ")


def parse_ninja_count(line: str) -> NinjaCount | None:
    """Return what ninja's ``[14/19]`` says at the begin of a line; ``None`` for other lines."""
    if (match := _NINJA_COUNT.match(line)) is None:
        return None
    count = NinjaCount(int(match[1]), int(match[2]))
    return count if 0 < count.done <= count.commands else None


@dataclass(frozen=True)
class StepStatus:
    """A step at work, as ``runs show --json`` has it. ``seconds`` since its begin; ``line``: its log's last.

    ``memory``: bytes now. ``expected``: the estimate of the plan, in seconds. ``left``: seconds to its
    expected end, negative when that is over; ``None``: nobody can tell. ``source`` says what that comes from:
    the commands that ninja has done and has to do, else the estimate.
    """

    step: str
    seconds: float
    line: str
    log: str | None
    memory: int | None
    expected: float | None
    left: float | None
    source: str | None
    ninja: NinjaCount | None


@dataclass(frozen=True)
class RunStatus:
    """A run and its steps at work. ``seconds`` since its begin; ``to_come`` is ``None`` when not recorded.

    ``left``: seconds that it takes at least, by the estimates of what is not done yet.
    """

    run: run_record.RecordedRun
    seconds: float
    to_come: int | None
    left: float | None
    running: tuple[StepStatus, ...]

    def as_json(self) -> dict[str, object]:
        """Return what ``runs show --json`` says of now. Keys are added later, never renamed."""
        running = [asdict(step) for step in self.running]
        return {"seconds": self.seconds, "to_come": self.to_come, "left": self.left, "running": running}


def read_run_status(run: run_record.RecordedRun, now: run_record.Moment) -> RunStatus:
    """Look at every step that is at work: its log, its processes, how long it has been."""
    working = [step for step in run.steps.values() if step.state == "running"]
    at_work = {step.id: _read_step_status(run, step, now) for step in working}
    ends: dict[str, float] = {}  # of the steps that are left, as if all that can run side by side did
    has_estimate = False
    for planned in run.planned:
        name = planned.text("id")
        left = at_work[name].left if name in at_work else planned.part("estimate").number("seconds")
        if name in at_work or name not in run.steps:
            has_estimate = has_estimate or left is not None  # a step without one counts for nothing
            begin = max((ends.get(other, 0.0) for other in planned.texts("after")), default=0.0)
            ends[name] = begin + max(left or 0.0, 0.0)
    is_running, steps = run.state == "running", run.begun.count("steps")
    return RunStatus(
        run,
        seconds=round(_seconds_since(run, run.begun, now) if is_running else run.seconds or 0.0, 3),
        to_come=None if steps is None else max(steps - len(run.steps), 0),
        left=round(max(ends.values()), 3) if is_running and has_estimate else None,
        running=tuple(at_work.values()),
    )


def _read_step_status(
    run: run_record.RecordedRun, step: run_record.RecordedStep, now: run_record.Moment
) -> StepStatus:
    pid, estimate = step.begun.count("pid"), step.begun.part("estimate")
    seconds, expected = _seconds_since(run, step.begun, now), estimate.number("seconds")
    left, source = None if expected is None else expected - seconds, estimate.text("source") or None
    tail = _read_log_tail(step.log) if step.log else b""
    counts = map(parse_ninja_count, reversed(re.split("[\r\n]+", tail.decode("utf-8", "replace"))))
    ninja = next(filter(None, counts), None)
    if ninja is not None and (begins := step.events_of_kind("ninja-begun")):
        done, rest = ninja.done - (begins[-1].count("done") or 0), ninja.commands - ninja.done
        # it says nothing while fewer are done than run side by side, nor of what comes after the last one
        if rest and done >= max(step.begun.count("jobs") or 1, 1):
            left = _seconds_since(run, begins[-1], now) * rest / done
            source = f"ninja: {ninja.done} of {ninja.commands} commands"
    log = None if step.log is None else str(step.log)
    memory = None if pid is None or run.elsewhere else measure_tree_memory(pid)
    left = None if left is None else round(left, 3)
    return StepStatus(
        step.id, round(seconds, 3), find_last_line(tail), log, memory, expected, left, source, ninja
    )


def _seconds_since(run: run_record.RecordedRun, event: run_record.Event, now: run_record.Moment) -> float:
    """Return the seconds since an event: by the clock, unless that is another machine's."""
    if not event:
        return 0.0
    (day, clock), (event_day, event_clock) = now, event.moment
    return max((day - event_day).total_seconds() if run.elsewhere else clock - event_clock, 0.0)


@dataclass(frozen=True)
class SummaryRow:
    """A project's outcome. ``seconds`` is this run's; ``size`` in bytes; ``sha256`` in hex."""

    project: str
    outcome: str  # built | up to date | failed | not built | …
    wheel: str = ""
    version: str = ""
    targets: tuple[str, ...] = ()
    size: int | None = None
    seconds: float | None = None
    sha256: str = ""
    checked: str = ""  # "verified": a finished wheel has passed its checks
    note: str = ""
    lock: str = ""  # SHA-256 of the lock that it was built from
    python: str = ""  # ABI tag
    target_set: str = ""  # with --per-target: the folder of the output that it is in


_SUMMARY_HEADERS = ("wheel", "version", "targets", "size", "time", "sha256", "outcome")


def _format_cells(row: SummaryRow) -> tuple[str, ...]:
    targets = sorted(row.targets, key=lambda name: (len(name), name))
    return (
        "/".join(filter(None, (row.target_set, row.wheel or f"{row.project} {row.python}".strip()))),
        row.version,
        (", ".join(targets) or "none") if row.wheel else "",
        tables.format_size(row.size, unknown=""),
        "" if row.seconds is None else tables.format_duration(row.seconds),
        row.sha256,
        ", ".join(filter(None, (row.outcome, row.checked, row.note))),
    )


def format_summary(rows: Sequence[SummaryRow], *, width: int | None = None) -> str:
    """Write the table in aligned columns, or as some lines a wheel where ``width`` is too small for that.

    Names are whole, to be copied; digests are in JSON and Markdown only.
    """
    lines = [_SUMMARY_HEADERS, *map(_format_cells, rows)]
    header, *cells = [(*before, outcome) for *before, _digest, outcome in lines]
    return tables.format_table(header, cells, width=width)


def format_markdown_summary(rows: Sequence[SummaryRow]) -> str:
    """Write the table for a GitHub step summary."""
    return tables.format_markdown_table(_SUMMARY_HEADERS, [_format_cells(row) for row in rows])
