"""Build environments: ROCm in one of its own, and over it a layer with the build packages of each project.

Layers are made before the first project is built: what one project needs is not exchanged while another is
being compiled with it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.compile.sdk_tree import sdk_warnings
from rocm_wheels.errors import SdkError
from rocm_wheels.model.names import option_name
from rocm_wheels.model.project import load_project
from rocm_wheels.pipeline.facts.layers import layer_of, packages_below, packages_of
from rocm_wheels.pipeline.facts.packages import (
    closure,
    expand_requirements,
    half_installed,
    installed_packages,
    required_names,
)
from rocm_wheels.pipeline.facts.ready import Ready, make_ready
from rocm_wheels.pipeline.request import SdkRequest
from rocm_wheels.pipeline.stamps import Output
from rocm_wheels.pipeline.steps.installing import changing
from rocm_wheels.pipeline.steps.turn import Turn
from rocm_wheels.pipeline.summary import human_time
from rocm_wheels.sdk.install import (
    BuildEnvironment,
    ensure_environment,
    ensure_layer,
    install_into,
    install_requirements,
)
from rocm_wheels.sdk.uv import PackageSource, may_pass
from rocm_wheels.workspace import Workspace


def install_rocm(turn: Turn) -> None:
    """Make the environment of an interpreter, with ROCm in it, and ask that what it is. Raises SdkError."""
    facts = turn.facts
    request = facts.request.sdk_for(turn.planner.python(turn.step).python)
    if request.current_env:
        environment = install_into(request.python, request, facts.env, turn.say)
    else:
        environment = ensure_environment(request, facts.workspace, facts.env, turn.say)
    ready = make_ready(environment, request, facts.workspace, facts.env)
    if facts.locked is not None:
        facts.locked.check_rocm(ready.sdk.version)
    log.note(f"ROCm {ready.sdk.version} at {ready.sdk.root} ({request.requirement})")
    for text in sdk_warnings(ready.tree):
        log.warn(text)


def install_now(request: SdkRequest, workspace: Workspace, env: Mapping[str, str]) -> Ready:
    """Do it without a plan; an open version specifier is resolved again. Raises SdkError."""
    begin = time.monotonic()
    if request.current_env:
        environment = install_into(request.python, request, env)
    else:
        environment = ensure_environment(request, workspace, env, upgrade=True)
    how = f"done in {human_time(time.monotonic() - begin)}" if environment.created else "up to date"
    log.note(f"install-rocm: {how} ({request.requirement})")
    return make_ready(environment, request, workspace, env)


def install_tools(turn: Turn) -> None:
    """Install what each project needs to be built, and note what that is now. Raises SdkError.

    The tools of torch's line come first, then what the project itself requires: that decides.
    """
    facts, ready = turn.facts, turn.ready
    given = [one for one in turn.planner.python(turn.step).provided.values() if one.wheel is not None]
    packages: dict[str, dict[str, str]] = {}
    outputs: dict[str, Output] = {}
    with changing(ready, facts.workspace, what=turn.step.id) as unfinished:
        needed = [line for one in given for line in one.requires]
        _install(turn, ready.environment, ready.site_packages, needed, unfinished=unfinished)
        for name, tree in facts.trees.items():
            project, folder = load_project(name), packages_of(name, ready, facts.workspace)
            layer = ensure_layer(
                ready.environment,
                layer_of(name, ready, facts.workspace).prefix,
                packages_below(project, ready, facts.workspace),
                facts.env,
                python_tag=ready.python_tag,
                on_line=turn.say,
            )
            try:
                _install(turn, layer, folder, facts.tools, unfinished=unfinished)
                files = expand_requirements(tree.source / file for file in tree.files)
                _install(turn, layer, folder, files)
            except SdkError as error:
                if not may_pass(error.message):
                    error.tip = (
                        f"see the requirements of {name}; --no-build-{option_name(name)} leaves it out"
                    )
                raise
            found = closure((*required_names(facts.tools, ()), *tree.requires), installed_packages(folder))
            packages[name] = {package.name: package.identity() for package in found.values()}
            outputs.update({f"{name} {each.name}": Output.of(each.record) for each in found.values()})
    turn.succeed(tuple(outputs[name] for name in sorted(outputs)), packages=packages)


def _install(
    turn: Turn,
    environment: BuildEnvironment,
    site_packages: Path,
    requirements: Sequence[str | Path],
    *,
    unfinished: bool = False,
) -> None:
    """Install requirements, and again what an installer that was killed left there by half."""
    halves = half_installed(site_packages) if unfinished else ()
    if halves:
        log.note(f"installed by half, and to be installed again: {', '.join(halves)}")
    install_requirements(
        environment,
        requirements,
        again=halves,
        env=turn.facts.env,
        on_line=turn.say,
        source=PackageSource(cache_dir=turn.facts.request.sdk.cache_dir),
    )
