"""Hipify again and again: only what changed is written, nobody's work gets into our commit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from source_trees import Upstream, content, isolated_environment, make_upstream, times

from rocm_wheels.errors import SourceError
from rocm_wheels.model.project import load_project
from rocm_wheels.sources.checkout import checkout
from rocm_wheels.sources.hipify import HipifyResult, hipify
from rocm_wheels.sources.identity import tree_identity
from rocm_wheels.sources.pins.choose import Pin
from rocm_wheels.sources.request import CheckoutRequest

UPSTREAM_TAG, HIPIFY_TAG = "THEROCK_UPSTREAM_DIFFBASE", "THEROCK_HIPIFY_DIFFBASE"
PYTHON = Path(sys.executable)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    folder = tmp_path_factory.mktemp("upstream")
    return make_upstream(folder / "repositories", isolated_environment(folder / "home"))


class Tree:
    """One checkout and the two commands."""

    def __init__(self, upstream: Upstream, directory: Path) -> None:
        self.upstream, self.directory = upstream, directory

    def checkout(self, project: str = "pytorch", ref: str = "main", **options: bool) -> str:
        pin = Pin(self.upstream.url, ref, "test")
        request = CheckoutRequest(
            load_project(project),
            self.directory,
            pin,
            local_origin=True,
            **options,  # type: ignore[arg-type]
        )
        return checkout(request, env=self.upstream.env, python=PYTHON).head

    def hipify(self, project: str = "pytorch", *, commit: bool = True) -> HipifyResult:
        return hipify(
            load_project(project), self.directory, commit=commit, env=self.upstream.env, python=PYTHON
        )

    def git(self, *arguments: str, where: str = "") -> str:
        return self.upstream.git(self.directory / where, *arguments)

    def new_times(self, before: dict[str, int]) -> set[str]:
        return {path for path, time in times(self.directory).items() if time != before.get(path)}


@pytest.fixture
def tree(upstream: Upstream, tmp_path: Path) -> Tree:
    return Tree(upstream, tmp_path / "tree")


@pytest.mark.parametrize("committed", [True, False])
def test_one_edit_gives_one_new_file(tree: Tree, committed: bool) -> None:
    tree.checkout(commit_hipify=committed)
    source = tree.directory / "a.cu"
    before = times(tree.directory)
    assert tree.hipify(commit=committed).changed == ()
    assert tree.new_times(before) == set()
    source.touch()
    assert tree.hipify(commit=committed).changed == ()
    assert tree.new_times(before) == {"a.cu"}
    source.write_text("cuda edited\n")
    before = times(tree.directory)
    # git ignores the second one; a build sees it all the same
    written = {"hip/a.hip", "ignored_hip/a.hip"}
    assert set(tree.hipify(commit=False).changed) == written
    assert tree.new_times(before) == written
    assert (tree.directory / "hip/a.hip").read_text() == "hip edited\n"


def test_own_changes_are_not_mixed_into_the_commit(tree: Tree) -> None:
    head = tree.checkout()
    (tree.directory / "third_party/middle/mid.cu").write_text("cuda mine\n")
    files = content(tree.directory)
    with pytest.raises(SourceError, match=r"modified third_party/middle/mid.cu") as refused:
        tree.hipify()
    assert "--no-commit-hipify" in (refused.value.tip or "")
    assert content(tree.directory) == files
    tree.hipify(commit=False)
    assert tree.git("rev-parse", "HEAD") == head
    # what hipify wrote is ours, what was edited is not
    with pytest.raises(SourceError) as kept:
        tree.checkout(ref="feature")
    assert [line.strip() for line in kept.value.message.splitlines()[1:]] == [
        "modified third_party/middle/mid.cu"
    ]
    tree.git("commit", "-qam", "Mine", where="third_party/middle")
    with pytest.raises(SourceError, match=r"modified third_party/middle\n|modified third_party/middle$"):
        tree.hipify()  # the parent does not know the commit yet


def test_commits_on_top_stay_between_tag_and_head(tree: Tree) -> None:
    first = tree.checkout()
    (tree.directory / "a.cu").write_text("cuda mine\n")
    tree.git("commit", "-qam", "Mine")
    mine = tree.git("rev-parse", "HEAD")
    second = tree.hipify()
    assert second.changed
    assert tree.git("rev-parse", HIPIFY_TAG) == first
    assert tree.git("rev-parse", "HEAD^") == mine
    assert tree.git("log", "--format=%s", f"{HIPIFY_TAG}..HEAD").splitlines() == [
        "DO NOT SUBMIT: HIPIFY",
        "Mine",
    ]
    top = tree.git("rev-parse", "HEAD")
    tree.checkout(ref="feature")
    assert tree.git("rev-parse", f"kept-{top[:12]}") == top


def test_uncommitted_then_committed_is_the_same_commit(tree: Tree, tmp_path: Path) -> None:
    tree.checkout(commit_hipify=False)
    once = tree_identity(tree.directory, env=tree.upstream.env)
    assert not once.dirty
    assert once.upstream == once.commit
    committed = tree.hipify()
    assert committed.changed == ()
    straight = Tree(tree.upstream, tmp_path / "straight")
    assert straight.checkout() == committed.head
    assert not tree.git("status", "--porcelain", "-uall")


def test_nothing_to_change_is_tagged_too(tree: Tree) -> None:
    commit = tree.checkout("pytorch_audio")
    assert tree.git("rev-parse", UPSTREAM_TAG) == tree.git("rev-parse", HIPIFY_TAG) == commit
    assert tree.git("rev-parse", HIPIFY_TAG, where="third_party/middle/deep dir")
    tree.hipify("pytorch_audio")
    assert tree.git("rev-parse", "HEAD") == commit


def test_a_clone_of_somebodys(tree: Tree, tmp_path: Path) -> None:
    tree.upstream.git(tmp_path, "clone", "-q", "--recursive", tree.upstream.url, "tree")
    result = tree.hipify()
    assert tree.git("rev-parse", HIPIFY_TAG) == result.head
    assert tree.git("rev-parse", UPSTREAM_TAG) == tree.upstream.git("root", "rev-parse", "main")
    assert tree.git("symbolic-ref", "HEAD") == "refs/heads/main"
    straight = Tree(tree.upstream, tmp_path / "straight")
    assert straight.checkout() == result.head


def test_a_script_that_fails_leaves_a_tree_to_carry_on_with(tree: Tree) -> None:
    head = tree.checkout()
    files = content(tree.directory)
    (tree.directory / ".git/info").mkdir(exist_ok=True)
    (tree.directory / ".git/info/exclude").write_text("fail-hipify\n")
    (tree.directory / "fail-hipify").touch()
    with pytest.raises(SourceError, match=r"build_amd.py[^\n]*failed with exit code 1:\n.*boom") as failed:
        tree.hipify()
    assert "hipify.log" in (failed.value.tip or "")
    (tree.directory / "fail-hipify").unlink()
    assert tree.hipify().head == head
    assert content(tree.directory) == files


def test_a_tree_without_the_script(tree: Tree, upstream: Upstream) -> None:
    upstream.git("root", "checkout", "-q", "-B", "scriptless", "main")
    upstream.git("root", "rm", "-qr", "tools")
    upstream.commit("root", "no script")
    upstream.git("root", "checkout", "-q", "main")
    with pytest.raises(SourceError, match=r"has no tools/amd_build/build_amd.py") as missing:
        tree.checkout(ref="scriptless")
    assert "--no-hipify" in (missing.value.tip or "")
    tree.checkout(ref="scriptless", hipify=False)
