"""``install-rocm`` and ``install-tools``: build environments, and layers with the tools of projects.

Layers are made before the first project is built: what one project needs is not exchanged while another
is being compiled with it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocm_wheels.compile import list_sdk_warnings
from rocm_wheels.core import SdkError, Workspace, log_note, log_warning
from rocm_wheels.models import get_option_name, load_project
from rocm_wheels.pipeline.build_environment import (
    ReadyEnvironment,
    expand_requirements,
    find_half_installed,
    find_project_layer,
    find_requirement_closure,
    hold_environment,
    inspect_environment,
    layer_packages_folder,
    list_installed_packages,
    list_packages_below,
    read_required_names,
)
from rocm_wheels.pipeline.console_text import format_duration
from rocm_wheels.pipeline.outputs import OutputFile
from rocm_wheels.pipeline.request import SdkRequest
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sdk import (
    BuildEnvironment,
    PackageSource,
    ensure_environment,
    ensure_layer,
    install_into,
    install_requirements,
    is_transient_failure,
)


def install_rocm(step_run: StepRun) -> None:
    """Make the environment of an interpreter, with ROCm in it, and ask that what it is. Raises SdkError."""
    facts = step_run.facts
    request = facts.request.sdk_for(step_run.planner.python_facts(step_run.step).python)
    if request.current_env:
        environment = install_into(request.python, request, facts.env, step_run.echo_line)
    else:
        environment = ensure_environment(request, facts.workspace, facts.env, step_run.echo_line)
    ready = inspect_environment(environment, request, facts.workspace, facts.env)
    if facts.locked is not None:
        facts.locked.check_rocm(ready.sdk.version)
    log_note(f"ROCm {ready.sdk.version} at {ready.sdk.root} ({request.requirement})")
    for text in list_sdk_warnings(ready.sdk_tree):
        log_warning(text)


def install_rocm_now(request: SdkRequest, workspace: Workspace, env: Mapping[str, str]) -> ReadyEnvironment:
    """Do it without a plan; an open version specifier is resolved again. Raises SdkError."""
    begin = time.monotonic()
    if request.current_env:
        environment = install_into(request.python, request, env)
    else:
        environment = ensure_environment(request, workspace, env, upgrade=True)
    how = f"done in {format_duration(time.monotonic() - begin)}" if environment.created else "up to date"
    log_note(f"install-rocm: {how} ({request.requirement})")
    return inspect_environment(environment, request, workspace, env)


def install_tools(step_run: StepRun) -> None:
    """Install what each project needs to be built, and note what that is now. Raises SdkError.

    The tools of torch's line come first, then what the project itself requires: that decides.
    """
    facts, ready = step_run.facts, step_run.ready
    given_wheels = [
        wheel
        for wheel in step_run.planner.python_facts(step_run.step).provided.values()
        if wheel.wheel is not None
    ]
    packages: dict[str, dict[str, str]] = {}
    outputs: dict[str, OutputFile] = {}
    with hold_environment(ready, facts.workspace, purpose=step_run.step.id) as unfinished:
        needed = [line for wheel in given_wheels for line in wheel.requires]
        _install_missing(step_run, ready.environment, ready.site_packages, needed, unfinished=unfinished)
        for name, tree in facts.trees.items():
            project, folder = load_project(name), layer_packages_folder(name, ready, facts.workspace)
            layer = ensure_layer(
                ready.environment,
                find_project_layer(name, ready, facts.workspace).prefix,
                list_packages_below(project, ready, facts.workspace),
                facts.env,
                python_tag=ready.python_tag,
                on_line=step_run.echo_line,
            )
            try:
                _install_missing(step_run, layer, folder, facts.tools, unfinished=unfinished)
                files = expand_requirements(tree.source / file for file in tree.files)
                _install_missing(step_run, layer, folder, files)
            except SdkError as error:
                if not is_transient_failure(error.message):
                    error.tip = (
                        f"see the requirements of {name}; --no-build-{get_option_name(name)} leaves it out"
                    )
                raise
            required = find_requirement_closure(
                (*read_required_names(facts.tools, ()), *tree.requires), list_installed_packages(folder)
            )
            packages[name] = {package.name: package.identity() for package in required.values()}
            outputs.update(
                {f"{name} {each.name}": OutputFile.from_path(each.record) for each in required.values()}
            )
    step_run.record_success(tuple(outputs[name] for name in sorted(outputs)), packages=packages)


def _install_missing(
    step_run: StepRun,
    environment: BuildEnvironment,
    site_packages: Path,
    requirements: Sequence[str | Path],
    *,
    unfinished: bool = False,
) -> None:
    """Install requirements, and again what an installer that was killed left there by half."""
    halves = find_half_installed(site_packages) if unfinished else ()
    if halves:
        log_note(f"installed by half, and to be installed again: {', '.join(halves)}")
    install_requirements(
        environment,
        requirements,
        reinstall=halves,
        env=step_run.facts.env,
        on_line=step_run.echo_line,
        source=PackageSource(cache_dir=step_run.facts.request.sdk.cache_dir),
    )
