"""The doors: options, priorities that are said, and wrong input that leaves the disk as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Ended
from sources import CLONE, Upstream, content

TORCH, AUDIO = "pytorch_torch_repo.py", "pytorch_audio_repo.py"


class Doors:
    """Starts the doors with a HOME of their own, in a folder of their own."""

    def __init__(self, upstream: Upstream, folder: Path) -> None:
        self.upstream, self.folder = upstream, folder

    def __call__(self, door: str, *arguments: str | Path, **env: str) -> Ended:
        return self.upstream.script(self.folder, door, *arguments, **env)


@pytest.fixture
def doors(upstream: Upstream, tmp_path: Path) -> Doors:
    return Doors(upstream, tmp_path)


@pytest.mark.parametrize(("door", "command"), [(TORCH, "hipify"), (AUDIO, "checkout")])
def test_help_is_quick(doors: Doors, door: str, command: str) -> None:
    loads = [sys.executable, "-X", "importtime", str(CLONE / "repos" / door), command, "--help"]
    done = subprocess.run(loads, capture_output=True, text=True, check=True)
    assert "--checkout-dir" in done.stdout
    assert ("--pytorch-dir" in done.stdout) == (door == AUDIO and command == "checkout")
    for heavy in ("pydantic", "yaml", "rocm_wheels.sources", "git"):
        assert f" {heavy}\n" not in done.stderr, heavy


@pytest.mark.contract
def test_torch_then_audio_by_its_pin(doors: Doors, upstream: Upstream) -> None:
    origin = ("--origin", upstream.url)
    torch = doors(TORCH, "checkout", "--source-dir", "here", *origin, "--ref", "main", "--depth", "1")
    assert torch.code == 0, torch.err
    assert "main of file://" in torch.err
    assert "(options)" in torch.err
    unpinned = doors(AUDIO, "checkout", "--source-dir", "here", *origin, "--require-related-commit")
    assert unpinned.code == 10
    assert "there is no here/pytorch/related_commits" in unpinned.err
    assert not (doors.folder / "here/pytorch_audio").exists()
    pull = upstream.git("root", "rev-parse", "refs/pull/7/head")
    row = f"ubuntu|pytorch|torchaudio|release/x|{pull}|{upstream.url}\n"
    (doors.folder / "here/pytorch/related_commits").write_text(row)
    audio = doors(AUDIO, "checkout", "--source-dir", "here", "--repo-name", "audio", *origin)
    assert audio.code == 0, audio.err
    assert "related_commits line 1, branch release/x" in audio.err
    assert "nothing to hipify in the tree of pytorch_audio: setup.py translates" in audio.err
    assert "as it was" not in audio.err
    assert upstream.git(doors.folder / "here/audio", "rev-parse", "HEAD") == pull
    own = doors(AUDIO, "checkout", "--source-dir", "here", "--repo-name", "audio", *origin, "--ref", "v1")
    assert own.code == 0, own.err
    assert upstream.git(doors.folder / "here/audio", "describe", "--all", "HEAD") != pull


@pytest.mark.contract
def test_a_relative_folder_is_an_origin(doors: Doors, upstream: Upstream) -> None:
    relative = os.path.relpath(upstream.root, doors.folder)
    for _ in range(2):
        said = doors(
            TORCH,
            "checkout",
            "--checkout-dir",
            "tree",
            "--origin",
            relative,
            "--ref",
            "main",
        )
        assert said.code == 0, said.err
    assert "nothing to do" in said.err


@pytest.mark.contract
def test_credentials_are_not_printed(doors: Doors) -> None:
    origin = ("--origin", "http://me:secret@127.0.0.1:1/x.git")
    said = doors(TORCH, "checkout", "--checkout-dir", "t", *origin, ROCM_WHEELS_RETRIES="1")
    assert said.code == 10
    assert "trying again" in said.err
    assert "secret" not in said.err
    assert "127.0.0.1" in said.err


@pytest.mark.contract
def test_hipify_of_what_is_no_checkout(doors: Doors) -> None:
    said = doors(TORCH, "hipify", "--checkout-dir", "nowhere")
    assert (said.code, "nowhere is not a git checkout" in said.err) == (10, True), said.err
    assert not list(doors.folder.iterdir())


def test_a_state_of_another_version(doors: Doors, upstream: Upstream) -> None:
    arguments = (
        TORCH,
        "checkout",
        "--checkout-dir",
        "t",
        "--origin",
        upstream.url,
        "--no-submodules",
    )
    assert doors(*arguments, "--ref", "main").code == 0
    state = doors.folder / "t/.git/rocm-wheels/state.json"
    for text in ('{"format": 99}', "{", "[]"):
        state.write_text(text)
        files = content(doors.folder / "t")
        said = doors(*arguments, "--ref", "feature")
        assert (said.code, "cannot be understood" in said.err) == (10, True), said.err
        assert content(doors.folder / "t") == files
