"""Find recipes, and name projects, options and folders of tables before anything is read.

A recipe is ``<project>.yaml`` in one of these folders, which are looked through in this order: those that
somebody names (``--recipe-dir``, or a configuration file), ``recipes/`` of the current folder, those of
installed packages (entry points of the group ``rocm_wheels.recipes``), our own. None hides another: two of
one name are an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, workspace

Platform = Literal["linux", "windows"]
PackagingMode = Literal["per-family", "multi-arch", "split", "variant", "fat", "asan"]  # what people install
PACKAGING_MODES: tuple[PackagingMode, ...] = get_args(PackagingMode)
RELEASE_TYPES = ("ci", "dev", "dev-bkc", "nightly", "nightly-bkc", "prerelease")
MatrixPackaging = Literal[
    "per-family", "multi-arch", "split", "fat", "asan"
]  # of a set, as workflows stage it
MATRIX_PACKAGINGS: tuple[MatrixPackaging, ...] = get_args(MatrixPackaging)
RowKind = Literal[
    "lines", "sets", "pythons", "cells", "first", "others", "companions", "tested", "torch_tested"
]  # what the matrix of CI has rows of
ROW_KINDS: tuple[RowKind, ...] = get_args(RowKind)
DEFAULT_ROCM = ">1.0"
"""The version specifier of the ROCm packages where nobody says one."""
RECIPES_GROUP = "rocm_wheels.recipes"
_PROJECT_NAME = re.compile(r"[a-z][a-z0-9_]*")


class RecipeFolder(NamedTuple):
    """A folder of recipes, and what names it: an option, a file, a package."""

    path: Path
    origin: str


class RecipeFile(NamedTuple):
    """A recipe, and what names its folder."""

    path: Path
    origin: str


class _RecipeSearch:
    """Where recipes are looked for, and what was found: once, until somebody says another place."""

    def __init__(self) -> None:
        self.list_folders: Callable[[], Sequence[RecipeFolder]] = tuple
        self.planned: Mapping[str, Path] | None = None
        self.found: Mapping[str, RecipeFile] | None = None


_SEARCH = _RecipeSearch()


def set_recipe_search(list_folders: Callable[[], Sequence[RecipeFolder]]) -> None:
    """Look for recipes in these folders before those of installed packages and our own, from now on.

    They are asked for when the first recipe is. What they raise, whoever needs a recipe gets.
    """
    _SEARCH.list_folders, _SEARCH.planned, _SEARCH.found = list_folders, None, None


def use_planned_recipes(recipes: Mapping[str, Path]) -> None:
    """Have these recipes beside our own and no others, from now on: those that a plan was made with."""
    _SEARCH.planned, _SEARCH.found = recipes, None


def find_recipes() -> Mapping[str, RecipeFile]:
    """Return the recipe of each project, by name. Raises DataError for two of a name, and for a bad name."""
    if _SEARCH.found is None:
        _SEARCH.found = _collect_recipes(_list_recipe_files())
    return _SEARCH.found


def list_foreign_recipes() -> dict[str, Path]:
    """Return the recipes that are not our own, by project: what a plan keeps."""
    own = get_recipes_folder()
    return {name: file.path for name, file in find_recipes().items() if file.path.parent != own}


def _list_recipe_files() -> Iterator[RecipeFile]:
    own = RecipeFolder(get_recipes_folder(), "our own")
    if _SEARCH.planned is not None:
        yield from (RecipeFile(path, "the plan") for path in _SEARCH.planned.values())
        folders = [own]
    else:
        folders = [*_SEARCH.list_folders(), *_list_package_folders(), own]
    for folder in folders:
        for path in sorted(folder.path.glob("*.yaml")):
            yield RecipeFile(path, folder.origin)


def _collect_recipes(files: Iterator[RecipeFile]) -> dict[str, RecipeFile]:
    recipes: dict[str, RecipeFile] = {}
    for file in files:
        name = file.path.stem
        if _PROJECT_NAME.fullmatch(name) is None:
            raise errors.DataError(
                f"{file.path} ({file.origin}) is called {name!r}, which is no name of a project",
                tip="name it in small letters, digits and _, a letter first: my_extension.yaml",
            )
        first = recipes.setdefault(name, file)
        if first is not file and not first.path.samefile(file.path):
            places = [f"{recipe.path} ({recipe.origin})" for recipe in (first, file)]
            raise errors.DataError(
                "\n  ".join([f"there are two recipes of {name}:", *places]),
                tip="give one of them another name (its file and its `name`), or take it away",
            )
    return dict(sorted(recipes.items()))


def _list_package_folders() -> Iterator[RecipeFolder]:
    """Yield the folders that entry points of installed packages name; no package is imported for it.

    Raises DataError for an entry point whose folder is not there.
    """
    if not any(_names_recipes(folder, _read_change_time(folder)) for folder in sys.path):
        return
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=RECIPES_GROUP):
        distribution = entry_point.dist.name if entry_point.dist else "an installed package"
        folders = _find_module_folders(entry_point.value)
        if not folders:
            raise errors.DataError(
                f"{distribution} names {entry_point.value} as a folder of recipes (its entry point "
                f"{entry_point.name}), and there is no such package",
                tip=f"install {distribution} again, or take it away",
            )
        yield from (RecipeFolder(Path(folder), f"{distribution}, installed") for folder in folders)


@lru_cache(maxsize=64)
def _names_recipes(folder: str, _changed: int) -> bool:
    """Tell whether something in a folder of ``sys.path``, as it was then, has our entry points.

    importlib.metadata says so too, and takes longer than all else that a short command does.
    """
    group = RECIPES_GROUP.encode()
    for pattern in ("*.dist-info/entry_points.txt", "*.egg-info/entry_points.txt"):
        for file in Path(folder or ".").glob(pattern):
            if group in file.read_bytes():
                return True
    return False


def _read_change_time(folder: str) -> int:
    """Return when a folder got or lost a name, as with whatever is installed there; 0 without a folder."""
    try:
        return Path(folder or ".").stat().st_mtime_ns
    except OSError:
        return 0


def _find_module_folders(name: str) -> list[str]:
    """Return the folders of a package, without importing it or what it is in."""
    places: list[str] | None = None
    parts = name.split(".")
    for number in range(1, len(parts) + 1):
        finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
        specs = (finder.find_spec(".".join(parts[:number]), places, None) for finder in finders)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or spec.submodule_search_locations is None:
            return []
        places = list(spec.submodule_search_locations)
    return places or []


def get_recipes_folder() -> Path:
    """Return the folder of our own recipes."""
    return workspace.get_project_home() / "repos"


def list_project_names(folder: Path | None = None) -> list[str]:
    """Return the names of all projects, sorted: the stems of their recipes (of a folder, those in it)."""
    return list(find_recipes()) if folder is None else sorted(path.stem for path in folder.glob("*.yaml"))


def list_shared_projects(folder: Path | None = None) -> list[str]:
    """Return the names of the projects that others are built against.

    Every ``--help`` with options of projects asks for them, and must not wait for a reader of YAML: they are
    told by a line of their recipes' text.
    """
    if folder is None:
        paths = {name: file.path for name, file in find_recipes().items()}
    else:
        paths = {name: folder / f"{name}.yaml" for name in list_project_names(folder)}
    line = re.compile(rb"^ +installed_for_others: *true\b", re.MULTILINE)
    return [name for name, path in paths.items() if line.search(path.read_bytes())]


def find_wheel_projects() -> dict[str, str]:
    """Return the projects of which there are recipes, by the names of their wheels (normalized).

    Who only asks for names does not wait for recipes to be read and checked. DataError for one without.
    """
    return {_read_wheel_entry(file.path)[0]: name for name, file in find_recipes().items()}


def find_open_wheels() -> frozenset[str]:
    """Return the wheels of which others than ours may be taken: ``install.closed: false`` of a recipe."""
    wheels = (_read_wheel_entry(file.path) for file in find_recipes().values())
    return frozenset(name for name, is_open in wheels if is_open)


@lru_cache
def _read_wheel_entry(recipe: Path) -> tuple[str, bool]:
    from rocm_wheels.core import records, yaml_reader  # slow to import

    content = yaml_reader.read_yaml_tree(records.read_text_file(recipe), name=str(recipe)).value
    content = content if isinstance(content, dict) else {}
    distribution, install = content.get("distribution"), content.get("install")
    if not isinstance(distribution, str):
        raise errors.DataError(f"{recipe} does not say what its wheel is called", tip="distribution: NAME")
    return canonicalize_name(distribution), isinstance(install, dict) and install.get("closed") == "false"


def get_option_name(project: str) -> str:
    """Return the spelling of a project's name in options: ``pytorch-audio``."""
    return project.replace("_", "-")


def get_data_folder() -> Path:
    """Return the folder of the tables that ship inside the package."""
    return Path(__file__).resolve().parent.parent / "data"
