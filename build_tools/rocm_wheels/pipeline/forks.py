"""Run commands of ours in processes of their own, without starting Python and importing all for each.

A process that has imported everything, and done nothing yet, forks for each (``ForkServer``): that takes
milliseconds, where a start takes half a second of a processor. It has one thread, as a fork must, and
nobody's locks, files or caches. It ends with whoever started it; what it has forked is ended by whoever
asked for that (``rocm_wheels.core.process``), as any other program is. Linux alone: elsewhere programs are
started.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

_LINE = 3  # the lowest descriptor that is no standard stream: the server's line to whoever started it
_BEGUN, _ENDED = b"b", b"e"  # what is told on a fork's line: its process, and how that has ended
_NUMBER_BYTES = 8  # of the number after each
_Run = Callable[[list[str], dict[str, str]], int]  # words and environment → exit code


class Fork:
    """A process that was forked for us: what ``subprocess.Popen`` is for a program, as far as needed."""

    def __init__(self, line: socket.socket, stdout: IO[bytes]) -> None:
        self.stdout = stdout
        self.returncode: int | None = None
        self._line = line
        self._waiting = threading.Lock()  # threads may ask for the end, and one alone reads it
        if (pid := self._receive(_BEGUN)) is None:
            raise ChildProcessError("the process was gone before it could begin")
        self.pid = pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or ``None`` while the process is at work."""
        if self.returncode is None and self._waiting.acquire(blocking=False):
            try:
                if self.returncode is None and select.select([self._line], [], [], 0)[0]:
                    self._take_end()
            finally:
                self._waiting.release()
        return self.returncode

    def wait(self) -> int:
        """Wait for the end, and return the exit code."""
        with self._waiting:
            return self._take_end() if self.returncode is None else self.returncode

    def _take_end(self) -> int:
        status = self._receive(_ENDED)
        if status is None:  # who would tell was killed: nobody can say any more how this ends
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            status = signal.SIGKILL
        self._line.close()
        self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def _receive(self, kind: bytes) -> int | None:
        """Return the number that is told of this kind; ``None`` when another is, or nobody tells any more."""
        message = b""
        with suppress(OSError):  # who would tell may have ended without reading what we sent
            message = self._line.recv(len(kind) + _NUMBER_BYTES, socket.MSG_WAITALL)
        is_whole = len(message) == len(kind) + _NUMBER_BYTES and message.startswith(kind)
        return int.from_bytes(message[len(kind) :], "big") if is_whole else None


class ForkServer:
    """Forks processes that call ``run`` with words; a context: at its end nothing more is forked.

    ``run`` makes the environment its own, and returns the exit code. ``modules`` are what those processes
    use beside what is imported: they are imported for all of them once the first has begun, which rarely
    needs them. It is to be made where this process has one thread and nothing open that another process is
    not to have.
    """

    def __init__(self, run: _Run, modules: Sequence[str] = ()) -> None:
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _serve(theirs.detach(), run, modules)
        theirs.close()

    def start(self, words: Sequence[str], env: Mapping[str, str]) -> Fork:
        """Begin a process with these words and this whole environment, in a session of its own.

        Stdin is empty; stdout and stderr are one pipe. Raises OSError when that cannot be.
        """
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._control, [b"f"], [theirs.fileno(), writing])
        finally:
            theirs.close()
            os.close(writing)
        stdout = os.fdopen(reading, "rb", 0)
        try:
            ours.sendall(json.dumps([list(words), str(Path.cwd()), dict(env)]).encode())
            ours.shutdown(socket.SHUT_WR)
            return Fork(ours, stdout)
        except BaseException:
            ours.close()
            stdout.close()
            raise

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def start_fork_server(run: _Run, modules: Sequence[str] = ()) -> ForkServer | None:
    """Start a server, where this system and the state of this process allow that; else there is none."""
    return ForkServer(run, modules) if sys.platform == "linux" and threading.active_count() == 1 else None


def _serve(control: int, run: _Run, modules: Sequence[str]) -> NoReturn:
    """Fork for each request until whoever makes them is gone. Never returns."""
    try:
        os.setsid()  # a terminal's Ctrl-C is for whoever asks
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that watch
        _set_title(["rocm-wheels", "forks the steps of its parent"])
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        os.dup2(control, _LINE)
        _close_files(_LINE + 1)
        requests = socket.socket(fileno=_LINE)
        while True:
            word, files, _, _ = socket.recv_fds(requests, 1, 2)
            if not word:
                os._exit(0)
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _watch(files[0], files[1], run, interrupted)
            for file in files:
                os.close(file)
            for name in modules:
                with suppress(ImportError):  # who needs it imports it, and says what is missing
                    importlib.import_module(name)
    finally:
        os._exit(1)


def _watch(line: int, output: int, run: _Run, interrupted: object) -> NoReturn:
    """Fork once more, wait for that process, and tell how it ended. Never returns."""
    try:
        if (pid := os.fork()) == 0:
            signal.signal(signal.SIGINT, interrupted)  # type: ignore[arg-type]
            _work(line, output, run)
        os.close(output)
        os.close(_LINE)  # the server's end is not ours to hold
        _, status = os.waitpid(pid, 0)
        os.write(line, _ENDED + status.to_bytes(_NUMBER_BYTES, "big"))
    finally:
        os._exit(0)


def _work(line_file: int, output: int, run: _Run) -> NoReturn:
    """Become the process that was asked for, do its work, and end. Never returns."""
    code = 1
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        with socket.socket(fileno=line_file) as line:
            line.sendall(_BEGUN + os.getpid().to_bytes(_NUMBER_BYTES, "big"))
            request = b""
            while part := line.recv(1 << 16):
                request += part
        _close_files(_LINE)
        words, folder, env = json.loads(request)
        os.chdir(folder)
        _set_title(words)
        sys.argv = words
        for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
            stream = open(number, mode, 1, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        code = run(words[1:], env)
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code & 0xFF)


def _set_title(words: Sequence[str]) -> None:
    """Have ``ps`` show these words: ours are those of who started us, which may hold a password.

    What it shows lies where the kernel says (proc(5): arg_start, arg_end), and is ours to write.
    """
    import ctypes

    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    if begin:
        title = "\0".join(words).encode("utf-8", "surrogateescape")
        ctypes.memmove(begin, title[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


def _close_files(first: int) -> None:
    """Close every descriptor from ``first`` on."""
    for entry in [*Path("/proc/self/fd").iterdir()]:
        if int(entry.name) >= first:
            with suppress(OSError):  # that of the folder itself
                os.close(int(entry.name))
