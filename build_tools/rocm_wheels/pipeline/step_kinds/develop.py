"""``develop``: compile a project in its own tree, and install it as editable; no wheel, no checks.

The environment, the build tree and its key are those of ``build``: both go on where the other stopped. The
editable install is in a layer of its own over the project's layer of tools, so that what is built later does
not see it; in somebody's own environment (``--current-env``) it is in that.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from rocm_wheels.compile import build_trees
from rocm_wheels.core import errors, files, log, process, shell
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models.project import Project
from rocm_wheels.pipeline import build_environment
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.step import Step
from rocm_wheels.pipeline.step_kinds import build
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sdk import resolve_packages
from rocm_wheels.sdk.build_environment import (
    BuildEnvironment,
    ensure_layer,
    install_wheel,
    locate_environment,
    locate_layer_packages,
)

# what changes with each edit or commit: ninja sees to it, no front end has to run
_SOURCE_INPUTS = ("commit", "sources")


# Finders of editable installs are asked after the folders of packages, in which lies the wheel that `build`
# installed for others: here they go first.
_FINDERS_FIRST = (
    "import sys; sys.meta_path.sort(key=lambda finder:"
    " getattr(finder, '__module__', '').startswith('_frozen_importlib'))\n"
)


def settle_develop(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with its inputs, which are those of a build but for the sources; it always runs."""
    planned = planner.plan_step_build(step)
    inputs |= {name: value for name, value in planned.inputs.items() if name not in _SOURCE_INPUTS}
    for file, digest in planner.facts.trees[str(step.project)].front_end.items():
        inputs[f"file {file}"] = digest
    settled = decide_verdict(planner, step, inputs)
    return (
        replace(settled, verdict="run", why="compile what changed") if settled.verdict == "skip" else settled
    )


def locate_develop_environment(
    project: str, ready: build_environment.ReadyEnvironment, workspace: Workspace
) -> BuildEnvironment:
    """Return the environment in which a project is, or will be, installed as editable."""
    if not ready.environment.prefix.is_relative_to(workspace.environments):
        return ready.environment
    return locate_environment(build_environment.layers_folder(ready, workspace) / f"{project}-develop")


def run_develop(step_run: StepRun) -> None:
    """Compile what changed; where anything but sources did, run the front end and install what it makes.

    Raises BuildError and what its causes raise. The source tree is held meanwhile.
    """
    step = build.ProjectBuild(step_run)
    with step.hold_source():
        build.install_needed_wheels(step_run, step.project)
        _develop_project(step_run, step)


def _develop_project(step_run: StepRun, step: build.ProjectBuild) -> None:
    facts, project = step_run.facts, step.project
    done = facts.done.get(step_run.step.id)
    package = find_editable_package(project, step_run.ready, facts.workspace)
    current = (
        done is not None
        and dict(done.stamp.inputs) == step_run.known_inputs
        and package is not None
        and package.hash_files() == done.stamp.facts.get("installed")
    )
    with step.enter_environment() as environment:
        front_end = step.make_front_end(environment, editable=True)
        developed = front_end.develop(configured=current)
    log.log_note(f"build tree: {developed.tree}")
    target = locate_develop_environment(project.name, step_run.ready, facts.workspace)
    if developed.wheel is not None:
        _install_editable(step_run, project, developed.wheel, target)
        package = find_editable_package(project, step_run.ready, facts.workspace)
    if package is None:
        raise errors.SdkError(f"{project.distribution} was installed, but {target.prefix} has none of it")
    changes = shell.compare_environments(facts.env, developed.environment)
    # a note of it can be read by others: no secret may be in it; a cache has a server for each run
    may_be_noted = shell.redact_environment(changes) == changes
    loop: dict[str, Any] = {
        "ninja": None if facts.cache else developed.ninja,
        "environment": changes,
        "tree": str(front_end.request.folder / project.build.trees[0]),
        "files": [str(path) for path in _list_deciding_files(step_run, project, package)],
    }
    step_run.record_success(
        version=package.version,
        python=str(target.python),
        installed=package.hash_files(),
        configured=developed.wheel is not None,
        loop=loop if may_be_noted else None,
    )


def _list_deciding_files(
    step_run: StepRun, project: Project, package: build_environment.EnvironmentPackage
) -> list[Path]:
    """Return files that are written anew when what a project is built with changes."""
    ready = step_run.ready
    rocm = build_environment.list_installed_packages(ready.site_packages, "rocm*").values()
    layer = build_environment.find_project_layer(project.name, ready, step_run.facts.workspace)
    records = [package.record, *(rocm_package.record for rocm_package in rocm)]
    return [
        *records,
        layer.prefix / resolve_packages.PACKAGES_NOTE,
        *build_trees.list_compilers(step_run.facts.env),
    ]


def _install_editable(step_run: StepRun, project: Project, wheel: Path, target: BuildEnvironment) -> None:
    """Install an editable wheel, in place of an earlier one, and import the project there."""
    facts, ready = step_run.facts, step_run.ready
    with build_environment.hold_environment(ready, facts.workspace, purpose=step_run.step.id):
        if target.prefix != ready.environment.prefix:
            below = [
                build_environment.layer_packages_folder(project.name, ready, facts.workspace).resolve(),
                *build_environment.list_packages_below(project, ready, facts.workspace),
            ]
            ensure_layer(ready.environment, target.prefix, below, facts.env, python_tag=ready.python_tag)
            folder = locate_layer_packages(target.prefix, ready.python_tag)
            files.write_atomically(folder / "rocm_wheels_editable.pth", _FINDERS_FIRST)
        install_wheel(target, wheel, env=facts.env, on_line=step_run.echo_line)
    # what people would have written: the source, where tools look for what is imported (PEP 610)
    package = find_editable_package(project, ready, facts.workspace)
    if package is not None:
        origin = {
            "url": step_run.facts.request.sources[project.name].as_uri(),
            "dir_info": {"editable": True},
        }
        files.write_json_file(package.record.with_name("direct_url.json"), origin)
    wheel.unlink()
    if project.checks.import_name is not None:
        process.capture_output(
            [target.python, "-c", f"import {project.checks.import_name}"],
            env=facts.env,
            cwd=target.prefix,
            check=errors.BuildError,
            description=f"importing {project.checks.import_name} from {facts.request.sources[project.name]}",
        )


def find_editable_package(
    project: Project, ready: build_environment.ReadyEnvironment, workspace: Workspace
) -> build_environment.EnvironmentPackage | None:
    """Return what is installed of a project where it is installed as editable."""
    target, folder = locate_develop_environment(project.name, ready, workspace), ready.site_packages
    if target.prefix != ready.environment.prefix:
        folder = locate_layer_packages(target.prefix, ready.python_tag)
    return build_environment.list_installed_packages(folder).get(canonicalize_name(project.distribution))
