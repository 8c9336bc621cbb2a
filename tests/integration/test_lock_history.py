"""The commits between two locks, out of checkouts and mirrors, and the command that tells."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sources import Upstream, isolated_environment

from rocm_wheels.cli import boundary
from rocm_wheels.cli.lock import diff_command
from rocm_wheels.models.lock import Lock, LockedProject
from rocm_wheels.sources import lock_diff
from rocm_wheels.sources.mirrors import locate_mirror

NOBODY = "0123456789012345678901234567890123456789"


class Repository:
    """An upstream repository whose commits are one second apart."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        folder.mkdir(parents=True)
        self.up = Upstream(folder, env)
        self.time = 1700000000
        self.git("init", "-q", "-b", "main")
        for key in ("allowFilter", "allowAnySHA1InWant"):
            self.git("config", f"uploadpack.{key}", "true")

    @property
    def url(self) -> str:
        return self.up.folder.as_uri()

    def git(self, *arguments: str) -> str:
        self.time += 1
        dates = {f"GIT_{who}_DATE": f"{self.time} +0000" for who in ("AUTHOR", "COMMITTER")}
        return self.up.git("", *arguments, **dates)

    def commit(self, *subjects: str) -> str:
        """Commit a file a subject on the branch that is checked out; return the last."""
        for subject in subjects:
            Path(self.up.folder, "file").write_text(f"{subject!a} {self.time}\n")
            self.git("add", "-A")
            self.git("commit", "-q", "--allow-empty-message", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def switch(self, branch: str, start: str) -> None:
        self.git("checkout", "-q", "-B", branch, start)

    def raw(self, message: bytes, parent: str) -> str:
        """Make a commit with any bytes as its message."""
        text = (
            b"tree %s\nparent %s\nauthor a <a@b> 1800000000 +0000\ncommitter a <a@b> 1800000000 +0000\n\n%s"
            % (
                self.git("rev-parse", f"{parent}^{{tree}}").encode(),
                parent.encode(),
                message,
            )
        )
        words = ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
        done = subprocess.run(
            words, cwd=self.up.folder, env=self.up.env, input=text, capture_output=True, check=True
        )
        return done.stdout.decode().strip()


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = isolated_environment(tmp_path / "home")
    for name in set(os.environ) - set(found):
        monkeypatch.delenv(name)
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def upstream(tmp_path: Path, env: dict[str, str]) -> Repository:
    return Repository(tmp_path / "upstream", env)


def between(
    old: tuple[str, str],
    new: tuple[str, str],
    env: dict[str, str],
    *,
    repos: Path,
    mirrors: Path | None = None,
) -> dict[str, Any]:
    a, b = (
        Lock(projects={"torch": LockedProject(origin=origin, ref="main", why="given", commit=commit)})
        for origin, commit in (old, new)
    )
    diff = lock_diff.compare_locks(a, b)
    lock_diff.add_histories(diff, repos=repos, mirrors=mirrors, env=env)
    found: dict[str, Any] = diff["projects"]["torch"]["history"]
    return found


def subjects(found: dict[str, Any]) -> tuple[list[str], ...]:
    assert found["complete"]
    return tuple([one["subject"] for one in found[side]["commits"]] for side in ("added", "dropped"))


def test_a_branch_that_was_pushed_with_force(
    upstream: Repository, tmp_path: Path, env: dict[str, str]
) -> None:
    base = upstream.commit("one", "two")
    old = upstream.commit("taken back 1", "taken back 2")
    upstream.switch("topic", base)
    upstream.commit("topic")
    upstream.switch("main", base)
    upstream.commit("three")
    upstream.git("merge", "-q", "-s", "ours", "-m", "merge topic", "topic")
    new = upstream.commit("four")
    (tmp_path / "torch").symlink_to(upstream.up.folder)
    found = between((upstream.url, old), (upstream.url, new), env, repos=tmp_path)
    assert subjects(found) == (
        ["four", "merge topic", "three", "topic"],
        ["taken back 2", "taken back 1"],
    )
    back = between((upstream.url, new), (upstream.url, old), env, repos=tmp_path)
    assert found["added"]["commits"][0]["commit"] == new
    assert (back["added"], back["dropped"]) == (found["dropped"], found["added"])


@pytest.mark.parametrize("how", ["shallow", "partial", "damaged", "dangling"])
def test_a_checkout_that_has_not_all_is_passed_over(
    upstream: Repository, tmp_path: Path, env: dict[str, str], how: str
) -> None:
    old, new = upstream.commit("one", "two"), upstream.commit("three", "four")
    checkout = tmp_path / "torch"
    if how == "shallow":
        upstream.git("clone", "-q", "--depth=1", upstream.url, str(checkout))
        upstream.git("-C", str(checkout), "fetch", "-q", "--depth=1", "origin", old)
    elif how == "dangling":
        checkout.mkdir()
        (checkout / ".git").write_text("gitdir: /no/such/place\n")
    else:
        upstream.git(
            "clone",
            "-q",
            "--no-local",
            *(["--filter=tree:0"] if how == "partial" else []),
            upstream.url,
            str(checkout),
        )
    if how == "partial":
        new = upstream.commit("five")
    if how == "damaged":
        inner = upstream.git("rev-parse", f"{new}^")
        upstream.git("-C", str(checkout), "repack", "-q")
        pack = next((checkout / ".git/objects/pack").glob("*.pack"))
        moved = pack.rename(tmp_path / "pack")
        for rest in pack.parent.iterdir():
            rest.unlink()
        with moved.open("rb") as file:
            subprocess.run(["git", "unpack-objects", "-q"], cwd=checkout, env=env, stdin=file, check=True)
        Path(checkout, ".git/objects", inner[:2], inner[2:]).unlink()
    origin = "https://github.com/o/r"
    found = between((origin, old), (origin, new), env, repos=tmp_path)
    assert found == {"complete": False, "compare": f"{origin}/compare/{old}...{new}"}
    if how == "partial":  # looking did not fetch what was missing
        listed = upstream.git("-C", str(checkout), "cat-file", "--batch-all-objects", "--batch-check")
        assert new not in listed


def test_a_mirror_is_read_and_nobody_asked(upstream: Repository, tmp_path: Path, env: dict[str, str]) -> None:
    old, new = upstream.commit("one", "two"), upstream.commit("three")
    mirrors = tmp_path / "mirrors"
    place = locate_mirror(upstream.url, mirrors, env).folder
    upstream.git("clone", "-q", "--bare", upstream.url, str(place))
    upstream.up.folder.rename(tmp_path / "away")
    found = between((upstream.url, old), (upstream.url, new), env, repos=tmp_path / "none", mirrors=mirrors)
    assert subjects(found) == (["three"], [])
    assert found["source"] == str(place)
    nobody = between((upstream.url, old), (upstream.url, NOBODY), env, repos=tmp_path, mirrors=mirrors)
    assert nobody == {"complete": False, "compare": None}


def test_subjects_come_as_they_are_whatever_the_user_has_configured(
    upstream: Repository, tmp_path: Path, env: dict[str, str]
) -> None:
    old = upstream.commit("one")
    new = upstream.commit("Größe", "two lines\nof a subject\n\nbody", "")
    new = upstream.raw(b"caf\xe9 \x1b[31mred\x07\n", new)
    new = upstream.raw("rechts \u202e links".encode(), new)
    settings = {
        "format.pretty": "oneline",
        "log.showSignature": "true",
        "log.mailmap": "true",
        "log.follow": "true",
        "log.decorate": "full",
        "log.excludeDecoration": "x",
        "i18n.logOutputEncoding": "ISO-8859-1",
        "core.abbrev": "4",
        "color.ui": "always",
        "fetch.prune": "true",
    }
    config = tmp_path / "home/.gitconfig"
    for key, value in settings.items():
        subprocess.run(["git", "config", "--file", str(config), key, value], check=True)
    checkout = tmp_path / "torch"
    upstream.git("update-ref", "refs/heads/main", new)
    upstream.git("clone", "-q", "--no-checkout", upstream.url, str(checkout))
    upstream.git("-C", str(checkout), "replace", f"{new}^^", old)
    expected = [
        "rechts \\u202e links",
        "caf\\udce9 \\x1b[31mred\\x07",
        "",
        "two lines of a subject",
        "Größe",
    ]
    found = between((upstream.url, old), (upstream.url, new), env, repos=tmp_path)
    assert subjects(found) == (expected, [])


# ---- the command


def project(url: str, commit: str, **more: Any) -> dict[str, Any]:
    return {"origin": url, "ref": "main", "why": "given", "commit": commit, "submodules": {}, **more}


def lock(path: Path, **projects: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"lock_version": "1", "platform": "linux", "projects": projects}))
    return path


def run(*arguments: object) -> int:
    return boundary.run_command(diff_command, [*map(str, arguments)])


def test_what_a_person_reads(
    upstream: Repository, tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = upstream.commit("one"), upstream.commit(*"abcdefghijklmnopqrs", "three", "\x1b[31mfour")
    url = "https://github.com/o/r"
    a = lock(tmp_path / "a", pytorch=project(url, old), apex=project(url, old), triton=project(url, old))
    b = lock(tmp_path / "b", pytorch=project(url, new), apex=project(url, old), triton=project(url, new))
    upstream.git("clone", "-q", upstream.url, str(tmp_path / "repos/pytorch"))
    assert run(a, b, "--source-dir", tmp_path / "repos") == 0
    said = capsys.readouterr()
    ids = upstream.git("rev-list", "--max-count=20", new).split()
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
    assert run(a, b, "--json", "--source-dir", tmp_path / "repos") == 0
    shown = json.loads(capsys.readouterr().out)["projects"]["pytorch"]["history"]
    assert (shown["complete"], shown["source"]) == (True, str(tmp_path / "repos/pytorch"))
    assert (shown["added"]["count"], len(shown["added"]["commits"]), shown["dropped"]["count"]) == (21, 20, 0)
    assert shown["added"]["commits"][1] == {"commit": ids[1], "subject": "three"}


def test_a_lock_compared_with_itself(
    tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    a = lock(tmp_path / "a", apex=project("https://git.invalid/x", NOBODY))
    assert run(a, a) == 0
    said = capsys.readouterr()
    assert said.out == "the locks are the same: apex\n"
    assert said.err == f"warning: {a} is compared with itself\n"


@pytest.mark.parametrize(
    "given",
    [
        (None, (), "cannot read"),
        ("{", (), "not valid"),
        ("good", ("--source-dir", "no/such/folder"), "--source-dir no/such/folder is not a folder"),
        ("good", ("--mirror-dir", ""), "--mirror-dir is empty"),
        ("good", ("third",), "unexpected extra argument"),
    ],
)
def test_wrong_input(
    tmp_path: Path,
    env: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    given: tuple[str | None, tuple[str, ...], str],
) -> None:
    a = lock(tmp_path / "a", apex=project("https://git.invalid/x", NOBODY))
    b, (text, arguments, message) = tmp_path / "b", given
    if text == "good":
        b.write_text(a.read_text())
    elif text is not None:
        b.write_text(text)
    assert run(a, b, *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
