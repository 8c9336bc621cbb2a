"""Name projects, options and folders of tables before anything is read: standard library only."""

from __future__ import annotations

import re
from pathlib import Path

from rocm_wheels.core import get_project_home

RELEASE_TYPES = ("ci", "dev", "dev-bkc", "nightly", "nightly-bkc", "prerelease")


def get_recipes_folder() -> Path:
    """Return the folder of the recipes."""
    return get_project_home() / "repos"


def list_project_names(folder: Path | None = None) -> list[str]:
    """Return the names of all projects, sorted: the stems of ``repos/*.yaml``."""
    return sorted(path.stem for path in (folder or get_recipes_folder()).glob("*.yaml"))


def list_shared_projects(folder: Path | None = None) -> list[str]:
    """Return the names of the projects that others are built against: by a line of their recipes' text."""
    recipes = folder or get_recipes_folder()
    line = re.compile(rb"^ +installed_for_others: *true\b", re.MULTILINE)
    texts = {name: (recipes / f"{name}.yaml").read_bytes() for name in list_project_names(recipes)}
    return [name for name, text in texts.items() if line.search(text)]


def get_option_name(project: str) -> str:
    """Return the spelling of a project's name in options: ``pytorch-audio``."""
    return project.replace("_", "-")


def get_data_folder() -> Path:
    """Return the folder of the tables that ship inside the package."""
    return Path(__file__).resolve().parent.parent / "data"
