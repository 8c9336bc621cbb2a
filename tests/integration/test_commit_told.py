"""The commit that builds are told: upstream's below hipify and patches; somebody's own on top of those."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sources import MIDDLE, Tree, Upstream

from rocm_wheels.compile import build_request, frontend, sdk_tree
from rocm_wheels.models import project
from rocm_wheels.sources import trees

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(sys.platform == "win32", reason="only an .exe would be started there"),
]


def test_git_tells_a_build_upstreams_commit(upstream: Upstream, tmp_path: Path) -> None:
    tree = Tree(upstream, tmp_path / "it's a $(tree)", tmp_path / "patches/pytorch/main")
    head = tree.checkout(patch=False).head
    main = upstream.git("root", "rev-parse", "main")
    assert head != main
    assert trees.identify_tree(tree.directory, env=tree.upstream.env).source == main
    places = sdk_tree.SdkTree("7.1.0", tmp_path, tmp_path, tmp_path)
    request = build_request.BuildRequest(
        project.load_project("pytorch"), tree.directory, "linux", places, ("gfx942",), "2", "+x", commit=main
    )
    env = frontend.set_wheel_commit(request, tmp_path / "waiting trees", upstream.env)
    assert frontend.set_wheel_commit(request, tmp_path / "waiting trees", env) == env

    def ask(*words: str, where: str = "") -> str:
        folder = tree.directory / where
        return subprocess.check_output(["git", *words], cwd=folder, env=env, text=True).strip()

    for where in ("", "tools/amd_build"):
        assert ask("rev-parse", "HEAD", where=where) == main
        assert main.startswith(ask("rev-parse", "--short=8", "HEAD", where=where))
    assert ask("rev-parse", "HEAD", where=MIDDLE) == tree.git("rev-parse", "HEAD", where=MIDDLE)
    assert ask("rev-parse", "--abbrev-ref", "HEAD") == "HEAD"
    assert ask("log", "-1", "--format=%H") == head
    assert ask("-C", MIDDLE, "rev-parse", "HEAD") == tree.git("rev-parse", "HEAD", where=MIDDLE)


def test_patches_are_ours_and_commits_on_top_are_somebodys(upstream: Upstream, tmp_path: Path) -> None:
    tree = Tree(upstream, tmp_path / "tree", tmp_path / "patches/pytorch/main")
    tree.checkout(hipify=False, patch=False)
    tree.commit("Base", {"a.cu": "cuda patched\n"})
    tree.save()
    tree.checkout()
    main = upstream.git("root", "rev-parse", "main")
    assert trees.identify_tree(tree.directory, env=upstream.env).source == main
    mine = tree.commit("Mine", {"plain.txt": "mine\n"})
    assert trees.identify_tree(tree.directory, env=upstream.env).source == mine
