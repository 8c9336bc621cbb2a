"""``configure``: configure a build tree before anything is built; what CMake does not find ends the run."""

from __future__ import annotations

from rocm_wheels.compile import configure_tree
from rocm_wheels.pipeline.build_inputs import select_configure_inputs
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.step import KnownAfter, Step
from rocm_wheels.pipeline.step_kinds.build import BuildStep, make_build_command
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sources import hold_checkout


def settle_configure(planner: Planner, step: Step) -> Step:
    """Return the step with the inputs of its build that CMake reads."""
    planned = planner.plan_step_build(step)
    if isinstance(planned, KnownAfter):
        return decide_verdict(planner, step, {"everything else": planned})
    inputs = select_configure_inputs(planned.inputs)
    return decide_verdict(planner, step, inputs, command=make_build_command(planner, step, planned.request))


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
