"""Start programs: the one place that does; and end them with all that they started.

``run_command`` shows a program's output as it comes and keeps it in a log file, without secrets;
``capture_output`` returns what it wrote to stdout and nothing else. Both take the whole environment as
a mapping: nothing here reads or writes ``os.environ``. A program and all it started
form one process group, which ends with us, with a timeout or with an interruption; an interruption waits
for a moment that suits.

``kill -9`` takes us, not the compilers that we started: they would go on writing into a build
tree that the next run is using. While a folder is held, each group is noted in a file there; the
next holder ends what is still alive. A group is noted by its leader's number and by when that
began, in ticks since a boot that is named: after a restart, or in another container, the same number
is somebody else's and is left alone. A number is not given out again while its session has members.

Not by psutil: it knows no sessions, which hold also what a program has left to init, and when a process
began it counts from the clock of the day, which may be set between two runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, TypeAlias, TypeVar

from rocm_wheels.core import errors, forks, shell, tables
from rocm_wheels.core.log import is_log_detailed, log_detail

_PATIENCE_SECONDS = 10.0


# where groups are noted at the moment: by each folder that is held; each thread of work has its own
_ledgers: ContextVar[tuple[Path, ...]] = ContextVar("ledgers", default=())


@contextmanager
def note_groups_in(path: Path) -> Iterator[None]:
    """Note every group that is started inside in ``path``; the file is gone afterwards."""
    outer = _ledgers.set((*_ledgers.get(), path))
    try:
        yield
    finally:
        _ledgers.reset(outer)
        path.unlink(missing_ok=True)


def note_started_group(leader: int) -> None:
    """Note a group, named by its leader (Linux; elsewhere none could be found again)."""
    if _ledgers.get() and (start := get_process_start(leader)):
        _write_to_ledgers(f"+{leader} {start}\n")


def note_ended_group(leader: int) -> None:
    """Note that a group is over; where the disk is full, its number tells as well."""
    with suppress(OSError):
        _write_to_ledgers(f"-{leader}\n")


def end_leftover_groups(path: Path) -> list[int]:
    """End the groups noted in ``path`` that are still alive; return their processes."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    noted: dict[int, str] = {}
    for line in lines:
        number, _, start = line[1:].partition(" ")
        if number.isdecimal() and line.startswith("+"):
            noted[int(number)] = start
        elif number.isdecimal():
            noted.pop(int(number), None)
    leaders = {leader for leader, start in noted.items() if _is_noted_group(leader, start)}
    processes = list_group_members(leaders)
    for pid in processes:
        _kill_process(pid)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while list_group_members(leaders) and time.monotonic() < deadline:
        time.sleep(0.02)
    path.unlink(missing_ok=True)
    return processes


def list_group_members(leaders: set[int]) -> list[int]:
    """Return the live processes in the sessions of ``leaders`` (Linux; elsewhere none are found)."""
    if sys.platform != "linux" or not leaders:
        return []
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _read_stat_fields(int(entry.name))):
            state, session = fields[0], int(fields[3])
            if session in leaders and state not in "ZX":
                processes.append(int(entry.name))
    return processes


def get_process_start(pid: int) -> str:
    """Return when a process began: the boot and ticks since then; nothing where that cannot be known."""
    fields = _read_stat_fields(pid) if sys.platform == "linux" else []
    return f"{_read_boot_id()} {fields[19]}" if fields else ""


def is_process_alive(pid: int, start: str) -> bool:
    """Tell whether the process of this number that began then (``get_process_start``) is still alive.

    Where nobody knew when it began, its number alone tells.
    """
    if sys.platform == "linux":
        fields = _read_stat_fields(pid)
        return bool(fields) and fields[0] not in "ZX" and start in ("", get_process_start(pid))
    import psutil

    return psutil.pid_exists(pid)


def _read_stat_fields(pid: int) -> list[str]:
    """Return what stands behind the name in /proc/<pid>/stat (proc(5)), nothing when it has ended."""
    try:
        text = Path("/proc", str(pid), "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


@cache
def _read_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _is_noted_group(leader: int, noted: str) -> bool:
    """Tell whether a noted group is the one that has this number now; its leader may be gone."""
    if current_start := get_process_start(leader):
        return current_start == noted
    return sys.platform == "linux" and noted.startswith(f"{_read_boot_id()} ")


def _kill_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself


def _write_to_ledgers(line: str) -> None:
    for path in _ledgers.get():
        try:
            with path.open("a", encoding="ascii") as file:
                file.write(line)
        except OSError as failure:
            failure.filename = failure.filename or str(path)  # writing does not say
            raise


_interrupted = threading.Event()


@contextmanager
def block_new_work() -> Iterator[None]:
    """Let nothing begin inside, in whatever thread: no program is started, and ``wait_or_stop`` is cut."""
    _interrupted.set()
    try:
        yield
    finally:
        _interrupted.clear()


def is_interrupted() -> bool:
    """Tell whether everything is being ended."""
    return _interrupted.is_set()


def wait_or_stop(seconds: float) -> None:
    """Wait. Raises RocmWheelsError when everything is being ended meanwhile."""
    if _interrupted.wait(seconds):
        raise errors.RocmWheelsError("interrupted")


TAIL_LINES = 15
_LINE_ENDS = re.compile(rb"(\n|\r(?=[^\n]))")  # a last \r waits for the byte that says what it is


class ProgramOutput:
    """Takes the lines of a program: each goes to ``on_line`` and, appended, to ``log``.

    ``tail`` are the last ones. The log is closed at the end; an OSError on the way there names it.
    """

    def __init__(self, on_line: Callable[[str], None] | None, log: Path | None) -> None:
        self.tail: list[str] = []
        self._on_line = on_line
        self._log = log
        self._sink: IO[str] | None = None

    def open_log(self, argv: Sequence[str | os.PathLike[str]], cwd: Path | None) -> None:
        """Open the log, where there is to be one, and write the command into it."""
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._sink = self._log.open("a", encoding="utf-8", errors="replace")
            self._sink.write(f"$ {shell.format_command(argv, cwd=cwd)}\n")

    def take_line(self, line: str, *, drawn_over: bool) -> None:
        """Take a line; one that the program draws over goes to ``on_line`` alone, unless it is empty."""
        if drawn_over:
            if self._on_line is not None and line:
                self._on_line(line)
            return
        if self._sink is not None:
            self._sink.write(line + "\n")
            self._sink.flush()
        if self._on_line is not None:
            self._on_line(line)
        self.tail = [*self.tail[1 - TAIL_LINES :], line]

    def __enter__(self) -> ProgramOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            errors.name_failed_file(error, self._log)
        if self._sink is not None:
            with contextlib.suppress(OSError):  # what a full disk did not take was told when it was written
                self._sink.close()


def read_output_lines(
    stream: IO[bytes], secrets: Sequence[str], on_output: Callable[[], None]
) -> Iterator[tuple[str, bool]]:
    """Yield what a program prints, as soon as a line ends or is drawn over, and which of both it was.

    ``on_output`` is told of every byte that comes; ``secrets`` are hidden.
    """
    for raw in _split_lines(stream, on_output):
        yield shell.hide_secrets(raw.decode("utf-8", "replace").rstrip("\r\n"), secrets), raw.endswith(b"\r")


def _split_lines(stream: IO[bytes], on_output: Callable[[], None]) -> Iterator[bytes]:
    rest = b""
    while chunk := os.read(stream.fileno(), 1 << 16):
        on_output()
        *whole, rest = _LINE_ENDS.split(rest + chunk)
        for text, end in zip(whole[::2], whole[1::2], strict=True):
            yield text + end
    if rest:
        yield rest


_WINDOWS = sys.platform == "win32"
_GRACE_SECONDS = 5.0

_Child: TypeAlias = "subprocess.Popen[bytes] | forks.Fork"
_ChildT = TypeVar("_ChildT", "subprocess.Popen[bytes]", forks.Fork)

_running: set[_Child] = set()


@dataclass(frozen=True)
class FinishedProcess:
    """A program that ran: its exit code (never negative unless killed) and wall time in seconds."""

    returncode: int
    seconds: float


def run_command(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    timeout: float | None = None,
    silence: float | None = None,
    ends_silence: Callable[[str], bool] | None = None,
    check: type[errors.RocmWheelsError] | None = errors.BuildError,
    description: str | None = None,
    tip: str | None = None,
    on_start: Callable[[int], None] | None = None,
    server: forks.ForkServer | None = None,
) -> FinishedProcess:
    """Run a program, stdout and stderr together; each line goes to ``on_line`` and, appended, to ``log``.

    A non-zero exit raises ``check`` (its message ends with the last lines printed), or is
    returned when ``check`` is ``None``. The program is ended after ``timeout`` seconds, and when it has
    printed nothing for ``silence`` seconds; that is watched until ``ends_silence`` says yes to a line.
    Standard input is closed. What a program draws over (up to a carriage return) goes to ``on_line`` alone.
    ``on_start`` is told the number of the process. With a ``server`` that process is forked, not a program.
    """
    name = description or f"`{shell.format_command(argv)}`"
    error = check or errors.BuildError
    begin = time.monotonic()
    child: _Child
    if server is None:
        child = _start_process(argv, env=env, cwd=cwd, stderr=subprocess.STDOUT, error=error, name=name)
    else:
        child = _begin_process(argv, server.start, env=env, cwd=cwd, error=error, name=name)
    assert child.stdout is not None
    with (
        contextlib.closing(child.stdout) as stdout,
        ProgramOutput(on_line, log) as output,
        _Watchdog(child, timeout, silence) as expired,
    ):
        if on_start is not None:
            on_start(child.pid)
        output.open_log(argv, cwd)
        for line, drawn_over in read_output_lines(stdout, shell.find_secrets(env), expired.note_output):
            if ends_silence is not None and ends_silence(line):
                expired.allow_silence()
            output.take_line(line, drawn_over=drawn_over)
        code = child.wait()
    if expired.fired:
        raise error(f"{name} was stopped after {expired.fired}", tip=tip)
    if code and check is not None:
        raise check(
            shell.describe_failure(name, code, output.tail),
            tip=shell.choose_failure_tip(output.tail, tip),
        )
    return FinishedProcess(code, time.monotonic() - begin)


def capture_output(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: bytes | None = None,
    timeout: float | None = 600.0,
    check: type[errors.RocmWheelsError] = errors.BuildError,
    description: str | None = None,
    tip: str | None = None,
) -> str:
    """Return what a program wrote to stdout, without the last newline; stderr never enters the value.

    A non-zero exit or the timeout (seconds) raises ``check`` with the end of stderr.
    """
    name = description or f"`{shell.format_command(argv)}`"
    child = _start_process(
        argv, env=env, cwd=cwd, stderr=subprocess.PIPE, error=check, name=name, stdin=stdin is not None
    )
    # told the time, `communicate` would look for the end again and again, a millisecond and more apart
    with _Watchdog(child, timeout, None) as expired:
        out, err = child.communicate(stdin)
    if expired.fired:
        raise check(f"{name} was stopped after {expired.fired}", tip=tip)
    if child.returncode:
        printed = shell.hide_secrets(
            (err or out).decode("utf-8", "replace"), shell.find_secrets(env)
        ).splitlines()
        raise check(
            shell.describe_failure(name, child.returncode, printed[-TAIL_LINES:]),
            tip=shell.choose_failure_tip(printed, tip),
        )
    return out.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")


def run_on_terminal(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    stdin: bool,
    end: Callable[[], None] | None = None,
    error: type[errors.RocmWheelsError],
) -> int:
    """Run a program on our own terminal and in our own group; return its exit code, negative when killed.

    At an interruption ``end`` is called, which may end it its own way; what is left is ended as any other.
    """
    name = f"`{shell.format_command(argv[:2])}`"
    child = _start_process(
        argv, env=env, cwd=None, stderr=None, error=error, name=name, stdin=stdin, attached=True
    )
    try:
        return child.wait()
    except BaseException:
        for last in (*([end] if end else []), child.terminate, child.kill):
            last()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE_SECONDS)
                break
        raise
    finally:
        _forget_process(child)


def end_process_tree(child: _Child) -> None:
    """End a program and everything that it started: first politely, after 5 seconds by force."""
    if child.poll() is not None and _WINDOWS:
        return
    if _WINDOWS:
        assert isinstance(child, subprocess.Popen)
        _kill_descendants(child.pid)
        child.kill()
        child.wait()
        return
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
        except (ProcessLookupError, PermissionError):
            break
        if _wait_for_group(child, _GRACE_SECONDS):
            break
    child.wait()


def _kill_descendants(pid: int) -> None:
    """Kill what a process has started, and what that has: there are no groups on Windows."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):  # also of those that end meanwhile
        descendants = psutil.Process(pid).children(recursive=True)
        for descendant in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                descendant.kill()
        psutil.wait_procs(descendants, timeout=_GRACE_SECONDS)


def end_all_processes() -> None:
    """End every program that is running now, in whatever thread it was started."""
    children = list(_running)
    if children:
        with ThreadPoolExecutor(len(children)) as pool:  # each has its 5 seconds at the same time
            list(pool.map(end_process_tree, children))


def _forget_process(child: _Child) -> None:
    note_ended_group(child.pid)
    _running.discard(child)


def _wait_for_group(child: _Child, seconds: float) -> bool:
    """Wait until no process of a group is alive; the first may be gone long before the last."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if child.poll() is not None and not list_group_members({child.pid}):
            return True
        time.sleep(0.01)
    return False


class _Watchdog:
    """Is with a process tree until its end, and ends it when something goes wrong, or takes too long.

    Too long is after ``timeout`` seconds, and after ``silence`` seconds without output.
    """

    def __init__(self, child: _Child, timeout: float | None, silence: float | None) -> None:
        self.fired = ""  # what it was ended after
        self._child = child
        self._silence = silence
        self._heard = begin = time.monotonic()
        self._end = None if timeout is None else begin + timeout
        self._timeout = timeout
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch_process, daemon=True)
        if timeout is not None or silence is not None:
            self._thread.start()

    def __enter__(self) -> _Watchdog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                end_process_tree(self._child)
        finally:
            _forget_process(self._child)
            self._stop_watching()

    def note_output(self) -> None:
        """Note that the program printed something."""
        self._heard = time.monotonic()

    def allow_silence(self) -> None:
        """Let the program be silent from now on."""
        self._silence = None

    def _watch_process(self) -> None:
        while True:
            silence = self._silence
            quiet = None if silence is None else self._heard + silence
            moments = [moment for moment in (self._end, quiet) if moment is not None]
            if self._over.wait(max(min(moments) - time.monotonic(), 0) if moments else None):
                return
            now = time.monotonic()
            if self._end is not None and self._timeout is not None and now >= self._end:
                self.fired = f"{tables.format_duration(self._timeout)} without an end"
            elif self._silence is not None and silence is not None and now >= self._heard + silence:
                self.fired = f"{tables.format_duration(silence)} without any progress"
            if self.fired:
                end_process_tree(self._child)
                return

    def _stop_watching(self) -> None:
        """Call it off, or wait until it has ended the last process."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()


def _start_process(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    cwd: Path | None,
    stderr: int | None,
    error: type[errors.RocmWheelsError],
    name: str,
    stdin: bool = False,
    attached: bool = False,
) -> subprocess.Popen[bytes]:
    def start(words: list[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            env=dict(variables),
            cwd=cwd,
            stdin=(None if attached else subprocess.PIPE) if stdin else subprocess.DEVNULL,
            stdout=None if attached else subprocess.PIPE,
            stderr=stderr,
            start_new_session=not _WINDOWS and not attached,
        )

    return _begin_process(argv, start, env=env, cwd=cwd, error=error, name=name)


def _begin_process(
    argv: Sequence[str | os.PathLike[str]],
    start: Callable[[list[str], Mapping[str, str]], _ChildT],
    *,
    env: Mapping[str, str],
    cwd: Path | None,
    error: type[errors.RocmWheelsError],
    name: str,
) -> _ChildT:
    """Start a process, unless everything is being ended, and note it where groups are noted."""
    if is_interrupted():
        raise error(f"{name} was not begun: interrupted")
    if is_log_detailed():
        log_detail(shell.hide_secrets(f"$ {shell.format_command(argv, cwd=cwd)}", shell.find_secrets(env)))
    try:
        child = start([os.fspath(word) for word in argv], env)
    except OSError as cause:
        raise error(f"{name} could not be started") from cause
    _running.add(child)
    try:
        note_started_group(child.pid)
    except BaseException:
        end_process_tree(child)
        _running.discard(child)
        raise
    return child
