"""Where recipes are found, and what clashes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.main import cli
from rocm_wheels.core import DataError
from rocm_wheels.models import (
    RECIPES_GROUP,
    RecipeFolder,
    find_recipes,
    get_recipes_folder,
    list_foreign_recipes,
    list_project_names,
    load_project,
    set_recipe_search,
    use_planned_recipes,
)

OWN = ["apex", "pytorch", "pytorch_audio", "pytorch_vision", "triton"]


@pytest.fixture(autouse=True)
def no_other_folders() -> Iterator[None]:
    set_recipe_search(tuple)
    yield
    set_recipe_search(tuple)


def write_recipe(folder: Path, name: str, **changes: str) -> Path:
    """Write torchaudio's recipe under another name, with other texts in it."""
    text = (get_recipes_folder() / "pytorch_audio.yaml").read_text(encoding="utf-8")
    text = text.replace("name: pytorch_audio", f"name: {name}").replace("torchaudio", name.replace("_", "-"))
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def install_recipes(site: Path, value: str, *folders: str) -> None:
    """Put a distribution into ``sys.path``: an entry point, and packages that refuse to be imported."""
    info = site / "some_recipes-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-recipes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{RECIPES_GROUP}]\nmore = {value}\n")
    for folder in folders:
        (site / folder).mkdir(parents=True)
        (site / folder / "__init__.py").write_text("raise RuntimeError('imported')\n")


def test_folders_of_options_of_packages_and_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_recipes(tmp_path / "site", "some_package.recipes", "some_package", "some_package/recipes")
    packaged = write_recipe(tmp_path / "site/some_package/recipes", "from_package")
    named = write_recipe(tmp_path / "named", "named")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    folder = RecipeFolder(tmp_path / "named", "--recipe-dir")
    set_recipe_search(lambda: [folder, folder])  # named twice: one file, no clash
    assert list_project_names() == sorted([*OWN, "from_package", "named"])
    assert list_foreign_recipes() == {"from_package": packaged, "named": named}
    assert find_recipes()["from_package"].origin == "some-recipes, installed"
    assert find_recipes()["named"].origin == "--recipe-dir"
    assert load_project("named").distribution == "named"
    assert "some_package" not in sys.modules
    use_planned_recipes({"named": named})
    assert list_foreign_recipes() == {"named": named}
    use_planned_recipes({})
    assert list_project_names() == OWN


@pytest.mark.parametrize("value", ["gone", "some_package.gone", "some_package.module"])
def test_an_entry_point_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    install_recipes(tmp_path, value, "some_package")
    (tmp_path / "some_package/module.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DataError, match=f"some-recipes names {value} as a folder of recipes"):
        find_recipes()


def test_two_recipes_of_a_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    first, second = write_recipe(tmp_path / "a", "twice"), write_recipe(tmp_path / "b", "twice")
    set_recipe_search(lambda: [RecipeFolder(path.parent, "--recipe-dir") for path in (first, second)])
    with pytest.raises(DataError) as wrong:
        list_project_names()
    assert str(first) in wrong.value.message and str(second) in wrong.value.message
    own = write_recipe(tmp_path / "c", "triton")
    set_recipe_search(lambda: [RecipeFolder(own.parent, "--recipe-dir")])
    with pytest.raises(DataError) as wrong:
        load_project("triton")
    assert str(own) in wrong.value.message and str(get_recipes_folder() / own.name) in wrong.value.message


@pytest.mark.parametrize("name", ["Big", "with-hyphen", "2nd", "ümlaut", ".hidden"])
def test_a_file_name_that_is_no_name_of_a_project(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.yaml").touch()
    set_recipe_search(lambda: [RecipeFolder(tmp_path, "recipes/ here")])
    with pytest.raises(DataError, match="is no name of a project"):
        list_project_names()


def test_a_command_takes_folders_from_option_variable_configuration_and_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("option", "second", "variable", "configured"):
        write_recipe(tmp_path / name, f"by_{name}")
    write_recipe(tmp_path / "recipes", "here")
    (tmp_path / "rocm-wheels.toml").write_text('recipe-dir = ["configured"]\n')
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)

    def projects(*words: str) -> set[str]:
        assert run_command(cli, ["lines", *words]) == 0
        titles = capsys.readouterr().out
        names = {"by_option", "by_second", "by_variable", "by_configured", "here"}
        return {name for name in names if name.replace("_", "-") in titles}

    assert projects() == {"by_configured", "here"}
    monkeypatch.setenv("ROCM_WHEELS_RECIPE_DIR", "variable")
    assert projects() == {"by_variable", "here"}
    assert projects("--recipe-dir", "option", "--recipe-dir=second") == {"by_option", "by_second", "here"}
    monkeypatch.setenv("ROCM_WHEELS_RECIPE_DIR", "empty")
    assert run_command(cli, ["lines"]) == 2
    assert "ROCM_WHEELS_RECIPE_DIR: the folder" in capsys.readouterr().err
    monkeypatch.delenv("ROCM_WHEELS_RECIPE_DIR")
    (tmp_path / "wrong.toml").write_text("recipe-dir = 3\n")
    assert run_command(cli, ["--config", "wrong.toml", "lines"]) == 2
    assert "wrong.toml:1: recipe-dir takes a folder" in capsys.readouterr().err
    assert run_command(cli, ["--config", "", "lines", "--recipe-dir", "gone"]) == 2
