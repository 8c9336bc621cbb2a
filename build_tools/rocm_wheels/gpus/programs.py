"""Read files and run programs that detection asks: they may be missing, fail, print rubbish or hang."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_COLOR_CODES = re.compile(r"\x1b\[[0-9;]*m")  # rocminfo prints its complaints in red, into files too
_MAX_OUTPUT = 8 * 2**20  # a tool that prints more than this prints no list of GPUs


@dataclass(frozen=True)
class ProgramAnswer:
    """What a program printed. ``fault`` says in words why there is no answer to read, "" when there is.

    ``installed`` is False when there is no such program, which is no fault: few machines have all of them.
    """

    out: str = ""
    fault: str = ""
    installed: bool = True


def read_text(path: Path) -> str:
    """Return what a file holds, without the blanks around it; "" for one that is not there or closed."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


Runner = Callable[[Sequence[str], Mapping[str, str], float], ProgramAnswer]


@dataclass
class Look:
    """One look at a machine: its variables, its files, its programs; ``faults`` and ``tried`` fill up."""

    env: Mapping[str, str]
    root: Path
    run: Runner
    faults: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)

    def ask(self, words: Sequence[str], timeout: float = 20.0) -> str | None:
        """Return what a program printed; None where it gave no answer, which is noted."""
        answer = self.run(words, {**self.env, "LC_ALL": "C"}, timeout)
        if answer.installed and not answer.fault:
            return answer.out
        self.tried.append(f"{words[0]}: no answer" if answer.installed else f"{words[0]}: not installed")
        self.faults += [answer.fault] if answer.fault else []
        return None


def run_program(words: Sequence[str], env: Mapping[str, str], timeout: float) -> ProgramAnswer:
    """Run a program and return what it printed on stdout; never raises.

    It is looked for in the PATH of ``env``. After ``timeout`` seconds it is killed, and not waited for: a
    program that hangs inside the GPU driver does not even die.
    """
    import shutil

    program = shutil.which(words[0], path=env.get("PATH", os.defpath))
    if program is None:
        return ProgramAnswer(installed=False)
    try:
        return _run_and_capture([program, *words[1:]], words[0], env, timeout)
    except OSError as cause:  # no program for this system, or no place for its output
        return ProgramAnswer(fault=f"{words[0]} cannot be started: {cause.strerror or cause}")


def _run_and_capture(
    words: Sequence[str], name: str, env: Mapping[str, str], timeout: float
) -> ProgramAnswer:
    import subprocess
    import tempfile

    # files and no pipes: nobody has to wait for the end of what a killed program left behind
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        running = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=dict(env),
            start_new_session=os.name == "posix",
        )
        try:
            code = running.wait(timeout)
        except subprocess.TimeoutExpired:
            _kill_process(running)
            return ProgramAnswer(fault=f"{name} did not answer within {timeout:g} seconds")
        text, error_text = (_read_output(file) for file in (out, err))
    if code != 0:
        last = (error_text.strip() or text.strip() or "no output").splitlines()[-1].strip()
        return ProgramAnswer(text, f"{name} failed with exit code {code}: {last}")
    return ProgramAnswer(text)


def _read_output(file: IO[bytes]) -> str:
    file.seek(0)
    data = file.read(_MAX_OUTPUT)
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"  # PowerShell does both
    return _COLOR_CODES.sub("", data.decode(encoding, errors="replace"))


def _kill_process(running: object) -> None:
    import signal
    import subprocess

    assert isinstance(running, subprocess.Popen)
    try:
        if sys.platform != "win32":
            os.killpg(running.pid, signal.SIGKILL)
        else:
            running.kill()
        running.wait(0.5)
    except (OSError, subprocess.TimeoutExpired):
        return  # it is stuck in the kernel, or gone by itself; either way there is no more to do
