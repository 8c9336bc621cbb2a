"""What would be submitted, for people: each call of sbatch, the options of its script, and its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rocm_wheels import log
from rocm_wheels.ci.slurm import cluster
from rocm_wheels.ci.slurm.cluster import SlurmJob
from rocm_wheels.ci.slurm.deciding import Decision
from rocm_wheels.ci.slurm.parts import ArrayPart, list_conflicting_jobs, make_dependency, split_array
from rocm_wheels.ci.slurm.script import make_directives
from rocm_wheels.ci.slurm.sizes import JobSize
from rocm_wheels.pipeline.execute.one import run_step_line
from rocm_wheels.shell import format_command

if TYPE_CHECKING:
    from rocm_wheels.ci.slurm.submitting import SlurmSubmission


def describe_submission(submission: SlurmSubmission, decided: Sequence[Decision]) -> list[str]:
    """Return the lines. An id that sbatch has yet to give is the name of its array in angle brackets."""
    sizes = submission.compute_sizes(decided)
    decisions = {decision.step.id: decision for decision in decided}
    jobs: dict[str, SlurmJob] = {
        decision.step.id: decision.state.job
        for decision in decided
        if decision.action == "leave" and decision.state.job is not None
    }
    lines = []
    for array in submission.arrays:
        submitted = [decisions[step] for step in array.steps if decisions[step].submits]
        parts = split_array(array, submitted, sizes, jobs, submission.site.network_delay)
        for number, part in enumerate(parts):
            waits = make_dependency(array, part.steps[0], jobs, list_conflicting_jobs(array, decided, jobs))
            lines += _describe_part(submission, part, waits)
            jobs |= part.assign_jobs(f"<{array.name}>" if not number else f"<{array.name}, {number + 1}>")
    note_sizes(sizes)
    return lines


def _describe_part(submission: SlurmSubmission, part: ArrayPart, waits: str) -> list[str]:
    folder, array = submission.folder, part.array
    words = cluster.compose_submission(
        folder.script_path(array.name),
        array=part.array_expression(submission.site.array_limit),
        dependency=waits,
        delay=part.delay,
    )
    lines = [format_command(["sbatch", *words])]
    lines += [f"  #SBATCH {word}" for word in make_directives(folder, array, part.size, submission.site)]
    for step in part.steps:
        number = "" if array.plain else f"{array.task_number(step.id)}: "
        lines.append(f"  {number}{run_step_line(folder.plan, step.id)}")
    return lines


def note_sizes(sizes: Mapping[str, JobSize]) -> None:
    """Say where jobs ask for less than would do."""
    steps_by_note: dict[str, list[str]] = {}
    for step, size in sizes.items():
        for note in size.notes:
            steps_by_note.setdefault(note, []).append(step)
    for note, steps in steps_by_note.items():
        log.log_note(note if len(steps) > 1 else f"{steps[0]}: {note}")
