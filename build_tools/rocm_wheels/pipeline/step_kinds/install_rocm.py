"""``install-rocm``: the build environment of an interpreter, with ROCm's packages in it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from rocm_wheels.compile import sdk_tree
from rocm_wheels.core import log, tables
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.pipeline import build_environment
from rocm_wheels.pipeline.planner import Planner
from rocm_wheels.pipeline.request import SdkRequest
from rocm_wheels.pipeline.step import Step
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sdk import interpreters, resolve_packages
from rocm_wheels.sdk.build_environment import ensure_environment, install_into


def settle_install_rocm(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with what the environment is made of; what it lacks is why it runs."""
    python_facts, request = planner.facts.python, planner.facts.sdk_request
    inputs.update(python_facts.inputs)
    return replace(
        step,
        inputs=inputs,
        command=""
        if request.rocm_path is not None
        else interpreters.format_install_command([request.requirement], request.source),
        verdict="run" if python_facts.why_install else "skip",
        why=python_facts.why_install or "up to date",
    )


def run_install_rocm(step_run: StepRun) -> None:
    """Make the environment of an interpreter, with ROCm in it, and ask that what it is. Raises SdkError."""
    facts = step_run.facts
    request = facts.sdk_request
    if request.current_env:
        environment = install_into(request.python, request, facts.env, step_run.echo_line)
    else:
        environment = ensure_environment(request, facts.workspace, facts.env, step_run.echo_line)
    ready = build_environment.inspect_environment(environment, request, facts.workspace, facts.env)
    if facts.locked is not None:
        facts.locked.check_rocm(ready.sdk.version)
    installed = resolve_packages.read_installed(environment.prefix / resolve_packages.PACKAGES_NOTE) or {}
    step_run.record_packages(installed, locked=bool(request.packages))
    log.log_note(f"ROCm {ready.sdk.version} at {ready.sdk.root} ({request.requirement})")
    for text in sdk_tree.list_sdk_warnings(ready.sdk_tree):
        log.log_warning(text)


def install_rocm_now(
    request: SdkRequest, workspace: Workspace, env: Mapping[str, str]
) -> build_environment.ReadyEnvironment:
    """Do it without a plan; an open version specifier is resolved again. Raises SdkError."""
    begin = time.monotonic()
    if request.current_env:
        environment = install_into(request.python, request, env)
    else:
        environment = ensure_environment(request, workspace, env, upgrade=True)
    how = (
        f"done in {tables.format_duration(time.monotonic() - begin)}" if environment.created else "up to date"
    )
    log.log_note(f"install-rocm: {how} ({request.requirement})")
    return build_environment.inspect_environment(environment, request, workspace, env)
