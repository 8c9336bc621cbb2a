"""Style, types and the table of rooms, checked by their tools."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CLONE = Path(__file__).resolve().parents[2]
CONTRACTS = "import sys, importlinter.cli as c; sys.exit(c.lint_imports(cache_dir=None, no_cache=True))"

CHECKS = {
    "ruff check": ["-m", "ruff", "check", "--no-cache", "."],
    "ruff format": ["-m", "ruff", "format", "--no-cache", "--check", "."],
    "mypy": ["-m", "mypy", "--cache-dir", "{tmp}"],
    "import contracts": ["-c", CONTRACTS],
}


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_static_check(check: str, tmp_path: Path) -> None:
    argv = [sys.executable, *(word.format(tmp=tmp_path) for word in CHECKS[check])]
    ended = subprocess.run(argv, cwd=CLONE, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
