"""`kill -9` while patches change in a tree: the next run carries on, and nothing is rescued that is ours.

The exhaustive tests cut the first and the last command of each kind in both ways; the sample three in each.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from crash import CutPrograms, points, sample
from sources import DEEP, Tree, Upstream, content

pytestmark = pytest.mark.contract_slow


@dataclass(frozen=True)
class Changing:
    """A tree as it is before its patches change, and what they make of it."""

    tree: Tree
    programs: CutPrograms
    head: str
    files: dict[str, bytes]
    branches: str  # of the commits that were made by hand


@pytest.fixture(scope="module")
def changing(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Changing:
    folder = tmp_path_factory.mktemp("changing")
    tree = Tree(upstream, folder / "tree", folder / "one")
    tree.checkout(hipify=False)
    tree.commit("Base", {"a.cu": "cuda patched\n"})
    tree.commit("Deep", {"deep.cu": "cuda patched\n"}, DEEP)
    tree.save()
    tree.checkout()
    tree.patch_set = Path(shutil.copytree(tree.patch_set, folder / "two"))
    tree.commit("Hipified", {"hip/a.hip": "hip edited\n"})
    tree.commit("Hipified deep", {"hip/deep.hip": "hip edited\n"}, DEEP)
    tree.save()
    (tree.patch_set / "base/0001-Base.patch").unlink()
    text = (tree.patch_set / "hipified/0001-Hipified.patch").read_text()
    (tree.patch_set / "hipified/0001-Hipified.patch").write_text(
        text.replace("-hip patched", "-hip a").replace("index", "was")
    )
    Tree(upstream, tree.directory, folder / "one").checkout()
    template = Path(shutil.copytree(tree.directory, folder / "template", symlinks=True))
    head = tree.checkout().head
    assert (tree.directory / "hip/a.hip").read_text() == "hip edited\n"
    programs = CutPrograms(folder, tree.directory, template)
    return Changing(tree, programs, head, content(tree.directory), tree.git("for-each-ref", "refs/heads"))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["before", "within"])
def test_killed_and_run_again(changing: Changing, how: str, exhaustive: bool) -> None:
    tree = changing.tree

    def cut(at: int) -> list[str]:
        changing.programs.restore()
        return changing.programs.cut(
            lambda: replace(tree, env=dict(os.environ)).checkout(), tree.upstream.env, at, how
        )

    log = cut(0)
    chosen = points(log, turn=int(how == "within"), exhaustive=exhaustive)
    for at in sample(chosen, exhaustive, 3, least=6 if exhaustive else 3):
        cut(at)
        assert (tree.checkout().head, content(tree.directory)) == (changing.head, changing.files), (
            at,
            log[at - 1],
        )
        assert not tree.git("status", "--porcelain", "-uall", "--ignore-submodules=none"), (at, log[at - 1])
        assert tree.git("for-each-ref", "refs/heads") == changing.branches, (at, log[at - 1])
        if how == "before" and log[at - 1] == "checkout":  # elsewhere half-written files may be kept
            assert not tree.git("for-each-ref", "refs/rocm-wheels/rescued"), (at, log[at - 1])
