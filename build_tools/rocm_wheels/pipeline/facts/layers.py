"""A project's own build tools: an environment over the one that has ROCm, and that alone sees them.

One project needs ``cmake==4.0.0`` where another needs ``cmake<4``: what they require is resolved for each by
itself. Below its own packages a project sees those that torch and triton need to be imported, ROCm, and the
wheels that it is built against.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from rocm_wheels.model.project import Project, load_project
from rocm_wheels.pipeline.facts.ready import ReadyEnvironment
from rocm_wheels.sdk.install import BuildEnvironment, locate_layer, locate_layer_packages
from rocm_wheels.workspace import Workspace


def layers_folder(ready: ReadyEnvironment, workspace: Workspace) -> Path:
    """Return where the layers over an environment are: in it, unless it is somebody's own."""
    prefix = ready.environment.prefix
    if prefix.is_relative_to(workspace.environments):
        return prefix / "tools"
    return workspace.environments / ".tools" / hashlib.sha256(str(prefix).encode()).hexdigest()[:12]


def find_project_layer(project: str, ready: ReadyEnvironment, workspace: Workspace) -> BuildEnvironment:
    """Return the environment that a project is built in, whether it is there yet or not."""
    return locate_layer(layers_folder(ready, workspace) / project)


def layer_packages_folder(project: str, ready: ReadyEnvironment, workspace: Workspace) -> Path:
    """Return the folder of packages of a project's layer."""
    return locate_layer_packages(layers_folder(ready, workspace) / project, ready.python_tag)


def list_packages_below(project: Project, ready: ReadyEnvironment, workspace: Workspace) -> list[Path]:
    """Return what a project's layer lies over: layers of what it is built against, then the environment."""
    others = [name for name in project.build.after if load_project(name).build.installed_for_others]
    folders = [*(layer_packages_folder(name, ready, workspace) for name in others), ready.site_packages]
    return [folder.resolve() for folder in folders]  # the same by whatever link a work directory is reached


def find_importing_python(project: str, ready: ReadyEnvironment, workspace: Workspace) -> Path:
    """Return the Python that can import a project's installed wheel: that of its layer, where it has one."""
    layer = find_project_layer(project, ready, workspace).python
    return layer if layer.exists() else ready.environment.python
