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

from rocm_wheels import process
from rocm_wheels.errors import UsageError
from rocm_wheels.records import did_you_mean

_QUEUE = "%i|%T|%r|%j"
_PARTITIONS = "%P|%c|%m|%d|%l|%a|%D"
_SECONDS = 60.0
_JOB = re.compile(r"(?P<job>\d+)(?:_(?:(?P<task>\d+)|\[(?P<tasks>[\d,:-]+)(?:%\d+)?\]))?")
_FILTERS = ("SQUEUE_", "SINFO_", "SCANCEL_")  # variables that leave things out of an answer
_RUNNING = {"RUNNING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "SUSPENDED", "STOPPED", "RESIZING"}
# what sbatch says, and what to do about it
_TIPS: tuple[tuple[str, str], ...] = (
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
_SILENT = re.compile(
    r"[Uu]nable to contact slurm controller|Socket timed out|[Cc]onnection (refused|timed out|reset)"
    r"|Zero Bytes were transmitted|in stand-?by mode|temporarily unable"
    r"|was stopped after \d+ s without an end"
)


class Unanswered(UsageError):
    """Slurm's controller does not answer: nothing is known of any job, and it may do so in a minute."""


@dataclass(frozen=True)
class Job:
    """A job: its id, and the number of its task where it is one of an array's."""

    id: int | str
    task: int | None = None

    def __str__(self) -> str:
        return str(self.id) if self.task is None else f"{self.id}_{self.task}"

    @classmethod
    def of(cls, text: str) -> Job:
        """Read ``123`` or ``123_4``. Raises ValueError."""
        job, several, task = text.partition("_")
        return cls(int(job), int(task) if several else None)


@dataclass(frozen=True)
class Queued:
    """A job in the queue. ``state`` as squeue writes it; ``reason`` why it waits."""

    job: Job
    state: str
    reason: str
    name: str

    @property
    def runs(self) -> bool:
        """Whether it has begun and not ended."""
        return self.state in _RUNNING

    @property
    def ends(self) -> bool:
        """Whether it is being ended."""
        return self.state == "COMPLETING"

    @property
    def never(self) -> bool:
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


def is_here(env: Mapping[str, str]) -> bool:
    """Tell whether this machine has Slurm's programs."""
    return all(shutil.which(name, path=env.get("PATH", "")) for name in ("sbatch", "squeue", "sinfo"))


def program(name: str, env: Mapping[str, str]) -> str:
    """Return where a program of Slurm is. Raises UsageError."""
    found = shutil.which(name, path=env.get("PATH", ""))
    if found is None:
        raise UsageError(
            f"there is no {name} on PATH: jobs are submitted from a machine of a Slurm cluster",
            tip="log in to one (module load slurm, on some sites); --dry-run shows the jobs anywhere",
        )
    return found


def _ask(name: str, *words: str | Path, env: Mapping[str, str], what: str) -> str:
    argv = [program(name, env), *map(str, words)]
    env = {variable: value for variable, value in env.items() if not variable.startswith(_FILTERS)}
    try:
        return process.capture(argv, env=env, timeout=_SECONDS, check=UsageError, what=what)
    except UsageError as failure:
        if _SILENT.search(failure.message):
            raise Unanswered(
                failure.message, tip="is this a machine of the cluster, and its controller up?"
            ) from failure
        if failure.tip is None:
            failure.tip = next((tip for said, tip in _TIPS if re.search(said, failure.message)), None)
        raise


def queue(env: Mapping[str, str]) -> list[Queued]:
    """Return the jobs of this user that wait or run."""
    words = ("--user", str(os.getuid()), "--array", "--noheader", "-o", _QUEUE)
    return read_queue(_ask("squeue", *words, env=env, what="squeue"))


def read_queue(text: str) -> list[Queued]:
    """Read the lines of ``squeue -o``. Tasks that wait may be in one line: ``11_[1,3-9:2%1]``.

    What has another id (``12+0``: several jobs in one) is not ours.
    """
    found = []
    for row in (line.split("|", 3) for line in text.splitlines()):
        if len(row) == 4 and (match := _JOB.fullmatch(row[0])):
            tasks: list[int | None] = [int(match["task"]) if match["task"] else None]
            if match["tasks"]:
                tasks = [*_numbers(match["tasks"])]
            found += [Queued(Job(int(match["job"]), task), *row[1:]) for task in tasks]
    return found


def _numbers(text: str) -> Iterator[int]:
    """Read the numbers of tasks: ``1,3-9:2``."""
    for match in re.finditer(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text):
        first, last, step = match.groups()
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def array_size(env: Mapping[str, str]) -> int:
    """Return the site's MaxArraySize: one more than the largest number of a task; 0: there are no arrays."""
    said = _ask("scontrol", "show", "config", env=env, what="scontrol show config")
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", said, re.MULTILINE)
    if match is None:
        raise UsageError(
            "scontrol show config does not tell MaxArraySize", tip="--no-array does without arrays"
        )
    return int(match[1])


def partitions(env: Mapping[str, str]) -> list[Partition]:
    """Return the partitions that jobs may be submitted to."""
    return read_partitions(_ask("sinfo", "--noheader", "--exact", "-o", _PARTITIONS, env=env, what="sinfo"))


def nodes(env: Mapping[str, str]) -> set[str]:
    """Return the names of the cluster's nodes."""
    return set(_ask("sinfo", "--noheader", "--Node", "-o", "%N", env=env, what="sinfo").split())


def read_partitions(text: str) -> list[Partition]:
    """Read the lines of ``sinfo -o``: one for each kind of node of a partition, and titles of clusters."""
    found: dict[str, Partition] = {}
    for row in (line.strip().split("|") for line in text.splitlines()):
        if len(row) != 7:
            continue
        name, cpus, memory, disk, limit, up, nodes = row
        here = Partition(
            name.rstrip("*"),
            name.endswith("*"),
            _number(cpus) or 1,
            _number(memory) if _number(memory) > 1 else None,  # RealMemory=1: nobody has said
            _number(disk) or None,
            minutes_of(limit),
            _number(nodes),
        )
        if up == "up" and here.nodes:
            found[here.name] = _smaller(found[here.name], here) if here.name in found else here
    return list(found.values())


def partition(known: Sequence[Partition], wanted: str | None) -> Partition | None:
    """Return the partition that is asked for, or the default one. Raises UsageError for one not there."""
    if wanted is None:
        return next((one for one in known if one.default), None)
    names = [one.name for one in known]
    first = wanted.split(",")[0]  # Slurm takes the first that is free; they are asked for what the first has
    for name in wanted.split(","):
        if name not in names:
            raise UsageError(
                f"--partition: no partition {name} has nodes that are up{did_you_mean(name, names)}",
                tip=f"there are: {', '.join(names) or 'none'}",
            )
    return next(one for one in known if one.name == first)


def submission(script: Path, *, array: str = "", dependency: str = "", delay: int = 0) -> list[str]:
    """Return the words that submit a script: as an ``array``, to begin after ``delay`` seconds."""
    given = {"array": array, "dependency": dependency, "begin": f"now+{delay}" if delay else ""}
    return ["--parsable", *(f"--{name}={value}" for name, value in given.items() if value), str(script)]


def submit(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Submit a script; return the id of its job or array. UsageError as sbatch says."""
    script = Path(words[-1])
    said = _ask("sbatch", *words, env=env, what=f"sbatch {script.name}")
    job = said.strip().splitlines()[-1].split(";")[0] if said.strip() else ""
    if not job.isdecimal():
        raise UsageError(
            f"sbatch {script.name}: no job id in what it says: {said.strip()[:200] or 'nothing'}"
        )
    return int(job)


def cancel(jobs: Iterable[str], env: Mapping[str, str]) -> None:
    """Take jobs, tasks or arrays from the queue; those at work get SIGTERM, and Slurm's KillWait to end.

    What has ended meanwhile, or was taken back by Slurm itself, is refused by some versions of scancel.
    """
    words = list(jobs)
    try:
        if words:
            _ask("scancel", *words, env=env, what="scancel")
    except Unanswered:
        raise
    except UsageError:
        if any({str(one.job), str(one.job.id)} & {*words} and not one.ends for one in queue(env)):
            raise


def minutes_of(limit: str) -> int | None:
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


def _smaller(one: Partition, other: Partition) -> Partition:
    def least(a: int | None, b: int | None) -> int | None:
        return min((size for size in (a, b) if size is not None), default=None)

    return Partition(
        one.name,
        one.default,
        min(one.cpus, other.cpus),
        least(one.memory, other.memory),
        least(one.disk, other.disk),
        one.minutes,
        one.nodes + other.nodes,
    )


def _number(text: str) -> int:
    """Read ``4``, ``4+`` or ``n/a``."""
    digits = text.rstrip("+")
    return int(digits) if digits.isdecimal() else 0
