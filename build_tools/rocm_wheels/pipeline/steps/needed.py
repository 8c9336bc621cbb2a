"""What a build needs installed: wheels that this run has built, and those that it was given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rocm_wheels.errors import UsageError
from rocm_wheels.model.project import Project, load_project
from rocm_wheels.pipeline.facts.imported import inspect_installed_wheel
from rocm_wheels.pipeline.facts.provided import ProvidedWheel
from rocm_wheels.pipeline.plan.fitting import find_project_misfits
from rocm_wheels.pipeline.plan.step import KnownAfter
from rocm_wheels.pipeline.steps.installing import hold_environment, install_built_wheel
from rocm_wheels.pipeline.steps.turn import StepRun


def install_needed_wheels(step_run: StepRun, project: Project) -> None:
    """Bring the wheels that a project is built against into the build environment.

    Raises UsageError for a given one that, when it is imported there, proves not to fit.
    """
    for name in project.build.after:
        other = load_project(name)
        if not step_run.facts.builds_project(name):
            provided = step_run.planner.python_facts(step_run.step).provided.get(name)
            if provided is not None and provided.wheel is not None:
                install_project_wheel(step_run, other, provided.wheel, provided.content)
                _check_given_wheel(step_run, project, other, provided)
        elif other.build.installed_for_others:
            stamp = step_run.facts.done[step_run.planner.find_build_step(step_run.step, name)].stamp
            install_project_wheel(step_run, other, Path(stamp.outputs[0].path), str(stamp.facts["content"]))


def install_project_wheel(step_run: StepRun, project: Project, wheel: Path, content: str) -> None:
    """Install a wheel, in place of another one of its project, unless that very one is installed."""
    with hold_environment(step_run.ready, step_run.facts.workspace, purpose=step_run.step.id):
        install_built_wheel(
            step_run.ready, wheel, content, distribution=project.distribution, env=step_run.facts.env
        )


def _check_given_wheel(
    step_run: StepRun, project: Project, other: Project, given_wheel: ProvidedWheel
) -> None:
    """Import what was given and raise UsageError when it does not fit; each build against it asks again.

    It stays installed: others may be compiled against it at this moment.
    """
    facts, targets = step_run.facts, step_run.planner.find_targets(step_run.step.cell)
    assert not isinstance(targets, KnownAfter), "a build begins when its targets are known"
    installed = inspect_installed_wheel(
        other, step_run.ready, facts.request.platform, facts.workspace, facts.env
    )
    assert installed is not None, f"{given_wheel.wheel} was installed"
    # the lock was looked for in the file: the same content may have been installed without one
    faults = find_project_misfits(
        project, replace(installed, lock=given_wheel.lock), facts, step_run.step.cell.tag, targets
    )
    if not faults:
        return
    faults_text = "\n  ".join(faults)
    raise UsageError(f"{given_wheel.describe()} was installed, and cannot be built against:\n  {faults_text}")
