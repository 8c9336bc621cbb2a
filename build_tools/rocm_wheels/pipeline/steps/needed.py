"""What a build needs installed: wheels that this run has built, and those that it was given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rocm_wheels.errors import UsageError
from rocm_wheels.model.project import Project, load_project
from rocm_wheels.pipeline.facts.imported import look_at_installed
from rocm_wheels.pipeline.facts.provided import Provided
from rocm_wheels.pipeline.plan.fitting import misfits_of
from rocm_wheels.pipeline.plan.step import KnownAfter
from rocm_wheels.pipeline.steps.installing import changing, install_built
from rocm_wheels.pipeline.steps.turn import Turn


def install_needed(turn: Turn, project: Project) -> None:
    """Bring the wheels that a project is built against into the build environment.

    Raises UsageError for a given one that, when it is imported there, proves not to fit.
    """
    for name in project.build.after:
        other = load_project(name)
        if not turn.facts.builds(name):
            provided = turn.planner.python(turn.step).provided.get(name)
            if provided is not None and provided.wheel is not None:
                install(turn, other, provided.wheel, provided.content)
                _ask(turn, project, other, provided)
        elif other.build.installed_for_others:
            stamp = turn.facts.done[turn.planner.needed_build(turn.step, name)].stamp
            install(turn, other, Path(stamp.outputs[0].path), str(stamp.facts["content"]))


def install(turn: Turn, project: Project, wheel: Path, content: str) -> None:
    """Install a wheel, in place of another one of its project, unless that very one is installed."""
    with changing(turn.ready, turn.facts.workspace, what=turn.step.id):
        install_built(turn.ready, wheel, content, distribution=project.distribution, env=turn.facts.env)


def _ask(turn: Turn, project: Project, other: Project, given: Provided) -> None:
    """Import what was given and raise UsageError when it does not fit; each build against it asks again.

    It stays installed: others may be compiled against it at this moment.
    """
    facts, targets = turn.facts, turn.planner.targets(turn.step.cell)
    assert not isinstance(targets, KnownAfter), "a build begins when its targets are known"
    found = look_at_installed(other, turn.ready, facts.request.platform, facts.workspace, facts.env)
    assert found is not None, f"{given.wheel} was installed"
    # the lock was looked for in the file: the same content may have been installed without one
    faults = misfits_of(project, replace(found, lock=given.lock), facts, turn.step.cell.tag, targets)
    if not faults:
        return
    said = "\n  ".join(faults)
    raise UsageError(f"{given.said()} was installed, and cannot be built against:\n  {said}")
