"""Waiting for the jobs of a plan; what was lost meanwhile, and may go well yet, is submitted again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocm_wheels import ending, log
from rocm_wheels.ci.slurm.cluster import Unanswered
from rocm_wheels.ci.slurm.states import AT_WORK, StepState
from rocm_wheels.ci.slurm.submitting import Submission
from rocm_wheels.errors import BuildError

MOST_SILENCES = 120  # one after another: an hour, if asked every 30 s; nothing is judged meanwhile


def wait(
    submission: Submission, *, every: float, pause: Callable[[float], None] = ending.pause
) -> dict[str, StepState]:
    """Return the states once no job is left; what happens is told. Jobs go on when this is interrupted."""
    told: dict[str, tuple[str, str]] = {}
    silent = 0
    while True:
        try:
            found, submitted = _turn(submission, told)
        except Unanswered as failure:
            silent += 1
            if not told or silent > MOST_SILENCES:
                raise
            log.warn(f"{failure.message}; asking again in {every:g} s")
            pause(every)
            continue
        silent = 0
        if not submitted and not any(one.state in AT_WORK for one in found.values()):
            return found
        pause(every)


def _turn(submission: Submission, told: dict[str, tuple[str, str]]) -> tuple[dict[str, StepState], bool]:
    """Look once; return the states, and whether something was submitted again."""
    _, found = submission.look()
    _tell(found, told)
    if not any(one.state in ("lost", "again") for one in found.values()):
        return found, False
    submitted = any(one.submits for one in submission.submit(but_cancelled=True))
    return (found if submitted else submission.look()[1]), submitted


def refuse_undone(submission: Submission, found: Mapping[str, StepState]) -> None:
    """Raise BuildError that names every step whose job did not do it."""
    undone = [one for one in found.values() if one.state not in ("done", "not submitted", "left out")]
    if not undone:
        return
    said = "".join(f"\n  {one.step}: {one.state}{f', {one.why}' if one.why else ''}" for one in undone)
    first = next((one for one in undone if one.state == "failed"), undone[0])
    how = (
        "--retry-failed submits it again" if first.state == "failed" else "the same command submits it again"
    )
    raise BuildError(
        f"{len(undone)} of {len(found)} steps are not done:{said}",
        tip=f"its log: {submission.folder.log(first.step)}; {how}",
    )


def _tell(found: Mapping[str, StepState], told: dict[str, tuple[str, str]]) -> None:
    for one in found.values():
        now = (one.state, one.why if one.state != "waiting" or "held" in one.why.lower() else "")
        if told.get(one.step) != now and (one.step in told or one.state not in ("not submitted", "done")):
            job = f" (job {one.job})" if one.job is not None else ""
            log.note(f"{one.step}: {one.state}{job}{f', {now[1]}' if now[1] else ''}")
        told[one.step] = now
