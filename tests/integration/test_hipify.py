"""Hipify again and again: only what changed is written, nobody's work gets into our commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from crash import CutPrograms, points, sample
from sources import DEEP, MIDDLE, Tree, Upstream, content, times

from rocm_wheels.core import errors
from rocm_wheels.models.project import load_project
from rocm_wheels.sources import hipify, trees

pytestmark = pytest.mark.contract

UPSTREAM_TAG, HIPIFY_TAG = "THEROCK_UPSTREAM_DIFFBASE", "THEROCK_HIPIFY_DIFFBASE"
PYTHON = Path(sys.executable)


@pytest.fixture
def tree(upstream: Upstream, hipified: Path, tmp_path: Path) -> Tree:
    return Tree(upstream, tmp_path / "tree", template=hipified)


@pytest.mark.parametrize("committed", [True, False])
def test_one_edit_gives_one_new_file(tree: Tree, committed: bool) -> None:
    tree.checkout(commit_hipify=committed)
    source = tree.directory / "a.cu"
    before = times(tree.directory)
    assert tree.hipify(commit=committed).changed == ()
    assert tree.list_new_times(before) == set()
    source.touch()
    assert tree.hipify(commit=committed).changed == ()
    assert tree.list_new_times(before) == {"a.cu"}
    source.write_text("cuda edited\n")
    before = times(tree.directory)
    # git ignores the second one; a build sees it all the same
    written = {"hip/a.hip", "ignored_hip/a.hip"}
    assert set(tree.hipify(commit=False).changed) == written
    assert tree.list_new_times(before) == written
    assert (tree.directory / "hip/a.hip").read_text() == "hip edited\n"


def test_own_changes_are_not_mixed_into_the_commit(tree: Tree) -> None:
    head = tree.checkout().head
    (tree.directory / "third_party/middle/mid.cu").write_text("cuda mine\n")
    files = content(tree.directory)
    with pytest.raises(errors.SourceError, match=r"modified third_party/middle/mid.cu") as refused:
        tree.hipify()
    assert "--no-commit-hipify" in (refused.value.tip or "")
    assert content(tree.directory) == files
    tree.hipify(commit=False)
    assert tree.git("rev-parse", "HEAD") == head
    # what hipify wrote is ours, what was edited is not
    with pytest.raises(errors.SourceError) as kept:
        tree.checkout(ref="feature")
    assert [line.strip() for line in kept.value.message.splitlines()[1:]] == [
        "modified third_party/middle/mid.cu"
    ]
    tree.git("commit", "-qam", "Mine", where="third_party/middle")
    with pytest.raises(
        errors.SourceError, match=r"modified third_party/middle\n|modified third_party/middle$"
    ):
        tree.hipify()  # the parent does not know the commit yet


def test_commits_on_top_stay_between_tag_and_head(tree: Tree) -> None:
    first = tree.checkout().head
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
    once = trees.identify_tree(tree.directory, env=tree.upstream.env)
    assert not once.dirty
    assert once.upstream == once.commit
    committed = tree.hipify()
    assert committed.changed == ()
    straight = Tree(tree.upstream, tmp_path / "straight")
    assert straight.checkout().head == committed.head
    assert not tree.git("status", "--porcelain", "-uall")


def test_nothing_to_change_is_tagged_too(tree: Tree) -> None:
    commit = tree.checkout(project="pytorch_audio").head
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
    assert straight.checkout().head == result.head


def test_a_script_that_fails_leaves_a_tree_to_carry_on_with(tree: Tree) -> None:
    head = tree.checkout().head
    files = content(tree.directory)
    (tree.directory / ".git/info").mkdir(exist_ok=True)
    (tree.directory / ".git/info/exclude").write_text("fail-hipify\n")
    (tree.directory / "fail-hipify").touch()
    (tree.directory / "ignored_hip/a.hip").unlink()  # else nothing is to be done
    with pytest.raises(
        errors.SourceError, match=r"build_amd.py[^\n]*failed with exit code 1:\n.*boom"
    ) as failed:
        tree.hipify()
    assert "hipify.log" in (failed.value.tip or "")
    (tree.directory / "fail-hipify").unlink()
    assert (tree.directory / "hip/a.hip").exists()
    assert tree.hipify().head == head
    assert content(tree.directory) == files


def test_a_tree_without_the_script(tree: Tree, upstream: Upstream) -> None:
    upstream.git("root", "checkout", "-q", "-B", "scriptless", "main")
    upstream.git("root", "rm", "-qr", "tools")
    upstream.commit("root", "no script")
    upstream.git("root", "checkout", "-q", "main")
    with pytest.raises(errors.SourceError, match=r"has no tools/amd_build/build_amd.py") as missing:
        tree.checkout(ref="scriptless")
    assert "--no-hipify" in (missing.value.tip or "")
    tree.checkout(ref="scriptless", hipify=False)


# Like PyTorch's: a file is translated where it lies, and the name of a header in it each time again.
LENGTHENS = """
for source in root.glob("*.cpp"):
    source.write_text(source.read_text().replace("cuda", "hip").replace("types.h", "hip/types.h"))
"""


@pytest.fixture
def twice(upstream: Upstream, tree: Tree) -> Tree:
    """A tree with a source that the script translates each time again."""
    if not upstream.git("root", "branch", "--list", "twice"):
        upstream.git("root", "checkout", "-q", "-B", "twice", "main")
        script = upstream.root / "tools/amd_build/build_amd.py"
        script.write_text(script.read_text() + LENGTHENS)
        (upstream.root / "bind.cpp").write_text("// in cuda.h or types.h\nfirst\n// cuda\n")
        upstream.commit("root", "a source that is translated in place")
        upstream.git("root", "checkout", "-q", "main")
    return tree


@pytest.mark.parametrize("committed", [True, False])
def test_what_is_translated_in_place_is_translated_once(twice: Tree, committed: bool) -> None:
    source = twice.directory / "bind.cpp"
    head = twice.checkout(ref="twice", commit_hipify=committed).head
    assert source.read_text() == "// in hip.h or hip/types.h\nfirst\n// hip\n"
    before = times(twice.directory)
    for _ in range(2):
        again = twice.hipify(commit=committed)
        assert (again.changed, again.head) == ((), head)
    assert twice.list_new_times(before) == set()
    # the script runs again, for a file that it has nothing to do with
    (twice.directory / "plain.txt").write_text("edited\n")
    before = times(twice.directory)
    assert twice.hipify(commit=False).changed == ()
    assert twice.list_new_times(before) == set()
    # of an edited file, the new lines are translated
    source.write_text("// in hip.h or hip/types.h\nfirst\n// hip\n// cuda, types.h\n")
    assert twice.hipify(commit=False).changed == ("bind.cpp",)
    assert source.read_text() == "// in hip.h or hip/types.h\nfirst\n// hip\n// hip, hip/types.h\n"
    assert twice.hipify(commit=False).changed == ()


def test_own_commits_are_no_reason_for_a_commit_of_hipify(twice: Tree, tmp_path: Path) -> None:
    twice.checkout(ref="twice")
    (twice.directory / "plain.txt").write_text("edited\n")
    twice.git("commit", "-qam", "Mine")
    mine = twice.git("rev-parse", "HEAD")
    assert twice.hipify().head == mine
    # a clone of somebody's, as well as one that another script hipified and tagged
    twice.upstream.git(tmp_path, "clone", "-q", "--recursive", "-b", "twice", twice.upstream.url, "clone")
    clone = Tree(twice.upstream, tmp_path / "clone")
    first = clone.hipify()
    assert clone.hipify().head == first.head
    clone.git("update-ref", "-d", "refs/worktree/rocm-wheels/hipified")
    assert clone.hipify().head == first.head
    assert not clone.git("status", "--porcelain")


def test_a_new_clone_is_hipified_in_one_run(twice: Tree, tmp_path: Path) -> None:
    twice.upstream.git(tmp_path, "clone", "-q", "--recursive", "-b", "twice", twice.upstream.url, "tree")
    first = twice.hipify()
    assert {"bind.cpp", "hip/a.hip"} <= set(first.changed)
    log = twice.directory / ".git/rocm-wheels/hipify.log"
    assert sum(line.startswith("$ ") for line in log.read_text().splitlines()) == 1
    assert not twice.git("status", "--porcelain", "-uall")
    assert not twice.git("diff-files", "--name-only")  # the index knows the files as they are
    assert twice.hipify().head == first.head


def test_what_somebody_hipified_and_committed_is_made_anew(twice: Tree, tmp_path: Path) -> None:
    twice.upstream.git(tmp_path, "clone", "-q", "-b", "twice", twice.upstream.url, "tree")
    with pytest.raises(errors.SourceError, match=MIDDLE) as refused:
        twice.hipify()  # fetched afterwards, it would never be hipified
    assert "submodule update --init --recursive" in (refused.value.tip or "")
    assert HIPIFY_TAG not in twice.git("tag") and not twice.git("status", "--porcelain")
    twice.git("submodule", "--quiet", "update", "--init", "--recursive")
    subprocess.run([PYTHON, "tools/amd_build/build_amd.py"], cwd=twice.directory, check=True)
    (twice.directory / "a.cu").write_text("cuda other\n")
    for where in (DEEP, MIDDLE, ""):
        twice.commit("Mine", {}, where)
    assert "hip/a.hip" in twice.hipify().changed
    (twice.directory / "a.cu").write_text("cuda third\n")
    assert "hip/a.hip" in twice.hipify(commit=False).changed
    assert (twice.directory / "hip/a.hip").read_text() == "hip third\n"


def test_edits_of_what_hipify_makes_stay_or_are_refused_with_their_source(tree: Tree) -> None:
    source, made = tree.directory / "a.cu", tree.directory / "hip/a.hip"
    tree.checkout()
    source.write_text("cuda a\n1\n2\n3\n4\n")
    tree.git("commit", "-qam", "Mine")
    tree.hipify()
    made.write_text("hip a\n1\n2\n3\nmine\n")
    tree.git("commit", "-qam", "Mine, of HIP")
    mine = tree.git("rev-parse", "HEAD")
    assert tree.hipify().head == mine
    assert made.read_text() == "hip a\n1\n2\n3\nmine\n"
    source.write_text("cuda other\n1\n2\n3\nfour\n")
    (tree.directory / "new.cu").write_text("cuda new\n")
    files = content(tree.directory)
    with pytest.raises(errors.SourceError, match=r"hip/a\.hip \(made of a\.cu\) in .*: edited") as refused:
        tree.hipify(commit=False)
    assert "move the edited file away" in (refused.value.tip or "")
    assert content(tree.directory) == files
    made.unlink()
    tree.hipify(commit=False)
    assert made.read_text() == "hip other\n1\n2\n3\nfour\n"


@pytest.mark.parametrize("committed", [True, False])
def test_what_is_made_of_a_source_that_is_gone_goes(tree: Tree, committed: bool) -> None:
    tree.checkout(commit_hipify=committed)
    (tree.directory / "b.cu").unlink()
    assert set(tree.hipify(commit=False).changed) == {"hip/b.hip", "ignored_hip/b.hip"}
    assert not (tree.directory / "hip/b.hip").exists()
    assert (tree.directory / "hip/a.hip").exists()


def test_what_hipify_wrote_once_is_no_edit(tree: Tree) -> None:
    """Git brings it back, by another commit, a file of one, or a stash; nobody edited it by hand."""
    source, made = tree.directory / "a.cu", tree.directory / "hip/a.hip"
    tree.checkout()
    source.write_text("cuda mine\n")
    tree.hipify(commit=False)
    tree.git("add", "-A")
    tree.git("commit", "-q", "-m", "Mine, with what was made of it")
    mine = tree.git("rev-parse", "HEAD")
    tree.git("switch", "-q", "--detach", HIPIFY_TAG)
    source.write_text("cuda other\n")
    assert tree.status().repositories[0].files == (("modified", "a.cu"),)
    tree.hipify(commit=False)
    assert made.read_text() == "hip other\n"
    tree.git("stash", "-q")
    tree.hipify(commit=False)
    assert made.read_text() == "hip a\n"
    tree.git("stash", "pop", "-q")
    assert tree.status().repositories[0].files == (("modified", "a.cu"),)
    tree.git("checkout", "-q", "--", "hip/a.hip")
    tree.hipify(commit=False)
    assert made.read_text() == "hip other\n"
    tree.git("checkout", "-q", "--force", mine)
    assert tree.status().repositories[0].files == ()
    source.write_text("cuda third\n")
    tree.hipify(commit=False)
    assert made.read_text() == "hip third\n"
    source.unlink()
    tree.git("checkout", "-q", HIPIFY_TAG, "--", "hip/a.hip")
    tree.hipify(commit=False)
    assert not made.exists()
    tree.git("reset", "-q", "--hard", HIPIFY_TAG)
    made.write_text("by hand\n")
    assert tree.status().repositories[0].files == (("modified", "hip/a.hip"),)


@pytest.mark.slow
def test_hipify_of_a_clone_is_killed_and_run_again(
    upstream: Upstream, tmp_path: Path, *, exhaustive: bool
) -> None:
    """What was staged, or written, is not taken for the user's; what they write after the kill is kept."""
    tree = Tree(upstream, tmp_path / "tree")
    upstream.git(tmp_path, "clone", "-q", "--recursive", upstream.url, "tree")
    mine = tree.commit("Mine", {"a.cu": "cuda mine\n"})
    template = shutil.copytree(tree.directory, tmp_path / "template", symlinks=True)
    programs = CutPrograms(tmp_path, tree.directory, template)
    recipe = load_project("pytorch")
    work = partial(
        hipify.hipify_checkout,
        recipe,
        tree.directory,
        commit=True,
        env=os.environ,
        python=programs.python,
    )

    def cut(at: int) -> list[str]:
        programs.restore()
        return programs.cut(work, upstream.env, at)

    log = cut(0)
    head, files = tree.git("rev-parse", "HEAD"), content(tree.directory)
    assert tree.git("rev-parse", "HEAD^") == mine
    chosen = points(log, 0, exhaustive=True)
    for at in sample(chosen if exhaustive else chosen[-5:], exhaustive, 3):
        cut(at)
        assert tree.hipify().head == head, (at, log[at - 1])
        assert content(tree.directory) == files, (at, log[at - 1])
        assert not tree.git("status", "--porcelain", "-uall"), (at, log[at - 1])
        assert not (tree.directory / ".git/rocm-wheels/state.json").exists()
        assert tree.git("rev-parse", "--symbolic-full-name", "HEAD") == "refs/heads/main"
    cut(chosen[-1])
    if not (tree.directory / ".git/rocm-wheels/state.json").exists():
        return
    (tree.directory / "plain.txt").write_text("mine, after the kill\n")
    assert tree.hipify().head == head
    kept = tree.git("for-each-ref", "--format=%(refname)", "refs/rocm-wheels/rescued").splitlines()[-1]
    assert tree.git("show", f"{kept}:plain.txt") == "mine, after the kill"
