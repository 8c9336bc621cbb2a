"""What others write that goes to git: none of it is an option or a program, and each ends with 2 or 10.

git is real, behind a script that writes down its arguments. The sample takes each 19th; the exhaustive test
all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from sources import MIDDLE, Upstream, enter

from rocm_wheels.cli import boundary
from rocm_wheels.cli.checkout import make_recipe_group

LEAST, SAMPLE = 150, 19
ALLOWED = {2, 10}
# what is not used, or is a name like others here: these may end well, and leave nothing behind either
HARMLESS = {"lock's submodule origin", "submodule name", "patch ignored letters", "patch's name"}
pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(os.name != "posix", reason="git behind a script of the shell"),
]
CANARY = "canary-51c0"
TOUCH = f"touch ../{CANARY}"

OPTIONS = (
    f"--upload-pack={TOUCH}",
    f"-u{TOUCH}",
    f"-ccore.sshCommand={TOUCH}",
    "-c",
    "--exec=x",
    "--template=x",
    "--help",
    "-",
    "--",
    f"--config=core.fsmonitor={TOUCH}",
    "--output=../out",
    "-o../out",
)
CONTROLS = ("a\nb", "a\rb", "a\tb", "a\x1b[2Jb", "a\x7fb", " a", "a ")
REFS = (
    *OPTIONS,
    *CONTROLS,
    "",
    "..",
    "../x",
    "a..b",
    "a/../b",
    "/refs/heads/main",
    "refs/heads/",
    "a//b",
    "main^",
    "main~1",
    "main:a.cu",
    "@{1}",
    "main@{1}",
    "^main",
    "+main",
    "main*",
    "ma?n",
    "[main]",
    "a\\b",
    "main.lock",
    "main.",
    "x" * 5000,
    ":/root",
    f"$({TOUCH})",
    f"`{TOUCH}`",
    f"main;{TOUCH}",
    f"|{TOUCH}",
    ".git/config",
    "../../etc/passwd",
)
PROGRAMS = (
    f"ext::{TOUCH}",
    f"ext::sh -c {TOUCH.replace(' ', '% ')}",
    f"EXT::{TOUCH}",
    "fd::3",
    f"nosuch::{TOUCH}",
    f"ssh://-oProxyCommand={TOUCH}/x",
    f"-oProxyCommand={TOUCH}:x",
    f"ssh://h -oProxyCommand={TOUCH}/x",
    f"git+ext::{TOUCH}",
    f"ext::ext::{TOUCH}",
)
ORIGINS = (
    *OPTIONS,
    "a\nb",
    "a\rb",
    "",
    *PROGRAMS,
    "no/where",
    "file://",
    "file:///no/where",
    "/dev/null",
    "x" * 5000,
    f"$({TOUCH})",
    f";{TOUCH}",
    "http://127.0.0.1:9/x",
    "https://[x",
    "ftp://127.0.0.1:9/x",
    "javascript:1",
    "//x",
)
MODULE_URLS = (
    *(payload for payload in OPTIONS if payload not in ("-", "--")),
    *PROGRAMS,
    "file:///etc",
    "/etc",
    "file://localhost/etc",
    "FILE:///etc",
    "../../../../../../../up",
    "../nowhere",
    "x\\u001b[2J",
)
MODULE_NAMES = (
    "../../hooks",
    "..",
    "a/../b",
    "/abs",
    ".git",
    ".git/hooks",
    "a/.GIT/x",
    "git~1",
    "-c",
    ".",
    "a/..",
    "..\\\\x",
    ".git.",
    ".git ",
    ".g\u200cit",
)
PATCHES: Mapping[str, str] = {
    "above": "../../outside",
    "absolute": "/tmp/outside-51c0",
    "hooks": ".git/hooks/post-checkout",
    "config": ".git/config",
    "config in capitals": ".GIT/config",
    "config on Windows": "git~1/config",
    "hooks below": "x/../.git/hooks/pre-commit",
    "ignored letters": ".g\u200cit/config",
    "hooks of a submodule": ".git/modules/third_party/middle/hooks/post-checkout",
    "another submodule": f"{MIDDLE}/.git",
}
NOT_PATCHES = (
    "",
    "nonsense\n",
    "From \n",
    "diff --git a/x b/x\n",
    "\x1b[2J\n",
    "From " + "0" * 40 + "\n\n---\n" + "x" * 50_000,
    "Subject: x\n\ndiff --git a/a b/b\nrename from ../a\nrename to /tmp/b\n",
)


@dataclass(frozen=True)
class Attempt:
    """Words for the command of one project, what is done before, and what may not be an argument of git."""

    what: str
    words: list[str]
    payload: str
    before: Callable[[], object] = lambda: None
    project: str = "pytorch"


def checkout(*words: str, origin: str, ref: str = "main") -> list[str]:
    places = ["--checkout-dir", "new", f"--origin={origin}", f"--ref={ref}"]
    return ["checkout", *places, "--no-hipify", *words]


def write_patch(name: str, text: str) -> Callable[[], object]:
    def write() -> None:
        place = Path("sets/pytorch/main/base") / name
        place.parent.mkdir(parents=True)
        place.write_bytes(text.encode())

    return write


def format_new_file(path: str) -> str:
    """Return a patch that makes a program of one line there."""
    head = "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: a <a@b>\n"
    head += "Date: Mon, 1 Jan 2024 00:00:00 +0000\nSubject: [PATCH] x\n\n---\n"
    body = f"diff --git a/{path} b/{path}\nnew file mode 100755\n--- /dev/null\n+++ b/{path}\n"
    return f"{head}{body}@@ -0,0 +1 @@\n+{TOUCH}\n-- \n2.40.0\n"


def list_attempts(upstream: Upstream) -> Iterator[Attempt]:
    """Yield each payload at each place that takes it."""
    good = upstream.url
    for ref in REFS:
        yield Attempt("ref", checkout(origin=good, ref=ref), ref)
    for origin in ORIGINS:
        yield Attempt("origin", checkout(origin=origin), origin)
    for name in (*OPTIONS, *CONTROLS, "..", "a..b", "a.lock", ".git/x", "@{1}", "x" * 5000, "HEAD", "a\\b"):
        yield Attempt("branch", checkout(f"--branch={name}", origin=good), name)
    for at, payloads in {
        "origin": (*OPTIONS, *PROGRAMS, "a\nb"),
        "ref": (*OPTIONS, "a..b", "a\nb", "x^"),
        "commit": (*OPTIONS, "HEAD", "main", "0" * 39, "0" * 41, "../x", "G" * 40),
        "tree": ("--help", "HEAD^{tree}", "0" * 39),
    }.items():
        for payload in payloads:
            words = ["checkout", "--checkout-dir", "new", "--lock", "set.lock"]
            yield Attempt(f"lock's {at}", words, payload, write_lock(upstream, at, payload))
    for at, payload in (
        ("origin", PROGRAMS[0]),
        ("commit", "--help"),
        ("path", "../../x"),
        ("path", ".git/hooks"),
    ):
        words = ["checkout", "--checkout-dir", "new", "--lock", "set.lock"]
        yield Attempt(
            f"lock's submodule {at}", words, payload, write_lock(upstream, f"submodule {at}", payload)
        )
    for key, payloads in {"url": MODULE_URLS, "name": MODULE_NAMES, "path": MODULE_NAMES}.items():
        for payload in payloads:
            before = commit_module(upstream, key, payload)
            yield Attempt(f"submodule {key}", checkout(origin=good, ref="hostile"), payload, before)
    options = ("--patch-dir", "sets", "--patchset", "main")
    for name, path in PATCHES.items():
        patch = write_patch("0001-x.patch", format_new_file(path))
        yield Attempt(f"patch {name}", checkout(*options, origin=good), path, patch)
    for text in NOT_PATCHES:
        yield Attempt("no patch", checkout(*options, origin=good), text, write_patch("0001-x.patch", text))
    for name in ("-x.txt", "--help", "0001.txt", ".patch.swp"):
        yield Attempt("patch's name", checkout(*options, origin=good), name, write_patch(name, "x"))
    for origin in (*OPTIONS, *PROGRAMS, "../audio", "a\tb"):
        row = f"ubuntu|pytorch|torchaudio|main|{'1' * 40}|{origin}\n"
        words = ["checkout", "--checkout-dir", "new", "--pytorch-dir", "torch"]
        yield Attempt("row's origin", words, origin, write_row(row), "pytorch_audio")


def write_row(row: str) -> Callable[[], object]:
    def write() -> None:
        Path("torch").mkdir()
        Path("torch/related_commits").write_text(row)

    return write


def write_lock(upstream: Upstream, at: str, payload: str) -> Callable[[], object]:
    """Return what writes a lock with a wrong value there."""

    def write() -> None:
        document = upstream.first_commits()
        project = document["projects"]["pytorch"]
        place, _, key = at.rpartition(" ")
        project["origin"] = upstream.url
        submodule = project["submodules"].pop(MIDDLE)
        if place and key != "path":
            submodule[key] = payload
        project["submodules"][payload if key == "path" else MIDDLE] = submodule
        if not place:
            project[key] = payload
        Path("set.lock").write_text(json.dumps(document))

    return write


def commit_module(upstream: Upstream, key: str, payload: str) -> Callable[[], object]:
    """Return what makes the branch `hostile`, whose .gitmodules has that name, path or URL."""

    def write() -> None:
        values = {"name": MIDDLE, "path": MIDDLE, "url": "../middle", key: payload}
        text = '[submodule "{name}"]\n\tpath = "{path}"\n\turl = "{url}"\n'.format(**values)
        tree = upstream.git("root", "ls-tree", "main")
        (upstream.root / ".git/hostile").write_text(text)
        blob = upstream.git("root", "hash-object", "-w", "--no-filters", ".git/hostile")
        lines = [line for line in tree.splitlines() if not line.endswith(".gitmodules")]
        made = upstream._git(
            "root", "mktree", told="\n".join([*lines, f"100644 blob {blob}\t.gitmodules"]) + "\n"
        )
        commit = upstream.git("root", "commit-tree", "-m", "x", made.strip())
        upstream.git("root", "update-ref", "refs/heads/hostile", commit)

    return write


def write_git_script(folder: Path) -> Path:
    """Write a git that adds its arguments, a line each and an empty one, to a file."""
    script, log = folder / "bin/git", folder / "arguments"
    script.parent.mkdir(parents=True)
    line = f"printf '%s\\n' \"$@\" '' >> '{log}'"
    script.write_text(f"#!/bin/sh\n{line}\nexec '{shutil.which('git')}' \"$@\"\n")
    script.chmod(0o755)
    return log


def find_harm(attempt: Attempt, box: Path, upstream: Upstream, log: Path) -> str:
    """Return what an attempt has done, "" where it was refused and left nothing."""
    box.mkdir()
    log.unlink(missing_ok=True)
    env = {**upstream.env, "PATH": f"{log.parent / 'bin'}{os.pathsep}{upstream.env['PATH']}"}
    env["ROCM_WHEELS_RETRIES"] = "0"
    with pytest.MonkeyPatch.context() as patch:
        enter(patch, box, env)
        attempt.before()
        log.unlink(missing_ok=True)
        before = sorted(box.parent.iterdir())
        try:
            code = boundary.run_command(make_recipe_group(attempt.project), attempt.words)
        except BaseException as harm:
            return f"{type(harm).__name__}: {str(harm)[:200]}"
    allowed = ALLOWED | ({0} if attempt.what in HARMLESS else set())
    harms = [] if code in allowed else [f"exit code {code}"]
    outside = {path for path in box.parent.iterdir() if path != log} - set(before)
    harms += [f"{path} was made" for path in outside]
    harms += [f"{path} was made" for path in box.parent.rglob(f"{CANARY}*")]
    calls = log.read_text(errors="replace").splitlines() if log.exists() else []
    if attempt.payload.startswith("-") and attempt.payload not in ("-", "--", "-c", "--help"):
        harms += [f"git was given {attempt.payload}"] if attempt.payload in calls else []
    shutil.rmtree(box)
    return ", ".join(harms)


def test_nothing_that_others_write_is_an_option_or_a_program(
    upstream: Upstream, tmp_path: Path, exhaustive: bool
) -> None:
    attempts = list(list_attempts(upstream))
    assert len(attempts) >= LEAST
    log = write_git_script(tmp_path / "git")
    (tmp_path / "work").mkdir()
    harms = {}
    for attempt in attempts if exhaustive else attempts[::SAMPLE]:
        if harm := find_harm(attempt, tmp_path / "work/box", upstream, log):
            harms[f"{attempt.what} {attempt.payload[:60]!r}"] = harm
            shutil.rmtree(tmp_path / "work/box", ignore_errors=True)
    assert not harms, "\n".join(f"{name}: {harm}" for name, harm in harms.items())
    assert not Path("/tmp/outside-51c0").exists()
