"""Processes that are forked for us behave as programs do that are started: their ends, files and groups."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.core import errors, process
from rocm_wheels.pipeline import forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are made on Linux alone")

DEADLINE = 20.0


def work(words: list[str], env: dict[str, str]) -> int:
    """What a fork does: the first word says it."""
    kind, *rest = words
    if kind == "exit":
        return int(rest[0])
    if kind == "say":
        print("out", flush=True)
        print("err", file=sys.stderr, flush=True)
        os.write(1, b"\xff\n")
        print(env.get("SAID"), env.get("HOME"), Path.cwd(), sys.stdin.read() == "")
        print(os.getsid(0) == os.getpid(), len(list(Path("/proc/self/fd").iterdir())))
    elif kind == "raise":
        raise ValueError("a bug")
    elif kind == "leave":
        sys.exit(7)
    elif kind == "sleep":
        subprocess.Popen(["sleep", "600"], env=env)
        print("asleep", flush=True)
        time.sleep(600)
    return 0


@pytest.fixture
def server() -> Iterator[forks.ForkServer]:
    with forks.ForkServer(work) as started:
        yield started


def run(server: forks.ForkServer, *words: str, **env: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    ended = process.run_command(
        ["work", *words], env=env, on_line=lines.append, check=None, start=server.start
    )
    return ended.returncode, lines


def wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while any(process.is_process_alive(pid, "") for pid in pids):
        assert time.monotonic() < deadline, "still alive"
        time.sleep(0.01)


def test_a_fork_has_what_a_program_has(server: forks.ForkServer, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        code, lines = run(server, "say", SAID="a\udcffb")
    assert code == 0
    assert lines[:3] == ["out", "err", "\ufffd"]
    assert lines[3] == f"a\ufffdb None {Path.cwd()} True"  # the whole environment, and no stdin
    assert lines[4] == "True 4"  # the three streams, and the folder itself


@pytest.mark.parametrize(("words", "code"), [(["exit", "14"], 14), (["leave"], 7), (["raise"], 1)])
def test_how_it_ends_is_told(server: forks.ForkServer, words: list[str], code: int) -> None:
    ended, lines = run(server, *words)
    assert ended == code
    assert (lines[-1:] == ["ValueError: a bug"]) == (words == ["raise"])
    assert run(server, "exit", "0") == (0, [])  # and the next begins


def test_an_end_that_nobody_could_tell_is_a_signal(server: forks.ForkServer) -> None:
    child = server.start(["work", "sleep"], {"PATH": os.environ["PATH"]})
    assert child.stdout.readline() == b"asleep\n"
    assert child.poll() is None
    shown = Path(f"/proc/{child.pid}/cmdline").read_bytes()
    assert shown.rstrip(b"\0") == b"work\0sleep"  # no word of who started it
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(child.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    os.kill(child.pid, signal.SIGKILL)
    for thread in threads:
        thread.join(DEADLINE)
    assert seen == [-signal.SIGKILL] * 3
    assert child.poll() == -signal.SIGKILL
    process.end_process_tree(child)  # what it has started is ended as that of any program
    wait_until_gone(*process.list_group_members({child.pid}))


def test_a_time_that_is_over_ends_all_of_it(server: forks.ForkServer) -> None:
    with pytest.raises(errors.BuildError, match="was stopped after"):
        process.run_command(
            ["work", "sleep"], env={"PATH": os.environ["PATH"]}, timeout=0.5, check=None, start=server.start
        )


def test_several_at_a_time(server: forks.ForkServer) -> None:
    children = [server.start(["work", "exit", str(number)], {}) for number in range(20)]
    assert [child.wait() for child in reversed(children)] == list(reversed(range(20)))


def test_a_server_that_is_gone_is_an_error(server: forks.ForkServer) -> None:
    child = server.start(["work", "sleep"], {"PATH": os.environ["PATH"]})
    child.stdout.readline()
    os.kill(server.pid, signal.SIGKILL)
    assert child.poll() is None  # how it ends is told by another process
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    with pytest.raises(errors.BuildError, match="could not be started"):
        run(server, "exit", "0")


def test_a_process_that_ends_before_it_begins_is_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object) -> None:
        os._exit(3)

    monkeypatch.setattr(forks, "_work", end)
    with forks.ForkServer(work) as started:
        for _ in range(5):
            # by its silence, or because it does not take what it is to do
            with pytest.raises((ChildProcessError, BrokenPipeError)):
                started.start(["work", "exit", "0"], {"LONG": "x" * 10_000})


def test_a_process_of_which_nobody_tells_any_more_is_ended(server: forks.ForkServer) -> None:
    child = server.start(["work", "sleep"], {"PATH": os.environ["PATH"]})
    assert child.stdout.readline() == b"asleep\n"
    shown = Path(f"/proc/{child.pid}/stat").read_text()
    os.kill(int(shown.rpartition(")")[2].split()[1]), signal.SIGKILL)  # its parent, which waits for it
    assert child.wait() == -signal.SIGKILL
    wait_until_gone(child.pid)


def test_a_module_that_is_missing_is_for_who_needs_it_to_tell() -> None:
    with forks.ForkServer(work, ["no.such.module"]) as started:
        assert [run(started, "exit", code)[0] for code in ("0", "3")] == [0, 3]


def test_nothing_is_forked_beside_threads() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    assert forks.start_fork_server(work) is None
    stop.set()
    thread.join()


def test_it_ends_with_who_started_it() -> None:
    script = (
        "import os, sys; from rocm_wheels.pipeline import forks\n"
        "server = forks.start_fork_server(lambda *_: __import__('time').sleep(600))\n"
        "child = server.start(['x'], {}); print(server.pid, child.pid, flush=True); sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe) as started:
        assert started.stdout is not None
        server, child = map(int, started.stdout.readline().split())
        started.kill()
        assert started.stdout.read() == b""  # nobody holds what was its own
    wait_until_gone(server)
    assert process.is_process_alive(child, "")  # as a program would be: the next run ends it by its note
    os.killpg(child, signal.SIGKILL)
    wait_until_gone(child)
