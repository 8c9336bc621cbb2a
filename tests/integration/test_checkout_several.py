"""``rocm-wheels checkout``: five projects side by side, over ``file://`` by a user's git configuration."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock
from sources import ALL, COMPANIONS, Upstream


@pytest.mark.contract
def test_all_five_then_nothing_to_do(github: Upstream, tmp_path: Path) -> None:
    said = github.checkout(tmp_path, "--all", "--source-dir", "trees")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines] == list(ALL)
    assert all("  checked out at " in line for line in lines), said.out
    assert lines[1].endswith("(nightly)")
    for name in COMPANIONS:
        assert f"[{name}] " in said.err
        upstream = name.removeprefix("pytorch_")
        assert github.git(tmp_path / "trees" / name, "rev-parse", "HEAD") == github.git(
            github.folder / upstream, "rev-parse", "HEAD^"
        )
    assert "[pytorch_audio] " in said.err
    assert "related_commits line 2, branch release/x" in said.err
    assert (tmp_path / "trees/pytorch/hip/a.hip").exists()

    again = github.checkout(tmp_path, "torch", *COMPANIONS, "pytorch", "--source-dir", "trees")
    assert again.code == 0, again.err
    assert again.out.count("  as it was at ") == 5
    assert again.err.count("nothing to do") == 5
    assert again.out.splitlines()[0].startswith("pytorch ")


@pytest.mark.contract
def test_a_failure_stops_none_of_the_others(github: Upstream, tmp_path: Path) -> None:
    trees = tmp_path / "trees"
    for name in ("pytorch_audio", "triton"):
        (trees / name).mkdir(parents=True)
        (trees / name / "mine.txt").write_text("mine\n")
    said = github.checkout(tmp_path, "--all", "--source-dir", trees)
    assert said.code == 10
    assert re.findall(r"^(\S+) +failed$", said.out, re.MULTILINE) == ["pytorch_audio", "triton"]
    assert said.out.count("checked out at") == 3
    for name in ("pytorch_audio", "triton"):
        assert f"error: {name}: {trees / name} is not empty and not a git checkout" in said.err
        assert [path.name for path in (trees / name).iterdir()] == ["mine.txt"]


@pytest.mark.contract
def test_a_tip_names_options_of_this_command_alone(github: Upstream, tmp_path: Path) -> None:
    upstream = github.folder / "root"
    moved = upstream.rename(github.folder / "moved")
    try:
        said = github.checkout(
            tmp_path,
            "torch",
            "--source-dir",
            "trees",
            "--mirror-dir",
            tmp_path / "m",
            ROCM_WHEELS_RETRIES="0",
        )
    finally:
        moved.rename(upstream)
    assert said.code == 10
    assert "tip: check --origin and the network; nothing was changed" in said.err
    assert "for a commit (--ref)" in said.err
    assert not re.search("--checkout-dir|--repo-hashtag", said.err)


@pytest.mark.contract
def test_nothing_begins_that_reads_in_a_torch_which_failed(github: Upstream, tmp_path: Path) -> None:
    (tmp_path / "pytorch").mkdir()
    (tmp_path / "pytorch/mine.txt").write_text("mine\n")
    said = github.checkout(tmp_path, "torchaudio", "torch", "--source-dir", tmp_path)
    assert said.code == 10
    assert said.out.splitlines() == [
        "pytorch_audio  not begun: its commit is read in pytorch",
        "pytorch        failed",
    ]
    assert not (tmp_path / "pytorch_audio").exists()


@pytest.mark.contract
def test_companions_of_a_torch_that_is_elsewhere(github: Upstream, tmp_path: Path) -> None:
    assert github.checkout(tmp_path, "torch", "--source-dir", "a", "--no-hipify", "--no-submodules").code == 0
    torch = ("--pytorch-dir", "a/pytorch", "--require-related-commit")
    for name in ("apex", "vision"):
        script = f"pytorch_{name}_repo.py"
        said = github.script(tmp_path, script, "checkout", "--checkout-dir", f"b/{name}", *torch)
        assert said.code == 0, said.err
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["apex", "vision"]
    (tmp_path / "a/pytorch/related_commits").unlink()
    missing = github.script(tmp_path, "pytorch_apex_repo.py", "checkout", "--checkout-dir", "c/apex", *torch)
    assert missing.code == 10
    assert "there is no a/pytorch/related_commits" in missing.err
    assert not (tmp_path / "c").exists()


@pytest.mark.contract
def test_an_interruption_ends_them_all(github: Upstream, tmp_path: Path) -> None:
    slow = tmp_path / "bin"
    slow.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    stall = f'case "$*" in *" fetch "*) touch "{tmp_path}/fetching-$$"; sleep 600;; esac'
    (slow / "git").write_text(f'#!/bin/sh\n{stall}\nexec {real} "$@"\n')
    (slow / "git").chmod(0o755)
    assert (
        github.checkout(tmp_path, "torch", "--source-dir", "trees", "--no-hipify", "--no-submodules").code
        == 0
    )
    env = {**github.env, "PATH": f"{slow}{os.pathsep}{github.env['PATH']}"}
    argv = [sys.executable, "-m", "rocm_wheels", "checkout", *COMPANIONS, "--source-dir", "trees"]
    child = subprocess.Popen(argv, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob("fetching-*"))) < len(COMPANIONS) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)  # as Ctrl-C, and never ignored
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    for note in tmp_path.glob("fetching-*"):
        assert not Path(f"/proc/{note.name.split('-')[1]}").exists()
    assert github.checkout(tmp_path, *COMPANIONS, "--source-dir", "trees").code == 0


@pytest.mark.contract
def test_an_interruption_ends_what_waits(github: Upstream, tmp_path: Path) -> None:
    """For its next attempt (a server that hangs up), and for another run that fills the same mirror."""
    flaky = tmp_path / "bin"
    flaky.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    fail = 'case "$*" in *" fetch "*) echo "fatal: the remote end hung up unexpectedly" >&2; exit 128;; esac'
    (flaky / "git").write_text(f'#!/bin/sh\n{fail}\nexec {real} "$@"\n')
    (flaky / "git").chmod(0o755)
    assert (
        github.checkout(tmp_path, "torch", "--source-dir", "trees", "--no-hipify", "--no-submodules").code
        == 0
    )
    assert github.checkout(tmp_path, "apex", "--source-dir", "trees", "--mirror-dir", "mirrors").code == 0
    (mirror,) = (path.parent for path in tmp_path.glob("mirrors/**/HEAD"))
    shutil.rmtree(tmp_path / "trees/apex")
    rows: list[tuple[list[str], dict[str, str], str]] = [
        (["apex", "triton"], {"PATH": f"{flaky}{os.pathsep}{github.env['PATH']}"}, "trying again in"),
        (["apex", "--mirror-dir", "mirrors"], {}, "; waiting"),
    ]
    for words, env, said in rows:
        with FileLock(str(next(mirror.glob("**/.lock")))):
            for ref in (mirror / "refs").rglob("*"):
                if ref.is_file():
                    ref.unlink()  # so that there is something to fetch
            argv = [sys.executable, "-m", "rocm_wheels", "checkout", *words, "--source-dir", "trees"]
            child = subprocess.Popen(
                argv, cwd=tmp_path, env={**github.env, **env}, stderr=subprocess.PIPE, text=True
            )
            assert child.stderr is not None
            while said not in (line := child.stderr.readline()):
                assert line
            child.send_signal(signal.SIGTERM)  # as Ctrl-C, and never ignored
            _, rest = child.communicate(timeout=60)
            assert child.returncode == 130, "and not that of what it waited for"
            assert "(3 of " not in rest, "at once, not when all attempts have failed"


def test_help_reads_no_recipe(github: Upstream, tmp_path: Path) -> None:
    argv = [sys.executable, "-X", "importtime", "-m", "rocm_wheels", "checkout", "--help"]
    done = subprocess.run(argv, cwd=tmp_path, env=github.env, capture_output=True, text=True, check=True)
    assert "--all" in done.stdout
    for heavy in ("pydantic", "yaml", "rocm_wheels.sources", "git"):
        assert f" {heavy}\n" not in done.stderr, heavy
