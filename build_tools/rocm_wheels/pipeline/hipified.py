"""Sources that changed since they were hipified: a build hipifies them first, a step of a plan refuses."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import SourceError
from rocm_wheels.model.project import Project
from rocm_wheels.sources.git import Git, disable_private_filters
from rocm_wheels.sources.hipify import hipify_changes, check_hipify


def hipify_stale_sources(
    projects: Sequence[Project], sources: Mapping[str, Path], env: Mapping[str, str]
) -> None:
    """Hipify what changed in the trees of projects. Raises SourceError for one that is hipified no more."""
    for project in projects:
        tree = sources[project.name]
        state = read_hipify_state(project, tree, env)
        if state == "no":
            raise not_hipified_error(project, tree)
        if state == "stale":
            hipify_changes(project, tree, env=env, python=Path(sys.executable))


def note_stale_sources(
    projects: Sequence[Project], sources: Mapping[str, Path], env: Mapping[str, str]
) -> None:
    """Tell what a build will do to the trees first, or cannot."""
    for project in projects:
        tree = sources[project.name]
        state = read_hipify_state(project, tree, env)
        if state == "no":
            raise not_hipified_error(project, tree)
        if state == "stale":
            log.log_note(f"{tree} has changes that are not hipified yet; `build` hipifies them first")


def refuse_stale_source(project: Project, tree: Path, env: Mapping[str, str]) -> None:
    """Raise SourceError for a tree with changes that are not hipified: the build would not have them."""
    state = read_hipify_state(project, tree, env)
    if state == "no":
        raise not_hipified_error(project, tree)
    if state == "stale":
        raise SourceError(
            f"{tree} has changes that are not hipified: the build would not have them",
            tip="run `hipify` of its script (--no-commit-hipify keeps it a change of yours), then plan again",
        )


def read_hipify_state(project: Project, tree: Path, env: Mapping[str, str]) -> str:
    """Say whether a project's tree is hipified, as ``check_hipify`` does; of no checkout nothing is known."""
    if project.hipify.by != "script" or not (tree / ".git").exists():
        return "unknown"
    return check_hipify(
        project, disable_private_filters(Git(tree, env, variables={"GIT_OPTIONAL_LOCKS": "0"}))
    )


def not_hipified_error(project: Project, tree: Path) -> SourceError:
    """Return the error for a tree that is not hipified any more."""
    return SourceError(
        f"{tree} is not hipified any more: it was, and then something else was checked out there",
        tip="run `hipify` of its script, or go back to what was hipified",
    )
