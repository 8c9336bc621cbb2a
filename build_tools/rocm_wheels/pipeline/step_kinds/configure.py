"""``configure``: configure a build tree before anything is built; what CMake does not find ends the run."""

from __future__ import annotations

from rocm_wheels.compile import configure_tree
from rocm_wheels.pipeline.step_kinds.build import BuildStep
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sources import hold_checkout


def run_configure(step_run: StepRun) -> None:
    """Run the front end of a build until CMake has configured its tree, in which the build goes on later.

    Raises BuildFailed when CMake fails, or goes on without what was asked for. The source is held meanwhile.
    """
    step = BuildStep(step_run)
    source = step_run.facts.request.sources[step.project.name]
    with hold_checkout(source, activity=step_run.step.id, env=step_run.facts.env):
        environment = {**step.planned_build.environment, "MAX_JOBS": "1"}  # what compiles is ended at once
        configure_tree(step.planned_build.request, **step.make_front_end_arguments(environment))
    step_run.record_success()
