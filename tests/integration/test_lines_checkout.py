"""``checkout --line``: the repository that the table names is fetched, and the tree says where it is from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from source_trees import Upstream, isolated_environment, make_upstream
from warm_python import warm_python

CLONE = Path(__file__).resolve().parents[2]
DOORS = ("torch", "vision", "audio", "triton", "apex")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    """Repositories that stand for those of the table: the user's git configuration leads to them."""
    made = make_upstream(tmp_path / "repositories", isolated_environment(tmp_path / "home"))
    branches = ("2.13", "0.28", "2.11.0.2", "internal/3.8.x", "1.13.0")
    for branch in branches:
        made.git("root", "branch", f"release/{branch}", "main")
    for owner, name in [
        ("ROCm", "pytorch"), ("pytorch", "vision"), ("ROCm", "audio"), ("ROCm", "triton"), ("ROCm", "apex")
    ]:  # fmt: skip
        key = f"url.{made.url}.insteadOf"
        made.git("root", "config", "--global", "--add", key, f"https://github.com/{owner}/{name}.git")
    return made


def checkout(upstream: Upstream, door: str, *options: str) -> subprocess.CompletedProcess[str]:
    script = CLONE / "repos" / f"pytorch_{door}_repo.py"
    return subprocess.run(
        [
            *warm_python(),
            str(script),
            "checkout",
            "--source-dir",
            "here",
            "--no-submodules",
            "--no-hipify",
            *options,
        ],
        cwd=upstream.folder.parent,
        env={**upstream.env, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
def test_all_five_follow_one_line(upstream: Upstream) -> None:
    refs = {}
    for door in DOORS:
        done = checkout(upstream, door, "--line", "2.13")
        assert done.returncode == 0, done.stderr
        assert "(release line 2.13)" in done.stderr, done.stderr
        refs[door] = done.stderr
    here = upstream.folder.parent / "here"
    assert sorted(tree.name for tree in here.iterdir() if tree.is_dir()) == [
        "apex", "pytorch", "pytorch_audio", "pytorch_vision", "triton"
    ]  # fmt: skip
    assert "release/2.13 of https://github.com/ROCm/pytorch.git" in refs["torch"]
    assert "release/2.11.0.2 of https://github.com/ROCm/audio.git" in refs["audio"]
    assert "release/internal/3.8.x of https://github.com/ROCm/triton.git" in refs["triton"]
    again = checkout(upstream, "torch", "--line", "2.13")
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stderr


@pytest.mark.parametrize(
    ("door", "options", "code", "message"),
    [
        ("torch", ("--line", "2.31"), 2, "there is no release line '2.31'"),
        ("audio", ("--line", "nigthly"), 2, "there is no release line 'nigthly'; did you mean nightly?"),
        ("apex", ("--line", "2.15"), 10, "release line 2.15 names no ref of apex for linux"),
        ("triton", ("--line", "2.13", "--release"), 2, "--release and --line exclude each other"),
        (
            "torch",
            ("--line", "2.13", "--ref", "main", "--origin", "file:///x"),
            2,
            "--line 2.13 would have no effect",
        ),
    ],
)
def test_wrong_lines_leave_the_disk_as_it_was(
    upstream: Upstream, door: str, options: tuple[str, ...], code: int, message: str
) -> None:
    done = checkout(upstream, door, *options)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert not (upstream.folder.parent / "here").exists()
