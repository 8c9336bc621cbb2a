"""Waiting for the jobs of a plan; what was lost meanwhile, and may go well yet, is submitted again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocm_wheels import ending, log
from rocm_wheels.ci.slurm.cluster import ClusterUnreachableError
from rocm_wheels.ci.slurm.states import AT_WORK, StepState
from rocm_wheels.ci.slurm.submitting import SlurmSubmission
from rocm_wheels.errors import BuildError

MOST_SILENCES = 120  # one after another: an hour, if asked every 30 s; nothing is judged meanwhile


def wait_for_jobs(
    submission: SlurmSubmission, *, every: float, pause: Callable[[float], None] = ending.wait_or_stop
) -> dict[str, StepState]:
    """Return the states once no job is left; what happens is told. Jobs go on when this is interrupted."""
    reported: dict[str, tuple[str, str]] = {}
    silent = 0
    while True:
        try:
            step_states, submitted = _poll_once(submission, reported)
        except ClusterUnreachableError as failure:
            silent += 1
            if not reported or silent > MOST_SILENCES:
                raise
            log.log_warning(f"{failure.message}; asking again in {every:g} s")
            pause(every)
            continue
        silent = 0
        if not submitted and not any(step_state.state in AT_WORK for step_state in step_states.values()):
            return step_states
        pause(every)


def _poll_once(
    submission: SlurmSubmission, reported: dict[str, tuple[str, str]]
) -> tuple[dict[str, StepState], bool]:
    """Look once; return the states, and whether something was submitted again."""
    _, step_states = submission.read_states()
    _report_states(step_states, reported)
    if not any(entry.state in ("lost", "again") for entry in step_states.values()):
        return step_states, False
    submitted = any(entry.submits for entry in submission.submit(but_cancelled=True))
    return (step_states if submitted else submission.read_states()[1]), submitted


def refuse_undone(submission: SlurmSubmission, step_states: Mapping[str, StepState]) -> None:
    """Raise BuildError that names every step whose job did not do it."""
    undone = [
        step_state
        for step_state in step_states.values()
        if step_state.state not in ("done", "not submitted", "left out")
    ]
    if not undone:
        return
    details = "".join(
        f"\n  {step_state.step}: {step_state.state}{f', {step_state.why}' if step_state.why else ''}"
        for step_state in undone
    )
    first = next((step_state for step_state in undone if step_state.state == "failed"), undone[0])
    how = (
        "--retry-failed submits it again" if first.state == "failed" else "the same command submits it again"
    )
    raise BuildError(
        f"{len(undone)} of {len(step_states)} steps are not done:{details}",
        tip=f"its log: {submission.folder.log_path(first.step)}; {how}",
    )


def _report_states(step_states: Mapping[str, StepState], reported: dict[str, tuple[str, str]]) -> None:
    for step_state in step_states.values():
        now = (
            step_state.state,
            step_state.why if step_state.state != "waiting" or "held" in step_state.why.lower() else "",
        )
        if reported.get(step_state.step) != now and (
            step_state.step in reported or step_state.state not in ("not submitted", "done")
        ):
            job = f" (job {step_state.job})" if step_state.job is not None else ""
            log.log_note(f"{step_state.step}: {step_state.state}{job}{f', {now[1]}' if now[1] else ''}")
        reported[step_state.step] = now
