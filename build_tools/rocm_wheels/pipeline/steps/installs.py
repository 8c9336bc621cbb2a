"""Build environments: ROCm in one of its own, then the build packages of all projects in one resolution.

Packages of all projects are installed together, before the first of them is built: what one project
needs is not exchanged while another is being compiled against it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from rocm_wheels import log
from rocm_wheels.compile.sdk_tree import sdk_warnings
from rocm_wheels.errors import SdkError
from rocm_wheels.pipeline.facts.packages import closure, installed_packages, required_names
from rocm_wheels.pipeline.facts.ready import Ready, make_ready
from rocm_wheels.pipeline.request import SdkRequest
from rocm_wheels.pipeline.stamps import Output
from rocm_wheels.pipeline.steps.installing import changing
from rocm_wheels.pipeline.steps.turn import Turn
from rocm_wheels.pipeline.summary import human_time
from rocm_wheels.sdk.install import ensure_environment, install_into, install_requirements
from rocm_wheels.sdk.uv import PackageSource
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
    """Install what the projects need to be built, and note what that is now. Raises SdkError."""
    facts, ready = turn.facts, turn.ready
    given = [one for one in turn.planner.python(turn.step).provided.values() if one.wheel is not None]
    needed = [line for one in given for line in one.requires]
    files = [tree.source / file for tree in facts.trees.values() for file in tree.files]
    with changing(ready, facts.workspace, what=turn.step.id) as halves:
        if halves:
            log.note(f"installed by half, and to be installed again: {', '.join(halves)}")
        try:
            install_requirements(
                ready.environment,
                [*facts.tools, *needed, *files],
                again=halves,
                env=facts.env,
                on_line=turn.say,
                source=PackageSource(cache_dir=facts.request.sdk.cache_dir),
            )
        except SdkError as error:
            error.tip = (
                error.tip or "projects that cannot share their build packages: --no-build-X leaves one out"
            )
            raise
        installed = installed_packages(ready.site_packages)
    packages: dict[str, dict[str, str]] = {}
    outputs: dict[str, Output] = {}
    for name, tree in facts.trees.items():
        found = closure((*required_names(facts.tools, ()), *tree.requires), installed)
        packages[name] = {package.name: package.identity() for package in found.values()}
        outputs.update({package.name: Output.of(package.record) for package in found.values()})
    turn.succeed(tuple(outputs[name] for name in sorted(outputs)), packages=packages)
