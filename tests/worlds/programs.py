"""Programs as a user starts them, and how they ended."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code, and what it wrote on stdout and on stderr."""

    code: int
    out: str
    err: str


def choose_projects(usual: Iterable[str], words: Sequence[str]) -> list[str]:
    """Return words of `build` or `plan` with ``--project`` in place of ``--build-X`` and ``--no-build-X``.

    ``usual``: what is built where ``words`` say nothing of it. Where they name projects, they stay.
    """
    if "--project" in words:
        return list(words)
    chosen, others = dict.fromkeys(usual), list[str]()
    for word in words:
        switch, _, name = word.rpartition("build-")
        if switch == "--no-":
            chosen.pop(name.replace("-", "_"), None)
        elif switch == "--" and name != "number":
            chosen[name.replace("-", "_")] = None
        else:
            others.append(word)
    return ["--project", ",".join(chosen), *others]


def run_program(
    words: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], timeout: float = 120
) -> Ended:
    """Run a program; no traceback may come of it."""
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)
