"""Sources that changed since they were hipified: `build` hipifies them; a tree that is no more is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from five_projects import CLONE, Said, World, make_world

USAGE, SOURCES = 2, 10


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


def build(world: World, folder: Path, *words: str) -> Said:
    """Run a command of builds as far as it comes without ROCm."""
    given = ["--root-checkout-dir", ".", "--output-dir", str(folder.parent / "dist")]
    given += ["--pytorch-rocm-arch", "gfx942"]
    return world.start(folder, "-m", "rocm_wheels", *words, *given)


def test_changed_sources_are_hipified_and_a_tree_that_is_not_is_refused(world: World, tmp_path: Path) -> None:
    trees = tmp_path / "trees"
    trees.mkdir()
    door, torch = CLONE / "repos/pytorch_torch_repo.py", trees / "pytorch"
    assert world.start(trees, door, "checkout", "--repo", ".").code == 0
    (torch / "a.cu").write_text("cuda mine\n")
    planned = build(world, trees, "plan")
    assert "not hipified yet; `build` hipifies them first" in planned.err
    assert (torch / "hip/a.hip").read_text() == "hip a\n"
    assert build(world, trees, "build").code == USAGE  # there is no ROCm
    assert (torch / "hip/a.hip").read_text() == "hip mine\n"
    again = build(world, trees, "build")
    assert "hipified" not in again.err
    world.upstream.git(torch, "checkout", "-q", "--force", "--detach", "THEROCK_UPSTREAM_DIFFBASE")
    for command in ("plan", "build"):
        refused = build(world, trees, command)
        assert (refused.code, "is not hipified any more" in refused.err) == (SOURCES, True), refused.err
    assert not (torch / "hip").exists()
