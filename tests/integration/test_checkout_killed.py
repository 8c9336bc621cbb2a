"""`kill -9` at every kind of moment: the next run carries on, and nothing is lost.

The exhaustive tests cut the first and the last command of each kind; the sample three from each start.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from crash import CutPrograms, killed_at_events, points, sample
from sources import DEEP, Tree, Upstream, content

from rocm_wheels.sources import checkout


@dataclass(frozen=True)
class Whole:
    """A checkout of main that nobody cut: its commands, its commit, what it left as it was, its files."""

    log: list[str]
    head: str
    left: object
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def whole(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    killed = Killed(upstream, tmp_path_factory.mktemp("whole"))
    log = killed.run("main", 0, "after")
    result = killed.again("main")
    return Whole(log, result.head, result.state.left, content(killed.tree))


class Killed:
    """Runs a checkout whose programs are counted and cut."""

    def __init__(self, upstream: Upstream, folder: Path) -> None:
        self.upstream, self.tree = upstream, folder / "tree"
        self.hipify = True
        self.programs = CutPrograms(folder, self.tree)

    def run(self, ref: str, at: int, how: str, *, commit: bool = True) -> list[str]:
        """Check out; return the commands that were started (their first word)."""
        request, python = self.request(ref, commit), self.programs.python
        work = partial(checkout.checkout_project, request, env=os.environ, python=python)
        return self.programs.cut(work, self.upstream.env, at, how)

    def request(self, ref: str, commit: bool) -> checkout.CheckoutRequest:
        tree = Tree(self.upstream, self.tree)
        return tree.request(ref, hipify=self.hipify, commit_hipify=commit)

    def again(self, ref: str, *, commit: bool = True) -> checkout.CheckoutResult:
        return checkout.checkout_project(
            self.request(ref, commit), env=self.upstream.env, python=Path(sys.executable)
        )

    def rescued(self) -> list[str]:
        refs = self.upstream.git(self.tree, "for-each-ref", "--format=%(refname)", "refs/rocm-wheels/rescued")
        return refs.splitlines()


@pytest.mark.contract
@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "how", "turn"),
    [
        ("nothing", "within", 0),
        ("committed", "within", 1),
        ("uncommitted", "before", 2),
        ("not hipified", "within", 3),
    ],
)
def test_killed_and_run_again(
    upstream: Upstream, tmp_path: Path, start: str, how: str, turn: int, *, exhaustive: bool
) -> None:
    commit = start != "uncommitted"
    killed = Killed(upstream, tmp_path)
    killed.hipify = start != "not hipified"
    if start != "nothing":
        killed.again("main", commit=commit)
        killed.programs.template = shutil.copytree(killed.tree, tmp_path / "template", symlinks=True)
    log = killed.run("feature", 0, how, commit=commit)
    wanted, head = content(killed.tree), upstream.git(killed.tree, "rev-parse", "HEAD")
    chosen = points(log, turn, exhaustive)
    least = (7 if killed.hipify else 4) // (1 if exhaustive else 2)
    for at in sample(chosen, exhaustive, 3, least=least):
        killed.programs.restore()
        killed.run("feature", at, how, commit=commit)
        result = killed.again("feature", commit=commit)
        assert (result.head, content(killed.tree)) == (head, wanted), (at, log[at - 1])
        status = upstream.git(killed.tree, "status", "--porcelain", "-uall", "--ignore-submodules=none")
        assert not commit or not status, (at, log[at - 1])


@pytest.mark.parametrize("empty", [False, True])
def test_killed_between_two_steps_of_our_own(
    upstream: Upstream, whole: Whole, tmp_path: Path, *, empty: bool, exhaustive: bool
) -> None:
    """In a folder that is there and empty, and in one that is not, from the first that is made on."""
    killed = Killed(upstream, tmp_path)

    def begin() -> None:
        killed.programs.restore()
        if empty:
            killed.tree.mkdir()

    work = partial(killed.again, "main")
    for event in killed_at_events(work, begin=begin, exhaustive=exhaustive, most=3, least=200):
        assert work().head == whole.head, event
        assert content(killed.tree) == whole.files, event


@pytest.mark.contract
def test_what_was_written_after_the_crash_is_kept(
    upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = Killed(upstream, tmp_path)
    killed.again("main")
    killed.again("feature")
    killed.again("main")
    log = killed.run("feature", 0, "after")
    killed.again("main")
    killed.run("feature", log.index("tools/amd_build/build_amd.py") + 1, "after")
    (killed.tree / "mine").write_text("mine")
    (killed.tree / "plain.txt").write_text("mine too")
    module = killed.tree / "third_party/middle"
    (module / "mine").write_text("and mine")
    killed.again("feature")
    assert "kept as refs/rocm-wheels/rescued/1" in capsys.readouterr().err
    for where, path, text in (
        (killed.tree, "mine", "mine"),
        (killed.tree, "plain.txt", "mine too"),
        (module, "mine", "and mine"),
    ):
        assert upstream.git(where, "show", f"refs/rocm-wheels/rescued/1:{path}") == text
        assert not (where / "mine").exists()
    assert (killed.tree / "plain.txt").read_text() == "plain\n"


def test_a_crash_alone_rescues_nothing_that_upstream_has(upstream: Upstream, tmp_path: Path) -> None:
    killed = Killed(upstream, tmp_path)
    killed.again("main")
    killed.again("feature")  # what is here once is not fetched again
    killed.again("main")
    log = killed.run("feature", 0, "after")
    killed.again("main")
    killed.run("feature", log.index("checkout") + 1, "after")
    (killed.tree / ".git/refs/rocm-wheels/fetched.lock").touch()  # of a git that was writing that ref
    killed.again("feature")
    assert killed.rescued() == []


@pytest.mark.contract
def test_a_submodule_whose_clone_was_cut(upstream: Upstream, whole: Whole, tmp_path: Path) -> None:
    killed = Killed(upstream, tmp_path)
    killed.run("main", whole.log.index("checkout") + 1, "after")  # the root's
    tree = killed.tree
    place = tree / ".git/modules/third_party/middle"
    shutil.rmtree(place)
    upstream.git(tree, "init", "-q", f"--separate-git-dir={place}", "third_party/middle")
    assert killed.again("main").changed
    assert (killed.tree / "third_party/middle/deep dir/hip/deep.hip").exists()


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


# ---- while patches change in a tree: three commands in each way, the exhaustive test in both


@pytest.mark.contract_slow
@pytest.mark.slow
@pytest.mark.parametrize("how", ["before", "within"])
def test_killed_while_patches_change(changing: Changing, how: str, exhaustive: bool) -> None:
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
