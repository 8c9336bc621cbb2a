"""Links that a build replaced by copies, as apex's does: nobody's work, unless there is more in the copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ended
from sources import CLONE, Upstream

from rocm_wheels.sources import trees

pytestmark = pytest.mark.contract

LINKS = {"apex/csrc": "../csrc", "apex/name.txt": "../version.txt"}


@pytest.fixture(scope="module")
def github(sources: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    made = sources.copy(tmp_path_factory.mktemp("servers"), github=True)
    upstream = made.folder / "apex"
    for name, text in {
        "csrc/sgd.cu": "kernels\n",
        "csrc/deep/a.h": "header\n",
        ".gitignore": "*.hip\n",
    }.items():
        (upstream / name).parent.mkdir(parents=True, exist_ok=True)
        (upstream / name).write_text(text)
    (upstream / "apex").mkdir()
    for link, target in LINKS.items():
        (upstream / link).symlink_to(target)
    made.commit("apex", "links")
    (upstream / "version.txt").write_text("apex 4.0\n")
    made.commit("apex", "newer")
    return made


def checkout(github: Upstream, folder: Path, ref: str) -> Ended:
    words = ("--origin", (github.folder / "apex").as_uri(), "--checkout-dir", "apex")
    return github.script(folder, "pytorch_apex_repo.py", "checkout", "--ref", ref, *words)


def checked_out(github: Upstream, folder: Path) -> Path:
    commit = github.git(github.folder / "apex", "rev-parse", "main~1")
    said = checkout(github, folder, commit)
    assert said.code == 0, said.err
    return folder / "apex"


def copy_in_place(tree: Path) -> None:
    """Do as setup.py of apex does, translated sources included."""
    (tree / "csrc/sgd.hip").write_text("translated\n")
    for link in LINKS:
        target = (tree / link).resolve()
        (tree / link).unlink()
        (shutil.copytree if target.is_dir() else shutil.copy2)(target, tree / link)


def test_a_tree_with_copies_is_unchanged_and_goes_on_to_another_commit(
    github: Upstream, tmp_path: Path
) -> None:
    tree = checked_out(github, tmp_path)
    before = trees.identify_tree(tree, env=github.env)
    copy_in_place(tree)
    (tree / "apex/csrc/older.hip").write_text("translated by a build before\n")  # git ignores it
    assert trees.identify_tree(tree, env=github.env) == before
    status = github.start(tmp_path, CLONE / "repos/pytorch_apex_repo.py", "status",
                         "--checkout-dir", "apex", "--json")  # fmt: skip
    assert '"files": []' in status.out
    said = checkout(github, tmp_path, "main")
    assert said.code == 0, said.err
    assert {link: str((tree / link).readlink()) for link in LINKS} == LINKS
    assert (tree / "apex/name.txt").read_text() == "apex 4.0\n"
    assert github.git(tree, "status", "--porcelain") == ""


def test_copies_become_links_again(github: Upstream, tmp_path: Path) -> None:
    tree = checked_out(github, tmp_path)
    copy_in_place(tree)
    (tree / "csrc/sgd.cu").write_text("mine, after a build was killed\n")
    trees.restore_links(tree, github.env)
    assert {link: str((tree / link).readlink()) for link in LINKS} == LINKS
    assert github.git(tree, "status", "--porcelain").split() == ["M", "csrc/sgd.cu"]
    assert (tree / "csrc/sgd.hip").read_text() == "translated\n"


OWN_WORK: dict[str, Callable[[Path], object]] = {
    "apex/csrc/sgd.cu": lambda tree: (tree / "apex/csrc/sgd.cu").write_text("mine"),
    "apex/csrc/mine.cu": lambda tree: (tree / "apex/csrc/mine.cu").write_text("mine"),
    "apex/csrc/deep/b.h": lambda tree: (tree / "apex/csrc/deep/b.h").symlink_to("a.h"),
    "apex/name.txt": lambda tree: (tree / "apex/name.txt").write_text("mine"),
}


@pytest.mark.parametrize("where", OWN_WORK)
def test_work_in_a_copy_is_never_lost(github: Upstream, tmp_path: Path, where: str) -> None:
    tree = checked_out(github, tmp_path)
    before = trees.identify_tree(tree, env=github.env)
    copy_in_place(tree)
    OWN_WORK[where](tree)
    assert trees.identify_tree(tree, env=github.env).tree != before.tree
    trees.restore_links(tree, github.env)
    said = checkout(github, tmp_path, "main")
    assert said.code == 10
    assert "has changes of yours" in said.err and where in said.err
    assert (tree / where).is_symlink() or (tree / where).read_text() == "mine"
