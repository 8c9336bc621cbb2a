"""Commands that are killed at a chosen moment, and stores in which a chosen write goes wrong.

A test states the command, the world that it begins in, and what must be true after it was run again.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from rocm_wheels.core import errors
from rocm_wheels.stores import store

# ---- commands whose programs are counted, and cut at one of them as `kill -9` would

WRITES = (
    *(
        "init",
        "config",
        "fetch",
        "checkout",
        "switch",
        "submodule",
        "update-ref",
        "update-index",
        "read-tree",
    ),
    *("write-tree", "hash-object", "reset", "add", "rm", "apply"),
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


def in_a_process(work: Callable[[], object], env: Mapping[str, str]) -> int:
    """Do something in a process of its own; return its exit code, or minus the signal that ended it.

    A copy of this one: a fresh Python would take longer to import what it needs than to be killed.
    """
    child = os.fork()
    if not child:
        code = 1
        try:
            os.environ.clear()
            os.environ.update(env)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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


def counting(env: Mapping[str, str], programs: Path, folder: Path, at: int, how: str) -> dict[str, str]:
    """Return the environment in which the shims in ``programs`` count, and cut at a number."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**env, "PATH": path, "SHIM_FOLDER": str(folder), "KILL_AT": str(at), "KILL_HOW": how}


def begin_count(folder: Path) -> None:
    """Let the commands of a run be counted from one."""
    shutil.rmtree(folder / "started", ignore_errors=True)
    (folder / "started").mkdir()
    (folder / "taken").unlink(missing_ok=True)


def commands(folder: Path) -> list[str]:
    """Return the commands that were started (their first word), in that order."""
    started = sorted((folder / "started").iterdir(), key=lambda file: int(file.name))
    return [file.read_text().strip() for file in started]


def points(log: list[str], turn: int, exhaustive: bool) -> list[int]:
    """Choose commands of the kinds that write, and the script: of every other kind, the first or the last.

    Four ``turn``s in a row choose all of them.
    """
    found = set()
    for number, kind in enumerate(kind for kind in (*WRITES, "tools/amd_build/build_amd.py") if kind in log):
        both = (log.index(kind), len(log) - 1 - log[::-1].index(kind))
        if exhaustive:
            found.update(both)
        elif (number + turn) % 2 == 0:
            found.add(both[(number + turn) // 2 % 2])
    return sorted(n + 1 for n in found)


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
