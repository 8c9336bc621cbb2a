"""``install-tools``: a layer for each project, with what it needs to be built.

Layers are made before the first project is built: what one project needs is not exchanged while another
is being compiled with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.core import SdkError, log_note
from rocm_wheels.models import get_option_name, load_project
from rocm_wheels.pipeline.build_environment import (
    expand_requirements,
    find_half_installed,
    find_project_layer,
    find_requirement_closure,
    hold_environment,
    layer_packages_folder,
    list_installed_packages,
    list_packages_below,
    read_required_names,
)
from rocm_wheels.pipeline.outputs import OutputFile
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.step import KnownAfter, Step, StepInput
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sdk import (
    BuildEnvironment,
    PackageSource,
    ensure_layer,
    format_install_command,
    install_requirements,
    is_transient_failure,
)

TOOLS_VERSION = "2"


def settle_install_tools(planner: Planner, step: Step) -> Step:
    """Return the step with the requirements of all projects, and the digests of the files that hold them."""
    facts, ready = planner.facts, planner.python_facts(step).ready
    made_by = KnownAfter(f"install-rocm-{step.cell.tag}")
    inputs: dict[str, StepInput] = {
        "ROCm packages": planner.rocm_input(step),
        "environment": made_by if ready is None else str(ready.environment.prefix),
        "step": TOOLS_VERSION,
    }
    needed: list[str] = []
    for provided in planner.python_facts(step).provided.values():
        if provided.wheel is not None and provided.requires:
            inputs[f"requirements of {provided.project}"] = ", ".join(provided.requires)
            needed += provided.requires
    lines = [format_install_command(needed)] if needed else []
    for name, tree in facts.trees.items():
        words: list[str] = []
        inputs[f"tools of {name}"] = " ".join(facts.tools)
        for file, digest in tree.files.items():
            inputs[f"{file} of {name}"] = digest
            words += ["--requirement", str(tree.source / file)]
        lines += [format_install_command(facts.tools), *([format_install_command(words)] if words else [])]
    return decide_verdict(planner, step, inputs, command=" && ".join(dict.fromkeys(lines)))


def run_install_tools(step_run: StepRun) -> None:
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
        log_note(f"partly installed, to be installed again: {', '.join(halves)}")
    install_requirements(
        environment,
        requirements,
        reinstall=halves,
        env=step_run.facts.env,
        on_line=step_run.echo_line,
        source=PackageSource(cache_dir=step_run.facts.request.sdk.cache_dir),
    )
