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
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Protocol

from rocm_wheels.core import errors, log, shell, tables

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
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(pid, signal.SIGKILL)
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


def _write_to_ledgers(line: str) -> None:
    for path in _ledgers.get():
        with errors.name_failed_file(path), path.open("a", encoding="ascii") as file:
            file.write(line)


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
_DISK_FULL = re.compile("no space left on device|out of diskspace|disk quota exceeded", re.IGNORECASE)
_WINDOWS = sys.platform == "win32"
_GRACE_SECONDS = 5.0


class Child(Protocol):
    """A process that was started: a program, or what does the same for ``run_command``."""

    @property
    def pid(self) -> int:
        """Its number, which is that of its group and session, too."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """What it prints."""

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal, or ``None`` while it is at work."""

    def wait(self) -> int:
        """Wait for its end, and return the exit code."""


StartChild = Callable[[Sequence[str], Mapping[str, str]], Child]  # words and environment → a process

_running: set[Child] = set()


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
    start: StartChild | None = None,
) -> FinishedProcess:
    """Run a program, stdout and stderr together; each line goes to ``on_line`` and, appended, to ``log``.

    A non-zero exit raises ``check`` (its message ends with the last lines printed), or is
    returned when ``check`` is ``None``. The program is ended after ``timeout`` seconds, and when it has
    printed nothing for ``silence`` seconds; that is watched until ``ends_silence`` says yes to a line.
    Standard input is closed. What a program draws over (up to a carriage return) goes to ``on_line`` alone.
    ``on_start`` is told the number of the process. ``start`` starts another process than a program.
    """
    name, error = description or f"`{shell.format_command(argv)}`", check or errors.BuildError
    secrets, begin, tail = shell.find_secrets(env), time.monotonic(), deque[str](maxlen=TAIL_LINES)
    child = _start_process(argv, env=env, cwd=cwd, error=error, name=name, start=start)
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(_watch_process(child, timeout, silence))
        assert child.stdout is not None
        stdout = stack.enter_context(child.stdout)
        sink = stack.enter_context(_open_log(log, argv, cwd))
        if on_start is not None:
            on_start(child.pid)
        for raw in _split_lines(stdout, watch.note_output):
            line = shell.hide_secrets(raw.decode("utf-8", "replace").rstrip("\r\n"), secrets)
            if ends_silence is not None and ends_silence(line):
                watch.silence = None
            is_drawn_over = raw.endswith(b"\r")
            if not is_drawn_over:
                tail.append(line)
                sink(line)
            if on_line is not None and (line or not is_drawn_over):
                on_line(line)
        code = child.wait()
    if watch.fired:
        raise error(f"{name} was stopped after {watch.fired}", tip=tip)
    if code and check is not None:
        raise _make_failure(check, name, code, list(tail), tip)
    return FinishedProcess(code, time.monotonic() - begin)


@contextmanager
def _open_log(
    path: Path | None, argv: Sequence[str | os.PathLike[str]], cwd: Path | None
) -> Iterator[Callable[[str], object]]:
    """Give what appends lines to a log, which begins with the command; a full disk is told with its name."""
    if path is None:
        yield lambda line: None
        return
    with errors.name_failed_file(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a", 1, encoding="utf-8", errors="replace")
        try:
            file.write(f"$ {shell.format_command(argv, cwd=cwd)}\n")
            yield lambda line: file.write(line + "\n")
        finally:
            with suppress(OSError):  # what a full disk did not take was told when it was written
                file.close()


def _split_lines(stream: IO[bytes], on_output: Callable[[], None]) -> Iterator[bytes]:
    """Yield what a program prints as soon as a line ends (``\\n``), or is drawn over (``\\r``)."""
    rest = b""
    while chunk := os.read(stream.fileno(), 1 << 16):
        on_output()
        *whole, rest = _LINE_ENDS.split(rest + chunk)
        for text, end in zip(whole[::2], whole[1::2], strict=True):
            yield text + end
    if rest:
        yield rest


def _make_failure(
    error: type[errors.RocmWheelsError], name: str, code: int, printed: Sequence[str], tip: str | None
) -> errors.RocmWheelsError:
    """Say how a program failed, with the end of what it printed; a negative ``code`` is a signal."""
    outcome = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
    tail = [f"  | {line}" for line in printed[-TAIL_LINES:] if line.strip()]
    if any(_DISK_FULL.search(line) for line in printed):  # whatever else it was doing
        tip = "free some space, then run the same command again"
    return error("\n".join([f"{name} {outcome}:" if tail else f"{name} {outcome}", *tail]), tip=tip)


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
        argv, env=env, cwd=cwd, error=check, name=name, stderr=subprocess.PIPE, stdin=stdin is not None
    )
    assert isinstance(child, subprocess.Popen)
    # told the time, `communicate` would look for the end again and again, a millisecond and more apart
    with _watch_process(child, timeout, None) as watch:
        out, err = child.communicate(stdin)
    if watch.fired:
        raise check(f"{name} was stopped after {watch.fired}", tip=tip)
    if child.returncode:
        printed = shell.hide_secrets((err or out).decode("utf-8", "replace"), shell.find_secrets(env))
        raise _make_failure(check, name, child.returncode, printed.splitlines(), tip)
    return str(out, "utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")


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
    child = _start_process(argv, env=env, error=error, name=name, stdin=stdin, attached=True)
    assert isinstance(child, subprocess.Popen)
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


def end_process_tree(child: Child) -> None:
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


def _forget_process(child: Child) -> None:
    with suppress(OSError):  # where the disk is full, the number of the group tells as well
        _write_to_ledgers(f"-{child.pid}\n")
    _running.discard(child)


def _wait_for_group(child: Child, seconds: float) -> bool:
    """Wait until no process of a group is alive; the first may be gone long before the last."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if child.poll() is not None and not list_group_members({child.pid}):
            return True
        time.sleep(0.01)
    return False


class _Watch:
    """Ends a process tree after ``timeout`` seconds, and after ``silence`` seconds without output.

    ``fired`` is what it was ended after, else "".
    """

    def __init__(self, child: Child, timeout: float | None, silence: float | None) -> None:
        self.child, self.timeout, self.silence = child, timeout, silence
        self.fired = ""
        self.over = threading.Event()
        self._heard = self._begin = time.monotonic()

    def note_output(self) -> None:
        """Note that the program printed something."""
        self._heard = time.monotonic()

    def run(self) -> None:
        """Watch until it is over."""
        wait: float | None = 0
        while not self.over.wait(wait):
            limits = [(self._begin, self.timeout, "an end"), (self._heard, self.silence, "any progress")]
            rests = []
            for begin, seconds, missing in limits:
                if seconds is None:
                    continue
                rests.append(begin + seconds - time.monotonic())
                if rests[-1] <= 0:
                    self.fired = f"{tables.format_duration(seconds)} without {missing}"
                    end_process_tree(self.child)
                    return
            wait = min(rests, default=None)


@contextmanager
def _watch_process(child: Child, timeout: float | None, silence: float | None) -> Iterator[_Watch]:
    """Be with a process tree until its end, and end it when something goes wrong, or takes too long."""
    watch = _Watch(child, timeout, silence)
    thread = threading.Thread(target=watch.run, daemon=True)
    if timeout is not None or silence is not None:
        thread.start()
    try:
        yield watch
    except BaseException:
        end_process_tree(child)
        raise
    finally:
        _forget_process(child)
        watch.over.set()
        if thread.is_alive():
            thread.join()  # until it has ended the last process


def _start_process(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    error: type[errors.RocmWheelsError],
    name: str,
    cwd: Path | None = None,
    stderr: int = subprocess.STDOUT,
    stdin: bool = False,
    attached: bool = False,
    start: StartChild | None = None,
) -> Child:
    """Start a process, unless everything is being ended, and note it where groups are noted.

    ``attached``: on our own terminal and in our own group; else it leads a group, and prints into pipes.
    """
    if is_interrupted():
        raise error(f"{name} was not begun: interrupted")
    if log.is_log_detailed():
        line = shell.format_command(argv, cwd=cwd)
        log.log_detail(shell.hide_secrets(f"$ {line}", shell.find_secrets(env)))
    words = [os.fspath(word) for word in argv]
    child: Child
    try:
        if start is not None:
            child = start(words, env)
        else:
            pipe = None if attached else subprocess.PIPE
            child = subprocess.Popen(
                words,
                env=dict(env),
                cwd=cwd,
                stdin=pipe if stdin else subprocess.DEVNULL,
                stdout=pipe,
                stderr=None if attached else stderr,
                start_new_session=not _WINDOWS and not attached,
            )
    except OSError as cause:
        raise error(f"{name} could not be started") from cause
    _running.add(child)
    try:
        # a group is named by its leader (Linux; elsewhere none could be found again)
        if _ledgers.get() and (began := get_process_start(child.pid)):
            _write_to_ledgers(f"+{child.pid} {began}\n")
    except BaseException:
        end_process_tree(child)
        _running.discard(child)
        raise
    return child
