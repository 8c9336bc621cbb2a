"""Streams that are closed or full, no home, no folder: no traceback, and nothing is lost in silence."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from itertools import combinations
from pathlib import Path

import click
import pytest

from rocm_wheels.cli import boundary

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(sys.platform == "win32", reason="closed by a POSIX shell"),
]
LINES = [sys.executable, "-m", "rocm_wheels", "compat", "show", "lines", "--json"]
MISTAKE = [sys.executable, "-m", "rocm_wheels", "nosuch"]
# opens a file before it starts a program; both write to their streams
CHILD = "import os; [os.fstat(n) for n in (0, 1, 2)]; os.read(0, 1); os.write(2, b'child')"
PROGRAM = f"""
import click, subprocess, sys
from rocm_wheels.cli.boundary import run_command
from rocm_wheels.core.log import log_note

def work():
    with open("data", "w", encoding="utf-8"):
        log_note("a message")
        code = subprocess.run([sys.executable, "-c", {CHILD!r}], check=False).returncode
        raise click.exceptions.Exit(code)

sys.exit(run_command(click.Command("works", callback=work), []))
"""


def run(words: list[str], folder: Path, *redirections: str) -> tuple[int, str, str]:
    """Return the exit code, and what arrived in the files ``out`` and ``err`` of the folder."""
    out, err = folder / "out", folder / "err"
    line = f'exec "$@" > {out} 2> {err} < /dev/null {" ".join(redirections)}'
    code = subprocess.run(["sh", "-c", line, "sh", *words], cwd=folder, check=False).returncode
    return code, out.read_text(), err.read_text()


@pytest.mark.parametrize("closed", [c for count in (1, 2, 3) for c in combinations((0, 1, 2), count)])
def test_closed_streams(closed: tuple[int, ...], tmp_path: Path) -> None:
    gates = ["<&-" if number == 0 else f"{number}>&-" for number in closed]
    code, out, err = run([sys.executable, "-c", PROGRAM], tmp_path, *gates)
    assert (code, out) == (0, "")
    assert (tmp_path / "data").read_text() == ""
    assert err == ("" if 2 in closed else "a message\nchild")
    code, out, err = run(LINES, tmp_path, *gates)
    assert code == (2 if 1 in closed else 0)  # a result that nobody gets
    assert bool(out) == (1 not in closed)
    assert bool(err) == (1 in closed and 2 not in closed)
    assert "Traceback" not in err
    code, out, err = run(MISTAKE, tmp_path, *gates)
    assert (code, bool(out), bool(err)) == (2, False, 2 not in closed)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "words",
    [["compat", "show", "lines"], ["compat", "show", "lines", "--json"], ["--help"]],
)
def test_full_streams(words: list[str], tmp_path: Path) -> None:
    command = [*LINES[:3], *words]
    code, _, err = run(command, tmp_path, "> /dev/full")
    assert code == 2
    assert "Traceback" not in err
    code, out, _ = run(command, tmp_path, "2> /dev/full")
    assert code == 0
    assert out
    assert run(MISTAKE, tmp_path, "2> /dev/full")[0] == 2


def test_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f'rmdir {gone} && exec "$@"'
    words = ["sh", "-c", line, "sh", *LINES]
    refused = subprocess.run(words, cwd=gone, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("place", [None, "/none/at/all", os.devnull])
def test_home_and_folder_of_temporary_files_are_none(place: str | None, tmp_path: Path) -> None:
    env = {name: text for name, text in os.environ.items() if name not in ("HOME", "TMPDIR")}
    env |= {} if place is None else {"HOME": place, "TMPDIR": place}
    done = subprocess.run(LINES, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_needs_them_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        boundary.run_command(click.Command("a", callback=lambda: Path("~nobody-here").expanduser()), []) == 2
    )
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/none/at/all"])
    assert boundary.run_command(click.Command("a", callback=tempfile.mkdtemp), []) == 2
