"""The doors: options, priorities that are said, and wrong input that leaves the disk as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from source_trees import Upstream, content, enter, isolated_environment, make_upstream
from warm_python import warm_python

from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.checkout import make_recipe_group

CLONE = Path(__file__).resolve().parents[2]
TORCH, AUDIO = "pytorch_torch_repo.py", "pytorch_audio_repo.py"
PROJECTS = {TORCH: "pytorch", AUDIO: "pytorch_audio"}  # what each door hands to its command


@dataclass(frozen=True)
class Said:
    code: int
    err: str


class Doors:
    """Starts the doors with a HOME of their own, in a folder of their own."""

    def __init__(self, upstream: Upstream, folder: Path) -> None:
        self.upstream, self.folder = upstream, folder

    def __call__(self, door: str, *arguments: str | Path) -> Said:
        command = [*warm_python(), str(CLONE / "repos" / door), *map(str, arguments)]
        env = {**self.upstream.env, "PYTHONPATH": ""}
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, check=False, timeout=120
        )
        return Said(done.returncode, done.stderr)

    def everything(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): b"" if path.is_dir() else path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.name not in (".lock", ".owner", "rocm-wheels")
        }


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    folder = tmp_path_factory.mktemp("upstream")
    return make_upstream(folder / "repositories", isolated_environment(folder / "home"))


@pytest.fixture
def doors(upstream: Upstream, tmp_path: Path) -> Doors:
    return Doors(upstream, tmp_path)


@pytest.mark.parametrize("door", [TORCH, AUDIO])
@pytest.mark.parametrize("command", ["checkout", "hipify"])
def test_help_is_quick(doors: Doors, door: str, command: str) -> None:
    loads = [sys.executable, "-X", "importtime", str(CLONE / "repos" / door), command, "--help"]
    done = subprocess.run(loads, capture_output=True, text=True, check=True)
    assert "--checkout-dir" in done.stdout
    assert ("--pytorch-dir" in done.stdout) == (door == AUDIO and command == "checkout")
    for heavy in ("pydantic", "yaml", "rocm_wheels.sources", "git"):
        assert f" {heavy}\n" not in done.stderr, heavy


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


def test_credentials_are_not_printed(doors: Doors) -> None:
    origin = ("--origin", "http://me:secret@127.0.0.1:1/x.git")
    said = doors(TORCH, "checkout", "--checkout-dir", "t", *origin, "--retries", "1")
    assert said.code == 10
    assert "trying again" in said.err
    assert "secret" not in said.err
    assert "127.0.0.1" in said.err


# what is given → what is said, exit code; the disk is as it was
WRONG: list[tuple[str, list[str], int, str]] = [
    (TORCH, ["--ref", "nowhere"], 10, "has no branch, tag or ref nowhere"),
    (TORCH, ["--ref", "abcdef0123"], 10, "a commit needs all 40 digits"),
    (TORCH, ["--ref", "0" * 39 + "1"], 10, "the server may not have this commit"),
    (TORCH, ["--ref", "refs/pull/8/head"], 10, "has no branch, tag or ref refs/pull/8/head"),
    (TORCH, ["--ref", "same"], 10, "is ambiguous: refs/heads/same is"),
    (TORCH, ["--ref", "--upload-pack=x"], 2, "is not a ref"),
    (TORCH, ["--ref", "two words"], 2, "is not a ref"),
    (TORCH, ["--ref", ""], 2, "'' is not a ref"),
    (TORCH, ["--ref", "main~1"], 2, "is not a ref"),
    (TORCH, ["--origin", "file:///nowhere"], 10, "does not appear to be a git repository"),
    (TORCH, ["--origin", "no/such/folder"], 10, "no/such/folder"),
    (TORCH, ["--origin", "--upload-pack=x"], 2, "is not a repository"),
    (TORCH, ["--origin", ""], 2, "'' is not a repository"),
    (TORCH, ["--checkout-dir", "a-file"], 10, "a-file is not a folder"),
    (TORCH, ["--checkout-dir", "full"], 10, "full is not empty and not a git checkout"),
    (TORCH, ["--checkout-dir", "other"], 10, "is a clone of file:///elsewhere"),
    (TORCH, ["--checkout-dir", "a-file/tree"], 10, "a-file is not a folder"),
    (TORCH, ["--repo-name", "../up"], 2, "is not the name of a folder"),
    (TORCH, ["--depth", "0"], 2, "0 is not in the range 1<=x"),
    (TORCH, ["--jobs", "many"], 2, "'many' is not a valid integer"),
    (TORCH, ["--pytorch-dir", "x"], 2, "No such option"),
    (AUDIO, ["--pytorch-dir", "nowhere"], 2, "--pytorch-dir nowhere is not a folder"),
    (AUDIO, ["--pytorch-dir", "bad-pins"], 2, "related_commits:2: a row has 6 fields"),
    (AUDIO, ["--pytorch-dir", "full", "--require-related-commit"], 10, "there is no full/related_commits"),
]


@pytest.mark.parametrize("row", WRONG, ids=[message for *_, message in WRONG])
def test_wrong_input(
    doors: Doors,
    upstream: Upstream,
    row: tuple[str, list[str], int, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through the commands of the doors, in this process."""
    name, options, code, message = row
    upstream.git("root", "branch", "-f", "same", "feature")
    upstream.git("root", "tag", "-f", "same", "main")
    (doors.folder / "a-file").write_text("a file")
    (doors.folder / "full").mkdir()
    (doors.folder / "full/x").write_text("x")
    (doors.folder / "bad-pins").mkdir()
    (doors.folder / "bad-pins/related_commits").write_text("# pins\nhello\n")
    upstream.git(doors.folder, "init", "-q", "other")
    upstream.git(doors.folder / "other", "remote", "add", "origin", "file:///elsewhere")
    before = doors.everything()
    default = ["--source-dir", "deep/er", "--origin", upstream.url]
    if "--ref" not in options and "--pytorch-dir" not in options:
        default += ["--ref", "main"]
    enter(monkeypatch, doors.folder, upstream.env)
    ended, err = (
        run_command(make_recipe_group(PROJECTS[name]), ["checkout", *default, *options]),
        capsys.readouterr().err,
    )
    assert (ended, message in err) == (code, True), err
    assert "Traceback" not in err
    assert doors.everything() == before


def test_hipify_of_what_is_no_checkout(doors: Doors) -> None:
    said = doors(TORCH, "hipify", "--checkout-dir", "nowhere")
    assert (said.code, "nowhere is not a git checkout" in said.err) == (10, True), said.err
    assert doors.everything() == {}


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
