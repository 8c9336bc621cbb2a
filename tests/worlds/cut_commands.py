"""Runs whose programs are counted, and cut at one of them as `kill -9` would."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

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
