"""The miniature's repositories: the same commits everywhere, and what upstream's trees have."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from miniature import HIPIFY_DIGESTS, Repository, make_repositories
from miniature import SOURCE as MINIATURE

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def hipify(tmp_path: Path) -> Path:
    """A stand-in: files of the same names, and the mark that its maker leaves."""
    folder = tmp_path / "hipify"
    folder.mkdir()
    for name in HIPIFY_DIGESTS:
        (folder / name).write_text(f"# {name}\n")
    (folder / ".made-from").write_text("digests\n")
    return folder


def _git(*words: str | Path, cwd: Path | None = None) -> str:
    # no configuration of the person who runs the tests, but for the right to clone from a folder
    env = {**ENV, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    words = ("git", "-c", "protocol.file.allow=always", *words)
    return subprocess.run(words, cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout.strip()


def _commits(made: Mapping[str, Repository]) -> dict[str, str]:
    return {name: repository.commit for name, repository in made.items()}


def test_the_same_commits_again_and_for_everybody(tmp_path: Path, hipify: Path) -> None:
    dest = tmp_path / "upstream"
    first = make_repositories(MINIATURE, dest, hipify=hipify, env=ENV)
    shutil.rmtree(dest)
    somebody = tmp_path / "somebody"
    somebody.mkdir()
    (somebody / ".gitconfig").write_text(
        "[user]\nname = S\n[core]\nautocrlf = true\n[commit]\ngpgsign = true\n[init]\ndefaultBranch = x\n"
    )
    env = {**ENV, "HOME": str(somebody), "TZ": "Asia/Tokyo", "GIT_DIR": "/nowhere", "GIT_AUTHOR_NAME": "S"}
    assert make_repositories(MINIATURE, dest, hipify=hipify, env=env) == first

    elsewhere = make_repositories(MINIATURE, tmp_path / "else where", hipify=hipify, env=ENV)
    assert elsewhere["pytorch"].url == f"file://{tmp_path}/else%20where/pytorch.git"
    # only related_commits, which names the others by URL, knows the place
    del first["pytorch"], elsewhere["pytorch"]
    assert _commits(elsewhere) == _commits(first)


def test_ends_of_lines_and_modes_of_a_checkout_do_not_matter(tmp_path: Path, hipify: Path) -> None:
    first = make_repositories(MINIATURE, tmp_path / "upstream", hipify=hipify, env=ENV)
    windows = tmp_path / "windows"
    shutil.copytree(MINIATURE, windows)
    for path in windows.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
            path.chmod(0o755)
    made = make_repositories(windows, tmp_path / "upstream", hipify=hipify, env=ENV)
    assert _commits(made) == _commits(first)


def test_made_once_and_anew_when_a_source_changed(tmp_path: Path, hipify: Path) -> None:
    miniature, dest = tmp_path / "miniature", tmp_path / "upstream"
    shutil.copytree(MINIATURE, miniature)
    first = make_repositories(miniature, dest, hipify=hipify, env=ENV)
    inode = dest.stat().st_ino
    assert make_repositories(miniature, dest, hipify=hipify, env={"PATH": "/nowhere"}) == first
    assert dest.stat().st_ino == inode

    (miniature / "minigemm" / "README.md").write_text("changed\n")
    second = make_repositories(miniature, dest, hipify=hipify, env=ENV)
    changed = [name for name in first if first[name].commit != second[name].commit]
    assert changed == ["minigemm", "pytorch"]


def test_a_clone_has_what_upstream_has(tmp_path: Path, hipify: Path) -> None:
    made = make_repositories(MINIATURE, tmp_path / "upstream", hipify=hipify, env=ENV)
    clone = tmp_path / "clone"
    _git("clone", "--quiet", "--recurse-submodules", "--branch", "nightly", made["pytorch"].url, clone)
    assert _git("rev-parse", "HEAD", cwd=clone) == made["pytorch"].commit
    assert _git("-C", "third_party/minigemm", "rev-parse", "HEAD", cwd=clone) == made["minigemm"].commit
    assert _git("status", "--porcelain", cwd=clone) == ""
    for repository in made.values():
        folder = repository.url.removeprefix("file://")
        assert _git("fsck", "--strict", cwd=Path(folder)) == ""
        assert _git("symbolic-ref", "--short", "HEAD", cwd=Path(folder)) == repository.branch

    related = (clone / "related_commits").read_text().splitlines()
    assert [row.split("|") for row in related] == [
        ["ubuntu", "pytorch", project, made[name].branch, made[name].commit, made[name].url]
        for project, name in (("apex", "apex"), ("torchvision", "vision"), ("torchaudio", "audio"))
    ]
    pin = (clone / ".ci/docker/ci_commit_pins/triton.txt").read_text()
    assert pin == f"{made['triton'].commit}\n"
    assert {path.name for path in (clone / "torch/utils/hipify").iterdir()} == set(HIPIFY_DIGESTS)
    assert os.access(clone / "tools/amd_build/build_amd.py", os.X_OK)
    assert not os.access(clone / "setup.py", os.X_OK)


def test_a_commit_can_be_fetched_by_its_name(tmp_path: Path, hipify: Path) -> None:
    audio = make_repositories(MINIATURE, tmp_path / "upstream", hipify=hipify, env=ENV)["audio"]
    _git("init", "--quiet", tmp_path / "tree")
    _git("fetch", "--quiet", "--depth=1", audio.url, audio.commit, cwd=tmp_path / "tree")
    assert _git("rev-parse", "FETCH_HEAD", cwd=tmp_path / "tree") == audio.commit
