"""Configuring a project's build tree before anything is built: what CMake does not find ends the run now."""

from __future__ import annotations

from rocm_wheels.compile.frontend import configure_tree
from rocm_wheels.pipeline.steps.build import BuildStep
from rocm_wheels.pipeline.steps.turn import Turn
from rocm_wheels.sources.hold import held


def configure(turn: Turn) -> None:
    """Run the front end of a build until CMake has configured its tree, in which the build goes on later.

    Raises BuildFailed when CMake fails, or goes on without what was asked for. The source is held meanwhile.
    """
    step = BuildStep(turn)
    source = turn.facts.request.sources[step.project.name]
    with held(source, what=turn.step.id, env=turn.facts.env):
        environment = {**step.planned.environment, "MAX_JOBS": "1"}  # what compiles is ended at once
        configure_tree(step.planned.request, **step.front_end(environment))
    turn.succeed()
