"""Sources that changed since they were hipified: `build` hipifies them; a tree that is no more is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Ended
from sources import CLONE, Upstream

pytestmark = pytest.mark.contract

USAGE, SOURCES = 2, 10


def build(github: Upstream, folder: Path, *words: str) -> Ended:
    """Run a command of builds as far as it comes without ROCm."""
    given = ["--source-dir", ".", "--output-dir", str(folder.parent / "dist")]
    given += ["--gfx", "gfx942"]
    return github.start(folder, "-m", "rocm_wheels", *words, *given)


def test_changed_sources_are_hipified_and_a_tree_that_is_not_is_refused(
    github: Upstream, tmp_path: Path
) -> None:
    trees = tmp_path / "trees"
    trees.mkdir()
    door, torch = CLONE / "repos/pytorch_torch_repo.py", trees / "pytorch"
    assert github.start(trees, door, "checkout", "--source-dir", ".").code == 0
    (torch / "a.cu").write_text("cuda mine\n")
    planned = build(github, trees, "plan")
    assert "not hipified yet; `build` hipifies them first" in planned.err
    assert (torch / "hip/a.hip").read_text() == "hip a\n"
    assert build(github, trees, "build").code == USAGE  # there is no ROCm
    assert (torch / "hip/a.hip").read_text() == "hip mine\n"
    again = build(github, trees, "build")
    assert "hipified" not in again.err
    github.git(torch, "checkout", "-q", "--force", "--detach", "THEROCK_UPSTREAM_DIFFBASE")
    for command in ("plan", "build"):
        refused = build(github, trees, command)
        assert (refused.code, "is not hipified any more" in refused.err) == (SOURCES, True), refused.err
    assert not (torch / "hip").exists()


@pytest.mark.slow
def test_a_step_of_a_plan_refuses_what_changed_since(github: Upstream, tmp_path: Path) -> None:
    trees, made = tmp_path / "trees", tmp_path / "plan.json"
    trees.mkdir()
    door, torch = CLONE / "repos/pytorch_torch_repo.py", trees / "pytorch"
    hipify = (door, "hipify", "--no-commit-hipify", "--source-dir", ".")
    words = ("plan", "pytorch", "--install-rocm", "-o", str(made))
    assert github.start(trees, door, "checkout", "--source-dir", ".").code == 0
    (torch / "version.txt").write_text("2.10.0\n")
    assert github.start(trees, *hipify).code == 0
    planned = build(github, trees, *words)
    assert (planned.code, "not hipified" in planned.err) == (0, False), planned.err
    step = next(one["id"] for one in json.loads(made.read_text())["steps"] if one["kind"] == "build")

    def run_step() -> Ended:
        return github.start(trees, "-m", "rocm_wheels", "run-step", step, "--plan", made)

    assert run_step().code == USAGE  # there is no ROCm
    (torch / "a.cu").write_text("cuda mine\n")
    refused = run_step()
    assert refused.code == SOURCES, refused.err
    assert f"error: {torch} has changes that are not hipified" in refused.err
    assert f"tip: `rocm-wheels sources hipify torch --source-dir {trees}" in refused.err
    assert (torch / "hip/a.hip").read_text() == "hip a\n"
    assert github.start(trees, *hipify).code == 0
    assert (torch / "hip/a.hip").read_text() == "hip mine\n"
    assert build(github, trees, *words).code == 0
    assert run_step().code == USAGE
    github.git(torch, "checkout", "-q", "--force", "--detach", "THEROCK_UPSTREAM_DIFFBASE")
    refused = run_step()
    assert (refused.code, "is not hipified any more" in refused.err) == (SOURCES, True), refused.err
