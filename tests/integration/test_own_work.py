"""Work of the user's own is never lost, whoever made the tree: it is refused, or kept on a branch or a ref.

Trees are made by us, by TheRock's scripts and by hand. Each kind of work is put into each kind of tree before
a checkout of another commit, and after a run that was killed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from crash import CutPrograms, in_a_process, points
from sources import DEEP, MIDDLE, Tree, Upstream, content

from rocm_wheels.core import errors
from rocm_wheels.sources import trees

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

MODULES = ("", MIDDLE, DEEP)
MINE = "cuda, and mine\n"


def make_by_us(tree: Tree) -> None:
    tree.checkout()


def make_by_hand(tree: Tree) -> None:
    tree.upstream.git("", "clone", "-q", "--recursive", tree.upstream.url, str(tree.directory))


def make_by_therock(tree: Tree) -> None:
    """As its pytorch_torch_repo.py: tags, hipify committed in the user's name, submodules hidden from git."""
    make_by_hand(tree)
    for module in reversed(MODULES):
        tree.git("tag", "-f", "THEROCK_UPSTREAM_DIFFBASE", where=module)
        (tree.directory / module / "hip").mkdir(exist_ok=True)
        (tree.directory / module / "hip/made.hip").write_text("hip made\n")
        tree.git("add", "-A", ":!third_party", ":!deep dir", where=module)
        tree.git("commit", "-q", "-m", "DO NOT SUBMIT: HIPIFY", where=module)
        tree.git("tag", "-f", "THEROCK_HIPIFY_DIFFBASE", where=module)
    tree.git("config", f"submodule.{MIDDLE}.ignore", "all")
    tree.git("update-index", "--skip-worktree", MIDDLE)


def write(
    path: str, *, ignored: bool = False, staged: bool = False, commit: bool = False
) -> Callable[[Tree], None]:
    """Return what writes a file into a tree: it says MINE, and nothing else does."""

    def put(tree: Tree) -> None:
        where = max((module for module in MODULES if path.startswith(module)), key=len)
        name = path.removeprefix(f"{where}/")
        git_dir = Path(tree.git("rev-parse", "--absolute-git-dir", where=where))
        if ignored:
            (git_dir / "info").mkdir(exist_ok=True)
            (git_dir / "info/exclude").write_text(f"/{name}\n")
        (tree.directory / path).write_text(MINE)
        if staged or commit:
            tree.git("add", name, where=where)
        if commit:
            tree.git("commit", "-q", "-m", "Mine", where=where)
        elif staged:
            (tree.directory / path).unlink()

    return put


WORK: Mapping[str, Callable[[Tree], None]] = {
    "edit": write("a.cu"),
    "edit of a file that stays": write("plain.txt"),
    "new file": write("mine.cu"),
    "new file where the commit has one": write("c.cu"),
    "ignored file where the commit has one": write("c.cu", ignored=True),
    "staged": write("a.cu", staged=True),
    "commit": write("a.cu", commit=True),
    "edit below": write(f"{DEEP}/deep.cu"),
    "new file below": write(f"{MIDDLE}/mine"),
    "commit below": write(f"{DEEP}/deep.cu", commit=True),
}
MAKERS = {"us": make_by_us, "TheRock": make_by_therock, "hand": make_by_hand}


def find_work(tree: Tree) -> list[str]:
    """List where MINE is: files on the disk, what is staged, commits that a ref holds."""
    places = [path for path, data in content(tree.directory).items() if data == MINE.encode()]
    for module in MODULES:
        if not (tree.directory / module / ".git").exists():
            continue
        blob = tree.upstream._git(tree.directory / module, "hash-object", "--stdin", told=MINE).strip()
        if blob in tree.git("ls-files", "-s", where=module):
            places.append(f"index of {module}")
        for ref in tree.git("for-each-ref", "--format=%(refname)", where=module).splitlines():
            kept = ref.startswith(("refs/heads/", "refs/rocm-wheels/rescued/"))
            if kept and blob in tree.git("rev-list", "--objects", ref, where=module):
                places.append(f"{ref} of {module}")
    return places


@pytest.mark.contract
@pytest.mark.parametrize("maker", MAKERS)
def test_a_checkout_of_another_commit(upstream: Upstream, tmp_path: Path, maker: str) -> None:
    template = Tree(upstream, tmp_path / "template")
    MAKERS[maker](template)
    for number, (what, put) in enumerate(WORK.items()):
        tree = Tree(upstream, tmp_path / str(number))
        shutil.copytree(template.directory, tree.directory, symlinks=True)
        put(tree)
        head = tree.git("rev-parse", "HEAD")
        try:
            tree.checkout("feature")
        except errors.SourceError as refused:
            assert refused.exit_code == 10 and refused.tip, what
            assert "changes of yours" in refused.message or "in the way" in refused.message, what
            assert tree.git("rev-parse", "HEAD") == head, what
        else:
            assert what.startswith("commit"), what
        assert find_work(tree), what


@pytest.mark.contract
@pytest.mark.slow
@pytest.mark.parametrize("maker", MAKERS)
def test_work_in_a_tree_whose_checkout_was_killed(
    upstream: Upstream, tmp_path: Path, maker: str, *, exhaustive: bool
) -> None:
    """Commits from before, and all else that is put in afterwards; a sample takes a third for each maker."""
    tree = Tree(upstream, tmp_path / "tree")
    MAKERS[maker](tree)
    before = tree.commit("Before", {"version.txt": "of before\n"})
    template = shutil.copytree(tree.directory, tmp_path / "template", symlinks=True)
    programs = CutPrograms(tmp_path, tree.directory, template)

    def cut(at: int) -> list[str]:
        programs.restore()
        there = partial(Tree, upstream, tree.directory)
        return programs.cut(
            lambda: there(env=dict(os.environ)).checkout("feature"), upstream.env, at, "within"
        )

    log = cut(0)
    cuts = points(log, 0, exhaustive=True)
    kinds = [what for what in WORK if what != "commit"]
    chosen = [(at, kind) for at in cuts for kind in kinds]
    if not exhaustive:
        turn = list(MAKERS).index(maker)
        chosen = [(cuts[(5 * number + turn) % len(cuts)], kind) for number, kind in enumerate(kinds[turn::3])]
    for at, kind in chosen:
        cut(at)
        if (tree.directory / ".git/index.lock").exists():  # else their own git could not work there
            (tree.directory / ".git/index.lock").unlink()
        try:
            WORK[kind](tree)
        except (AssertionError, OSError):  # cut just there: nobody can work in that place yet
            continue
        for _ in range(2):
            try:
                tree.checkout("feature")
                break
            except errors.SourceError as refused:
                assert refused.exit_code == 10, (at, log[at - 1], kind)
        assert find_work(tree), (at, log[at - 1], kind)
        kept = tree.git("for-each-ref", f"--contains={before}", "--format=%(refname)", "refs/heads")
        assert kept or tree.git("rev-parse", "HEAD") == before, (at, log[at - 1], kind)


def test_a_killed_run_of_ours_leaves_nothing_that_blocks(upstream: Upstream, tmp_path: Path) -> None:
    """Locks of ours and of git, in the root and in submodules: of the index, the origin, a kept branch."""
    tree = Tree(upstream, tmp_path / "tree")
    tree.checkout()
    mine = tree.commit("mine", {"mine": "mine"}, MIDDLE)
    locks = ["index.lock", "config.lock", "modules/third_party/middle/index.lock"]
    locks.append(f"modules/third_party/middle/refs/heads/kept-{mine[:12]}.lock")

    def die() -> None:
        from rocm_wheels.sources import commits

        def kill(*_: object, **__: object) -> None:
            for lock in locks:
                (tree.directory / ".git" / lock).touch()
            os.kill(os.getpid(), 9)

        commits.tag_upstream_commits = kill  # type: ignore[assignment]
        tree.checkout("feature")

    assert in_a_process(die, os.environ) == -9
    assert tree.status().interrupted == "checkout"
    with pytest.raises(errors.SourceError, match="was interrupted"):  # nothing builds from it
        trees.identify_tree(tree.directory, env=tree.env)
    assert tree.checkout("feature").changed
    assert tree.is_clean()
    assert {file.name for file in (tree.directory / ".git").rglob("*.lock")} == {".lock"}
    assert tree.git("rev-parse", f"kept-{mine[:12]}", where=MIDDLE) == mine
