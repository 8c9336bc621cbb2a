"""The script of a job: notes its begin, does its step, has its end judged, asks for another turn.

A task of an array finds its step by its number, in the script itself, which Slurm keeps: nothing that is
changed or seen late afterwards can give it another. Bash does what must work outside a container, and when
no Python starts: records, signals, ``scontrol``.
What an end means is decided by ``rocm-wheels submit --job-ended``. Signals: SIGUSR1 comes to the script
alone, ``NOTICE_SECONDS`` before the limit of time (a quarter of it, if that is less); SIGTERM comes to
everything when a job is cancelled or preempted. The step then ends cleanly; whether a job that was told to
end is wanted again, its state tells: that of a cancelled one is not RUNNING any more.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocm_wheels.ci.slurm.arrays import JobArray
from rocm_wheels.ci.slurm.records import JobFolder
from rocm_wheels.ci.slurm.sizes import JobSize
from rocm_wheels.errors import UsageError
from rocm_wheels.shell import format_command

NOTICE_SECONDS = 120  # Slurm may tell a minute earlier (sbatch(1), --signal)
_MEMORY_UNITS = ("CPU", "GPU", "NODE")
_RESERVED_OPTIONS = (
    *("array", "dependency", "output", "error", "open-mode", "wrap", "parsable", "job-name", "no-requeue"),
    *("requeue", "signal", "wait", "test-only", "hold", "kill-on-invalid-dep", "ntasks", "nodes"),
)
# SBATCH_ and this, where that is not the name of the option (sbatch(1), input environment variables)
_OTHER_VARIABLES = {
    "array": {"ARRAY_INX"},
    "time": {"TIMELIMIT"},
    "mem": {f"MEM_PER_{unit}" for unit in _MEMORY_UNITS},
}
_OPTION_PATTERN = re.compile(r"--(?P<long>[a-z][a-z0-9-]*)(?:=.*)?|-(?P<short>[A-Za-z]).*", re.DOTALL)
_SHORT_OPTIONS = {
    "a": "array",
    "d": "dependency",
    "o": "output",
    "e": "error",
    "J": "job-name",
    "n": "ntasks",
}
_SHORT_OPTIONS |= {"N": "nodes", "W": "wait", "H": "hold", "M": "clusters"}


@dataclass(frozen=True)
class SlurmSite:
    """What a site wants of every job. ``options``: further options of sbatch, one a line.

    ``prefix``: the words before our command (``apptainer exec image.sif``); ``program``: our own.
    ``array_limit``: tasks of an array at a time. ``network_delay``: seconds before a step that met a broken
    network is tried again.
    """

    program: tuple[str, ...]
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    attempts: int = 3
    array_limit: int | None = None
    network_delay: float = 300.0

    def check_options(self) -> None:
        """Refuse options that a script cannot have, or that this program sets itself. Raises UsageError."""
        named_options = {
            "--partition": self.partition,
            "--account": self.account,
            "--qos": self.qos,
            "--constraint": self.constraint,
        }
        for option, value in named_options.items():
            if value is not None and (not value.strip() or not value.isprintable() or {*'"\\'} & {*value}):
                raise UsageError(f"{option} {value!r} is no name")
        for option in self.options:
            _check_option(option)
        for word in self.prefix:
            if format_command([word]) != shlex.quote(word):
                raise UsageError(
                    "--container-prefix has a secret in it, and scripts of jobs are there to be read",
                    tip="set it in the environment: jobs get that of `submit`",
                )


def _check_option(option: str) -> None:
    try:
        words = shlex.split(option, comments=True)  # as sbatch reads a line of a script
    except ValueError as cause:
        raise UsageError(f"--sbatch-option {option!r}: {cause}", tip="close the quotes") from cause
    if not words or not option.isprintable() or _OPTION_PATTERN.fullmatch(words[0]) is None:
        raise UsageError(
            f"--sbatch-option {option!r} is no option of sbatch", tip="as in --sbatch-option=--gres=gpu:1"
        )
    for match in filter(None, map(_OPTION_PATTERN.fullmatch, words)):  # there can be several
        name = match["long"] or _SHORT_OPTIONS.get(match["short"] or "", "-")
        if name == "clusters":
            raise UsageError(
                "--sbatch-option --clusters: the queue of another cluster would not be looked at",
                tip="set SLURM_CLUSTERS, which all of Slurm's programs read",
            )
        if ours := next(
            (reserved for reserved in _RESERVED_OPTIONS if reserved.startswith(name)), ""
        ):  # sbatch takes beginnings, too
            raise UsageError(f"--sbatch-option {option}: every job has a --{ours} of its own already")
    name = words[0].lstrip("-").split("=")[0]
    if format_command([option]) != shlex.quote(option):
        raise UsageError(
            f"--sbatch-option --{name}: it has a secret in it, and scripts of jobs are there to be read",
            tip="set it in the environment: jobs get that of `submit`",
        )


def make_job_environment(script: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return what sbatch and the job get: no variable that would win over an option in the script.

    sbatch(1): environment variables override what a script says; SBATCH_EXPORT=NONE would take from jobs
    what they need. A job that submits jobs has a count of restarts that is its own.
    """
    set_options = {
        *_RESERVED_OPTIONS,
        "export",
        *re.findall(r"^#SBATCH --([a-z0-9-]+)", script, re.MULTILINE),
    }
    lost = set().union(
        *(_OTHER_VARIABLES.get(option, {option.upper().replace("-", "_")}) for option in set_options)
    )
    unwanted = {"SLURM_RESTART_COUNT", *(f"SBATCH_{name}" for name in lost)}
    return {name: value for name, value in env.items() if name not in unwanted}


def make_directives(folder: JobFolder, array: JobArray, size: JobSize, site: SlurmSite) -> list[str]:
    """Return the options of a job, as sbatch reads them from the head of its script; later ones win."""
    log = folder.log_path(array.name) if array.plain else folder.task_log_path(array.name, "\0")
    name = str(log).replace("%", "%%").replace("\0", "%a")
    words = [
        f"--job-name={folder.job_prefix()}{array.name}",
        f"--output={_quote_value(name)}",
        f"--chdir={_quote_value(str(folder.path))}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{min(NOTICE_SECONDS, size.minutes * 15)}",
        "--kill-on-invalid-dep=yes",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={size.cpus}",
    ]
    words += [f"--mem={size.memory}M"] if size.memory else []
    words += [f"--tmp={size.disk}M"] if size.disk else []
    words += [f"--time={size.minutes}"]
    named_options = {"partition": site.partition, "account": site.account}
    named_options |= {"qos": site.qos, "constraint": site.constraint}
    words += [f"--{name}={_quote_value(value)}" for name, value in named_options.items() if value is not None]
    return [*words, *(option.strip() for option in site.options)]


def _quote_value(value: str) -> str:
    """Return a value for a line that sbatch reads: quoted where it is more than a word."""
    if '"' in value or "\n" in value or "\\" in value:
        raise UsageError(f"{value!r} cannot stand in a script for sbatch", tip="give the folder another name")
    return value if re.fullmatch(r"[\w./:=,@+%-]+", value, re.ASCII) else f'"{value}"'


def make_job_script(folder: JobFolder, array: JobArray, size: JobSize, site: SlurmSite) -> str:
    """Return the script of a step's job, or of an array. Slurm keeps it as it is submitted."""
    ours = [*site.prefix, *site.program]
    head = "\n".join(f"#SBATCH {word}" for word in make_directives(folder, array, size, site))
    judge = [*ours, "submit", str(folder.plan), "--attempts", str(site.attempts)]
    judge += ["--network-delay", f"{site.network_delay:g}s"]
    return _SCRIPT_TEMPLATE.format(
        head=head,
        which=_PLAIN_STEP.format(step=shlex.quote(array.steps[0]))
        if array.plain
        else _format_task_cases(array),
        plan=shlex.quote(str(folder.plan)),
        folder=shlex.quote(str(folder.path)),
        run=f'{_join_words([*ours, "run-step"])} "$step" {_join_words(["--plan", str(folder.plan)])}',
        judge=_join_words(judge),
    )


def _format_task_cases(array: JobArray) -> str:
    cases = [f"  {number}) step={shlex.quote(step)} ;;" for number, step in array.tasks.items()]
    return _ARRAY_STEP.format(cases="\n".join(cases))


def _join_words(words: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, words))


_PLAIN_STEP = """step={step}
job=$id"""

_ARRAY_STEP = """case ${{SLURM_ARRAY_TASK_ID:?this is a task of an array}} in
{cases}
  *) echo "error: no step has the number $SLURM_ARRAY_TASK_ID"; exit 2 ;;
esac
job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID  # the last task's own id is that of the whole array"""

_SCRIPT_TEMPLATE = """#!/bin/bash
{head}
# Steps of a plan, one a job; `rocm-wheels submit` has written this, and writes it anew.
set -u
plan={plan}
id=${{SLURM_JOB_ID:?this is a job of a Slurm cluster}}
{which}
base={folder}/$step
restart=${{SLURM_RESTART_COUNT:-0}}
host=$(uname -n)

write() {{  # a file is there whole or not at all
  printf '%s\\n' "$2" > "$1.$job.part" && mv -f "$1.$job.part" "$1"
}}
now() {{ date -u +%Y-%m-%dT%H:%M:%SZ; }}

echo "== $step: job $job on $host, restart $restart, $(now)"
if [ ! -r "$plan" ]; then
  echo "error: $host does not see $plan"
  echo "tip: plan, work directory and source trees must be on a file system that all nodes share"
  exit 2
fi
this="\\"job\\": \\"$job\\", \\"restart\\": $restart, \\"host\\": \\"$host\\""
if ! write "$base.begin.json" "{{$this, \\"began\\": \\"$(now)\\", \\"id\\": \\"$id\\"}}"; then
  echo "error: $host cannot write to $base.begin.json"
  echo "tip: is the file system full, or may only some nodes write to it?"
  exit 2
fi
if [ -s "$base.jobs" ]; then
  MAX_JOBS=$(cat "$base.jobs")
  export MAX_JOBS
fi

because=""
child=""
later=""
tell() {{
  hit=1
  because=$1
  [ -n "$child" ] || return
  if [ "$1" = time ]; then
    kill -TERM "$child" 2> /dev/null
  else  # the step has got it as well, as a rule
    ( sleep 3; kill -TERM "$child" 2> /dev/null ) &
    later=$!
  fi
}}
trap 'tell time' USR1
trap 'tell signal' TERM

{run} &
child=$!
[ -z "$because" ] || kill -TERM "$child"
code=1
while :; do
  hit=""
  wait "$child"
  ended=$?
  [ "$ended" -eq 127 ] || code=$ended
  [ -n "$hit" ] || break
done
[ -z "$later" ] || kill "$later" 2> /dev/null
child=""
trap '' USR1

verdict=$({judge} --job-ended "$step" --exit-code "$code" --because "$because")
verdict=${{verdict##*$'\\n'}}  # the last line: what starts a container may speak, too
if [ -z "$verdict" ]; then
  this="$this, \\"ended\\": \\"$(now)\\", \\"exit_code\\": $code, \\"kind\\": \\"unknown\\""
  this="$this, \\"reason\\": \\"exit code $code, and nobody could tell why\\", \\"again\\": false"
  write "$base.end.json" "{{$this, \\"failures\\": 1, \\"interruptions\\": 0}}"
  exit "$code"
fi
if [ "${{verdict%% *}}" = again ]; then
  state=""
  for _ in {{1..10}}; do  # a controller that is being restarted is silent for minutes
    state=$(scontrol show job -o "$job" | grep -o -m 1 'JobState=[A-Z_]*')
    [ -z "$state" ] || break
    sleep 20
  done
  if [ "$state" = JobState=RUNNING ]; then
    trap '' TERM
    if scontrol requeue "$job"; then
      wait=${{verdict#* }}
      [ "$wait" -eq 0 ] || scontrol update JobId="$job" StartTime=now+"$wait"
      exit 0
    fi
  fi
fi
exit "$code"
"""
