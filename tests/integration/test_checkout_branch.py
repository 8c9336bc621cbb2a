"""A developer's own branch and own clone: work goes on there, nothing is lost, or taken for upstream's."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Ended
from sources import Upstream, write_files

pytestmark = pytest.mark.contract

SOURCES, USAGE = 10, 2
HIPIFY_TAG, UPSTREAM_TAG = "THEROCK_HIPIFY_DIFFBASE", "THEROCK_UPSTREAM_DIFFBASE"
BRANCH = ("--branch", "mine")


def checkout(github: Upstream, trees: Path, ref: str, *words: str) -> Ended:
    return github.checkout(trees, "torch", "--source-dir", ".", "--ref", ref, *words)


def commit_mine(github: Upstream, tree: Path, file: str, text: str) -> str:
    write_files(tree, {file: text})
    github.git(tree, "add", file)
    github.git(tree, "commit", "-q", "-m", f"mine: {file}")
    return github.git(tree, "rev-parse", "HEAD")


def test_work_goes_on_on_a_branch_and_moves_to_a_new_upstream(github: Upstream, tmp_path: Path) -> None:
    trees, tree = tmp_path, tmp_path / "pytorch"

    def at(name: str) -> str:
        return github.git(tree, "rev-parse", name)

    def branch() -> str:
        return github.git(tree, "rev-parse", "--symbolic-full-name", "HEAD")

    assert checkout(github, trees, "main", "--branch", "no..name").code == USAGE
    assert checkout(github, trees, "main", *BRANCH).code == 0
    assert (branch(), at("HEAD")) == ("refs/heads/mine", at(HIPIFY_TAG))
    tags = (at(UPSTREAM_TAG), at(HIPIFY_TAG))
    mine = commit_mine(github, tree, "a.cu", "cuda mine\n")
    assert github.start(trees, "-m", "rocm_wheels", "sources", "hipify", "--source-dir", ".").code == 0
    hipified = at("HEAD")
    assert (at("HEAD^"), (tree / "hip/a.hip").read_text()) == (mine, "hip mine\n")
    assert (at(UPSTREAM_TAG), at(HIPIFY_TAG)) == tags

    github.git(tree, "switch", "-q", "--detach", tags[1])
    again = checkout(github, trees, "main", *BRANCH)
    assert (again.code, branch(), at("HEAD")) == (0, "refs/heads/mine", hipified), again.err
    (tree / "a.cu").write_text("cuda not committed\n")
    assert checkout(github, trees, "main", *BRANCH).code in (0, SOURCES)
    assert (tree / "a.cu").read_text() == "cuda not committed\n"
    github.git(tree, "checkout", "-q", "--force", "HEAD", "--", ".")

    refused = checkout(github, trees, "feature", *BRANCH)
    assert (refused.code, at("mine"), at("HEAD")) == (SOURCES, hipified, hipified), refused.err
    command = f"git rebase --onto mine-new {tags[1][:12]} mine"
    assert command in refused.err
    assert checkout(github, trees, "feature", "--branch", "mine-new").code == 0
    assert at("mine") == hipified and branch() == "refs/heads/mine-new"
    assert checkout(github, trees, "main", "--branch", "mine-new").code == 0  # nothing of anybody's is on it
    assert at("mine-new") == at(HIPIFY_TAG) == tags[1]

    # what is pushed: the commits alone, without those of hipify
    github.git(tree, "branch", "to-push", mine)
    github.git(tree, "rebase", "-q", "--onto", UPSTREAM_TAG, HIPIFY_TAG, "to-push")
    log = github.git(tree, "log", "--format=%s", f"{UPSTREAM_TAG}..to-push")
    assert (log, github.git(tree, "show", "to-push:a.cu")) == ("mine: a.cu", "cuda mine")


@pytest.mark.parametrize("committed", [True, False])
def test_a_clone_of_the_users_own_is_hipified_and_stays_theirs(
    github: Upstream, tmp_path: Path, committed: bool
) -> None:
    """Its commit is not upstream's; its remotes, branches, configuration and stash are as they were."""
    tree = tmp_path / "my clone"
    github.git(tmp_path, "clone", "-q", "--recurse-submodules", github.url, str(tree))
    github.git(tree, "remote", "add", "fork", "https://example.com/me/pytorch")
    github.git(tree, "switch", "-q", "-c", "mine")
    (tree / "plain.txt").write_text("stashed\n")
    github.git(tree, "stash", "-q")
    mine = commit_mine(github, tree, "a.cu", "cuda mine\n")
    kept = (
        ("config", "--local", "--list"),
        ("stash", "list"),
        ("branch", "--format=%(refname)"),
        ("remote", "-v"),
    )
    before = [github.git(tree, *words) for words in kept]
    how = "--commit-hipify" if committed else "--no-commit-hipify"
    script, place = "pytorch_torch_repo.py", ("--checkout-dir", tree)
    hipified = github.script(tmp_path, script, "hipify", *place, how)
    assert hipified.code == 0, hipified.err
    assert [github.git(tree, *words) for words in kept] == before
    assert (tree / "hip/a.hip").read_text() == "hip mine\n"
    assert github.git(tree, "rev-parse", UPSTREAM_TAG) == github.git(tree, "rev-parse", "origin/main")
    assert github.git(tree, "rev-parse", "--symbolic-full-name", "HEAD") == "refs/heads/mine"
    assert github.git(tree, "rev-parse", "HEAD^" if committed else "HEAD") == mine
    status = github.script(tmp_path, script, "status", *place)
    assert status.code == 0 and "mine: a.cu" in status.out, status.out
    (tree / "b.cu").write_text("cuda edited\n")
    words = ("pytorch", "--pytorch-dir", tree, "--gfx", "gfx942", "--output-dir", tmp_path / "dist")
    build = Path(__file__).resolve().parents[2] / "build_tools/build_prod_wheels.py"
    assert github.start(tmp_path, build, "build", *words, "--source-dir", ".").code == USAGE  # no ROCm
    assert (tree / "hip/b.hip").read_text() == "hip edited\n"
    assert [github.git(tree, *words) for words in kept] == before


def test_a_switch_to_a_commit_without_hipify_is_seen_and_mended(github: Upstream, tmp_path: Path) -> None:
    """Its submodules stay at the commits of hipify; one that is not there is named."""
    trees, tree = tmp_path, tmp_path / "pytorch"
    place = ("--source-dir", ".")
    assert checkout(github, trees, "main").code == 0
    before = github.git(tree, "rev-parse", "HEAD")
    github.git(tree, "switch", "-q", "--detach", UPSTREAM_TAG)
    status = github.start(trees, "-m", "rocm_wheels", "sources", "status", *place)
    assert status.out.splitlines()[0] == "pytorch: not hipified"
    words = ("pytorch", "--gfx", "gfx942", "--output-dir", "dist", *place)
    refused = github.start(trees, "-m", "rocm_wheels", "build", *words)
    assert refused.code == SOURCES
    assert f"`rocm-wheels sources hipify torch --source-dir {trees}`" in refused.err
    assert github.start(trees, "-m", "rocm_wheels", "sources", "hipify", "torch", *place).code == 0
    assert github.git(tree, "rev-parse", "HEAD") == before
    github.git(tree, "submodule", "deinit", "-f", "--all")
    status = github.start(trees, "-m", "rocm_wheels", "sources", "status", *place)
    assert "submodules missing" in status.out and "submodule update --init --recursive" in status.out
