"""The doors of vision, apex and triton: where their commits come from, and what triton's build finds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from source_trees import Upstream, isolated_environment, make_upstream
from warm_python import warm_python

CLONE = Path(__file__).resolve().parents[2]
AUDIO, VISION, APEX, TRITON = (f"pytorch_{name}_repo.py" for name in ("audio", "vision", "apex", "triton"))
PIN, VERSION = ".ci/docker/ci_commit_pins/triton.txt", ".ci/docker/triton_version.txt"


@dataclass(frozen=True)
class Place:
    """A folder with an upstream beside it, and a torch tree made of nothing but files of pins."""

    upstream: Upstream
    folder: Path

    def __call__(self, door: str, *words: str | Path, code: int = 0) -> str:
        """Run a door in the folder; return what it said."""
        argv = [*warm_python(), str(CLONE / "repos" / door), *map(str, words)]
        env = {**self.upstream.env, "PYTHONPATH": ""}
        done = subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    def checkout(self, door: str, *words: str | Path, code: int = 0) -> str:
        """Check out of the upstream, below the folder `here`."""
        return self(
            door, "checkout", "--source-dir", "here", "--origin", self.upstream.url, *words, code=code
        )

    def write(self, name: str, text: str) -> None:
        """Write a file of the torch tree."""
        path = self.folder / "here/pytorch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, tree: str, *words: str) -> str:
        return self.upstream.git(self.folder / "here" / tree, *words)

    def everything(self) -> dict[str, bytes]:
        """Every file, but for the locks."""
        return {
            str(path): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.name not in (".lock", ".owner")
        }


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    folder = tmp_path_factory.mktemp("upstream")
    return make_upstream(folder / "repositories", isolated_environment(folder / "home"))


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
    place.write(PIN, f"{feature}\n")
    said = place.checkout(TRITON)
    assert f"({Path('here/pytorch') / PIN}; origin: --origin)" in said
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
    assert "is not ours; it is left as it is" in place.checkout(TRITON, "--ref", "main")
    assert left.read_text() == '{"MY": "own"}\n'


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


# files of the torch tree, door, options → exit code, what is said; the disk is as it was
WRONG: list[tuple[dict[str, str], str, list[str], int, str]] = [
    ({}, TRITON, [], 10, f"triton must be pinned, and there is no {Path('here/pytorch') / PIN}"),
    ({}, TRITON, ["--pytorch-dir", "elsewhere"], 2, "--pytorch-dir elsewhere is not a folder"),
    ({PIN: "main\n"}, TRITON, [], 2, "triton.txt:1: a pin must be a commit of 40 hex digits, not 'main'"),
    ({PIN: "\n# later\n"}, TRITON, [], 2, "triton.txt: there is no commit in it"),
    ({PIN: "1" * 40 + "\n" + "2" * 40}, TRITON, [], 2, "triton.txt:2: a second commit; line 1 has one"),
    ({PIN: "1" * 40}, TRITON, [], 10, "the server may not have this commit"),
    ({PIN: "1" * 40}, TRITON, ["--release"], 10, f"--release: there is no {Path('here/pytorch') / VERSION}"),
    ({VERSION: "three\n"}, TRITON, ["--release"], 2, "triton_version.txt:1: a version of a release is like"),
    ({VERSION: "9.9.0\n"}, TRITON, ["--release"], 10, "has no branch, tag or ref release/9.9.x"),
    ({VERSION: "3.7.0"}, TRITON, ["--release", "--ref", "main"], 2, "exclude each other"),
    ({}, TRITON, ["--ref", "no such"], 2, "is not a ref"),
    ({}, VISION, ["--release"], 2, "No such option"),
    ({}, VISION, ["--require-related-commit"], 10, "pytorch_vision must be pinned, and there is no "),
    ({".github/ci_commit_pins/vision.txt": "r2.9"}, VISION, [], 2, "vision.txt:1: a pin must be a commit"),
    ({"related_commits/x": ""}, VISION, [], 2, "cannot read here/pytorch/related_commits"),
    ({}, APEX, ["--require-related-commit"], 10, "apex must be pinned, and there is no "),
    ({"related_commits": "apex"}, APEX, [], 2, "related_commits:1: a row has 6 fields"),
    ({}, APEX, ["--repo-name", "a/b"], 2, "is not the name of a folder"),
]


@pytest.mark.parametrize("row", WRONG, ids=[message for *_, message in WRONG])
def test_wrong_input(place: Place, row: tuple[dict[str, str], str, list[str], int, str]) -> None:
    files, door, options, code, message = row
    for name, text in files.items():
        place.write(name, text)
    before = place.everything()
    assert message in place.checkout(door, *options, code=code)
    assert place.everything() == before


def test_a_sixth_project_is_one_new_file(place: Place, tmp_path: Path) -> None:
    """A clone with one more recipe: its options, checkout, lock, place in the order and folder follow."""
    clone = tmp_path / "clone"
    for name in ("build_tools", "repos"):
        skip = shutil.ignore_patterns("__pycache__", "pytorch", "apex", "triton", ".rocm-wheels")
        shutil.copytree(CLONE / name, clone / name, ignore=skip)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(CLONE / name, clone)
    recipe = (CLONE / "repos/pytorch_audio.yaml").read_text()
    recipe = recipe.replace("name: pytorch_audio", "name: torchcodec").replace("torchaudio", "torchcodec")
    recipe = recipe.replace("after: [pytorch]", "after: [pytorch, pytorch_vision]")
    (clone / "repos/torchcodec.yaml").write_text(recipe)
    env = {**place.upstream.env, "PYTHONPATH": str(clone / "build_tools"), "COLUMNS": "200"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    shown = run(str(clone / "build_tools/build_prod_wheels.py"), "build", "--help")
    assert "--torchcodec-dir" in shown and "--build-torchcodec / --no-build-torchcodec" in shown
    pull = place.upstream.git("root", "rev-parse", "refs/pull/7/head")
    pins = tmp_path / "clone/repos/pytorch"
    pins.mkdir()
    (pins / "related_commits").write_text(f"ubuntu|pytorch|torchcodec|main|{pull}|{place.upstream.url}\n")
    door = "from rocm_wheels.cli.checkout import make_recipe_group; make_recipe_group('torchcodec')()"
    words = ("checkout", "--origin", place.upstream.url, "--require-related-commit")
    assert "related_commits line 1, branch main" in run("-c", door, *words)
    assert place.upstream.git(clone / "repos/torchcodec", "rev-parse", "HEAD") == pull
    order = (
        "from rocm_wheels.models import list_project_names, load_project, sort_projects;"
        "print([p.name for p in sort_projects(map(load_project, list_project_names()))])"
    )
    names = ["triton", "pytorch", "apex", "pytorch_audio", "pytorch_vision", "torchcodec"]
    assert str(names) in run("-c", order)
    assert "--torchcodec-ref REF" in run("-m", "rocm_wheels", "lock", "make", "--help")
    place.upstream.git("root", "checkout", "-q", "-b", "pins")
    (place.upstream.root / "related_commits").write_text((pins / "related_commits").read_text())
    place.upstream.commit("root", "pin torchcodec")
    place.upstream.git("root", "checkout", "-q", "main")
    torch = ("--pytorch-origin", place.upstream.url, "--pytorch-ref", "pins", "--project", "torch")
    lock = tmp_path / "set.lock"
    run("-m", "rocm_wheels", "lock", *torch, "--project", "torchcodec", "-o", str(lock))
    found = json.loads(lock.read_text())["projects"]
    assert list(found) == ["pytorch", "torchcodec"] and found["torchcodec"]["commit"] == pull
