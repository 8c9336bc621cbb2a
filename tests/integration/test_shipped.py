"""The installed wheel: what is not code ships with it, and the same locator finds it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from rocm_wheels.models.project import list_projects

pytestmark = pytest.mark.contract

CLONE = Path(__file__).resolve().parents[2]
LOOK = """
import json
from rocm_wheels.core.workspace import get_project_home as home, is_clone
from rocm_wheels.models.project_names import list_project_names
from rocm_wheels.models.project import load_project
files = sorted(p.relative_to(home()).as_posix() for p in home().rglob("*") if p.is_file())
distributions = [load_project(name).distribution for name in list_project_names()]
print(json.dumps([str(home()), is_clone(), distributions, files]))
"""


@pytest.fixture(scope="module")
def installed(project_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import uv

    folder = tmp_path_factory.mktemp("installed")
    words = ["pip", "install", "-q", "--no-deps", "--no-index", "--target", str(folder / "site")]
    subprocess.run([uv.find_uv_bin(), *words, str(project_wheel)], check=True)
    return folder / "site"


@pytest.mark.slow
def test_recipes_patches_and_smoke_tests_come_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    import json

    env = {**os.environ, "PYTHONPATH": str(installed)}
    words = [sys.executable, "-c", LOOK]
    ended = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    home, in_clone, distributions, files = json.loads(ended.stdout)
    assert Path(home).is_relative_to(installed) and not in_clone
    assert sorted(distributions) == sorted(recipe.distribution for recipe in list_projects())
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "repos/*.yaml", "patches", "smoke-tests"],
        cwd=CLONE, capture_output=True, text=True, check=True,
    )  # fmt: skip
    there = {name for name in listed.stdout.splitlines() if (CLONE / name).is_file()}
    assert set(files) == there


@pytest.mark.slow
def test_commands_run_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(installed)}
    words = [sys.executable, "-m", "rocm_wheels", "build", "--output-dir", "dist"]
    ended = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert f"looked for source trees at\n  {tmp_path / 'apex'}" in ended.stderr, ended.stderr


@pytest.mark.slow
def test_smoke_tests_run_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    env = {**os.environ, "PYTHONPATH": str(installed)}
    words = ["--python", str(tmp_path / "env"), "--output-dir", str(tmp_path / "out")]
    argv = [sys.executable, "-m", "rocm_wheels", "tests", "smoke", *words]
    ended = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 16 and "torch is not installed in" in ended.stderr, "they are there"


@pytest.mark.slow
def test_a_recipe_in_a_foreign_folder_counts_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    recipe = (CLONE / "repos/bitsandbytes.yaml").read_text(encoding="utf-8")
    (tmp_path / "recipes").mkdir()
    text = recipe.replace("bitsandbytes", "my_extension")
    (tmp_path / "recipes/my_extension.yaml").write_text(text, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(installed)}
    argv = [sys.executable, "-m", "rocm_wheels", "recipe", "check"]
    ended = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "my_extension" in ended.stdout
