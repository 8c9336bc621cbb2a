"""The script by which a workflow checks a staged set, on a folder: what it adds, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from release_world import FAMILY, World

from rocm_wheels.cli import boundary, main

CLONE = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="jobs that stage are on Linux")


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Stage a set in a folder, as the job before does; return the outputs of its step, and PATH."""
    world, outputs = World(tmp_path / "wheels"), tmp_path / "outputs"
    monkeypatch.setenv("GITHUB_OUTPUT", str(outputs))
    words = [*world.words(str(tmp_path / "store")), "--outputs"]
    assert boundary.run_command(main.cli, words) == 0
    told = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "rocm-wheels"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rocm_wheels "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{Path(sys.executable).parent}:/usr/bin:/bin"
    return {**told, "PATH": path, "PYTHONPATH": str(CLONE / "build_tools")}


def check(folder: Path, staged: dict[str, str], *payloads: str) -> subprocess.CompletedProcess[str]:
    script = CLONE / ".github" / "scripts" / "check_set.sh"
    words = ["bash", str(script), "store", staged["set"], FAMILY, staged["index"], "wheels", *payloads]
    env = {**os.environ, "PATH": staged["PATH"], "PYTHONPATH": staged["PYTHONPATH"]}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


def list_results(folder: Path) -> set[tuple[str, str]]:
    """Return what is written down about the set: kinds and outcomes."""
    documents = [json.loads(path.read_text()) for path in (folder / "store").rglob("evidence/*/*.json")]
    return {(document["kind"], document["outcome"]) for document in documents}


def test_all_results_are_added_and_a_failure_is_the_exit_code(tmp_path: Path, staged: dict[str, str]) -> None:
    """One of these wheels is not what its recipe says, and installers take them all."""
    done = check(tmp_path, staged)
    assert done.returncode == 14, done.stderr
    assert list_results(tmp_path) >= {("verify", "fail"), ("resolver", "pass")}


def test_what_is_attested_is_written_and_not_added(tmp_path: Path, staged: dict[str, str]) -> None:
    done = check(tmp_path, staged, "payloads")
    assert done.returncode == 14 and list((tmp_path / "payloads").glob("*.json")), done.stderr
    assert list_results(tmp_path) == set()


def test_a_set_that_is_not_there_is_an_error_and_nothing_is_written(
    tmp_path: Path, staged: dict[str, str]
) -> None:
    done = check(tmp_path, {**staged, "set": "2.9.1-0000"})
    assert done.returncode not in {0, 1} and list_results(tmp_path) == set()
