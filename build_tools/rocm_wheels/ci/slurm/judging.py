"""What the end of a job means: done, worth another attempt, or not.

Judged by the exit code of ``run-step``, by the record of its run, and by the first error in its log. What
may pass (memory, network, a node that was lost) is tried so many times; a job whose time was over, or
which was preempted, did nothing wrong and goes on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from rocm_wheels.ci.slurm.records import JobBegin, JobEnd, EndKind, JobFolder, parse_time
from rocm_wheels.compile.failure import find_first_failure
from rocm_wheels.errors import SourceError
from rocm_wheels.pipeline.record.reading import RecordedRun, RecordedStep, read_run, list_run_ids
from rocm_wheels.pipeline.record.vocabulary import parse_event_time
from rocm_wheels.sources.network.transport import is_transient

MOST_INTERRUPTIONS = 50
KILLED_CODES = (137, 9, -9)
# clocks of nodes differ by less (credentials of munge are good for five minutes): a run that began this much
# before a job is not the job's, and there are no later ones behind it
_CLOCK_DIFFERENCE = timedelta(hours=1)
_TAIL_LINES = 40
# what uv says beside git and curl (reqwest's errors)
_UNREACHABLE_SERVER = re.compile(
    r"error sending request|dns error|server error \(5\d\d|connection error|incomplete message", re.IGNORECASE
)
# a tree or a step: somebody builds there by hand, or what Slurm has killed has not ended yet
_IN_USE_MESSAGE = re.compile(r"^.* is in use by .*$", re.MULTILINE)
BUSY_SECONDS = 60
_OUT_OF_MEMORY = re.compile(
    r"oom[-_ ]kill|Exceeded job memory limit|out[ -]of[ -]memory handler", re.IGNORECASE
)


@dataclass(frozen=True)
class StepOutput:
    """What a step said of its end: its message, the lines of its logs, how many compilers it ran."""

    message: str = ""
    lines: tuple[str, ...] = ()
    jobs: int | None = None


def classify_end(code: int, because: str, output: StepOutput) -> tuple[EndKind, str]:
    """Return the kind of an end, and the reason for people. ``because``: ``time``, ``signal`` or nothing."""
    if code == 0:
        return "done", ""
    if because == "time":
        return "time", "its limit of time was near"
    if because == "signal" or code in (130, 143):
        return "signal", "it was told to end"
    if code == 2 and (busy := _IN_USE_MESSAGE.search(output.message)):
        return "busy", busy[0]
    failure = find_first_failure(output.lines)
    if failure is not None and failure.kind == "memory":
        return "memory", f"a compiler ran out of memory ({failure.message})"
    if code in KILLED_CODES or any(_OUT_OF_MEMORY.search(line) for line in output.lines[-_TAIL_LINES:]):
        return "memory", "it was killed, as a rule for want of memory"
    first = output.message.strip().splitlines()
    reason = first[0] if first else f"run-step ended with exit code {code}"
    if failure is not None and failure.kind in ("compile", "link", "disk"):
        return ("failed" if failure.kind == "disk" else "compile"), str(failure)
    text = f"{output.message}\n{failure.message if failure else ''}"
    if is_transient(SourceError(text)) or _UNREACHABLE_SERVER.search(text):
        return "network", reason
    return "failed", str(failure) if failure is not None and code == 12 else reason


def judge_end(
    folder: JobFolder,
    step: str,
    runs: Path,
    *,
    code: int,
    because: str,
    attempts: int,
    now: datetime | None = None,
) -> JobEnd:
    """Judge the end of the job that began last, and count it. Nothing is written."""
    begin = folder.read_begin(step) or JobBegin("", 0, "unknown", "")
    output = read_step_output(folder, step, runs, begin)
    kind, reason = classify_end(code, because, output)
    return count_end(
        folder, step, begin, code=code, kind=kind, reason=reason, jobs=output.jobs, attempts=attempts, now=now
    )


def judge_lost_job(folder: JobFolder, step: str, runs: Path, job: str, *, attempts: int) -> JobEnd:
    """Return the end of a job that is gone and has told none: its node was lost, or all of it was killed."""
    begin = folder.read_begin(step)
    if begin is None or begin.job != job:
        begin, output = JobBegin(job, 0, "", ""), StepOutput()
    else:
        output = read_step_output(folder, step, runs, begin)
    kind: EndKind = "lost"
    reason = f"job {job} was gone from the queue before it began"
    if any(_OUT_OF_MEMORY.search(line) for line in output.lines[-_TAIL_LINES:]):
        kind, reason = "memory", "all of it was killed for want of memory"
    elif begin.host:
        reason = f"job {job} on {begin.host} ended without a word: its node was lost, or it was killed"
    return count_end(
        folder,
        step,
        begin,
        code=None,
        kind=kind,
        reason=reason,
        jobs=output.jobs,
        attempts=attempts,
        now=None,
    )


def make_done_end(folder: JobFolder, step: str, job: str) -> JobEnd:
    """Return the end of a job that told none, or a bad one, and whose step is done all the same."""
    begin = folder.read_begin(step)
    if begin is None or begin.job != job:
        begin = JobBegin(job, 0, "", "")
    return count_end(folder, step, begin, code=0, kind="done", reason="", jobs=None, attempts=1, now=None)


def count_end(
    folder: JobFolder,
    step: str,
    begin: JobBegin,
    *,
    code: int | None,
    kind: EndKind,
    reason: str,
    jobs: int | None,
    attempts: int,
    now: datetime | None,
) -> JobEnd:
    """Return an end with how often the step has failed by now, and whether it is worth another attempt."""
    before = folder.read_end(step)
    failures = before.failures if before else 0
    interruptions = before.interruptions if before else 0
    failures += kind in ("memory", "network", "lost", "compile", "failed")
    interruptions += kind in ("time", "signal", "busy")
    fewer: int | None = None
    again = False
    if kind in ("time", "signal", "busy"):
        again = interruptions < MOST_INTERRUPTIONS
        tip = "" if kind == "busy" else ": give its jobs more time (--sbatch-option=--time=…)"
        reason += "" if again else f", {interruptions} times{tip}"
    elif kind in ("memory", "network", "lost"):
        again = failures < attempts
        reason += "" if again else f"; attempts: {failures}"
    if kind == "memory" and again and jobs is not None:
        fewer = max(jobs // 2, 1)
        if jobs <= 1:
            again, fewer = False, None
            reason += "; one compiler at a time is the least: give its jobs more (--sbatch-option=--mem=…)"
    moment = (now or datetime.now(timezone.utc)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return JobEnd(
        job=begin.job,
        restart=begin.restart,
        host=begin.host,
        ended=moment,
        exit_code=code,
        kind=kind,
        reason=reason,
        again=again,
        failures=failures,
        interruptions=interruptions,
        jobs=fewer if fewer is not None else before.jobs if before else None,
    )


def compute_delay(end: JobEnd, after_network: float) -> int:
    """Return the seconds to wait before another attempt, twice as long each time that the network failed.

    Slurm itself waits, too: for as long as a credential of munge is good, two minutes as a rule.
    """
    if end.kind == "busy":
        return BUSY_SECONDS
    return round(after_network * 2 ** (end.failures - 1)) if end.kind == "network" else 0


def read_step_output(folder: JobFolder, step: str, runs: Path, begin: JobBegin) -> StepOutput:
    """Return what a step's last attempt said: in its run, or, where it came to none, in the job's own log."""
    printed = _read_lines(folder.log_path(step))
    starts = [number for number, line in enumerate(printed) if line.startswith(f"== {step}: job ")]
    printed = printed[starts[-1] + 1 :] if starts else printed
    view = _find_step_view(runs, step, begin)
    if view is None:
        errors = [n for n, line in enumerate(printed) if line.startswith("error: ")]
        message = "\n".join(printed[errors[-1] :]).removeprefix("error: ") if errors else ""
        return StepOutput(message, tuple(printed))
    message = str(view.ended.get("message") or "") if view.ended is not None else ""
    jobs = view.begun.get("jobs")
    log = _read_lines(view.log) if view.log is not None else []
    return StepOutput(message, (*log, *printed), int(jobs) if isinstance(jobs, int) else None)


def _find_step_view(runs: Path, step: str, begin: JobBegin) -> RecordedStep | None:
    """Find the run of a step's last attempt: that of its job, else the newest that began after the job.

    Runs are sorted by clocks, and those of nodes differ. A container that is told nothing of a job cannot
    say whose run it is; then the times of both are those of the job's host, whose name it has not either.
    """
    began = parse_time(begin.began) if begin.began else None
    last: RecordedRun | None = None
    for name in list_run_ids(runs):  # many, if other steps began while this one was at work
        run = read_run(runs / name, brief=True)
        if "time" not in run.begun:
            continue
        if step in run.steps:
            if begin.id and run.begun.get("slurm_job") == f"{begin.id}.{begin.restart}":
                return run.steps[step]
            last = last or run
        if parse_event_time(run.begun) < began - _CLOCK_DIFFERENCE if began is not None else last is not None:
            break
    if last is None or last.begun.get("slurm_job"):
        return None
    return last.steps[step] if began is None or parse_event_time(last.begun) >= began else None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
