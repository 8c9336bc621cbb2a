"""The commits between two locks, out of checkouts and mirrors, and the command that tells."""

from __future__ import annotations

import json
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from commands import call
from sources import Upstream, enter, isolated_environment

from rocm_wheels.models.lock import Lock, LockedProject
from rocm_wheels.sources import lock_diff
from rocm_wheels.sources.mirrors import locate_mirror

NOBODY = "0123456789012345678901234567890123456789"


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    """A repository without commits, and its environment around us."""
    up = Upstream(tmp_path / "servers", isolated_environment(tmp_path / "home"))
    up.folder.mkdir()
    enter(monkeypatch, tmp_path, up.env)
    up.git("", "init", "-q", "-b", "main", "root")
    for key in ("allowFilter", "allowAnySHA1InWant"):
        up.git("root", "config", f"uploadpack.{key}", "true")
    return up


SECONDS = count(1700000000)


def commit(up: Upstream, *subjects: str) -> str:
    """Commit a file a subject on the branch that is checked out, a second later each; return the last."""
    for subject in subjects:
        date = f"{next(SECONDS)} +0000"
        (up.root / "file").write_text(f"{subject!a} {date}\n")
        up.git("root", "add", "-A")
        words = ("commit", "-q", "--allow-empty-message", "-m", subject)
        up.git("root", *words, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
    return up.git("root", "rev-parse", "HEAD")


def raw(up: Upstream, message: bytes, parent: str) -> str:
    """Make a commit with any bytes as its message."""
    tree, who = up.git("root", "rev-parse", f"{parent}^{{tree}}"), "a <a@b> 1800000000 +0000"
    head = f"tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n\n".encode()
    words = ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
    done = subprocess.run(
        words, cwd=up.root, env=up.env, input=head + message, capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def between(
    up: Upstream, old: str, new: str, *, repos: Path, mirrors: Path | None = None, origin: str = ""
) -> dict[str, Any]:
    """Return the history between two commits of a project, as a comparison of locks has it."""
    one = LockedProject(origin=origin or up.url, ref="main", why="given", commit=old)
    other = one.model_copy(update={"commit": new})
    diff = lock_diff.compare_locks(Lock(projects={"torch": one}), Lock(projects={"torch": other}))
    lock_diff.add_histories(diff, repos=repos, mirrors=mirrors, env=up.env)
    found: dict[str, Any] = diff["projects"]["torch"]["history"]
    return found


def subjects(found: dict[str, Any]) -> tuple[list[str], ...]:
    assert found["complete"]
    return tuple([one["subject"] for one in found[side]["commits"]] for side in ("added", "dropped"))


def test_a_branch_that_was_pushed_with_force(upstream: Upstream, tmp_path: Path) -> None:
    base = commit(upstream, "one", "two")
    old = commit(upstream, "taken back 1", "taken back 2")
    upstream.git("root", "checkout", "-q", "-B", "topic", base)
    commit(upstream, "topic")
    upstream.git("root", "checkout", "-q", "-B", "main", base)
    commit(upstream, "three")
    date = f"{next(SECONDS)} +0000"
    upstream.git("root", "merge", "-q", "-s", "ours", "-m", "merge topic", "topic", GIT_COMMITTER_DATE=date)
    new = commit(upstream, "four")
    (tmp_path / "torch").symlink_to(upstream.root)
    found = between(upstream, old, new, repos=tmp_path)
    assert subjects(found) == (
        *(["four", "merge topic", "three", "topic"], ["taken back 2", "taken back 1"]),
    )
    back = between(upstream, new, old, repos=tmp_path)
    assert found["added"]["commits"][0]["commit"] == new
    assert (back["added"], back["dropped"]) == (found["dropped"], found["added"])


@pytest.mark.parametrize("how", ["shallow", "partial", "damaged", "dangling"])
def test_a_checkout_that_has_not_all_is_passed_over(upstream: Upstream, tmp_path: Path, how: str) -> None:
    old, new = commit(upstream, "one", "two"), commit(upstream, "three", "four")
    checkout = tmp_path / "torch"
    if how == "dangling":
        checkout.mkdir()
        (checkout / ".git").write_text("gitdir: /no/such/place\n")
    else:
        less = {"shallow": ["--depth=1"], "partial": ["--filter=tree:0"]}.get(how, [])
        upstream.git("", "clone", "-q", "--no-local", *less, upstream.url, str(checkout))
    if how == "shallow":
        upstream.git(checkout, "fetch", "-q", "--depth=1", "origin", old)
    if how == "partial":
        new = commit(upstream, "five")
    if how == "damaged":
        inner = upstream.git("root", "rev-parse", f"{new}^")
        upstream.git(checkout, "repack", "-q")
        pack = next((checkout / ".git/objects/pack").glob("*.pack"))
        moved = pack.rename(tmp_path / "pack")
        for rest in pack.parent.iterdir():
            rest.unlink()
        with moved.open("rb") as file:
            words = ["git", "unpack-objects", "-q"]
            subprocess.run(words, cwd=checkout, env=upstream.env, stdin=file, check=True)
        Path(checkout, ".git/objects", inner[:2], inner[2:]).unlink()
    origin = "https://github.com/o/r"
    found = between(upstream, old, new, repos=tmp_path, origin=origin)
    assert found == {"complete": False, "compare": f"{origin}/compare/{old}...{new}"}
    if how == "partial":  # looking did not fetch what was missing
        assert new not in upstream.git(checkout, "cat-file", "--batch-all-objects", "--batch-check")


def test_a_mirror_is_read_and_nobody_asked(upstream: Upstream, tmp_path: Path) -> None:
    old, new = commit(upstream, "one", "two"), commit(upstream, "three")
    mirrors, url = tmp_path / "mirrors", upstream.url
    place = locate_mirror(url, mirrors, upstream.env).folder
    upstream.git("", "clone", "-q", "--bare", url, str(place))
    upstream.root.rename(tmp_path / "away")
    found = between(upstream, old, new, repos=tmp_path / "none", mirrors=mirrors)
    assert subjects(found) == (["three"], [])
    assert found["source"] == str(place)
    nobody = between(upstream, old, NOBODY, repos=tmp_path, mirrors=mirrors)
    assert nobody == {"complete": False, "compare": None}


SETTINGS = """
    format.pretty=oneline log.showSignature=true log.mailmap=true log.follow=true log.decorate=full
    log.excludeDecoration=x i18n.logOutputEncoding=ISO-8859-1 core.abbrev=4 color.ui=always fetch.prune=true
"""


def test_subjects_come_as_they_are_whatever_the_user_has_configured(
    upstream: Upstream, tmp_path: Path
) -> None:
    old = commit(upstream, "one")
    new = commit(upstream, "Größe", "two lines\nof a subject\n\nbody", "")
    new = raw(upstream, b"caf\xe9 \x1b[31mred\x07\n", new)
    new = raw(upstream, "rechts \u202e links".encode(), new)
    for setting in SETTINGS.split():
        upstream.git("", "config", "--global", *setting.split("="))
    checkout = tmp_path / "torch"
    upstream.git("root", "update-ref", "refs/heads/main", new)
    upstream.git("", "clone", "-q", "--no-checkout", upstream.url, str(checkout))
    upstream.git(checkout, "replace", f"{new}^^", old)
    expected = ["rechts \\u202e links", "caf\\udce9 \\x1b[31mred\\x07", "", "two lines of a subject", "Größe"]
    assert subjects(between(upstream, old, new, repos=tmp_path)) == (expected, [])


# ---- the command


def project(url: str, commit: str, **more: Any) -> dict[str, Any]:
    return {"origin": url, "ref": "main", "why": "given", "commit": commit, "submodules": {}, **more}


def lock(path: Path, **projects: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"lock_version": "1", "platform": "linux", "projects": projects}))
    return path


def test_what_a_person_reads(upstream: Upstream, tmp_path: Path) -> None:
    old, new = commit(upstream, "one"), commit(upstream, *"abcdefghijklmnopqrs", "three", "\x1b[31mfour")
    url = "https://github.com/o/r"
    a = lock(tmp_path / "a", pytorch=project(url, old), apex=project(url, old), triton=project(url, old))
    b = lock(tmp_path / "b", pytorch=project(url, new), apex=project(url, old), triton=project(url, new))
    upstream.git("", "clone", "-q", upstream.url, str(tmp_path / "repos/pytorch"))
    said = call("lock", "diff", a, b, "--source-dir", tmp_path / "repos")
    ids = upstream.git("root", "rev-list", "--max-count=20", new).split()
    assert said.out.splitlines() == [
        f"pytorch  main  {old[:12]} → {new[:12]}  21 commits",
        f"    + {ids[0][:12]} \\x1b[31mfour",
        f"    + {ids[1][:12]} three",
        *(
            f"    + {commit[:12]} {subject}"
            for commit, subject in zip(ids[2:], "srqponmlkjihgfedcb", strict=True)
        ),
        "    + … 1 more",
        "",
        f"triton   main  {old[:12]} → {new[:12]}",
        f"    {url}/compare/{old}...{new}",
        "",
        "unchanged: apex",
    ]
    assert said.err == ""
    said = call("lock", "diff", a, b, "--json", "--source-dir", tmp_path / "repos")
    shown = json.loads(said.out)["projects"]["pytorch"]["history"]
    assert (shown["complete"], shown["source"]) == (True, str(tmp_path / "repos/pytorch"))
    assert (shown["added"]["count"], len(shown["added"]["commits"]), shown["dropped"]["count"]) == (21, 20, 0)
    assert shown["added"]["commits"][1] == {"commit": ids[1], "subject": "three"}


def test_a_lock_compared_with_itself(upstream: Upstream, tmp_path: Path) -> None:
    a = lock(tmp_path / "a", apex=project("https://git.invalid/x", NOBODY))
    said = call("lock", "diff", a, a)
    assert said.out == "the locks are the same: apex\n"
    assert said.err == f"warning: {a} is compared with itself\n"
