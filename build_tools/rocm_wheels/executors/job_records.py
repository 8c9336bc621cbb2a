"""Records of the jobs of a plan, in a folder beside it, and what the end of a job means.

A job writes ``STEP.begin.json`` when it begins and ``STEP.end.json`` when it ends, each whole or not at
all. A job that is gone from the queue and has written no end was lost. Files of shared file systems may be
seen late (NFS keeps what it knows of a folder for up to a minute): a step that is submitted again for that
finds itself done.

An end is judged by the exit code of ``run-step``, by the record of its run, and by the first error in its
log. What may pass (memory, network, a node that was lost) is tried so many times; a job whose time was
over, or which was preempted, did nothing wrong and goes on.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal, cast

from rocm_wheels.compile.failure import find_first_failure
from rocm_wheels.core import files, retry
from rocm_wheels.core.errors import DataError, SourceError, UsageError
from rocm_wheels.pipeline import run_record
from rocm_wheels.sources import network

EndKind = Literal[
    "done", "memory", "network", "time", "signal", "busy", "lost", "compile", "failed", "unknown"
]
_LEDGER_FORMAT = 1


@dataclass(frozen=True)
class Job:
    """A job: its id, and the number of its task where it is one of an array's."""

    id: int | str
    task: int | None = None

    def __str__(self) -> str:
        return str(self.id) if self.task is None else f"{self.id}_{self.task}"

    @classmethod
    def parse(cls, text: str) -> Job:
        """Read ``123`` or ``123_4``. Raises ValueError."""
        job, several, task = text.partition("_")
        return cls(int(job), int(task) if several else None)


@dataclass(frozen=True)
class JobBegin:
    """A job began, for the ``restart``-th time again. ``began``: UTC.

    ``id``: what its processes have as SLURM_JOB_ID, which is that of a task alone.
    """

    job: str
    restart: int
    host: str
    began: str
    id: str = ""


@dataclass(frozen=True)
class JobEnd:
    """How a job ended. ``again``: it is worth another attempt; ``jobs``: compilers at a time of the next.
    ``job``: ``123``, or ``123_4`` for a task of an array.

    ``failures`` and ``interruptions``: how many ends there were before, this one included.
    """

    job: str
    restart: int
    host: str
    ended: str
    exit_code: int | None
    kind: EndKind
    reason: str
    again: bool = False
    failures: int = 0
    interruptions: int = 0
    jobs: int | None = None


@dataclass(frozen=True)
class JobLedger:
    """Which job does which step: the last one submitted. ``cancelled``: steps whose jobs we took back."""

    plan: str = ""  # SHA-256 of the plan that they are of
    jobs: Mapping[str, Job] = field(default_factory=dict)
    cancelled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class JobFolder:
    """The folder beside a plan: ``plan.slurm`` for ``plan.json`` and the executor ``slurm``."""

    plan: Path
    executor: str = "slurm"

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.plan.parent / f"{self.plan.stem}.{self.executor}"

    def script_path(self, name: str) -> Path:
        """The script of a step, or of an array."""
        return self.path / f"{name}.sbatch"

    def log_path(self, step: str) -> Path:
        """What the jobs of a step print, one after another."""
        return self.path / f"{step}.log"

    def task_log_path(self, array: str, number: int | str) -> Path:
        """What a task of an array prints: a link to the log of its step. ``number``: or ``%a``."""
        return self.path / f"{array}.{number}.log"

    def link_logs(self, array: str, tasks: Mapping[int, str]) -> None:
        """Have Slurm, which knows numbers alone, write to the logs of steps. Raises UsageError."""
        for number, step in tasks.items():
            link, name = self.task_log_path(array, number), self.log_path(step).name
            if not link.is_symlink() or str(link.readlink()) != name:
                try:
                    link.unlink(missing_ok=True)
                    link.symlink_to(name)
                except OSError as cause:
                    message = f"{link} cannot be a link to {name}: {cause.strerror}"
                    raise UsageError(
                        message, tip="where folders cannot have links, --no-array does without"
                    ) from cause

    def jobs_path(self, step: str) -> Path:
        """How many compilers the next job of a step may run; there after one ran out of memory."""
        return self.path / f"{step}.jobs"

    def compute_digest(self) -> str:
        """Return the digest of the plan as it is now."""
        return files.hash_file(self.plan)

    def job_prefix(self) -> str:
        """Return how the names of the plan's jobs begin in the queue: those of no other plan do."""
        key = hashlib.sha256(
            f"{self.plan}\n{self.compute_digest()}".encode("utf-8", "surrogateescape")
        ).hexdigest()
        return f"rw-{key[:8]}-"

    def read_ledger(self) -> JobLedger:
        """Read which jobs there are. Raises DataError for a file that is damaged."""
        path = self.path / "jobs.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            if raw["format"] != _LEDGER_FORMAT:
                raise KeyError("format")
            jobs = {str(step): Job.parse(str(job)) for step, job in raw["jobs"].items()}
            return JobLedger(str(raw["plan"]), jobs, frozenset(map(str, raw["cancelled"])))
        except FileNotFoundError:
            return JobLedger()
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            tip = f"look into `squeue --me`, then delete {path}"
            raise DataError(f"{path} does not say which jobs were submitted", tip=tip) from cause

    def write_ledger(self, ledger: JobLedger) -> None:
        """Write it, whole or not at all."""
        fields = {
            "plan": ledger.plan,
            "jobs": _jobs_as_json(ledger.jobs),
            "cancelled": sorted(ledger.cancelled),
        }
        files.write_json_file(self.path / "jobs.json", {"format": _LEDGER_FORMAT, **fields})

    def read_begin(self, step: str) -> JobBegin | None:
        """Read the begin of a step's last job; a record that is none counts as none."""
        raw = _read_record(self.path / f"{step}.begin.json")
        try:
            parse_time(str(raw["began"]))
            fields = (str(raw["job"]), int(raw["restart"]), str(raw["host"]), str(raw["began"]))
            return JobBegin(*fields, id=str(raw.get("id", "")))
        except (KeyError, TypeError, ValueError):
            return None

    def read_end(self, step: str) -> JobEnd | None:
        """Read the end of a step's last job that told one; a record that is none counts as none."""
        raw = _read_record(self.path / f"{step}.end.json")
        try:
            return JobEnd(
                job=str(raw["job"]),
                restart=int(raw["restart"]),
                host=str(raw["host"]),
                ended=str(raw["ended"]),
                exit_code=None if raw["exit_code"] is None else int(raw["exit_code"]),
                kind=cast("EndKind", str(raw["kind"])),
                reason=str(raw["reason"]),
                again=bool(raw["again"]),
                failures=int(raw["failures"]),
                interruptions=int(raw["interruptions"]),
                jobs=None if raw.get("jobs") is None else int(raw["jobs"]),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def write_end(self, step: str, end: JobEnd) -> None:
        """Write an end; the next job may run as many compilers as it says."""
        if end.jobs is not None:
            files.write_atomically(self.jobs_path(step), f"{end.jobs}\n")
        files.write_json_file(self.path / f"{step}.end.json", {"step": step, **asdict(end)})

    def forget_step(self, step: str) -> None:
        """Forget how a step ended: its attempts count from the beginning."""
        for path in (*(self.path / f"{step}.{kind}.json" for kind in ("begin", "end")), self.jobs_path(step)):
            path.unlink(missing_ok=True)


def _jobs_as_json(jobs: Mapping[str, Job]) -> dict[str, str]:
    return {step: str(job) for step, job in jobs.items()}


def parse_time(text: str) -> datetime:
    """Read a time of a record. Raises ValueError."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


def _read_record(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}


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
        return "signal", "it was asked to end"
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
    if network.is_transient(SourceError(text)) or _UNREACHABLE_SERVER.search(text):
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
    policy = retry.RetryPolicy(first_wait=after_network, longest_wait=math.inf, jitter=0)
    return round(policy.compute_wait(end.failures)) if end.kind == "network" else 0


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


def _find_step_view(runs: Path, step: str, begin: JobBegin) -> run_record.RecordedStep | None:
    """Find the run of a step's last attempt: that of its job, else the newest that began after the job.

    Runs are sorted by clocks, and those of nodes differ. A container that is told nothing of a job cannot
    say whose run it is; then the times of both are those of the job's host, whose name it has not either.
    """
    began = parse_time(begin.began) if begin.began else None
    last: run_record.RecordedRun | None = None
    for name in run_record.list_run_ids(runs):  # many, if other steps began while this one was at work
        run = run_record.read_run(runs / name, brief=True)
        if "time" not in run.begun:
            continue
        if step in run.steps:
            if begin.id and run.begun.get("slurm_job") == f"{begin.id}.{begin.restart}":
                return run.steps[step]
            last = last or run
        if (
            run_record.parse_event_time(run.begun) < began - _CLOCK_DIFFERENCE
            if began is not None
            else last is not None
        ):
            break
    if last is None or last.begun.get("slurm_job"):
        return None
    return last.steps[step] if began is None or run_record.parse_event_time(last.begun) >= began else None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
