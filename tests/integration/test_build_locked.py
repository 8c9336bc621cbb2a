"""``build --lock``: trees that are not what the lock says are all named, before anything is installed."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Ended
from sources import ALL, CLONE, MIDDLE, Upstream, content, write_lock

from rocm_wheels.core import errors
from rocm_wheels.pipeline import source_checks
from rocm_wheels.sources.lock import read_lock
from rocm_wheels.sources.trees import identify_tree

pytestmark = pytest.mark.contract

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
LAST = "no build environment with rocm==7.1.0+x for "  # all was as the lock says: next comes ROCm


@pytest.fixture(scope="module")
def trees(github: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All five as a lock has them; tests that change one put it back."""
    folder = tmp_path_factory.mktemp("trees")
    lock = {
        **github.first_commits(),
        "rocm": "7.1.0+x",
        "targets": ["gfx942", "gfx1100"],
        "pythons": [PYTHON],
    }
    write_lock(folder / "l.json", lock)
    said = github.checkout(folder, "--lock", "l.json", "--source-dir", folder)
    assert said.code == 0, said.err
    return folder


def build(github: Upstream, trees: Path, *words: str, lock: str | Path = "l.json", **env: str) -> Ended:
    script = CLONE / "build_tools/build_prod_wheels.py"
    root = [] if "--source-dir" in words else ["--source-dir", "."]
    root += [] if "--lock" in words else ["--lock", str(lock)]
    return github.start(trees, script, "build", *root, "--output-dir", "dist", *words, **env)


def other(trees: Path, tmp_path: Path, **changes: Any) -> Path:
    lock = json.loads((trees / "l.json").read_text())
    return write_lock(tmp_path / "other.json", {**lock, **changes})


def test_trees_that_are_as_locked(github: Upstream, trees: Path) -> None:
    said = build(github, trees)
    assert (said.code, LAST in said.err) == (2, True), said.err
    assert re.search(r"lock l.json: 5 source trees match the lock \(sha256 [0-9a-f]{64}\)", said.err)
    some = build(github, trees, "--no-build-pytorch-audio", "--gfx", "gfx1100;gfx942")
    assert "lock l.json: 4 source trees match the lock" in some.err
    variable = build(github, trees, "--rocm", ">=7,<8", PYTORCH_ROCM_ARCH="gfx942 gfx1100")
    assert LAST in variable.err


def test_every_tree_that_differs_is_named_with_the_way_back(
    github: Upstream, trees: Path, tmp_path: Path
) -> None:
    """Changed, committed on top, interrupted, at another commit, gone: one error, and one command."""
    git = github.git
    (trees / "pytorch/plain.txt").write_text("mine\n")
    git("", "-C", str(trees / "apex"), "commit", "-q", "--allow-empty", "-m", "mine")
    for name in ("triton", "pytorch_vision"):
        file = trees / name / ".git/rocm-wheels/state.json"
        state = json.loads(file.read_text())
        state |= {"operation": "checkout"} if name == "triton" else {"upstream": "1" * 40}
        file.write_text(json.dumps(state))
    (trees / "pytorch_audio").rename(tmp_path / "away")
    before = content(trees)
    said = build(github, trees)
    assert said.code == 10
    assert content(trees) == before
    for line in (
        "these are not what l.json says:",
        "  apex: it was changed since its checkout",
        "  pytorch: it was changed since its checkout",
        f"  pytorch_audio: there is no source tree {trees}/pytorch_audio (name PROJECTs without it)",
        f"  pytorch_vision: it is at {'1' * 40}, not ",
        "  triton: its checkout was interrupted",
        f"tip: `rocm-wheels checkout --lock l.json --source-dir {trees} {' '.join(ALL)}`",
    ):
        assert line in said.err, said.err

    # what the tip says puts right what is nobody's work
    git("", "-C", str(trees / "pytorch"), "checkout", "-q", "plain.txt")
    git("", "-C", str(trees / "apex"), "reset", "-q", "--hard", "HEAD^")
    back = github.checkout(trees, "--lock", "l.json", "--source-dir", trees, *ALL)
    assert back.code == 0, back.err
    assert LAST in build(github, trees).err


def test_what_is_hipified_with_it_stays_yours(github: Upstream, trees: Path) -> None:
    git, torch = github.git, trees / "pytorch"
    script = CLONE / "repos/pytorch_torch_repo.py"
    (torch / "a.cu").write_text("cuda mine\n")
    hipified = github.start(trees, script, "hipify", "--source-dir", ".", "--no-commit-hipify")
    assert hipified.code == 0, hipified.err
    assert "  pytorch: it was changed since its checkout" in build(github, trees).err
    git("", "-C", str(torch), "add", "-A")
    git("", "-C", str(torch), "commit", "-q", "-m", "Mine")
    assert github.start(trees, script, "hipify", "--source-dir", ".").code == 0
    said = build(github, trees)
    assert (said.code, "  pytorch: it was changed since its checkout" in said.err) == (10, True), said.err
    back = github.checkout(trees, "--lock", "l.json", "--source-dir", ".", "torch")
    assert (back.code, "commits of yours" in back.err) == (0, True), back.err
    assert LAST in build(github, trees).err


# where a lock says what else (None: it has no such project) → what is said
OTHERS: list[tuple[str, Any, str]] = [
    (f"pytorch submodules {MIDDLE} commit", "1" * 40, rf"submodule {MIDDLE} is \w{{40}}, not 1{{40}}\n"),
    ("triton patches", {"name": "2.9", "digest": "a" * 64}, r"its patches are none, not 2\.9 \(a{12}\)\n"),
    ("apex commit", "1" * 40, r"it is at \w{40}, not 1{40} \(main\)\n"),
    ("apex", None, r"it is not in the lock \(name PROJECTs without it\)\n"),
]


@pytest.mark.parametrize(("place", "value", "said"), OTHERS)
def test_a_lock_of_other_sources(  # noqa: PLR0917
    github: Upstream, trees: Path, tmp_path: Path, place: str, value: Any, said: str
) -> None:
    lock = json.loads((trees / "l.json").read_text())
    at, (*keys, last) = lock["projects"], place.split()
    for key in keys:
        at = at[key]
    at[last] = value
    if value is None:
        del at[last]
    ended = build(github, trees, lock=write_lock(tmp_path / "other.json", lock))
    project = place.split(maxsplit=1)[0]
    assert ended.code == 10 and re.search(f"  {project}: {said}", ended.err), ended.err


def test_what_changes_while_a_build_goes_on(github: Upstream, trees: Path) -> None:
    apex = trees / "apex"
    known = identify_tree(apex, env=github.env)
    locked = source_checks.LockedBuild(
        trees / "l.json", "0" * 64, read_lock(trees / "l.json"), {"apex": known}
    )
    begun = replace(locked, begun=True)
    begun.refuse_change("apex", apex, known)
    (apex / "new.txt").write_text("mine\n")
    now = identify_tree(apex, env=github.env)
    locked.refuse_change("apex", apex, now)  # nothing was built: no time has passed
    with pytest.raises(
        errors.SourceError, match=r"apex was changed after it had been compared with .*l\.json"
    ):
        begun.refuse_change("apex", apex, now)
    (apex / "new.txt").unlink()


def test_rocm_is_the_locked_version(trees: Path) -> None:
    locked = source_checks.LockedBuild(trees / "l.json", "0" * 64, read_lock(trees / "l.json"), {})
    locked.check_rocm("7.1.0+X")
    replace(locked, lock=locked.lock.model_copy(update={"rocm": None})).check_rocm("9")
    with pytest.raises(errors.UsageError, match=r"ROCm 7\.1\.0 is installed, and .*l\.json says 7\.1\.0\+x"):
        locked.check_rocm("7.1.0")


# what the lock has else, what is given → exit code, what is said
WRONG: list[tuple[dict[str, Any], list[str], int, str]] = [
    ({}, ["--rocm", "==7.2.0"], 2, "'==7.2.0' contradicts {lock}, which says ROCm 7.1.0+x"),
    ({}, ["--rocm", "7.1.0"], 11, "'7.1.0' is not a version specifier"),
    ({}, ["--gfx", "gfx942"], 2, "--gfx 'gfx942' contradicts {lock}, which says"),
    ({}, ["--gfx", "gfx9422"], 2, "did you mean gfx942"),
    ({}, ["PYTORCH_ROCM_ARCH=gfx90a"], 2, "PYTORCH_ROCM_ARCH 'gfx90a' contradicts {lock}, which says gfx942"),
    ({"pythons": ["3.4", "3.14t"]}, [], 2, ", and {lock} is for 3.4, 3.14t"),
    ({"platform": "windows"}, [], 2, "{lock} is a lock for windows, and this is linux"),
    ({"projects": {}}, [], 2, "there is no project in it"),
    ({}, ["--source-dir", "nowhere"], 2, "there is nothing to build"),
    ({}, ["--lock", "nowhere.json"], 2, "cannot read nowhere.json"),
    ({}, ["--triton-dir", "plain"], 10, "  triton: {trees}/plain is not a git checkout"),
    ({}, ["--triton-dir", "cloned"], 10, "  triton: it was not checked out by rocm-wheels"),
]


@pytest.mark.parametrize("row", WRONG, ids=[said for *_, said in WRONG])
def test_wrong_input(
    github: Upstream, trees: Path, tmp_path: Path, row: tuple[dict[str, Any], list[str], int, str]
) -> None:
    changes, words, code, message = row
    lock = other(trees, tmp_path, **changes)
    (trees / "plain").mkdir(exist_ok=True)
    if not (trees / "cloned").exists():
        github.git(trees, "clone", "-q", (github.folder / "triton").as_uri(), "cloned")
    before = content(trees)
    env = dict(word.split("=", 1) for word in words if word.startswith("PYTORCH"))
    said = build(github, trees, *(word for word in words if not word.startswith("PYTORCH")), lock=lock, **env)
    wanted = message.format(lock=lock, trees=trees)
    assert (said.code, wanted in said.err) == (code, True), said.err
    assert content(trees) == before
