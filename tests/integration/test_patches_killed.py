"""`kill -9` while patches change in a tree: the next run carries on, and nothing is rescued that is ours.

Of each kind of command, one of the first and the last is cut before it, the other within; the
exhaustive test cuts both in both ways.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from patch_trees import DEEP, Patched
from source_trees import Upstream, content, isolated_environment, make_upstream
from test_checkout_killed import SHIM, begin_count, commands, counting, in_a_process, points

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["before", "within"])
def test_killed_and_run_again(tmp_path: Path, how: str, exhaustive: bool) -> None:
    upstream = make_upstream(tmp_path / "upstream", isolated_environment(tmp_path / "home"))
    tree = Patched(upstream, tmp_path / "tree", tmp_path / "one")
    tree.checkout(hipify=False)
    tree.commit("Base", {"a.cu": "cuda patched\n"})
    tree.commit("Deep", {"deep.cu": "cuda patched\n"}, DEEP)
    tree.save()
    tree.checkout()
    tree.folder = Path(shutil.copytree(tree.folder, tmp_path / "two"))
    tree.commit("Hipified", {"hip/a.hip": "hip edited\n"})
    tree.commit("Hipified deep", {"hip/deep.hip": "hip edited\n"}, DEEP)
    tree.save()
    (tree.folder / "base/0001-Base.patch").unlink()
    text = (tree.folder / "hipified/0001-Hipified.patch").read_text()
    (tree.folder / "hipified/0001-Hipified.patch").write_text(
        text.replace("-hip patched", "-hip a").replace("index", "was")
    )
    Patched(upstream, tree.directory, tmp_path / "one").checkout()
    template = Path(shutil.copytree(tree.directory, tmp_path / "template", symlinks=True))
    head = tree.checkout()
    wanted = content(tree.directory)
    assert (tree.directory / "hip/a.hip").read_text() == "hip edited\n"
    branches = tree.git("for-each-ref", "refs/heads")  # of the commits that were made by hand above
    log = cut(tree, template, 0, how)
    chosen = points(log, turn=int(how == "within"), exhaustive=exhaustive)
    assert len(chosen) >= 6
    for at in chosen:
        cut(tree, template, at, how)
        assert (tree.checkout(), content(tree.directory)) == (head, wanted), (at, log[at - 1])
        assert not tree.git("status", "--porcelain", "-uall", "--ignore-submodules=none"), (at, log[at - 1])
        assert tree.git("for-each-ref", "refs/heads") == branches, (at, log[at - 1])
        if how == "before" and log[at - 1] == "checkout":  # elsewhere half-written files may be kept
            assert not tree.git("for-each-ref", "refs/rocm-wheels/rescued"), (at, log[at - 1])


def cut(tree: Patched, template: Path, at: int, how: str) -> list[str]:
    """Check out from the template on, cut at command ``at``; return the commands that were started."""
    folder = template.parent / "shim"
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(SHIM.replace("REAL", f"'{shutil.which('git')}'"))
    (folder / "git").chmod(0o755)
    begin_count(folder)
    shutil.rmtree(tree.directory)
    shutil.copytree(template, tree.directory, symlinks=True)
    env = counting(tree.upstream.env, folder, folder, at, how)
    there = Patched(Upstream(tree.upstream.folder, env), tree.directory, tree.folder)
    assert in_a_process(there.checkout, env) == (-9 if at else 0)
    return commands(folder)
