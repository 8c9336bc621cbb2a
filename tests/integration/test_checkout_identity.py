"""The id of a source tree follows every file that a build could see, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sources import MIDDLE, Tree, Upstream, isolated_environment

from rocm_wheels.compile import build_request, frontend, sdk_tree
from rocm_wheels.core import errors
from rocm_wheels.models import project
from rocm_wheels.sources import git, trees

pytestmark = pytest.mark.contract


@pytest.fixture
def clone(upstream: Upstream, tmp_path: Path) -> Path:
    upstream.git(tmp_path, "clone", "-q", "--recursive", upstream.url, "clone")
    return tmp_path / "clone"


def test_identity_follows_content_and_comes_back(upstream: Upstream, clone: Path) -> None:
    def identity() -> trees.TreeIdentity:
        return trees.identify_tree(clone, env=upstream.env)

    clean = identity()
    assert clean == trees.TreeIdentity(
        commit=upstream.git("root", "rev-parse", "main"),
        upstream=None,
        tree=upstream.git("root", "rev-parse", "main^{tree}"),
        dirty=False,
        epoch=1700000100,
    )
    deep = clone / "third_party/middle/deep dir/deep.cu"
    changes: dict[str, Callable[[], object]] = {
        "modified": lambda: (clone / "a.cu").write_text("x"),
        "deeply modified": lambda: deep.write_text("x"),
        "deeply untracked": lambda: deep.with_name("new").write_text("x"),
        "untracked, odd name": lambda: (clone / 'ü "q"\nx').write_text("x"),
        "removed": (clone / "plain.txt").unlink,
        "executable": lambda: (clone / "b.cu").chmod(0o755),
    }
    seen = {clean.tree}
    for what, change in changes.items():
        change()
        now = identity()
        assert now.dirty, what
        assert now.tree not in seen, what
        assert now == identity(), what
        seen.add(now.tree)
    upstream.git(clone, "submodule", "foreach", "--recursive", "--quiet", "git clean -fdq; git checkout -q .")
    upstream.git(clone, "clean", "-fdq")
    upstream.git(clone, "checkout", "-q", ".")
    assert identity() == clean
    (clone / "x.o").write_text("an ignored file")
    assert identity() == clean


def test_identity_does_not_depend_on_the_users_configuration(upstream: Upstream, clone: Path) -> None:
    before = trees.identify_tree(clone, env=upstream.env)
    home = clone.parent / "home"
    env = isolated_environment(home)
    (home / "attributes").write_text("*.txt filter=shout\n* text=auto eol=crlf\n")
    (home / ".gitconfig").write_text(
        "[core]\n autocrlf = true\n fsmonitor = true\n"
        f" attributesFile = {home}/attributes\n"
        "[status]\n showUntrackedFiles = no\n"
        '[filter "shout"]\n clean = tr a-z A-Z\n required = true\n'
    )
    assert trees.identify_tree(clone, env=env) == before
    (clone / "new.txt").write_text("new\n")
    assert trees.identify_tree(clone, env=env) == trees.identify_tree(clone, env=upstream.env)


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_what_git_was_told_not_to_look_at_counts(upstream: Upstream, clone: Path, flag: str) -> None:
    """TheRock's checkouts mark every submodule and configure git to ignore it."""
    clean = trees.identify_tree(clone, env=upstream.env)
    upstream.git(clone, "config", "submodule.third_party/middle.ignore", "all")
    upstream.git(clone, "update-index", flag, "third_party/middle", "a.cu")
    assert trees.identify_tree(clone, env=upstream.env) == clean
    deep = clone / "third_party/middle/deep dir/deep.cu"
    seen = {clean.tree}
    for file in (clone / "a.cu", deep):
        file.write_text("changed")
        now = trees.identify_tree(clone, env=upstream.env)
        assert now.dirty and now.tree not in seen, file
        seen.add(now.tree)
    deep.write_text("changed again")
    assert trees.identify_tree(clone, env=upstream.env).tree not in seen


def test_files_left_out_of_a_sparse_checkout_are_no_change(upstream: Upstream, clone: Path) -> None:
    clean = trees.identify_tree(clone, env=upstream.env)
    upstream.git(clone, "sparse-checkout", "set", "--no-cone", "/*", "!/plain.txt")
    assert not (clone / "plain.txt").exists()
    assert trees.identify_tree(clone, env=upstream.env) == clean


def test_submodules_and_hidden_files_are_found(upstream: Upstream, tmp_path: Path) -> None:
    tree, link = tmp_path / "tree", "5" * 40
    upstream.git(tmp_path, "init", "-q", str(tree))
    for name in ("hidden", "seen", "intended"):
        (tree / name).write_text(name)
    for words in (
        ["add", "hidden", "seen"],
        ["add", "-N", "intended"],
        ["update-index", "--add", "--cacheinfo", f"160000,{link},a sub"],
        ["update-index", "--skip-worktree", "hidden"],
    ):
        upstream.git(tree, "-c", "core.splitIndex=true", *words)
    part = trees.inspect_repository("", git.Git(tree, upstream.env), "")
    assert [(entry.path, entry.object) for entry in part.links] == [("a sub", link)]
    assert part.hidden == ("hidden",)


def test_nothing_is_written(upstream: Upstream, clone: Path) -> None:
    (clone / "a.cu").write_text("changed")

    def times() -> dict[Path, int]:
        # a pack that turns out to hold an object is touched by git, nothing more
        return {p: p.stat().st_mtime_ns for p in sorted(clone.rglob("*")) if p.suffix != ".pack"}

    before = times()
    trees.identify_tree(clone, env=upstream.env)
    assert times() == before


def test_not_a_checkout(upstream: Upstream, clone: Path) -> None:
    with pytest.raises(errors.SourceError, match="not a git checkout"):
        trees.identify_tree(clone / "tools", env=upstream.env)
    (clone.parent / "empty").mkdir()
    upstream.git(clone.parent / "empty", "init", "-q")
    with pytest.raises(errors.SourceError, match="rev-parse"):
        trees.identify_tree(clone.parent / "empty", env=upstream.env)


@pytest.mark.skipif(sys.platform == "win32", reason="only an .exe would be started there")
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
