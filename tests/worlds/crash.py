"""Commands that are killed at a chosen moment, and stores in which a chosen write goes wrong.

A test states the command, the world that it begins in, and what must be true after it was run again.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.stores import folder as folders
from rocm_wheels.stores import store

Point = TypeVar("Point")


def sample(
    points: Sequence[Point], exhaustive: bool, most: int = 4, *, least: int | None = None
) -> Sequence[Point]:
    """Return all points, or ``most`` of them: the first, the last, and between them at even distances.

    There must be ``least`` of them, by default ``most``: what kills at nothing proves nothing.
    """
    wanted = most if least is None else least
    assert len(points) >= wanted > 0, f"{len(points)} points, at least {wanted} were expected: {points}"
    if exhaustive or len(points) <= most:
        return points
    return [points[round(number * (len(points) - 1) / (most - 1))] for number in range(most)]


def in_a_process(work: Callable[[], object], env: Mapping[str, str] = os.environ) -> int:
    """Do something in a process of its own; return its exit code, or minus the signal that ended it.

    A copy of this one: a fresh Python would take longer to import what it needs than to be killed. Pythons
    from 3.12 on warn of every fork where threads are; ours (xdist's, which waits) holds no lock.
    """
    variables = dict(env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        code = 1
        try:
            os.environ.clear()
            os.environ.update(variables)
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else bool(end.code)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ---- killed at something that the command itself does to the disk

WRITING_EVENTS = frozenset({  # of Python's audit events: what changes a disk, or starts who does
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
    "subprocess.Popen",
})  # fmt: skip
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def cut_at_event(at: int, log: Path | None = None) -> None:
    """End this process as `kill -9` would before its event number ``at`` (from 1; 0: never) that writes.

    Events are written to ``log``, a line each. There is no way back: call it in a process of its own.
    """
    count = itertools.count(1)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        flags = arguments[2] if event == "open" else 0
        if event in WRITING_EVENTS or (isinstance(flags, int) and flags & _WRITING_FLAGS):
            number = next(count)
            if number == at:
                os.kill(os.getpid(), signal.SIGKILL)
            if descriptor is not None:
                os.write(descriptor, f"{event} {arguments[0]!r}\n".encode())

    descriptor = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sys.addaudithook(hook)


def killed_at_events(
    work: Callable[[], object],
    *,
    begin: Callable[[], object],
    exhaustive: bool,
    most: int = 4,
    least: int | None = None,
    like: str = "",
) -> Iterator[str]:
    """Kill ``work`` before events that write, each time from what ``begin`` makes on, and yield each event.

    The body of the loop runs the same command again, and says what must be true then. The sample has
    ``most`` of the events, the exhaustive test each one; ``like`` (a pattern) leaves out all others. There
    must be ``least`` of them (``sample``); all but the last must be reached, half where each is tried.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "events")
        begin()
        assert in_a_process(lambda: (cut_at_event(0, log), work())) == 0
        events = log.read_text().splitlines()
    numbers = [number for number, event in enumerate(events, start=1) if re.search(like, event)]
    killed, chosen = 0, sample(numbers, exhaustive, most, least=least)
    for at in chosen:
        begin()
        ended = in_a_process(lambda at=at: (cut_at_event(at), work()))  # type: ignore[misc]
        assert ended in (0, -signal.SIGKILL), events[at - 1]  # 0: the run before had more to do
        killed += bool(ended)
        yield events[at - 1]
    reached = len(chosen) // 2 if exhaustive else len(chosen) - 1  # the last may belong to a first run alone
    assert killed >= max(1, reached), f"{killed} of {len(chosen)} were killed"


# ---- killed at a program that it starts

WRITES = (  # commands of git, and the script, after which something is another
    *("init", "config", "fetch", "checkout", "switch", "submodule", "update-ref", "update-index"),
    *(
        "read-tree",
        "write-tree",
        "hash-object",
        "reset",
        "add",
        "rm",
        "apply",
        "tools/amd_build/build_amd.py",
    ),
)

# Counts the commands that we start (several at a time: each takes the first number whose file nobody has
# made, and begins to look behind one that was taken), writes them down, and at number KILL_AT ends us, as
# `kill -9` would, before or after the command did its work.
SHIM = """#!/bin/sh
seen=; for word in "$@"; do
  if [ "$word" = -c ]; then seen=c; elif [ "$seen" = c ]; then seen=
  else break; fi
done
case "$word" in */hipify_runner.py) eval "word=\\${$#}" ;; esac  # the script that it runs
set -C; n=; read -r n 2> /dev/null < "$SHIM_FOLDER/taken"; n=$((n + 1))
until { echo "$word" > "$SHIM_FOLDER/started/$n"; } 2> /dev/null; do n=$((n + 1)); done
echo $n >| "$SHIM_FOLDER/taken"
if [ $n = "$KILL_AT" ] && [ "$KILL_HOW" = before ]; then kill -9 $PPID; exit 1; fi
if [ $n = "$KILL_AT" ] && [ "$KILL_HOW" = within ]; then
  REAL "$@" & sleep 0.008; kill -9 $PPID $!; exit 1
fi
REAL "$@"; code=$?
if [ $n = "$KILL_AT" ]; then kill -9 $PPID; fi
exit $code
"""


class CutPrograms:
    """A tree that is worked in by git and a Python behind scripts, which may end who started them.

    Each run begins from ``template``, a copy of the tree; or from nothing, where there is none.
    """

    def __init__(self, folder: Path, tree: Path, template: Path | None = None) -> None:
        self.folder, self.tree, self.template = folder / "programs", tree, template
        self.folder.mkdir(parents=True)
        for name, real in (("git", shutil.which("git")), ("python", sys.executable)):
            (self.folder / name).write_text(SHIM.replace("REAL", f"'{real}'"))
            (self.folder / name).chmod(0o755)
        self.python = self.folder / "python"

    def restore(self) -> None:
        shutil.rmtree(self.tree, ignore_errors=True)
        if self.template is not None:
            shutil.copytree(self.template, self.tree, symlinks=True)

    def cut(
        self, work: Callable[[], object], env: Mapping[str, str], at: int = 0, how: str = "after"
    ) -> list[str]:
        """Do something with the tree as it is; return the programs that it started (their first words).

        It is killed ``before``, ``within`` or ``after`` its program number ``at`` (from 1; 0: never).
        """
        started = self.folder / "started"
        shutil.rmtree(started, ignore_errors=True)
        started.mkdir()
        (self.folder / "taken").unlink(missing_ok=True)
        counted = {"SHIM_FOLDER": str(self.folder), "KILL_AT": str(at), "KILL_HOW": how}
        path = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
        assert in_a_process(work, {**env, "PATH": path, **counted}) == (-signal.SIGKILL if at else 0)
        return [file.read_text().strip() for file in sorted(started.iterdir(), key=lambda f: int(f.name))]


def points(log: list[str], turn: int, exhaustive: bool) -> list[int]:
    """Choose programs of the kinds that write: of every other kind, the first or the last.

    Four ``turn``s in a row choose all of them.
    """
    found = set()
    for number, kind in enumerate(kind for kind in WRITES if kind in log):
        both = (log.index(kind), len(log) - 1 - log[::-1].index(kind))
        if exhaustive:
            found.update(both)
        elif (number + turn) % 2 == 0:
            found.add(both[(number + turn) // 2 % 2])
    return sorted(n + 1 for n in found)


# ---- a full disk


def run_on_full_disk(words: Sequence[str], room: int) -> tuple[int, str]:
    """Run a command of ours that can write no file larger than ``room``; return code and messages.

    RLIMIT_FSIZE stands for the disk: the write fails as one to a full disk does (EFBIG, not ENOSPC).
    """
    import resource

    reading, writing = os.pipe()

    def work() -> None:
        os.dup2(writing, 1), os.dup2(writing, 2)
        sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        sys.exit(boundary.run_command(main.cli, words))

    code = in_a_process(work)
    os.close(writing)
    with open(reading, encoding="utf-8") as said:
        return code, said.read()


# ---- stores in which a chosen write goes wrong


class Killed(BaseException):
    """The process would be gone now."""


class FaultyStore:
    """A store that does as ``inner`` does, but for the write that is ``at`` (``*``: each one).

    ``writes`` are the writes so far, such as ``create x/set.json``. What goes wrong is the ``fault``:

    | fault | what happens |
    |---|---|
    | ``before`` ``after`` | the process ends before or after it (``Killed``); this store does nothing more |
    | ``kill -9 in`` ``kill -9 after`` | it really does (a folder; in a process of its own) |
    | ``raced`` | somebody else does the very same write just before |
    | ``other`` | somebody else writes other bytes there just before |
    | ``error`` | the server is in trouble for good |
    """

    def __init__(self, inner: store.Store, *, at: str = "", fault: str = "") -> None:
        self.inner, self.at, self.fault = inner, at, fault
        self.writes: list[str] = []
        self.dead = False
        self._lock = threading.Lock()
        self.url, self.folder = inner.url, inner.folder

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        return self._write(f"create {path}", lambda: self.inner.create(path, content, sha256=sha256), path)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        return self._write(f"replace {path}", lambda: self.inner.replace(path, content, tag), path)

    def remove(self, path: str) -> None:
        self._write(f"remove {path}", lambda: self.inner.remove(path) or "", path)

    def read(self, path: str) -> store.StoredFile:
        self._alive()
        return self.inner.read(path)

    def fetch(self, path: str, target: Path) -> None:
        self._alive()
        self.inner.fetch(path, target)

    def head(self, path: str) -> store.StoredFileInfo | None:
        self._alive()
        return self.inner.head(path)

    def digest(self, path: str) -> str:
        self._alive()
        return self.inner.digest(path)

    def listing(self, prefix: str) -> Iterator[store.ListedFile]:
        self._alive()
        return self.inner.listing(prefix)

    def folders(self, prefix: str) -> list[str]:
        self._alive()
        return self.inner.folders(prefix)

    def url_of(self, path: str) -> str:
        return self.inner.url_of(path)

    def _alive(self) -> None:
        if self.dead:
            raise Killed

    def _end(self) -> NoReturn:
        self.dead = True
        if self.fault.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        raise Killed

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        with self._lock:
            self._alive()
            self.writes.append(what)
        if self.at not in (what, "*"):
            return work()
        if self.fault == "before":
            self._end()
        if self.fault == "kill -9 in":
            os.link = os.replace = lambda *_, **__: self._end()  # all is written, and has no name yet
        if self.fault == "raced":
            work()
        if self.fault == "other":
            self.inner.create(path, b"other bytes")
        if self.fault == "error":
            raise errors.ReleaseError(f"cannot write {path}")
        tag = work()
        if self.fault in ("after", "kill -9 after"):
            self._end()
        return tag


class KilledAfter(FaultyStore):
    """A store whose process ends after so many writes."""

    def __init__(self, inner: store.Store, count: int) -> None:
        super().__init__(inner)
        self.count = count

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        tag = super()._write(what, work, path)
        if len(self.writes) == self.count:
            self._end()
        return tag


class Watched(FaultyStore):
    """A store that tells the second write of a file from the first; a guest comes before the one ``at``."""

    guest: Callable[[], object] | None = None

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        again = sum(one.split(" again")[0] == what for one in self.writes)
        named = f"{what} again {again}" if again else what
        if self.guest is not None and named == self.at:
            guest, self.guest = self.guest, None
            guest()
        return super()._write(named, work, path)


def before_first_call(patch: pytest.MonkeyPatch, owner: type, name: str, guest: Callable[[], object]) -> None:
    """Have a guest come before a method is called for the first time: his own calls are not the first."""
    method = getattr(owner, name)

    def come_before(*arguments: object) -> object:
        patch.setattr(owner, name, method)
        guest()
        return method(*arguments)

    patch.setattr(owner, name, come_before)


def killed_at_writes(
    start: Path, change: Callable[[Watched], object], *, exhaustive: bool, most: int = 4
) -> Iterator[tuple[str, Path]]:
    """Kill a change of the store in the folder ``start`` after its writes; yield each, and the store's copy.

    Copies are made of hard links: nothing in a store is ever written in place.
    """

    def copy(name: str, at: str = "", fault: str = "") -> Watched:
        place = start.with_name(f"{start.name} {name}")
        shutil.copytree(start, place, symlinks=True, copy_function=os.link)
        return Watched(folders.FolderStore(place), at=at, fault=fault)

    mark = next(_changes)
    clean = copy(f"clean {mark}")
    change(clean)
    for number, write in enumerate(sample(list(dict.fromkeys(clean.writes)), exhaustive, most)):
        store = copy(f"killed {mark}.{number}", write, "after")
        with pytest.raises(Killed):
            change(store)
        assert store.folder is not None
        yield write, store.folder


_changes = itertools.count(1)
