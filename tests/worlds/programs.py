"""Programs as a user starts them, and how they ended."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code, and what it wrote on stdout and on stderr."""

    code: int
    out: str
    err: str


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
