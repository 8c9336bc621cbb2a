"""What a project says beyond its recipe: in a module of its name, or a file beside its recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

from rocm_wheels.compile import build_request, sdk_tree
from rocm_wheels.core import errors
from rocm_wheels.models import project_names
from rocm_wheels.models.project import Project


@dataclass(frozen=True)
class Preparation:
    """What the preparation of a tree may use: the user's environment and what the SDK can preload."""

    env: Mapping[str, str]
    preloads: sdk_tree.Preloads | None


def add_no_variables(request: build_request.BuildRequest, env: dict[str, str]) -> None:
    """Add nothing."""


def prepare_nothing(request: build_request.BuildRequest, preparation: Preparation) -> None:
    """Write nothing."""


def add_no_settings(request: build_request.BuildRequest, folder: Path) -> tuple[str, ...]:
    """Ask the back end for nothing."""
    return ()


@dataclass(frozen=True)
class Hooks:
    """``environment`` completes the variables (pure); ``prepare`` writes files into the tree before the
    front end runs; ``settings`` gives more PEP 517 config settings for a folder. ``shows_flags``: its
    libraries say which flags of the host's compiler they were made with, so that none may name a folder:
    its CMake starts compilers through ``host_launcher.sh``.
    """

    environment: Callable[[build_request.BuildRequest, dict[str, str]], None] = add_no_variables
    prepare: Callable[[build_request.BuildRequest, Preparation], None] = prepare_nothing
    settings: Callable[[build_request.BuildRequest, Path], tuple[str, ...]] = add_no_settings
    shows_flags: bool = False


def find_hooks(project: Project) -> Hooks:
    """Return the ``HOOKS`` of a project: of the file that its recipe names, else of our module of its name.

    Most projects have none. Raises DataError for a file without them.
    """
    if project.hooks is not None:
        return _load_hooks(project_names.find_recipes()[project.name].path.parent / project.hooks)
    name = f"{__name__}.{project.name}"
    if find_spec(name) is None:
        return Hooks()
    hooks: Hooks = import_module(name).HOOKS
    return hooks


@lru_cache
def _load_hooks(path: Path) -> Hooks:
    spec = spec_from_file_location(f"{__name__}.of_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise errors.DataError(
            f"there is no file of hooks {path}", tip="name a Python file beside the recipe"
        )
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    hooks = getattr(module, "HOOKS", None)
    if not isinstance(hooks, Hooks):
        raise errors.DataError(
            f"{path} has no HOOKS", tip="HOOKS = Hooks(…) of rocm_wheels.compile; see `recipe check`"
        )
    return hooks
