"""What a project says beyond its recipe: three places, a module a project, found by the project's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rocm_wheels.compile.build_request import BuildRequest
from rocm_wheels.compile.sdk_tree import Preloads


@dataclass(frozen=True)
class Preparation:
    """What the preparation of a tree may use: the user's environment and what the SDK can preload."""

    env: Mapping[str, str]
    preloads: Preloads | None


def add_no_variables(request: BuildRequest, env: dict[str, str]) -> None:
    """Add nothing."""


def prepare_nothing(request: BuildRequest, preparation: Preparation) -> None:
    """Write nothing."""


def add_no_settings(request: BuildRequest, folder: Path) -> tuple[str, ...]:
    """Ask the back end for nothing."""
    return ()


@dataclass(frozen=True)
class Hooks:
    """``environment`` completes the variables (pure); ``prepare`` writes files into the tree before the
    front end runs; ``settings`` gives more PEP 517 config settings for a folder.
    """

    environment: Callable[[BuildRequest, dict[str, str]], None] = add_no_variables
    prepare: Callable[[BuildRequest, Preparation], None] = prepare_nothing
    settings: Callable[[BuildRequest, Path], tuple[str, ...]] = add_no_settings


@lru_cache
def find_hooks(project: str) -> Hooks:
    """Return the ``HOOKS`` of a project's module; most projects have none."""
    name = f"{__name__}.{project}"
    if find_spec(name) is None:
        return Hooks()
    hooks: Hooks = import_module(name).HOOKS
    return hooks
