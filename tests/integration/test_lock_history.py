"""The commits between two locks, out of checkouts, mirrors and servers, and the command that tells."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from source_trees import Upstream, isolated_environment

from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.lock import diff_command
from rocm_wheels.core import SourceError
from rocm_wheels.sources import (
    CommitRange,
    CommitSource,
    Git,
    Transport,
    explain_failure,
    find_commits_between,
    locate_mirror,
    lock_diff,
)

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
    near: Iterable[Path] = (),
    mirrors: Path | None = None,
) -> CommitRange:
    transport = Transport(retries=0, timeout=20, mirrors=mirrors)
    return find_commits_between(
        CommitSource(*old), CommitSource(*new), checkouts=near, transport=transport, env=env
    )


def subjects(found: CommitRange) -> tuple[list[str], list[str]]:
    assert found.complete
    return [one.subject for one in found.added], [one.subject for one in found.dropped]


def test_a_branch_that_was_pushed_with_force(upstream: Repository, env: dict[str, str]) -> None:
    base = upstream.commit("one", "two")
    old = upstream.commit("taken back 1", "taken back 2")
    upstream.switch("topic", base)
    upstream.commit("topic")
    upstream.switch("main", base)
    upstream.commit("three")
    upstream.git("merge", "-q", "-s", "ours", "-m", "merge topic", "topic")
    new = upstream.commit("four")
    found = between((upstream.url, old), (upstream.url, new), env)
    assert subjects(found) == (
        ["four", "merge topic", "three", "topic"],
        ["taken back 2", "taken back 1"],
    )
    assert found.added[0].id == new
    assert found.source == upstream.url
    back = between((upstream.url, new), (upstream.url, old), env)
    assert (back.added, back.dropped) == (found.dropped, found.added)


def test_nothing_but_commits_is_fetched(
    upstream: Repository, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = upstream.commit("one", "two"), upstream.commit("three")
    kinds: set[str] = set()
    walk = lock_diff._read_range

    def looking(git: Git, *arguments: str) -> CommitRange:
        kinds.update(
            git.text(
                "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)", "--unordered"
            ).splitlines()
        )
        return walk(git, *arguments)

    monkeypatch.setattr(lock_diff, "_read_range", looking)
    assert subjects(between((upstream.url, old), (upstream.url, new), env)) == (["three"], [])
    assert kinds == {"commit"}


def test_history_is_fetched_step_by_step_and_not_for_ever(
    upstream: Repository, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [
        upstream.commit(*(f"{start}" for _ in range(many))) for start, many in (("a", 9), ("b", 5), ("c", 30))
    ]
    monkeypatch.setattr(lock_diff, "HISTORY_DEPTHS", (2, 4, 8))
    depths = []
    fetch = lock_diff._fetch_commits
    monkeypatch.setattr(lock_diff, "_fetch_commits", lambda *given: (depths.append(given[3]), fetch(*given)))
    assert subjects(between((upstream.url, ends[0]), (upstream.url, ends[1]), env)) == (["b"] * 5, [])
    assert depths == [2, 4, 8]
    far = between((upstream.url, ends[1]), (upstream.url, ends[2]), env)
    assert far == CommitRange((), (), complete=False, source=upstream.url, depth=8)


def test_a_cut_in_what_both_share_cannot_misplace_a_commit(
    upstream: Repository, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = upstream.commit("root")
    old = upstream.commit(*(f"main {number}" for number in range(8)))
    upstream.switch("topic", root)
    upstream.commit("topic of long ago")
    upstream.switch("main", old)
    upstream.git("merge", "-q", "-s", "ours", "-m", "merge", "topic")
    new = upstream.git("rev-parse", "HEAD")
    # four deep from each end, the root is there by way of the topic alone: it looks like an addition
    monkeypatch.setattr(lock_diff, "HISTORY_DEPTHS", (4,))
    assert not between((upstream.url, old), (upstream.url, new), env).complete
    monkeypatch.setattr(lock_diff, "HISTORY_DEPTHS", (4, 20))
    expected = (["merge", "topic of long ago"], [])
    assert subjects(between((upstream.url, old), (upstream.url, new), env)) == expected


def test_a_checkout_is_read_and_nobody_asked(
    upstream: Repository, tmp_path: Path, env: dict[str, str]
) -> None:
    old, new = upstream.commit("one", "two"), upstream.commit("three")
    checkout = tmp_path / "checkout"
    upstream.git("clone", "-q", upstream.url, str(checkout))
    gone = "file:///no/such/repository"
    found = between((gone, old), (gone, new), env, near=[tmp_path / "none", checkout])
    assert subjects(found) == (["three"], [])
    assert found.source == str(checkout)


@pytest.mark.parametrize(
    "how", ["shallow", "without the commit", "partial", "damaged", "not a repository", "dangling"]
)
def test_a_checkout_that_has_not_all_is_passed_over(
    upstream: Repository, tmp_path: Path, env: dict[str, str], how: str
) -> None:
    old, new = upstream.commit("one", "two"), upstream.commit("three", "four")
    checkout = tmp_path / "checkout"
    if how == "shallow":
        upstream.git("clone", "-q", "--depth=1", upstream.url, str(checkout))
        upstream.git("-C", str(checkout), "fetch", "-q", "--depth=1", "origin", old)
    elif how == "not a repository":
        checkout.mkdir()
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
    if how in ("without the commit", "partial"):
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
    found = between((upstream.url, old), (upstream.url, new), env, near=[checkout])
    assert found.source == upstream.url
    assert subjects(found)[0][-2:] == ["four", "three"]
    if how == "partial":  # looking did not fetch what was missing
        listed = upstream.git("-C", str(checkout), "cat-file", "--batch-all-objects", "--batch-check")
        assert new not in listed


def test_a_mirror_is_read_and_nobody_asked(upstream: Repository, tmp_path: Path, env: dict[str, str]) -> None:
    old, new = upstream.commit("one", "two"), upstream.commit("three")
    mirrors = tmp_path / "mirrors"
    place = locate_mirror(upstream.url, mirrors, env).folder
    upstream.git("clone", "-q", "--bare", upstream.url, str(place))
    upstream.up.folder.rename(tmp_path / "away")
    found = between((upstream.url, old), (upstream.url, new), env, mirrors=mirrors)
    assert subjects(found) == (["three"], [])
    assert found.source == str(place)
    with pytest.raises(SourceError, match="fetching commits of"):
        between((upstream.url, old), (upstream.url, NOBODY), env, mirrors=mirrors)


def test_a_fork_and_its_origin(upstream: Repository, tmp_path: Path, env: dict[str, str]) -> None:
    base = upstream.commit("one", "two")
    fork = Repository(tmp_path / "fork", env)
    fork.git("fetch", "-q", upstream.url, base)
    fork.switch("main", base)
    fork.time = upstream.time + 100
    theirs = fork.commit("of the fork")
    ours = upstream.commit("three", "four")
    found = between((upstream.url, ours), (fork.url, theirs), env)
    assert subjects(found) == (["of the fork"], ["four", "three"])
    assert found.source == f"{upstream.url} and {fork.url}"


def test_repositories_without_a_commit_in_both(
    upstream: Repository, tmp_path: Path, env: dict[str, str]
) -> None:
    other = Repository(tmp_path / "other", env)
    found = between((upstream.url, upstream.commit("a")), (other.url, other.commit("b", "c")), env)
    assert subjects(found) == (["c", "b"], ["a"])


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
    checkout = tmp_path / "checkout"
    upstream.git("update-ref", "refs/heads/main", new)
    upstream.git("clone", "-q", "--no-checkout", upstream.url, str(checkout))
    upstream.git("-C", str(checkout), "replace", f"{new}^^", old)
    expected = [
        "rechts \\u202e links",
        "caf\ufffd \\x1b[31mred\\x07",
        "",
        "two lines of a subject",
        "Größe",
    ]
    for near in ([], [checkout]):
        found = between((upstream.url, old), (upstream.url, new), env, near=near)
        assert subjects(found) == (expected, [])


def test_a_commit_that_the_server_no_longer_has(upstream: Repository, env: dict[str, str]) -> None:
    new = upstream.commit("one")
    with pytest.raises(SourceError) as failed:
        between((upstream.url, NOBODY), (upstream.url, new), env)
    assert explain_failure(failed.value) == f"{upstream.url} has no commit {NOBODY} (any more)"


def test_a_repository_names_no_folder_of_this_machine(upstream: Repository, env: dict[str, str]) -> None:
    old, new = upstream.commit("one"), upstream.commit("two")
    ends = CommitSource(upstream.url, old, trusted=False), CommitSource(upstream.url, new, trusted=False)
    with pytest.raises(SourceError, match="transport 'file' not allowed"):
        find_commits_between(*ends, checkouts=(), transport=Transport(retries=0), env=env)


# ---- the command


def project(url: str, commit: str, **more: Any) -> dict[str, Any]:
    return {"origin": url, "ref": "main", "why": "given", "commit": commit, "submodules": {}, **more}


def lock(path: Path, **projects: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"lock_version": "1", "platform": "linux", "projects": projects}))
    return path


def run(*arguments: object) -> int:
    return run_command(diff_command, ["--retries", "0", *map(str, arguments)])


def test_what_a_person_reads(
    upstream: Repository, tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = upstream.commit("one"), upstream.commit("two", "three", "\x1b[31mfour")
    a = lock(tmp_path / "a", pytorch=project(upstream.url, old), apex=project(upstream.url, old))
    b = lock(tmp_path / "b", pytorch=project(upstream.url, new), apex=project(upstream.url, old))
    (tmp_path / "repos").mkdir()
    assert run(a, b, "--source-dir", tmp_path / "repos", "--max-commits", 2) == 0
    said = capsys.readouterr()
    ids = upstream.git("rev-list", "--max-count=2", new).split()
    assert said.out.splitlines() == [
        f"pytorch  main  {old[:12]} → {new[:12]}  3 commits",
        f"    + {ids[0][:12]} \\x1b[31mfour",
        f"    + {ids[1][:12]} three",
        "    + … 1 more",
        "",
        "unchanged: apex",
    ]
    assert said.err.splitlines() == [
        f"[pytorch] fetching the commits between {old[:12]} and {new[:12]} of {upstream.url}"
    ]


def test_what_a_program_reads(
    upstream: Repository, tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = upstream.commit("one"), upstream.commit("two")
    a = lock(tmp_path / "a", pytorch=project(upstream.url, old), apex=project("file:///none", old))
    b = lock(tmp_path / "b", pytorch=project(upstream.url, new), apex=project("file:///none", new))
    assert run(a, b, "--json") == 0
    said = capsys.readouterr()
    shown = json.loads(said.out)["projects"]
    assert shown["pytorch"]["history"] == {
        "complete": True,
        "source": upstream.url,
        "added": {"count": 1, "commits": [{"commit": new, "subject": "two"}]},
        "dropped": {"count": 0, "commits": []},
    }
    assert shown["apex"]["history"]["complete"] is False
    assert "does not appear to be a git repository" in shown["apex"]["history"]["why"]
    assert "warning: apex: the commits between are unknown: " in said.err


def test_submodules(
    upstream: Repository, tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = upstream.commit("one"), upstream.commit("two")
    inner = Repository(tmp_path / "inner", env)
    before, after = inner.commit("inner 1"), inner.commit("inner 2")
    a, b = (
        lock(
            tmp_path / name,
            pytorch=project(
                upstream.url, root, submodules={"third_party/x y": {"origin": inner.url, "commit": commit}}
            ),
        )
        for name, root, commit in (("a", old, before), ("b", new, after))
    )
    assert run(a, b) == 0
    moved = f"    third_party/x y  {before[:12]} → {after[:12]}"
    assert capsys.readouterr().out.splitlines()[-1] == moved
    assert run(a, b, "--submodules") == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-2:] == [f"{moved}  1 commit", f"        + {after[:12]} inner 2"]
    assert "[pytorch/third_party/x y] fetching" in said.err
    # its folder in a checkout is enough
    inner.git("clone", "-q", inner.url, str(tmp_path / "repos/pytorch/third_party/x y"))
    inner.up.folder.rename(tmp_path / "away")
    assert run(a, b, "--submodules", "--source-dir", tmp_path / "repos") == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"        + {after[:12]} inner 2"


def test_a_repository_that_cannot_be_asked_is_a_warning_or_a_failure_as_wanted(
    upstream: Repository, tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = upstream.commit("one"), upstream.commit("two")
    url = (tmp_path / "gone").as_uri()
    a, b = (lock(tmp_path / name, apex=project(url, commit)) for name, commit in (("a", old), ("b", new)))
    assert run(a, b) == 0
    said = capsys.readouterr()
    assert said.out == f"apex  main  {old[:12]} → {new[:12]}  history not known\n"
    assert "warning: apex: the commits between are unknown: fatal: " in said.err
    assert run(a, b, "--require-history") == 10
    said = capsys.readouterr()
    assert said.out.startswith("apex  main")
    assert "error: no commit history for: apex" in said.err
    assert run(a, b, "--no-history") == 0
    assert capsys.readouterr() == (f"apex  main  {old[:12]} → {new[:12]}\n", "")


def test_a_history_that_is_too_long_is_a_warning(
    upstream: Repository,
    tmp_path: Path,
    env: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = upstream.commit("one"), upstream.commit(*map(str, range(9)))
    monkeypatch.setattr(lock_diff, "HISTORY_DEPTHS", (2, 3))
    a, b = (
        lock(tmp_path / name, apex=project(upstream.url, commit)) for name, commit in (("a", old), ("b", new))
    )
    assert run(a, b) == 0
    said = capsys.readouterr()
    assert said.out.endswith("  history not known: too far apart\n")
    assert "longer than 3 commits, and no more are fetched; a checkout (--source-dir) or a mirror" in said.err


def test_the_same_locks(tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (lock(tmp_path / name, apex=project("https://git.invalid/x", NOBODY)) for name in "ab")
    assert run(a, b) == 0
    assert capsys.readouterr().out == "the locks are the same: apex\n"
    assert run(a, a) == 0
    said = capsys.readouterr()
    assert said.out == "the locks are the same: apex\n"
    assert said.err == f"warning: {a} is compared with itself\n"


def test_a_manifest_against_a_lock(
    tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    a = lock(tmp_path / "a", apex=project("https://git.invalid/x", NOBODY))
    manifest = {"schema_version": 1, "apex": {"repo": "https://git.invalid/x", "commit": NOBODY}}
    b = tmp_path / "b"
    b.write_text(json.dumps(manifest))
    assert run(a, b) == 0
    assert capsys.readouterr().out == (
        "nothing differs that both locks say: apex\n"
        "not compared, for only one of the locks says it: ref of apex; submodules of apex\n"
    )


@pytest.mark.parametrize(
    "given",
    [
        (None, (), "cannot read"),
        ("", (), "is empty"),
        ("[1, 2]", (), ""),
        ('{"lock_version": "3", "projects": {}}', (), "lock_version"),
        ('{"lock_version": "1"}', (), "projects: Field required"),
        ("{", (), "not valid"),
        ("good", ("--source-dir", "no/such/folder"), "--source-dir no/such/folder is not a folder"),
        ("good", ("--max-commits", "-1"), "--max-commits"),
        ("good", ("--no-history", "--require-history"), "exclude each other"),
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
