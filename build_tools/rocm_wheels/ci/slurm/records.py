"""What is known of the jobs of a plan, in a folder beside it: scripts, logs, begins, ends, and the job ids.

A job writes ``STEP.begin.json`` when it begins and ``STEP.end.json`` when it ends, each whole or not at
all. A job that is gone from the queue and has written no end was lost. Files of shared file systems may be
seen late (NFS keeps what it knows of a folder for up to a minute): a step that is submitted again for that
finds itself done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, cast

from rocm_wheels.ci.slurm.cluster import SlurmJob
from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.workspace import write_json_file, write_atomically

EndKind = Literal[
    "done", "memory", "network", "time", "signal", "busy", "lost", "compile", "failed", "unknown"
]
_LEDGER_FORMAT = 1


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
    jobs: Mapping[str, SlurmJob] = field(default_factory=dict)
    cancelled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class JobFolder:
    """The folder beside a plan: ``plan.slurm`` for ``plan.json``."""

    plan: Path

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.plan.parent / f"{self.plan.stem}.slurm"

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
        return hashlib.sha256(self.plan.read_bytes()).hexdigest()

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
            jobs = {str(step): SlurmJob.parse(str(job)) for step, job in raw["jobs"].items()}
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
        write_json_file(self.path / "jobs.json", {"format": _LEDGER_FORMAT, **fields})

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
            write_atomically(self.jobs_path(step), f"{end.jobs}\n")
        write_json_file(self.path / f"{step}.end.json", {"step": step, **asdict(end)})

    def forget_step(self, step: str) -> None:
        """Forget how a step ended: its attempts count from the beginning."""
        for path in (*(self.path / f"{step}.{kind}.json" for kind in ("begin", "end")), self.jobs_path(step)):
            path.unlink(missing_ok=True)


def _jobs_as_json(jobs: Mapping[str, SlurmJob]) -> dict[str, str]:
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
