"""`status` and the options of patches at the doors: what a tree is, and wrong input."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from crash import in_a_process
from sources import DEEP, MIDDLE, Tree, Upstream, content

from rocm_wheels.core import errors
from rocm_wheels.sources import trees

pytestmark = pytest.mark.contract


@pytest.fixture
def tree(upstream: Upstream, hipified: Path, tmp_path: Path) -> Tree:
    return Tree(upstream, tmp_path / "tree", tmp_path / "patches/pytorch/main", template=hipified)


def door(tree: Tree, *arguments: str) -> tuple[int, str, str]:
    """Start torch's door on the tree; return exit code, stdout, stderr."""
    words = (arguments[0], "--checkout-dir", tree.directory, *arguments[1:])
    ended = tree.upstream.script(tree.directory.parent, "pytorch_torch_repo.py", *words)
    return ended.code, ended.out, ended.err


def test_own_commits_below_another_hipify_are_no_patches(tree: Tree) -> None:
    tree.checkout(patch=False)
    tree.commit("Mine", {"plain.txt": "one\ntwo\n", "e.cu": "cuda e\n"})
    tree.commit("Mine again", {"plain.txt": "three\n"})
    tree.hipify()
    status = tree.status()
    assert status.labels == ("hipified", "changed")
    root = status.repositories[0]
    assert (len(root.commits), root.base, root.hipified) == (2, 0, 0)


def test_from_upstream_to_changed(tree: Tree) -> None:
    tree.checkout(hipify=False, patch=False)
    assert tree.status().labels == ("upstream",)
    tree.commit("Base", {"a.cu": "cuda base\n"})
    tree.commit("Base deep", {"deep.cu": "cuda base\n"}, DEEP)
    assert tree.status().labels == ("changed",)
    tree.save()
    tree.checkout(hipify=False)
    assert tree.status().labels == ("patched",)
    tree.checkout()
    tree.commit("Hipified", {"hip/a.hip": "hip edited\n"})
    tree.save()
    tree.checkout()
    whole = tree.status()
    assert whole.labels == ("patched", "hipified")
    counted = {one.path: (one.base, one.hipified) for one in whole.repositories}
    assert counted == {"": (1, 1), DEEP: (1, 0)}
    before = tree.everything()
    tree.commit("Mine", {"plain.txt": "one\ntwo\n"})
    (tree.directory / MIDDLE / "mid.cu").write_text("a\nb\nc\n")
    (tree.directory / "new").write_text("x\n")
    status = tree.status()
    assert status.labels == ("patched", "hipified", "changed")
    root, middle = status.repositories[:2]
    assert [commit.split(" ")[1] for commit in root.commits] == ["Mine"]
    assert root.files == (("new", "new"),)
    assert (middle.path, middle.files) == (MIDDLE, (("modified", "mid.cu"),))
    assert tree.everything()[-1] == before[-1]


def test_uncommitted_hipify_is_ours_and_a_foreign_clone_has_tags_at_most(
    tree: Tree, upstream: Upstream, tmp_path: Path
) -> None:
    tree.checkout(commit_hipify=False, patch=False)
    assert (tree.status().labels, tree.status().hipify) == (("hipified",), "uncommitted")
    (tree.directory / "hip/a.hip").write_text("mine\n")
    assert tree.status().repositories[0].files == (("modified", "hip/a.hip"),)
    upstream.git(tmp_path, "clone", "-q", upstream.url, "clone")
    clone = Tree(upstream, tmp_path / "clone", tree.patch_set)
    assert clone.status().labels == ("upstream", "submodules missing")
    clone.git("tag", "THEROCK_UPSTREAM_DIFFBASE")
    clone.commit("DO NOT SUBMIT: HIPIFY", {"hip/x": "x"})
    clone.git("tag", "THEROCK_HIPIFY_DIFFBASE")
    clone.commit("Mine", {"hip/x": "y"})
    assert clone.status().labels == ("hipified", "changed", "submodules missing")
    assert clone.save().written == ("hipified/0001-Mine.patch",)  # also from trees of other scripts


def test_what_is_yours_stays_yours_when_it_is_hipified(tree: Tree) -> None:
    tree.checkout(patch=False)
    tree.hipify()
    assert tree.status().labels == ("hipified",)
    (tree.directory / "a.cu").write_text("cuda mine\n")
    tree.hipify(commit=False)
    assert tree.status().labels == ("hipified", "changed")
    assert tree.status().repositories[0].files == (("modified", "a.cu"),)
    assert trees.identify_tree(tree.directory, env=tree.env).dirty
    tree.commit("Mine", {})
    tree.hipify()
    assert tree.status().labels == ("hipified", "changed")  # no patch was applied
    assert [commit.split(" ")[1] for commit in tree.status().repositories[0].commits] == ["Mine"]
    tree.checkout(patch=False)  # not "nothing to do": the commits are kept on a branch
    assert tree.status().labels == ("hipified",)
    assert tree.git("branch", "--list", "kept-*") != ""


def test_a_tree_is_hipified_by_what_lies_in_it(tree: Tree) -> None:
    head = tree.checkout(patch=False).head
    tree.git("switch", "-q", "--detach", "THEROCK_UPSTREAM_DIFFBASE")
    assert (tree.status().labels, tree.status().hipify) == (("not hipified",), "no")
    tree.git("switch", "-q", "--detach", head)
    assert (tree.status().labels, tree.status().changed_since_hipify) == (("hipified",), False)
    (tree.directory / "a.cu").write_text("cuda mine\n")
    assert (tree.status().labels, tree.status().changed_since_hipify) == (("hipified", "changed"), True)
    assert "files changed since" in door(tree, "status")[1]
    assert tree.translate() == {"hip/a.hip", "ignored_hip/a.hip"}
    status = tree.status()
    assert (status.labels, status.changed_since_hipify) == (("hipified", "changed"), False)
    assert status.repositories[0].files == (("modified", "a.cu"),)


def test_what_hipify_makes_of_your_edits_is_not_yours(tree: Tree) -> None:
    tree.checkout(patch=False)
    (tree.directory / "a.cu").write_text("cuda mine\n")
    (tree.directory / "new.cu").write_text("cuda new\n")
    tree.translate()
    with pytest.raises(errors.SourceError, match=r"not committed: a\.cu, new\.cu$"):
        tree.save()
    tree.git("add", "a.cu", "new.cu")
    tree.git("commit", "-q", "-m", "Mine")
    assert "hip/new.hip" in tree.git("status", "--porcelain", "-uall")
    assert tree.save().written == ("hipified/0001-Mine.patch",)
    (patch,) = tree.patches().values()
    assert b"new.cu" in patch
    assert b".hip" not in patch
    (tree.directory / "hip/a.hip").write_text("hip by hand\n")
    assert tree.status().repositories[0].files == (("modified", "hip/a.hip"),)
    with pytest.raises(errors.SourceError, match="changes of yours"):
        tree.checkout(patch=False)
    tree.git("checkout", "-q", "--force", "--detach", "THEROCK_UPSTREAM_DIFFBASE")
    assert "not hipified" in tree.status().labels  # though new.hip is there, which git does not know
    assert tree.checkout(patch=False)
    assert tree.git("status", "--porcelain", "--ignore-submodules=none") == ""
    assert not (tree.directory / "hip/new.hip").exists()


def test_interrupted(tree: Tree) -> None:
    """A hipify that was killed is said to be, until it is run again."""
    tree.checkout(hipify=False, patch=False)

    def die_at_the_script(event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen" and "hipify_runner.py" in str(arguments[1]):
            os.kill(os.getpid(), signal.SIGKILL)

    def hipify_and_die() -> None:
        sys.addaudithook(die_at_the_script)
        tree.hipify()

    assert in_a_process(hipify_and_die, os.environ) == -signal.SIGKILL
    assert "interrupted" in tree.status().labels
    assert "interrupted: hipify; run it again" in door(tree, "status")[1]
    with pytest.raises(errors.SourceError, match=r"the hipify in .* was interrupted"):
        tree.save()
    tree.hipify()
    assert "interrupted" not in tree.status().labels


def test_doors(tree: Tree, upstream: Upstream) -> None:
    sets = tree.patch_set.parent.parent
    sets.mkdir()
    given = ("--patch-dir", str(sets))
    origin = ("--origin", upstream.url, "--ref", "main")
    assert door(tree, "checkout", *origin, *given)[0] == 0
    tree.commit("Mine", {"hip/a.hip": "hip mine\n"})
    code, _, said = door(tree, "save-patches", *given)
    assert (code, "has 1 patch, 1 written now" in said) == (0, True), said
    assert list(content(sets)) == ["pytorch/main/hipified/0001-Mine.patch"]
    code, _, said = door(tree, "checkout", *origin, *given)
    assert (code, "1 hipified patches applied" in said) == (0, True), said
    code, out, _ = door(tree, "status")
    assert code == 0
    assert out.startswith("pytorch: patched, hipified\n")
    assert "patches in the root: 0 base, 1 hipified" in out
    code, out, _ = door(tree, "status", "--json")
    value = json.loads(out)
    assert (code, value["words"], value["repositories"][0]["hipified"]) == (0, ["patched", "hipified"], 1)
    (tree.directory / "mine").write_text("x")
    assert door(tree, "status")[:2] != (code, out)
    assert "changed by you in the root: 0 commits, 1 file" in door(tree, "status")[1]
    (tree.directory / "mine").unlink()
    shutil.copytree(sets / "pytorch/main", sets / "pytorch/2.9")
    shutil.rmtree(sets / "pytorch/main")
    code, _, said = door(tree, "checkout", *origin, *given)
    assert (code, "has sets for 2.9, none for main" in said) == (0, True), said
    code, _, said = door(tree, "checkout", *origin, *given, "--patchset", "2.9")
    assert (code, "1 hipified patches applied" in said) == (0, True), said
