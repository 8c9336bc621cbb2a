"""Completion as shells ask for it: the script that is sourced, and the values behind options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract

PROGRAM = [str(Path(sys.executable).with_name("rocm-wheels"))]


def complete(*words: str) -> list[str]:
    """Return what bash would be told for these words, of which the last is not finished."""
    env = {
        **os.environ,
        "_ROCM_WHEELS_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["rocm-wheels", *words]),
        "COMP_CWORD": str(len(words)),
    }
    out = subprocess.run(PROGRAM, env=env, capture_output=True, text=True, check=True).stdout
    return [line.partition(",")[2] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("wh",), "wheel"),
        (("set", "prom"), "promote"),
        (("build", "--gf"), "--gfx"),
        (("build", "--gfx", "gfx94"), "gfx942"),
        (("build", "--gfx", "gfx942,gfx110"), "gfx942,gfx1100"),
        (("matrix", "--family", "gfx94X"), "gfx94X-dcgpu"),
        (("lock", "make", "--line", "2."), "2.9"),
        (("build", "pyt"), "pytorch"),
        (("checkout", "tri"), "triton"),
        (("compat", "show", "lines", "2."), "2.13"),
    ],
)
def test_values_are_completed(words: tuple[str, ...], value: str) -> None:
    assert value in complete(*words)


def test_older_names_are_not_offered() -> None:
    assert "install-rocm" not in complete("inst")
    assert "install" in complete("inst")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_read_by_its_shell(shell: str, tmp_path: Path) -> None:
    env = {**os.environ, "_ROCM_WHEELS_COMPLETE": f"{shell}_source", "PYTHONPROFILEIMPORTTIME": "1"}
    ended = subprocess.run(PROGRAM, env=env, capture_output=True, text=True, check=True)
    assert "_ROCM_WHEELS_COMPLETE" in ended.stdout
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "click.shell_completion" in loaded and not loaded & {"pydantic", "yaml", "requests", "git", "rich"}
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    path = tmp_path / "script"
    path.write_text(ended.stdout)
    subprocess.run([program, "-n", str(path)], check=True)
