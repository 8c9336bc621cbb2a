"""Slurm's own programs: what is asked of them, and how their answers are read.

Formats as of Slurm 22.05: squeue(1), sinfo(1), sbatch(1).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import errors, process, tables
from rocm_wheels.executors import executor, job_records

_QUEUE_FORMAT = "%i|%T|%r|%j"
_PARTITION_FORMAT = "%P|%c|%m|%d|%l|%a|%D"
_ANSWER_SECONDS = 60.0
_JOB_ID = re.compile(r"(?P<job>\d+)(?:_(?:(?P<task>\d+)|\[(?P<tasks>[\d,:-]+)(?:%\d+)?\]))?")
_FILTER_VARIABLES = ("SQUEUE_", "SINFO_", "SCANCEL_")  # variables that leave things out of an answer
_RUNNING_STATES = {"RUNNING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "SUSPENDED", "STOPPED", "RESIZING"}
# what sbatch says, and what to do about it
_SBATCH_TIPS: tuple[tuple[str, str], ...] = (
    (r"[Ii]nvalid partition", "`sinfo -s` lists the partitions"),
    (
        r"[Ii]nvalid account",
        "`sacctmgr show associations user=$USER` lists yours, where the site has accounts",
    ),
    (r"[Ii]nvalid qos", "ask the site which --qos your account has"),
    (r"[Ii]nvalid feature", "`sinfo -o %f` lists what --constraint can ask for"),
    (
        r"node configuration|Memory specification|CPU count",
        "no node has as much: give --cpus, or --sbatch-option --mem=… (and --tmp=…)",
    ),
    (r"time limit", "give --sbatch-option --time=…; a job that reaches its limit goes on in the next one"),
    (
        r"not allowed to submit|[Jj]ob violates|QOSMax|AssocMax",
        "the site limits what you may have in its queue",
    ),
    (r"[Ii]nvalid job array", "--no-array submits a job for each step"),
    (r"establish a configuration", "is this a machine of the cluster?"),
)
# what Slurm's programs say of a controller (slurm_errno.c), and we of a program that does not end
_SILENT_CONTROLLER = re.compile(
    r"[Uu]nable to contact slurm controller|Socket timed out|[Cc]onnection (refused|timed out|reset)"
    r"|Zero Bytes were transmitted|in stand-?by mode|temporarily unable"
    r"|was stopped after \d+ s without an end"
)


@dataclass(frozen=True)
class QueuedJob:
    """A job in the queue. ``state`` as squeue writes it; ``reason`` why it waits."""

    job: job_records.Job
    state: str
    reason: str
    name: str

    @property
    def is_running(self) -> bool:
        """Whether it has begun and not ended."""
        return self.state in _RUNNING_STATES

    @property
    def is_ending(self) -> bool:
        """Whether it is being ended."""
        return self.state == "COMPLETING"

    @property
    def is_unsatisfiable(self) -> bool:
        """Whether it waits for a job that failed."""
        return self.reason == "DependencyNeverSatisfied"


@dataclass(frozen=True)
class Partition:
    """A partition: what its smallest node has (MiB), minutes of a job at most (``None``: no limit).

    ``memory`` and ``disk`` are ``None`` where the site has not told Slurm.
    """

    name: str
    default: bool
    cpus: int
    memory: int | None
    disk: int | None
    minutes: int | None
    nodes: int


def has_slurm(env: Mapping[str, str]) -> bool:
    """Tell whether this machine has Slurm's programs."""
    return all(shutil.which(name, path=env.get("PATH", "")) for name in ("sbatch", "squeue", "sinfo"))


def find_program(name: str, env: Mapping[str, str]) -> str:
    """Return where a program of Slurm is. Raises UsageError."""
    path = shutil.which(name, path=env.get("PATH", ""))
    if path is None:
        raise errors.UsageError(
            f"there is no {name} on PATH: jobs are submitted from a machine of a Slurm cluster",
            tip="log in to one (module load slurm, on some sites); --dry-run shows the jobs anywhere",
        )
    return path


def _run_program(name: str, *words: str | Path, env: Mapping[str, str], label: str) -> str:
    argv = [find_program(name, env), *map(str, words)]
    env = {variable: value for variable, value in env.items() if not variable.startswith(_FILTER_VARIABLES)}
    try:
        return process.capture_output(
            argv, env=env, timeout=_ANSWER_SECONDS, check=errors.UsageError, description=label
        )
    except errors.UsageError as failure:
        if _SILENT_CONTROLLER.search(failure.message):
            raise executor.ExecutorUnreachableError(
                failure.message, tip="is this a machine of the cluster, and its controller up?"
            ) from failure
        if failure.tip is None:
            failure.tip = next(
                (tip for pattern, tip in _SBATCH_TIPS if re.search(pattern, failure.message)), None
            )
        raise


def query_queue(env: Mapping[str, str]) -> list[QueuedJob]:
    """Return the jobs of this user that wait or run."""
    words = ("--user", str(os.getuid()), "--array", "--noheader", "-o", _QUEUE_FORMAT)
    return parse_queue(_run_program("squeue", *words, env=env, label="squeue"))


def parse_queue(text: str) -> list[QueuedJob]:
    """Read the lines of ``squeue -o``. Tasks that wait may be in one line: ``11_[1,3-9:2%1]``.

    What has another id (``12+0``: several jobs in one) is not ours.
    """
    jobs = []
    for row in (line.split("|", 3) for line in text.splitlines()):
        if len(row) == 4 and (match := _JOB_ID.fullmatch(row[0])):
            tasks: list[int | None] = [int(match["task"]) if match["task"] else None]
            if match["tasks"]:
                tasks = [*_parse_task_numbers(match["tasks"])]
            jobs += [QueuedJob(job_records.Job(int(match["job"]), task), *row[1:]) for task in tasks]
    return jobs


def _parse_task_numbers(text: str) -> Iterator[int]:
    """Read the numbers of tasks: ``1,3-9:2``."""
    for match in re.finditer(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text):
        first, last, step = match.groups()
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def query_array_size(env: Mapping[str, str]) -> int:
    """Return the site's MaxArraySize: one more than the largest number of a task; 0: there are no arrays."""
    output = _run_program("scontrol", "show", "config", env=env, label="scontrol show config")
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", output, re.MULTILINE)
    if match is None:
        raise errors.UsageError(
            "scontrol show config does not tell MaxArraySize", tip="--no-array does without arrays"
        )
    return int(match[1])


def query_partitions(env: Mapping[str, str]) -> list[Partition]:
    """Return the partitions that jobs may be submitted to."""
    return parse_partitions(
        _run_program("sinfo", "--noheader", "--exact", "-o", _PARTITION_FORMAT, env=env, label="sinfo")
    )


def query_nodes(env: Mapping[str, str]) -> set[str]:
    """Return the names of the cluster's nodes."""
    return set(_run_program("sinfo", "--noheader", "--Node", "-o", "%N", env=env, label="sinfo").split())


def parse_partitions(text: str) -> list[Partition]:
    """Read the lines of ``sinfo -o``: one for each kind of node of a partition, and titles of clusters."""
    by_name: dict[str, Partition] = {}
    for row in (line.strip().split("|") for line in text.splitlines()):
        if len(row) != 7:
            continue
        name, cpus, memory, disk, limit, up, nodes = row
        here = Partition(
            name.rstrip("*"),
            name.endswith("*"),
            _parse_number(cpus) or 1,
            _parse_number(memory) if _parse_number(memory) > 1 else None,  # RealMemory=1: nobody has said
            _parse_number(disk) or None,
            parse_time_limit(limit),
            _parse_number(nodes),
        )
        if up == "up" and here.nodes:
            by_name[here.name] = (
                _combine_partitions(by_name[here.name], here) if here.name in by_name else here
            )
    return list(by_name.values())


def choose_partition(available: Sequence[Partition], requested: str | None) -> Partition | None:
    """Return the partition that is asked for, or the default one. Raises UsageError for one not there."""
    if requested is None:
        return next((candidate for candidate in available if candidate.default), None)
    names = [candidate.name for candidate in available]
    first = requested.split(",")[
        0
    ]  # Slurm takes the first that is free; they are asked for what the first has
    for name in requested.split(","):
        if name not in names:
            raise errors.UsageError(
                f"--partition: no partition {name} has nodes that are up{tables.suggest_name(name, names)}",
                tip=f"there are: {', '.join(names) or 'none'}",
            )
    return next(candidate for candidate in available if candidate.name == first)


def compose_submission(script: Path, *, array: str = "", dependency: str = "", delay: int = 0) -> list[str]:
    """Return the words that submit a script: as an ``array``, to begin after ``delay`` seconds."""
    options = {"array": array, "dependency": dependency, "begin": f"now+{delay}" if delay else ""}
    return ["--parsable", *(f"--{name}={value}" for name, value in options.items() if value), str(script)]


def submit_script(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Submit a script; return the id of its job or array. UsageError as sbatch says."""
    script = Path(words[-1])
    output = _run_program("sbatch", *words, env=env, label=f"sbatch {script.name}")
    job = output.strip().splitlines()[-1].split(";")[0] if output.strip() else ""
    if not job.isdecimal():
        raise errors.UsageError(
            f"sbatch {script.name}: no job id in what it says: {output.strip()[:200] or 'nothing'}"
        )
    return int(job)


def cancel_jobs(jobs: Iterable[str], env: Mapping[str, str]) -> None:
    """Take jobs, tasks or arrays from the queue; those at work get SIGTERM, and Slurm's KillWait to end.

    What has ended meanwhile, or was taken back by Slurm itself, is refused by some versions of scancel.
    """
    words = list(jobs)
    try:
        if words:
            _run_program("scancel", *words, env=env, label="scancel")
    except executor.ExecutorUnreachableError:
        raise
    except errors.UsageError:
        if any(
            {str(queued.job), str(queued.job.id)} & {*words} and not queued.is_ending
            for queued in query_queue(env)
        ):
            raise


def parse_time_limit(limit: str) -> int | None:
    """Read a time limit of Slurm (``2:00:00``, ``1-00:00:00``, ``30:00``) in minutes; ``None``: none.

    A part of a minute counts as nothing.
    """
    days, _, rest = limit.strip().rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 3:
        return None  # infinite, UNLIMITED, n/a, NOT_SET
    if len(parts) == 3:
        minutes = int(parts[0]) * 60 + int(parts[1])
    else:
        minutes = int(parts[0])
    return minutes + int(days or 0) * 1440


def _combine_partitions(first: Partition, other: Partition) -> Partition:
    def least(a: int | None, b: int | None) -> int | None:
        return min((size for size in (a, b) if size is not None), default=None)

    return Partition(
        first.name,
        first.default,
        min(first.cpus, other.cpus),
        least(first.memory, other.memory),
        least(first.disk, other.disk),
        first.minutes,
        first.nodes + other.nodes,
    )


def _parse_number(text: str) -> int:
    """Read ``4``, ``4+`` or ``n/a``."""
    digits = text.rstrip("+")
    return int(digits) if digits.isdecimal() else 0
