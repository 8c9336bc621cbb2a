"""``rocm-wheels checkout`` and the doors: projects side by side, by pins, by a line, by an origin."""

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
from sources import ALL, CLONE, COMPANIONS, Upstream

pytestmark = pytest.mark.contract

TORCH, AUDIO = "pytorch_torch_repo.py", "pytorch_audio_repo.py"


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


def test_a_tip_names_options_of_this_command_alone(github: Upstream, tmp_path: Path) -> None:
    upstream = github.folder / "root"
    moved = upstream.rename(github.folder / "moved")
    try:
        said = github.checkout(
            tmp_path,
            "torch",
            "--source-dir",
            "trees",
            ROCM_WHEELS_MIRROR_DIR=str(tmp_path / "m"),
            ROCM_WHEELS_RETRIES="0",
        )
    finally:
        moved.rename(upstream)
    assert said.code == 10
    assert "tip: check --origin and the network; nothing was changed" in said.err
    assert "for a commit (--ref)" in said.err
    assert not re.search("--checkout-dir|--repo-hashtag", said.err)


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


def put_before_git(folder: Path, github: Upstream, at_fetch: str) -> dict[str, str]:
    """Return the environment with a git that does something else when it is to fetch."""
    (folder / "bin").mkdir()
    text = f'#!/bin/sh\ncase "$*" in *" fetch "*) {at_fetch};; esac\nexec {shutil.which("git")} "$@"\n'
    (folder / "bin/git").write_text(text)
    (folder / "bin/git").chmod(0o755)
    return {**github.env, "PATH": f"{folder / 'bin'}{os.pathsep}{github.env['PATH']}"}


def start(folder: Path, env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "rocm_wheels", "checkout", *words, "--source-dir", "trees"]
    return subprocess.Popen(argv, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)


PLAIN_TORCH = ("torch", "--source-dir", "trees", "--no-hipify", "--no-submodules")


def test_an_interruption_ends_them_all(github: Upstream, tmp_path: Path) -> None:
    env = put_before_git(tmp_path, github, f'touch "{tmp_path}/fetching-$$"; sleep 600')
    assert github.checkout(tmp_path, *PLAIN_TORCH).code == 0
    child = start(tmp_path, env, *COMPANIONS)
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob("fetching-*"))) < len(COMPANIONS) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)  # as Ctrl-C, and never ignored
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130 and "Traceback" not in err, err
    for note in tmp_path.glob("fetching-*"):
        assert not Path(f"/proc/{note.name.split('-')[1]}").exists()
    assert github.checkout(tmp_path, *COMPANIONS, "--source-dir", "trees").code == 0


def test_an_interruption_ends_what_waits(github: Upstream, tmp_path: Path) -> None:
    """For its next attempt (a server that hangs up), and for another run that fills the same mirror."""
    hangs_up = 'echo "fatal: the remote end hung up unexpectedly" >&2; exit 128'
    flaky = put_before_git(tmp_path, github, hangs_up)
    assert github.checkout(tmp_path, *PLAIN_TORCH).code == 0
    mirrored = {"ROCM_WHEELS_MIRROR_DIR": "mirrors"}
    assert github.checkout(tmp_path, "apex", "--source-dir", "trees", **mirrored).code == 0
    (mirror,) = (path.parent for path in tmp_path.glob("mirrors/**/HEAD"))
    shutil.rmtree(tmp_path / "trees/apex")
    for words, env, said in (
        (("apex", "triton"), flaky, "trying again in"),
        (("apex",), {**github.env, **mirrored}, "; waiting"),
    ):
        with FileLock(str(next(mirror.glob("**/.lock")))):
            for ref in (mirror / "refs").rglob("*"):
                if ref.is_file():
                    ref.unlink()  # so that there is something to fetch
            child = start(tmp_path, env, *words)
            assert child.stderr is not None
            while said not in (line := child.stderr.readline()):
                assert line
            child.send_signal(signal.SIGTERM)
            _, rest = child.communicate(timeout=60)
            assert child.returncode == 130, "and not that of what it waited for"
            assert "(3 of " not in rest, "at once, not when all attempts have failed"


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "rocm_wheels", "checkout", "--all"),
        (str(CLONE / "repos" / TORCH), "hipify", "--checkout-dir"),
        (str(CLONE / "repos" / AUDIO), "checkout", "--pytorch-dir"),
    ],
    ids=["all", "torch", "audio"],
)
def test_help_reads_no_recipe(words: tuple[str, ...]) -> None:
    *command, option = words
    argv = [sys.executable, "-X", "importtime", *command, "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert option in done.stdout
    for heavy in ("pydantic", "yaml", "rocm_wheels.sources", "git"):
        assert f" {heavy}\n" not in done.stderr, heavy


def test_torch_then_audio_by_its_pin(upstream: Upstream, tmp_path: Path) -> None:
    def run(door: str, *words: str, code: int = 0) -> str:
        words = ("checkout", "--source-dir", "here", "--origin", upstream.url, *words)
        ended = upstream.script(tmp_path, door, *words)
        assert ended.code == code, ended.err
        return ended.err

    assert "(options)" in run(TORCH, "--ref", "main", "--depth", "1")
    unpinned = run(AUDIO, "--require-related-commit", code=10)
    assert "there is no here/pytorch/related_commits" in unpinned
    assert not (tmp_path / "here/pytorch_audio").exists()
    pull = upstream.git("root", "rev-parse", "refs/pull/7/head")
    row = f"ubuntu|pytorch|torchaudio|release/x|{pull}|{upstream.url}\n"
    (tmp_path / "here/pytorch/related_commits").write_text(row)
    said = run(AUDIO, "--repo-name", "audio")
    assert "related_commits line 1, branch release/x" in said
    assert "nothing to hipify in the tree of pytorch_audio: setup.py translates" in said
    assert "as it was" not in said
    assert upstream.git(tmp_path / "here/audio", "rev-parse", "HEAD") == pull
    run(AUDIO, "--repo-name", "audio", "--ref", "v1")
    assert upstream.git(tmp_path / "here/audio", "rev-parse", "HEAD") != pull


def test_a_relative_folder_is_an_origin(upstream: Upstream, tmp_path: Path) -> None:
    words = ("--checkout-dir", "tree", "--ref", "main", "--origin", os.path.relpath(upstream.root, tmp_path))
    for _ in range(2):
        said = upstream.script(tmp_path, TORCH, "checkout", *words)
        assert said.code == 0, said.err
    assert "nothing to do" in said.err


def test_credentials_are_not_printed(upstream: Upstream, tmp_path: Path) -> None:
    words = ("--checkout-dir", "t", "--origin", "http://me:secret@127.0.0.1:1/x.git")
    said = upstream.script(tmp_path, TORCH, "checkout", *words, ROCM_WHEELS_RETRIES="1")
    assert (said.code, "trying again" in said.err) == (10, True), said.err
    assert "secret" not in said.err and "127.0.0.1" in said.err


@pytest.mark.slow
def test_all_five_follow_one_line(sources: Upstream, tmp_path: Path) -> None:
    """The repository that the table names is fetched, and the tree says where it is from."""
    github = sources.copy(tmp_path, github=True)
    refs = {
        "root": "2.13",
        "vision": "0.28",
        "audio": "2.11.0.2",
        "triton": "internal/3.8.x",
        "apex": "1.13.0",
    }
    said = {}
    for name, ref in refs.items():
        github.git(name, "branch", f"release/{ref}", "main")
        door = f"pytorch_{name.replace('root', 'torch')}_repo.py"
        words = ("checkout", "--source-dir", "here", "--no-submodules", "--no-hipify", "--line", "2.13")
        done = github.script(tmp_path, door, *words)
        assert (done.code, "(release line 2.13)" in done.err) == (0, True), done.err
        said[name] = done.err
    assert {tree.name for tree in (tmp_path / "here").iterdir() if tree.is_dir()} == set(ALL)
    for name, repository in (("root", "pytorch"), ("audio", "audio"), ("triton", "triton")):
        assert f"release/{refs[name]} of https://github.com/ROCm/{repository}.git" in said[name]
    again = github.script(tmp_path, door.replace("apex", "torch"), *words)
    assert (again.code, "nothing to do" in again.err) == (0, True), again.err
