"""What would be submitted, for people: each call of sbatch, the options of its script, and its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rocm_wheels import log
from rocm_wheels.ci.slurm import cluster
from rocm_wheels.ci.slurm.cluster import Job
from rocm_wheels.ci.slurm.deciding import Decision
from rocm_wheels.ci.slurm.parts import Part, beside, dependency, parts_of
from rocm_wheels.ci.slurm.script import directives
from rocm_wheels.ci.slurm.sizes import Size
from rocm_wheels.pipeline.execute.one import run_step_line
from rocm_wheels.shell import shell_line

if TYPE_CHECKING:
    from rocm_wheels.ci.slurm.submitting import Submission


def shown(submission: Submission, decided: Sequence[Decision]) -> list[str]:
    """Return the lines. An id that sbatch has yet to give is the name of its array in angle brackets."""
    sizes = submission.sizes(decided)
    known = {one.step.id: one for one in decided}
    jobs: dict[str, Job] = {
        one.step.id: one.state.job for one in decided if one.action == "leave" and one.state.job is not None
    }
    lines = []
    for array in submission.arrays:
        submitted = [known[step] for step in array.steps if known[step].submits]
        parts = parts_of(array, submitted, sizes, jobs, submission.site.network_delay)
        for number, part in enumerate(parts):
            waits = dependency(array, part.steps[0], jobs, beside(array, decided, jobs))
            lines += _lines(submission, part, waits)
            jobs |= part.jobs(f"<{array.name}>" if not number else f"<{array.name}, {number + 1}>")
    say_notes(sizes)
    return lines


def _lines(submission: Submission, part: Part, waits: str) -> list[str]:
    folder, array = submission.folder, part.array
    words = cluster.submission(
        folder.script(array.name),
        array=part.expression(submission.site.array_limit),
        dependency=waits,
        delay=part.delay,
    )
    lines = [shell_line(["sbatch", *words])]
    lines += [f"  #SBATCH {word}" for word in directives(folder, array, part.size, submission.site)]
    for step in part.steps:
        number = "" if array.plain else f"{array.number(step.id)}: "
        lines.append(f"  {number}{run_step_line(folder.plan, step.id)}")
    return lines


def say_notes(sizes: Mapping[str, Size]) -> None:
    """Say where jobs ask for less than would do."""
    said: dict[str, list[str]] = {}
    for step, size in sizes.items():
        for note in size.notes:
            said.setdefault(note, []).append(step)
    for note, steps in said.items():
        log.note(note if len(steps) > 1 else f"{steps[0]}: {note}")
