"""``checkout --line``: the repository that the table names is fetched, and the tree says where it is from."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Ended
from sources import Upstream

pytestmark = pytest.mark.contract

DOORS = ("torch", "vision", "audio", "triton", "apex")


@pytest.fixture
def github(sources: Upstream, tmp_path: Path) -> Upstream:
    """Repositories that stand for those of the table: the user's git configuration leads to them."""
    github = sources.copy(tmp_path, github=True)
    for name, branch in (
        *(("root", "2.13"), ("vision", "0.28"), ("audio", "2.11.0.2")),
        *(("triton", "internal/3.8.x"), ("apex", "1.13.0")),
    ):
        github.git(name, "branch", f"release/{branch}", "main")
    return github


def checkout(github: Upstream, door: str, *options: str) -> Ended:
    words = ("checkout", "--source-dir", "here", "--no-submodules", "--no-hipify", *options)
    return github.script(github.folder.parent, f"pytorch_{door}_repo.py", *words)


@pytest.mark.slow
def test_all_five_follow_one_line(github: Upstream) -> None:
    refs = {}
    for door in DOORS:
        done = checkout(github, door, "--line", "2.13")
        assert done.code == 0, done.err
        assert "(release line 2.13)" in done.err, done.err
        refs[door] = done.err
    here = github.folder.parent / "here"
    assert sorted(tree.name for tree in here.iterdir() if tree.is_dir()) == [
        "apex", "pytorch", "pytorch_audio", "pytorch_vision", "triton"
    ]  # fmt: skip
    assert "release/2.13 of https://github.com/ROCm/pytorch.git" in refs["torch"]
    assert "release/2.11.0.2 of https://github.com/ROCm/audio.git" in refs["audio"]
    assert "release/internal/3.8.x of https://github.com/ROCm/triton.git" in refs["triton"]
    again = checkout(github, "torch", "--line", "2.13")
    assert again.code == 0, again.err
    assert "nothing to do" in again.err
