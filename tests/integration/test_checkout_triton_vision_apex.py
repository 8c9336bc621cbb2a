"""The doors of vision, apex and triton: where their commits come from, and what triton's build finds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from sources import CLONE, TRITON_PIN, Upstream, write_files

pytestmark = pytest.mark.contract

AUDIO, VISION, APEX, TRITON = (f"pytorch_{name}_repo.py" for name in ("audio", "vision", "apex", "triton"))
VERSION = ".ci/docker/triton_version.txt"


@dataclass(frozen=True)
class Place:
    """A folder with an upstream beside it, and a torch tree made of nothing but files of pins."""

    upstream: Upstream
    folder: Path

    def __call__(self, door: str, *words: str | Path, code: int = 0) -> str:
        """Run a door in the folder; return what it said."""
        ended = self.upstream.script(self.folder, door, *words)
        assert ended.code == code, ended.err
        return ended.err

    def checkout(self, door: str, *words: str | Path, code: int = 0) -> str:
        """Check out of the upstream, below the folder `here`."""
        return self(
            door, "checkout", "--source-dir", "here", "--origin", self.upstream.url, *words, code=code
        )

    def write(self, name: str, text: str) -> None:
        """Write a file of the torch tree."""
        write_files(self.folder / "here/pytorch", {name: text})

    def git(self, tree: str, *words: str) -> str:
        return self.upstream.git(self.folder / "here" / tree, *words)


@pytest.fixture
def place(upstream: Upstream, tmp_path: Path) -> Place:
    (tmp_path / "work/here/pytorch").mkdir(parents=True)
    return Place(upstream, tmp_path / "work")


def test_vision_and_apex_by_the_pins_of_torch(place: Place) -> None:
    pull = place.upstream.git("root", "rev-parse", "refs/pull/7/head")
    feature = place.upstream.git("root", "rev-parse", "feature")
    place.write("related_commits", f"ubuntu|pytorch|apex|release/x|{pull}|{place.upstream.url}\n")
    assert "related_commits line 1, branch release/x" in place.checkout(APEX, "--require-related-commit")
    assert place.git("apex", "rev-parse", "HEAD") == pull
    assert "no row for torchvision (it has apex) and no .github/ci_commit_pins/vision.txt" in place.checkout(
        VISION, "--require-related-commit", code=10
    )
    place.write(".github/ci_commit_pins/vision.txt", f"{feature}\n")
    assert "(here/pytorch/.github/ci_commit_pins/vision.txt; origin: " in place.checkout(VISION)
    assert place.git("pytorch_vision", "rev-parse", "HEAD") == feature


def test_triton_by_its_pin_leaves_variables_and_not_a_commit(place: Place) -> None:
    feature = place.upstream.git("root", "rev-parse", "feature")
    place.write(TRITON_PIN, f"{feature}\n")
    said = place.checkout(TRITON)
    assert f"({Path('here/pytorch') / TRITON_PIN}; origin: --origin)" in said
    tree = place.folder / "here/triton"
    left = tree / "build_env.json"
    assert json.loads(left.read_text()) == {"TRITON_WHEEL_VERSION_SUFFIX": ""}
    assert place.git("triton", "rev-parse", "HEAD") == feature
    assert place.git("triton", "status", "--porcelain", "--ignore-submodules") == ""
    assert "nothing to do" in place.checkout(TRITON)

    left.unlink()
    assert "variables for the build of triton" in place.checkout(TRITON)
    left.unlink()
    assert "variables for the build of triton" in place(TRITON, "hipify", "--source-dir", "here")
    place.checkout(TRITON, "--no-hipify")
    assert not left.exists()
    left.write_text('{"MY": "own"}\n')
    for _ in range(2):  # said where nothing is to be done as well: the recipe may have changed since
        assert "has not what the recipe says; it is left as it is" in place.checkout(TRITON, "--ref", "main")
    assert left.read_text() == '{"MY": "own"}\n'
    left.unlink()
    place.checkout(TRITON, "--ref", "main")
    assert json.loads(left.read_text()) == {"TRITON_WHEEL_VERSION_SUFFIX": ""}


def test_release_branch_that_goes_with_torch(place: Place) -> None:
    place.upstream.git("root", "branch", "release/3.7.x", "feature")
    place.write(VERSION, "3.7.0\n")
    assert "release/3.7.x of file://" in place.checkout(TRITON, "--release")
    feature = place.upstream.git("root", "rev-parse", "feature")
    assert place.git("triton", "rev-parse", "HEAD") == feature
    # the branch moves on, and so does the checkout
    place.upstream.git("root", "branch", "-f", "release/3.7.x", "main")
    place.checkout(TRITON, "--release")
    assert place.git("triton", "rev-parse", "HEAD") == place.upstream.git("root", "rev-parse", "main")


def test_a_sixth_project_is_one_new_file(place: Place, tmp_path: Path) -> None:
    """A clone with one more recipe: its options, checkout, lock, place in the order and folder follow."""
    clone = tmp_path / "clone"
    for name in ("build_tools", "repos"):
        skip = shutil.ignore_patterns("__pycache__", "pytorch", "apex", "triton", ".rocm-wheels")
        shutil.copytree(CLONE / name, clone / name, ignore=skip)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(CLONE / name, clone)
    recipe = (CLONE / "repos/pytorch_audio.yaml").read_text()
    recipe = recipe.replace("name: pytorch_audio", "name: torchsixth").replace("torchaudio", "torchsixth")
    recipe = recipe.replace("after: [pytorch]", "after: [pytorch, pytorch_vision]")
    (clone / "repos/torchsixth.yaml").write_text(recipe)
    env = {**place.upstream.env, "PYTHONPATH": str(clone / "build_tools"), "COLUMNS": "200"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert "torchsixth" in run("-m", "rocm_wheels", "recipe", "check")
    pull = place.upstream.git("root", "rev-parse", "refs/pull/7/head")
    pins = tmp_path / "clone/repos/pytorch"
    pins.mkdir()
    (pins / "related_commits").write_text(f"ubuntu|pytorch|torchsixth|main|{pull}|{place.upstream.url}\n")
    door = "from rocm_wheels.cli.checkout import make_recipe_group; make_recipe_group('torchsixth')()"
    words = ("checkout", "--origin", place.upstream.url, "--require-related-commit")
    assert "related_commits line 1, branch main" in run("-c", door, *words)
    assert place.upstream.git(clone / "repos/torchsixth", "rev-parse", "HEAD") == pull
    order = (
        "from rocm_wheels.models.project import list_usual_projects;"
        "print([p.name for p in list_usual_projects()])"
    )
    names = ["triton", "pytorch", "apex", "pytorch_audio", "pytorch_vision", "torchsixth"]
    assert str(names) in run("-c", order)
    place.upstream.git("root", "checkout", "-q", "-b", "pins")
    (place.upstream.root / "related_commits").write_text((pins / "related_commits").read_text())
    place.upstream.commit("root", "pin torchsixth")
    place.upstream.git("root", "checkout", "-q", "main")
    torch = ("--pytorch-origin", place.upstream.url, "--pytorch-ref", "pins", "--project", "torch")
    lock = tmp_path / "set.lock"
    run("-m", "rocm_wheels", "lock", *torch, "--project", "torchsixth", "-o", str(lock))
    found = json.loads(lock.read_text())["projects"]
    assert list(found) == ["pytorch", "torchsixth"] and found["torchsixth"]["commit"] == pull
