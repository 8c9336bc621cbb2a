"""Odd input of the source doors: one clear message with a tip, the right exit code, and the disk as it was.

The doors run in this process; git and all repositories are real.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest
from commands import generalize, require_entries, require_good_failure
from sources import Upstream, enter, write_lock

from rocm_wheels.cli import boundary, main
from rocm_wheels.cli.checkout import make_recipe_group
from rocm_wheels.core import errors
from rocm_wheels.sources.git import require_git

CLONE = Path(__file__).resolve().parents[2]
DOORS: dict[str, Callable[[], click.Command]] = {
    "torch": lambda: make_recipe_group("pytorch"),
    "audio": lambda: make_recipe_group("pytorch_audio"),
    "vision": lambda: make_recipe_group("pytorch_vision"),
    "triton": lambda: make_recipe_group("triton", "release"),
    "all": lambda: main.cli,
}
MIDDLE = ".git/modules/third_party/middle"
STATE = ".git/rocm-wheels/state.json"
# made by locking, by fetching what is kept, by looking: no file of somebody's
OURS = {".lock", ".owner", ".groups", "FETCH_HEAD", "fetched", "index", "objects"}
ONE, TWO = "1" * 40, "2" * 40


@dataclass
class Box:
    """The folder in which a row runs; ``env`` is what the door sees."""

    folder: Path
    upstream: Upstream
    ready: Path
    env: dict[str, str] = field(default_factory=dict)

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, text: str | bytes, mode: int = 0o644) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)

    def git(self, where: str, *words: str) -> str:
        return self.upstream.git(self.folder / where, *words)

    def run(self, line: list[str], env: Mapping[str, str] | None = None) -> int:
        """Run a door in this process, as somebody whose HOME is in the box; return its exit code."""
        home = {"HOME": str(self / "home"), "XDG_CONFIG_HOME": str(self / "home/.config")}
        with pytest.MonkeyPatch.context() as patch:
            enter(patch, self.folder, {**self.upstream.env, **home, **self.env, **(env or {})})
            words = [word.format(url=self.upstream.url) for word in line[1:]]
            return boundary.run_command(DOORS[line[0]](), words)

    def may_fail(self, where: str, *words: str) -> None:
        """Run git where it is to stop in the middle, by a conflict."""
        with pytest.raises(AssertionError):
            self.git(where, *words)

    def tree(self) -> None:
        """Lay a checkout of ours at `tree`, on main and hipified."""
        shutil.copytree(self.ready, self / "tree", symlinks=True)

    def clone(self) -> None:
        """Lay a clone of somebody's at `tree`, with branches one and two that contradict each other."""
        self.git("", "clone", "-q", self.upstream.url, "tree")
        for branch in ("one", "two"):
            self.git("tree", "checkout", "-q", "-b", branch, "origin/main")
            self.write("tree/plain.txt", f"{branch}\n")
            self.git("tree", "commit", "-q", "-a", "-m", branch)

    def everything(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if path.is_symlink():
                found[str(name)] = path.readlink()
            elif path.is_file() and not OURS & set(name.parts):
                found[str(name)] = (path.stat().st_mode, path.read_bytes())
        return found


@dataclass(frozen=True)
class Row:
    """A command line and the state of the disk → exit code; what is said is in the file of messages."""

    what: str
    line: list[str]
    code: int
    before: Callable[[Box], object] = lambda box: None
    env: Mapping[str, str] = field(default_factory=dict)


def checkout(*words: str, at: str = "new", ref: str = "main", origin: str = "{url}") -> list[str]:
    return ["torch", "checkout", "--checkout-dir", at, f"--origin={origin}", f"--ref={ref}", *words]  # fmt: skip


def pinned(*words: str, by: str = "audio") -> list[str]:
    return [by, "checkout", "--checkout-dir", "new", "--pytorch-dir", "torch", *words]


def locked(*words: str) -> list[str]:
    return ["torch", "checkout", "--checkout-dir", "new", "--lock", "lock.json", *words]


def again(*words: str) -> list[str]:
    return checkout(*words, at="tree", ref="feature")


def named(name: str) -> list[str]:
    words = ["torch", "save-patches", "--checkout-dir", "tree", "--patch-dir", "sets"]
    return [*words, f"--patchset={name}"]


def compared(*words: str) -> list[str]:
    return ["all", "lock", "diff", "lock.json", "lock.json", *words]


def related(text: str | bytes) -> Callable[[Box], object]:
    return lambda box: box.write("torch/related_commits", text)


def row(project: str = "torchaudio", commit: str = ONE, origin: str = "https://example.invalid/x") -> str:
    return f"ubuntu|pytorch|{project}|main|{commit}|{origin}\n"


def pin(text: str | bytes) -> Callable[[Box], object]:
    return lambda box: box.write("torch/.github/ci_commit_pins/audio.txt", text)


def version(text: str | bytes) -> Callable[[Box], object]:
    def before(box: Box) -> None:
        box.write("torch/related_commits", row())
        box.write("torch/version.txt", text)

    return before


def fake_git(text: str) -> Callable[[Box], object]:
    def before(box: Box) -> None:
        box.write("bin/git", f"#!/bin/sh\n{text}\n", 0o755)
        box.env["PATH"] = str(box / "bin")

    return before


def broken(name: str, data: bytes | None) -> Callable[[Box], object]:
    """Return what damages a file of a checkout (``None``: takes it away)."""

    def before(box: Box) -> None:
        box.tree()
        path = box / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if data is not None:
            path.write_bytes(data)

    return before


def broken_tree_object(box: Box) -> None:
    box.tree()
    name = box.git("tree", "rev-parse", "HEAD^{tree}")
    path = box / f"tree/.git/objects/{name[:2]}/{name[2:]}"
    path.chmod(0o644)
    path.write_bytes(b"nothing that git could read")


def begun(*words: str) -> Callable[[Box], object]:
    def before(box: Box) -> None:
        box.clone()
        box.may_fail("tree", *words)

    return before


def rebase_to_edit(box: Box) -> None:
    """A rebase whose conflict was put right: every file is as committed, and HEAD is in between."""
    begun("rebase", "one")(box)
    box.git("tree", "reset", "-q", "--hard")


def patch_that_stopped(box: Box) -> None:
    box.clone()
    box.write("one.patch", box.git("tree", "format-patch", "-1", "--stdout", "one") + "\n")
    box.may_fail("tree", "am", "../one.patch")


def bisecting(box: Box) -> None:
    box.clone()
    box.git("tree", "bisect", "start", "HEAD", "HEAD~1")


def worktree(box: Box) -> None:
    """A linked worktree of a repository that has nothing to do with ours."""
    box.git("", "init", "-q", "-b", "main", "mine")
    box.git("mine", "commit", "-q", "--allow-empty", "-m", "mine")
    box.git("mine", "worktree", "add", "-q", "--detach", "../tree")
    box.write("tree/precious", "mine\n")


def patched(name: str, text: str = "x") -> Callable[[Box], object]:
    return lambda box: box.write(f"sets/pytorch/main/{name}", text)


def whole_lock(box: Box) -> None:
    project = {
        "origin": "https://x.invalid/y",
        "ref": "main",
        "why": "given",
        "commit": ONE,
        "submodules": {},
    }
    write_lock(box / "lock.json", {"lock_version": "1", "platform": "linux", "projects": {"apex": project}})


MIRRORS = "ROCM_WHEELS_MIRROR_DIR"
SET = ("--patch-dir", "sets", "--patchset", "main")

REFS = [
    Row("ref of an option", checkout(ref="-x"), 2),
    Row("ref of a range", checkout(ref="a..b"), 2),
    Row("ref of a tree", checkout(ref="main^{{tree}}"), 2),
    Row("ref of a pattern", checkout(ref="m*n"), 2),
    Row("ref of two lines", checkout(ref="main\n"), 2),
    Row("ref of a folder", checkout(ref="refs/heads/"), 2),
    Row("ref of a lock", checkout(ref="main.lock"), 2),
    Row("half a commit", checkout(ref="a" * 39), 10),
    Row("no such tag", checkout(ref="refs/tags/no"), 10),
    Row("no such word", checkout(ref="é"), 10),
    Row("a commit of nobody", checkout("--no-hipify", at="tree", ref=ONE), 10, Box.tree),
]  # fmt: skip
ORIGINS = [
    Row("origin of an option", checkout(origin="-upload-pack=x"), 2),
    Row("origin of two lines", checkout(origin="a\nb"), 2),
    Row("origin missing", checkout(origin="no/where"), 10),
    Row("origin a file", checkout(origin="note"), 10, lambda box: box.write("note", "x")),
    Row("origin no repository", checkout(origin="box"), 10, lambda box: box.write("box/x", "x")),
    Row("origin a command", checkout(origin="ext::sh -c touch% pwned"), 10),
    Row("origin of another program", checkout(origin="nosuch::x"), 10),
    Row("origin with an option for ssh", checkout(origin="ssh://-oProxyCommand=touch pwned/x"), 10),
    Row("origin without a path", checkout(origin="file://"), 10),
]  # fmt: skip
FOLDERS = [
    Row("folder empty", checkout(at=""), 2),
    Row("folder of checkouts empty", ["torch", "status", "--source-dir", ""], 2),
    Row("torch folder empty", ["audio", "checkout", "--checkout-dir", "new", "--pytorch-dir", ""], 2),
    Row("patch folder empty", checkout("--patch-dir", ""), 2),
    Row("folder a loop", checkout(at="loop/x"), 10, lambda box: (box / "loop").symlink_to("loop")),
    Row("folder dangling", checkout(at="gone"), 10, lambda box: (box / "gone").symlink_to("no/where")),
    Row("folder with a long name", checkout(at="n" * 300), 2),
    Row("folder of a bare repository", checkout(at="bare"), 10, lambda box: box.git("", "init", "-q", "--bare", "bare")),
    Row("folder of a repository just made", checkout(at="tree"), 10, lambda box: box.git("", "init", "-q", "tree")),
    Row("worktree of something else", again(), 10, worktree),
    Row("pointer to nowhere", again(), 10, lambda box: box.write("tree/.git", "gitdir: /no/where\n")),
    Row("name of git's own folder", ["torch", "checkout", "--repo-name", ".git"], 2),
    Row("hipify where nothing is", ["torch", "hipify", "--checkout-dir", "."], 10),
    Row("hipify of no folder", ["torch", "hipify", "--checkout-dir", "nowhere"], 10),
    Row("hipify of another project", ["torch", "hipify", "--checkout-dir", "tree"], 10, worktree),
]  # fmt: skip
NUMBERS = [
    Row("depth below nothing", checkout("--depth", "-1"), 2),
    Row("depth a word", checkout("--depth", "x"), 2),
    Row("depth too deep", checkout("--depth", "2147483648"), 2),
    Row("jobs none", checkout("--jobs", "0"), 2),
    Row("line unknown", checkout("--line", "2.99"), 2),
    Row("line by its branch", checkout("--line", "release/2.9"), 2),
    Row("line empty", ["all", "compat", "show", "lines", ""], 2),
    Row("two lines", ["all", "compat", "show", "lines", "2.9", "2.8"], 2),
]  # fmt: skip
SERVERS = [
    Row("nobody listens", checkout(origin="http://127.0.0.1:9/x.git"), 10, env={"ROCM_WHEELS_RETRIES": "0"}),
    Row("retries below nothing", checkout(), 2, env={"ROCM_WHEELS_RETRIES": "-1"}),
    Row("retries a word", checkout(), 2, env={"ROCM_WHEELS_RETRIES": "x"}),
    Row("timeout none", checkout(), 2, env={"ROCM_WHEELS_TIMEOUT": "0"}),
    Row("timeout endless", checkout(), 2, env={"ROCM_WHEELS_TIMEOUT": "9" * 30}),
    Row("mirrors a file", checkout(), 2, lambda box: box.write("note", "x"), {MIRRORS: "note"}),
    Row("mirrors below a file", checkout(), 2, lambda box: box.write("note", "x"), {MIRRORS: "note/x"}),
    Row("mirrors inside the checkout", checkout(), 2, env={MIRRORS: "new/mirrors"}),
    Row("mirrors and no origin", checkout(origin="no/where"), 10, env={MIRRORS: "mirrors"}),
]  # fmt: skip
LOCKS = [
    Row("lock missing", locked(), 2),
    Row("lock nowhere", ["torch", "checkout", "--checkout-dir", "new", "--lock", ""], 2),
    Row("lock a folder", locked(), 2, lambda box: (box / "lock.json").mkdir()),
    Row("lock not UTF-8", locked(), 2, lambda box: box.write("lock.json", b"\xff")),
    Row("lock empty", locked(), 2, lambda box: box.write("lock.json", "")),
    Row("lock no text", locked(), 2, lambda box: box.write("lock.json", "x")),
    Row("lock torn", locked(), 2, lambda box: box.write("lock.json", "{{\n")),
    Row("lock of another format", locked(), 2, lambda box: box.write("lock.json", '{"schema_version": 99}')),
    Row("lock of no commit", ["all", "lock", "diff", "lock.json", "lock.json"], 2, lambda box: box.write("lock.json", '{"schema_version": 1, "pytorch": {"repo": "https://x.invalid/y"}}')),
    Row("locks compared, one missing", compared(), 2),
    Row("locks compared, one torn", compared(), 2, lambda box: box.write("lock.json", "{")),
    Row("locks compared, trees nowhere", compared("--source-dir", "no/where"), 2, whole_lock),
    Row("locks compared, and a third", compared("third"), 2, whole_lock),
    Row("lock to be made nowhere", ["all", "lock", "--line", "2.9", "-o", "note/x"], 2, lambda box: box.write("note", "x")),
    Row("lock without a name", ["all", "lock", "--line", "2.9"], 2),
    Row("lock and a ref", locked("--ref", "main"), 2, lambda box: box.write("lock.json", "{{}}")),
    Row("no project", ["all", "checkout"], 2),
    Row("unknown project", ["all", "checkout", "torhc"], 2),
]  # fmt: skip
PINS = [
    Row("row short", pinned(), 2, related(row() + "a|b|c\n")),
    Row("row endless", pinned(), 2, related("x" * 100000)),
    Row("row of a branch", pinned(), 2, related(row(commit="main"))),
    Row("rows that disagree", pinned(), 2, related(row() + row(commit=TWO))),
    Row("row of an option", pinned(), 2, related(row(origin="--upload-pack=x"))),
    Row("row of a relative path", pinned(), 2, related(row(origin="../audio"))),
    Row("row of no project", pinned(), 2, related(row(project=" "))),
    Row("rows not UTF-8", pinned(), 2, related(row().encode("utf-16"))),
    Row("rows a loop", pinned(), 2, lambda box: [(box / "torch").mkdir(), (box / "torch/related_commits").symlink_to("related_commits")]),
    Row("rows of others, and a pin is required", pinned("--require-related-commit"), 10, related(row(project="apex"))),
    Row("pin empty", pinned(), 2, pin("\n# none\n")),
    Row("pin twice", pinned(), 2, pin(f"{ONE}\n{TWO}\n")),
    Row("pin not UTF-8", pinned(), 2, pin(b"\xff\xfe")),
    Row("pin a folder", pinned(), 2, lambda box: (box / "torch/.github/ci_commit_pins/audio.txt").mkdir(parents=True)),
    Row("version of torch missing", pinned("--line", "2.9"), 2, related(row())),
    Row("version of torch two", pinned("--line", "2.9"), 2, version("2.9.0\n2.8\n")),
    Row("version of torch empty", pinned("--line", "2.9"), 2, version("")),
    Row("version of another torch", pinned("--line", "2.9"), 10, version("2.8.0a0\n")),
    Row("torch folder a file", pinned(), 2, lambda box: box.write("torch", "x")),
    Row("triton without a torch", pinned(by="triton"), 10, lambda box: (box / "torch").mkdir()),
]  # fmt: skip
GIT = [
    Row("no git", checkout(), 10, env={"PATH": "/no/where"}),
    Row("no PATH", ["torch", "status", "--checkout-dir", "tree"], 10, Box.tree, {"PATH": ""}),
    Row("git too old", checkout(), 10, fake_git('echo "git version 2.10.0"')),
    Row("git too old for a tree", ["torch", "hipify", "--checkout-dir", "tree"], 10, lambda box: [box.tree(), fake_git('echo "git version 2.27.9"')(box)]),
    Row("git that says nothing", again(), 10, lambda box: [box.tree(), fake_git("exit 0")(box)]),
    Row("git that dies", checkout(), 10, fake_git("kill -9 $$")),
    Row("git's configuration broken", checkout(), 10, lambda box: box.write("home/.gitconfig", "[broken\n")),
]  # fmt: skip
TREES = [
    Row("merge", again(), 10, begun("merge", "one")),
    Row("rebase put right", again(), 10, rebase_to_edit),
    Row("hipify in a rebase", ["torch", "hipify", "--checkout-dir", "tree"], 10, rebase_to_edit),
    Row("save-patches in a rebase", ["torch", "save-patches", "--checkout-dir", "tree", *SET], 10, rebase_to_edit),
    Row("cherry-pick", again(), 10, begun("cherry-pick", "one")),
    Row("revert", again(), 10, begun("revert", "one~1")),
    Row("am", again(), 10, patch_that_stopped),
    Row("bisect", again(), 10, bisecting),
    Row("git at work", again(), 10, broken(".git/index.lock", b"")),
    Row("git at work in a submodule", again(), 10, broken(f"{MIDDLE}/index.lock", b"")),
    Row("index damaged", again(), 10, broken(".git/index", b"x")),
    Row("HEAD damaged", again(), 10, broken(".git/HEAD", b"x")),
    Row("HEAD gone, status", ["torch", "status", "--checkout-dir", "tree"], 10, broken(".git/HEAD", None)),
    Row("configuration damaged", again(), 10, broken(".git/config", b"[x\n")),
    Row("object damaged", again(), 10, broken_tree_object),
    Row("object damaged, status", ["torch", "status", "--checkout-dir", "tree"], 10, broken_tree_object),
    Row("state torn", again(), 10, broken(STATE, b'{"format": 1')),
    Row("state not UTF-8", ["torch", "status", "--checkout-dir", "tree"], 10, broken(STATE, b"\xff")),
    Row("state of another kind", again(), 10, broken(STATE, b'{"format": 1, "left": {}, "generated": [1], "origin": "", "ref": "", "upstream": ""}')),
    Row("state of another format, hipify", ["torch", "hipify", "--checkout-dir", "tree"], 10, broken(STATE, b'{"format": 99}')),
]  # fmt: skip
PATCHES = [
    Row("patch folder a file", checkout("--patch-dir", "note"), 2, lambda box: box.write("note", "x")),
    Row("patch outside", checkout(*SET), 2, patched("0001-x.patch")),
    Row("patch no patch", checkout(*SET), 2, patched("base/x.txt")),
    Row("patch dangling", checkout(*SET), 2, lambda box: [patched("base/README")(box), (box / "sets/pytorch/main/base/x.patch").symlink_to("gone")]),
    Row("patch of nonsense", again(*SET), 10, lambda box: [box.tree(), patched("base/x.patch", "nonsense\n")(box)]),
    Row("patches and no submodules", checkout(*SET, "--no-submodules"), 10, patched("base/third_party/middle/x.patch")),
    Row("patches on hipify without a commit", checkout(*SET, "--no-commit-hipify"), 10, patched("hipified/x.patch")),
    Row("patch set above", named("../x"), 2, Box.tree),
    Row("patch set below", named("a/b"), 2, Box.tree),
    Row("patch set without a name", named(""), 2, Box.tree),
    Row("patch set hidden", named(".hidden"), 2, Box.tree),
    Row("patch set of an option", named("-x"), 2, Box.tree),
    Row("patch set of two lines", named("new\nline"), 2, Box.tree),
    Row("patches to nowhere", ["torch", "save-patches", "--checkout-dir", "tree", "--patch-dir", "note", "--patchset", "x"], 2, lambda box: [box.tree(), box.write("note", "x"), box.write("tree/y", "y"), box.git("tree", "add", "y"), box.git("tree", "commit", "-qm", "y")]),
]  # fmt: skip
TABLE = [*REFS, *ORIGINS, *FOLDERS, *NUMBERS, *SERVERS, *LOCKS, *PINS, *GIT, *TREES, *PATCHES]


@pytest.fixture
def box(upstream: Upstream, hipified: Path, tmp_path: Path) -> Box:
    (tmp_path / "box/home").mkdir(parents=True)
    return Box(tmp_path / "box", upstream, hipified)


@pytest.mark.contract
@pytest.mark.parametrize("row", TABLE, ids=[row.what for row in TABLE])
def test_wrong_input(box: Box, row: Row, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(box.folder)
        row.before(box)
    before = box.everything()
    capsys.readouterr()
    code = box.run(row.line, row.env)
    shown = "".join(capsys.readouterr())
    assert code == row.code, shown
    require_good_failure(row.what, shown)
    assert len(re.findall("^(error|Error): ", shown, re.MULTILINE)) == 1, shown
    assert box.everything() == before
    places = {"BOX": str(box.folder), "UPSTREAM": str(box.upstream.folder)}
    require_entries("sources", {f"# {row.what}": generalize(shown, code, places)})


def outside(box: Box, *line: str, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run torch's door as a program, below another one; return its exit code and what it said."""
    done = subprocess.run(
        [*prefix, sys.executable, str(CLONE / "repos/pytorch_torch_repo.py"), *line],
        cwd=box.folder,
        env={**box.upstream.env, "HOME": str(box / "home")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.contract
@pytest.mark.slow
def test_what_may_not_be_written(box: Box) -> None:
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:  # who may do everything, without that
        prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--")
        if shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere")
    wanted = ["--origin", box.upstream.url, "--ref", "main", "--checkout-dir"]
    (box / "closed").mkdir()
    for folder in (box / "closed", box / "home"):
        folder.chmod(0o555)
    code, said = outside(box, "checkout", *wanted, "closed/tree", prefix=prefix)
    assert (code, "Permission denied" in said, "tip: make it writable" in said) == (2, True, True), said
    assert not any((box / "closed").iterdir())
    code, said = outside(box, "checkout", *wanted, "tree", prefix=prefix)
    assert code == 0, said  # nothing is kept in HOME
    before = box.everything()
    wanted[3] = "feature"
    for path, part in (("tree/.git/rocm-wheels/.lock", "rocm-wheels/.lock"), ("tree/a.cu", 'open("a.cu")')):
        mode = (box / path).stat().st_mode
        (box / path).chmod(0o000)
        code, said = outside(box, "checkout", *wanted, "tree", prefix=prefix)
        (box / path).chmod(mode)
        assert (code in (2, 10), "Permission denied" in said, part in said) == (True, True, True), said
        assert "\ntip: " in said and "Traceback" not in said, said
        assert box.everything() == before


@pytest.mark.contract_slow
@pytest.mark.slow
def test_a_full_disk_and_then_some_space(box: Box) -> None:
    unshare = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))
    (box / "small").mkdir()
    script = 'mount -t tmpfs -o size=$1 none small || exit 99; shift; "$@"; echo "ended $?"; '
    script += 'mount -o remount,size=50m small; "$@"; echo "ended $?"; git -C small/tree rev-parse HEAD'
    head = box.git(str(box.ready), "rev-parse", "HEAD")
    for size in ("4k", "64k", "250k"):
        prefix = (*unshare, "sh", "-c", script, "sh", size)
        if shutil.which("unshare") is None:
            pytest.skip("no unshare here, for a small disk")
        wanted = ["--origin", box.upstream.url, "--ref", "main"]
        code, said = outside(box, "checkout", *wanted, "--checkout-dir", "small/tree", prefix=prefix)
        if code == 99 or "unshare failed" in said:
            pytest.skip("no small disk can be mounted here")
        ended = re.findall(r"ended (\d+)", said)
        assert ended[0] in ("2", "10") or (ended[0] == "0" and size == "250k"), said
        assert ended[1] == "0", said
        assert ended[0] == "0" or "\ntip: free some space" in said, said
        assert head in said and "Traceback" not in said


@pytest.mark.contract
@pytest.mark.parametrize("tag", ["THEROCK_UPSTREAM_DIFFBASE", "THEROCK_HIPIFY_DIFFBASE"])
def test_checkout_sets_a_tag_again_that_was_pruned(
    box: Box, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    box.tree()
    head = box.git("tree", "rev-parse", "HEAD")
    before = box.git("tree", "show-ref", "--tags")
    box.git("tree", "tag", "-d", tag)
    assert box.run(checkout(at="tree")) == 0
    assert (box.git("tree", "show-ref", "--tags"), box.git("tree", "rev-parse", "HEAD")) == (before, head)
    assert box.run(checkout(at="tree")) == 0
    assert "nothing to do" in capsys.readouterr().err


@pytest.mark.contract
def test_an_empty_path_is_not_the_same_as_none() -> None:
    """Without a PATH programs are looked for in the usual folders, and with an empty one nowhere."""
    require_git({})
    with pytest.raises(errors.SourceError, match="no git that can be started"):
        require_git({"PATH": ""})


@pytest.mark.contract
@pytest.mark.parametrize("place", ["outer/inner", "tree"])
def test_a_tree_in_or_of_another_repository_leaves_that_one_alone(box: Box, place: str) -> None:
    """Inside another repository, and as a linked worktree of a clone of the same origin."""
    box.git("", "clone", "-q", box.upstream.url, "outer")
    if place == "tree":
        box.git("outer", "worktree", "add", "-q", "--detach", "../tree")
    box.write("outer/mine", "mine\n")
    looks = (("rev-parse", "--symbolic-full-name", "HEAD"), ("ls-files", "-s"), ("diff", "HEAD"))
    before = [box.git("outer", *words) for words in looks]
    for ref in ("main", "feature"):
        assert box.run(checkout(at=place, ref=ref)) == 0
        tagged = box.git(place, "rev-parse", "THEROCK_UPSTREAM_DIFFBASE")
        assert tagged == box.upstream.git("root", "rev-parse", ref)
    assert [box.git("outer", *words) for words in looks] == before
    assert (box / "outer/mine").read_text() == "mine\n"


@pytest.mark.contract
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
def test_a_git_of_somebodys_in_an_interrupted_tree_keeps_its_lock(
    box: Box, capsys: pytest.CaptureFixture[str]
) -> None:
    box.tree()
    state, lock = box / "tree" / STATE, box / "tree/.git/index.lock"
    state.write_text(state.read_text().replace('"operation": null', '"operation": "checkout"'))
    lock.touch()
    line = again("--no-submodules", "--no-hipify")
    with subprocess.Popen(
        ["git", "cat-file", "--batch"], cwd=box / "tree", stdin=subprocess.PIPE, env=box.upstream.env
    ) as other:
        before = box.everything()
        assert box.run(line) == 10
        assert f"git (process {other.pid}) is at work in {box / 'tree'}" in capsys.readouterr().err
        assert box.everything() == before
        assert lock.exists()
    assert box.run(line) == 0
    assert not lock.exists()
