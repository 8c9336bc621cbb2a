"""Checkout on real repositories: tags, commits of one id, again and again, nobody's work lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sources import ODD, Tree, Upstream, content, isolated_environment, times

from rocm_wheels.core import errors
from rocm_wheels.core.files import lock_folder
from rocm_wheels.sources import checkout, pins
from rocm_wheels.sources.trees import identify_tree

pytestmark = pytest.mark.contract

TAGS = ("THEROCK_UPSTREAM_DIFFBASE", "THEROCK_HIPIFY_DIFFBASE")
MODULES = ("", "third_party/middle", "third_party/middle/deep dir")


@pytest.fixture
def trees(upstream: Upstream, tmp_path: Path) -> Tree:
    return Tree(upstream, tmp_path / "tree")


def test_tags_commits_and_clean_status(trees: Tree) -> None:
    result = trees.checkout("v1")
    assert result.upstream.commit == trees.upstream.git("root", "rev-parse", "v1^{commit}")
    assert trees.git("rev-parse", "HEAD") == result.head != result.upstream.commit
    for module in MODULES:
        up, hip, head, parent = (
            trees.git("rev-parse", rev, where=module) for rev in (*TAGS, "HEAD", "HEAD^")
        )
        assert (up, hip) == (parent, head), module
        assert trees.git("cat-file", "-t", TAGS[1], where=module) == "commit"
        assert trees.git("log", "-1", "--format=%s|%an|%cn", where=module) == (
            "DO NOT SUBMIT: HIPIFY|rocm-wheels|rocm-wheels"
        )
        assert trees.git("log", "-1", "--format=%ad|%cd", "--date=raw", where=module) == (
            "1700000000 +0530|1700000100 -0330"
        )
    assert trees.is_clean()
    assert (trees.directory / f"hip/{ODD[:-3]}.hip").read_text() == "hip odd\n"
    assert (trees.directory / "third_party/middle/deep dir/hip/deep.hip").read_text() == "hip deep\n"
    trees.git("submodule", "update", "--recursive")  # what a developer may do any day
    assert trees.is_clean()
    assert (trees.directory / "third_party/middle/deep dir/hip/deep.hip").exists()


def test_same_commit_by_anybody_on_any_day(trees: Tree, tmp_path: Path) -> None:
    first = trees.checkout()
    home = tmp_path / "other home"
    other = Tree(trees.upstream, tmp_path / "other 'tree'")
    other.env = {
        **isolated_environment(home),
        "GIT_AUTHOR_NAME": "Somebody",
        "GIT_COMMITTER_DATE": "1999-01-01T00:00:00",
        "GIT_DIR": str(tmp_path / "nowhere"),
        "TZ": "Asia/Tokyo",
    }
    (home / "templates/hooks").mkdir(parents=True)
    for name in ("post-checkout", "reference-transaction", "pre-commit", "post-commit"):
        hook = home / "templates/hooks" / name
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    (home / "attributes").write_text("*.cu filter=shout\n* text=auto eol=crlf\n")
    (home / "ignore").write_text("*.hip\n")
    (home / ".gitconfig").write_text(
        "[user]\n name = Somebody\n email = some@body.example\n signingKey = none\n"
        "[commit]\n gpgSign = true\n[tag]\n gpgSign = true\n[i18n]\n commitEncoding = ISO-8859-1\n"
        f"[core]\n autocrlf = true\n eol = crlf\n attributesFile = {home}/attributes\n"
        f" excludesFile = {home}/ignore\n hooksPath = {home}/templates/hooks\n fileMode = false\n"
        f"[init]\n templateDir = {home}/templates\n defaultBranch = trunk\n"
        '[filter "shout"]\n clean = tr a-z A-Z\n smudge = tr a-z A-Z\n required = true\n'
        "[log]\n showSignature = true\n[status]\n showUntrackedFiles = no\n[submodule]\n recurse = true\n"
        "[fetch]\n prune = true\n pruneTags = true\n recurseSubmodules = true\n"
    )
    assert other.checkout().head == first.head
    assert content(other.directory) == content(trees.directory)
    assert not other.checkout().changed


@pytest.mark.parametrize("way", [{}, {"commit_hipify": False}, {"hipify": False}, {"submodules": False}])
def test_again_does_nothing_and_other_refs_work(trees: Tree, way: dict[str, bool], tmp_path: Path) -> None:
    first = trees.checkout(**way)
    assert first.changed
    begin = time.monotonic()
    again = trees.checkout(**way)
    assert time.monotonic() - begin < 30  # 0.1 s on a quiet machine
    assert (again.changed, again.head) == (False, first.head)
    here = content(trees.directory)
    assert trees.checkout("feature", **way).changed
    straight = Tree(trees.upstream, tmp_path / "straight")
    straight.checkout("feature", **way)
    assert content(trees.directory) == content(straight.directory)
    assert trees.checkout("main", **way).head == first.head
    assert content(trees.directory) == here
    if way.get("commit_hipify", True):
        assert trees.is_clean()
    else:
        assert trees.git("rev-parse", "HEAD") == first.upstream.commit
        assert not trees.git("tag", "-l", TAGS[1])
        assert not identify_tree(trees.directory, env=trees.env).dirty


def test_from_one_way_to_another(trees: Tree) -> None:
    committed = trees.checkout()
    files = content(trees.directory)
    plain = trees.checkout(commit_hipify=False)
    assert plain.head == plain.upstream.commit
    assert content(trees.directory) == files
    bare = trees.checkout(hipify=False, submodules=False)
    assert bare.head == plain.head
    assert not (trees.directory / "hip").exists()
    assert not any((trees.directory / "third_party/middle").iterdir())
    assert not trees.git("tag", "-l", TAGS[1])
    assert trees.is_clean()
    assert trees.checkout().head == committed.head
    assert content(trees.directory) == files


@pytest.mark.parametrize("way", [{}, {"commit_hipify": False}, {"hipify": False}])
def test_unchanged_content_keeps_its_time(trees: Tree, way: dict[str, bool]) -> None:
    trees.checkout(**way)
    os.utime(trees.directory / "CMakeLists.txt", ns=(1, 1))  # git's index does not know of it
    before, files = times(trees.directory), content(trees.directory)
    trees.checkout("feature", **way)
    after, now = times(trees.directory), content(trees.directory)
    changed = {path for path in after if after[path] != before.get(path)}
    assert changed == {path for path in now if now[path] != files.get(path)}
    hipified = {"hip/a.hip", "ignored_hip/a.hip", "third_party/middle/deep dir/hip/deep.hip"}
    assert {"a.cu", *(hipified if way.get("hipify", True) else ())} <= changed
    assert "CMakeLists.txt" not in changed
    assert not (trees.directory / "hip/b.hip").exists()


def test_a_pull_request_and_a_commit_that_is_there_needs_no_network(trees: Tree) -> None:
    pull = trees.checkout("refs/pull/7/head", depth=1)
    assert (trees.directory / "a.cu").read_text() == "cuda a3\n"
    offline = replace(
        trees.request(pull.upstream.commit), pin=pins.Pin("file:///gone", pull.upstream.commit, "x")
    )
    assert checkout.checkout_project(offline, env=trees.env, python=Path(sys.executable)).head == pull.head
    assert not checkout.checkout_project(offline, env=trees.env, python=Path(sys.executable)).changed


def test_shallow_submodule_whose_server_gives_out_only_tips(
    trees: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    trees.env = {
        **trees.env,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.version",
        "GIT_CONFIG_VALUE_0": "0",
    }
    trees.upstream.git("inner", "branch", "-f", "old", "main~1")
    trees.upstream.git("inner", "branch", "-D", "old")
    assert trees.checkout("main", depth=1).changed
    assert "whole history" in capsys.readouterr().err
    assert trees.is_clean()


OWN_WORK: dict[str, Callable[[Path], object]] = {
    "modified a.cu": lambda d: (d / "a.cu").write_text("mine"),
    "modified hip/a.hip": lambda d: (d / "hip/a.hip").write_text("mine"),
    'new notes "ü"\nx': lambda d: (d / 'notes "ü"\nx').write_text("mine"),
    "removed plain.txt": lambda d: (d / "plain.txt").unlink(),
    "modified third_party/middle/deep dir/deep.cu": lambda d: (
        d / "third_party/middle/deep dir/deep.cu"
    ).write_text("mine"),
    "new third_party/middle/mine": lambda d: (d / "third_party/middle/mine").write_text("mine"),
}


@pytest.mark.parametrize("way", [{}, {"commit_hipify": False}])
def test_somebodys_own_files_are_refused(trees: Tree, way: dict[str, bool]) -> None:
    trees.checkout(**way)
    head = trees.git("rev-parse", "HEAD")
    for what, work in OWN_WORK.items():
        file = trees.directory / what.partition(" ")[2]
        before = file.read_bytes() if file.exists() else None
        work(trees.directory)
        files = content(trees.directory)
        for ref in ("main", "feature"):
            with pytest.raises(errors.SourceError, match="has changes of yours") as refused:
                trees.checkout(ref, **way)
            assert what in refused.value.message
            assert "git stash -u" in (refused.value.tip or "")
        assert content(trees.directory) == files
        assert trees.git("rev-parse", "HEAD") == head
        if before is None:
            file.unlink()
        else:
            file.write_bytes(before)


def test_a_refused_checkout_leaves_the_configuration(trees: Tree, tmp_path: Path) -> None:
    trees.checkout()
    (trees.directory / "a.cu").write_text("mine")
    trees.git("config", "core.autocrlf", "input")
    settings = (trees.directory / ".git" / "config").read_bytes()
    other = tmp_path / "other.git"
    trees.git("clone", "-q", "--bare", trees.upstream.url, str(other))
    request = trees.request("main")
    elsewhere = replace(request, pin=replace(request.pin, origin=other.as_uri()))
    with pytest.raises(errors.SourceError, match="has changes of yours"):
        checkout.checkout_project(elsewhere, env=trees.env, python=Path(sys.executable))
    assert (trees.directory / ".git" / "config").read_bytes() == settings


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_commit_without_its_files_is_fetched_again(trees: Tree, interrupted: bool) -> None:
    """A fetch that was killed leaves the commit, and not what it needs."""
    trees.checkout()
    origin = ["git", "-C", str(trees.upstream.folder / "root")]
    commit = subprocess.run(
        [*origin, "cat-file", "commit", "feature"], capture_output=True, check=True
    ).stdout
    write = ["git", "-C", str(trees.directory), "hash-object", "-t", "commit", "-w", "--stdin"]
    subprocess.run(write, input=commit, check=True, capture_output=True)
    if interrupted:
        place = trees.directory / ".git" / "rocm-wheels"
        (state,) = [path for path in place.glob("*.json") if '"operation"' in path.read_text()]
        state.write_text(state.read_text().replace('"operation": null', '"operation": "checkout"'))
    result = trees.checkout("feature")
    assert result.changed and trees.is_clean()
    assert trees.git("fsck", "--connectivity-only", "--no-dangling") == ""


def test_the_tips_work(trees: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    trees.checkout()
    (trees.directory / "a.cu").write_text("mine")
    (trees.directory / "new").write_text("mine")
    trees.git("stash", "-u")
    trees.checkout("feature")
    (trees.directory / "a.cu").write_text("mine")
    trees.git("commit", "-q", "-a", "-m", "My work")
    trees.checkout("main")
    command = capsys.readouterr().err.split("`")[1]  # `git switch kept-…`
    trees.git(*command.split()[1:])
    assert trees.git("log", "-1", "--format=%s") == "My work"


def test_commits_staged_content_and_files_in_the_way(trees: Tree) -> None:
    trees.checkout(hipify=False)
    module = trees.directory / "third_party/middle"
    (module / "mid.cu").write_text("mine")
    trees.git("commit", "-q", "-a", "-m", "In the middle", where="third_party/middle")
    trees.checkout("feature", hipify=False)
    trees.checkout(hipify=False)
    kept = trees.git("for-each-ref", "--format=%(subject)", "refs/heads/kept-*", where="third_party/middle")
    assert kept == "In the middle"
    (trees.directory / "a.cu").write_text("staged")
    trees.git("add", "a.cu")
    (trees.directory / "a.cu").write_text("cuda a\n")
    with pytest.raises(errors.SourceError, match=r"staged \(modified\) a.cu"):
        trees.checkout("feature", hipify=False)
    trees.git("reset", "-q", "--hard")
    (trees.directory / ".git/info").mkdir(exist_ok=True)
    (trees.directory / ".git/info/exclude").write_text("c.cu\n")
    (trees.directory / "c.cu").write_text("mine, and ignored")
    with pytest.raises(errors.SourceError, match=r"in the way of .*\n  c.cu"):
        trees.checkout("feature", hipify=False)
    (trees.directory / "c.cu").unlink()
    trees.checkout("feature", hipify=False)


def test_a_clone_of_somebodys(trees: Tree, tmp_path: Path) -> None:
    trees.upstream.git(tmp_path, "clone", "-q", trees.upstream.url, "tree")
    (trees.directory / "mine").write_text("mine")
    with pytest.raises(errors.SourceError, match="new mine"):
        trees.checkout("feature")
    (trees.directory / "mine").unlink()
    assert trees.checkout("feature").changed
    trees.upstream.git(tmp_path, "clone", "-q", (trees.upstream.folder / "inner").as_uri(), "inner")
    trees.directory = tmp_path / "inner"
    with pytest.raises(errors.SourceError, match=r"is a clone of .*inner, not of .*root"):
        trees.checkout()


def test_a_submodule_that_vanishes_keeps_what_git_ignores(trees: Tree, upstream: Upstream) -> None:
    upstream.git("root", "checkout", "-q", "-B", "without", "main")
    upstream.git("root", "rm", "-q", "-f", "third_party/middle")
    (upstream.root / "third_party").mkdir(exist_ok=True)
    (upstream.root / "third_party/middle").write_text("a file now\n")
    upstream.commit("root", "without submodule")
    upstream.git("root", "checkout", "-q", "main")
    trees.checkout()
    (trees.directory / ".git/modules/third_party/middle/info").mkdir(exist_ok=True)
    (trees.directory / ".git/modules/third_party/middle/info/exclude").write_text("*.mine\n")
    (trees.directory / "third_party/middle/x.mine").write_text("precious")
    trees.checkout("without")
    assert (trees.directory / "third_party/middle").read_text() == "a file now\n"
    assert trees.is_clean()
    kept = list((trees.directory / ".git/rocm-wheels/kept").rglob("x.mine"))
    assert [path.read_text() for path in kept] == ["precious"]
    trees.checkout()
    assert (trees.directory / "third_party/middle/deep dir/hip/deep.hip").exists()
    assert trees.is_clean()


def test_one_run_at_a_time_makes_or_changes_a_tree(trees: Tree) -> None:
    for ref in ("main", "feature"):
        with (
            lock_folder(trees.directory / ".git/rocm-wheels", purpose="a test"),
            pytest.raises(errors.UsageError, match=r"in use by process .*a test"),
        ):
            trees.checkout(ref, hipify=False)
        assert trees.checkout(ref, hipify=False).changed


def test_an_empty_folder_is_filled_as_it_stands(trees: Tree) -> None:
    trees.directory.mkdir(mode=0o750)
    before = trees.directory.stat()
    assert trees.checkout(hipify=False).changed
    after = trees.directory.stat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)


def test_a_submodule_from_this_machine_needs_the_users_word(trees: Tree) -> None:
    with pytest.raises(errors.SourceError, match="transport 'file' not allowed"):
        trees.checkout(local_origin=False)
    assert trees.checkout().changed
