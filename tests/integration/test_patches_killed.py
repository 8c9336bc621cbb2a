"""`kill -9` while patches change in a tree: the next run carries on, and nothing is rescued that is ours.

Of every other kind of command one is cut before it, of the rest within, the first or the last; the
exhaustive tests cut both in both ways.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from crash import SHIM, begin_count, commands, counting, in_a_process, points
from source_trees import DEEP, Tree, Upstream, content

pytestmark = [
    pytest.mark.contract_slow,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@dataclass(frozen=True)
class Changing:
    """A tree as it is before its patches change (``template``), and what they make of it."""

    tree: Tree
    template: Path
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
    return Changing(tree, template, head, content(tree.directory), tree.git("for-each-ref", "refs/heads"))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["before", "within"])
def test_killed_and_run_again(changing: Changing, how: str, exhaustive: bool) -> None:
    tree, template = changing.tree, changing.template
    log = cut(tree, template, 0, how)
    chosen = points(log, turn=int(how == "within"), exhaustive=exhaustive)
    assert len(chosen) >= (6 if exhaustive else 3)
    for at in chosen:
        cut(tree, template, at, how)
        assert (tree.checkout().head, content(tree.directory)) == (changing.head, changing.files), (
            at,
            log[at - 1],
        )
        assert not tree.git("status", "--porcelain", "-uall", "--ignore-submodules=none"), (at, log[at - 1])
        assert tree.git("for-each-ref", "refs/heads") == changing.branches, (at, log[at - 1])
        if how == "before" and log[at - 1] == "checkout":  # elsewhere half-written files may be kept
            assert not tree.git("for-each-ref", "refs/rocm-wheels/rescued"), (at, log[at - 1])


def cut(tree: Tree, template: Path, at: int, how: str) -> list[str]:
    """Check out from the template on, cut at command ``at``; return the commands that were started."""
    folder = template.parent / "shim"
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(SHIM.replace("REAL", f"'{shutil.which('git')}'"))
    (folder / "git").chmod(0o755)
    begin_count(folder)
    shutil.rmtree(tree.directory)
    shutil.copytree(template, tree.directory, symlinks=True)
    env = counting(tree.upstream.env, folder, folder, at, how)
    there = replace(tree, env=env)
    assert in_a_process(there.checkout, env) == (-9 if at else 0)
    return commands(folder)
