"""``submit``: run the steps of a plan as jobs of a cluster."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.options import Duration, GivenPath
from rocm_wheels.core import UsageError, align_rows, format_count, log_note

if TYPE_CHECKING:
    from rocm_wheels.executors import Decision, SlurmSite, SlurmSubmission, StepState

_MODES = ("dry_run", "status", "cancel", "job_ended")
_JOB_OPTIONS = {"partition", "account", "qos", "constraint", "cpus", "options", "container_prefix"}
_JOB_OPTIONS |= {"attempts", "network_delay", "retry_failed", "no_array", "array_limit"}
_OPTIONS_OF_MODE = {
    "submit": _JOB_OPTIONS | {"assume_shared", "wait", "poll", "as_json"},
    "dry_run": _JOB_OPTIONS,
    "status": {"as_json"},
    "cancel": {"steps"},
    "job_ended": {"exit_code", "because", "attempts", "network_delay"},
}


@click.command("submit")
@click.argument("plan", type=GivenPath())
@click.option(
    "--executor",
    type=click.Choice(["slurm"]),
    default="slurm",
    show_default=True,
    help="Who runs the steps.",
)
@click.option(
    "--partition", metavar="P", envvar="SBATCH_PARTITION", help="Partition of the jobs [default: the site's]."
)
@click.option("--account", metavar="A", envvar="SBATCH_ACCOUNT", help="Account that is charged.")
@click.option("--qos", metavar="Q", envvar="SBATCH_QOS", help="Quality of service.")
@click.option(
    "--constraint",
    metavar="C",
    envvar="SBATCH_CONSTRAINT",
    help="What nodes must have, as sbatch takes it; these four also by SBATCH_PARTITION and so on.",
)
@click.option(
    "--cpus", type=click.IntRange(min=1), metavar="N", help="CPUs of a build [default: a node's, 32 at most]."
)
@click.option(
    "--sbatch-option",
    "options",
    multiple=True,
    metavar="OPTION",
    help="A further option of sbatch for all jobs, over ours: --sbatch-option=--mem=64G.",
)
@click.option(
    "--array-limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tasks of an array at a time; builds in one source tree are one by one whatever this says.",
)
@click.option("--no-array", is_flag=True, help="A job of its own for each step, and no arrays.")
@click.option(
    "--container-prefix",
    default="",
    metavar="WORDS",
    help="Words before our command in a job: 'apptainer exec --bind /shared image.sif'.",
)
@click.option(
    "--attempts",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Attempts of a step that ran out of memory, met a broken network or lost its node.",
)
@click.option(
    "--network-delay",
    type=Duration(),
    default="5m",
    show_default=True,
    metavar="TIME",
    help="Before a step that met a broken network is tried again; twice as long each time.",
)
@click.option(
    "--assume-shared", is_flag=True, help="All nodes see the plan's folders, whatever it looks like."
)
@click.option("--retry-failed", is_flag=True, help="Submit steps again that failed for good, too.")
@click.option("--wait", is_flag=True, help="Wait for the end; submit lost jobs again.")
@click.option(
    "--poll",
    type=Duration(),
    default="30s",
    show_default=True,
    metavar="TIME",
    help="With --wait: how often to ask squeue.",
)
@click.option("--dry-run", is_flag=True, help="Print the jobs that would be submitted; write nothing.")
@click.option("--status", is_flag=True, help="Show where the steps are, and submit nothing.")
@click.option("--cancel", is_flag=True, help="Take the jobs of the plan from the queue.")
@click.option(
    "--step",
    "steps",
    multiple=True,
    metavar="NAME",
    help="With --cancel: the jobs of this step, or of this array, alone; can be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON on stdout.")
@click.option("--job-ended", hidden=True, metavar="STEP", help="For scripts of jobs: judge how one ended.")
@click.option("--exit-code", hidden=True, type=int, default=0)
@click.option("--because", hidden=True, type=click.Choice(["", "time", "signal"]), default="")
def command(plan: Path, **options: Any) -> None:
    """Submit the steps of a plan as jobs of a Slurm cluster.

    A job is one step, by `run-step`; the same step of several Pythons is one array of jobs. Scripts, logs and
    records are in a folder beside the plan (plan.slurm).
    Run again, it takes up what is queued, skips what is done, and submits again what failed for a reason
    that may pass. Jobs get the environment of this command.

    \b
    Example:
      rocm-wheels plan --install-rocm --index-url URL --pytorch-rocm-arch gfx942 \\
          --work-dir /shared/work --output-dir /shared/dist -o /shared/plan.json
      rocm-wheels submit --executor slurm /shared/plan.json --partition cpu --wait
      rocm-wheels submit --status /shared/plan.json
    """
    from rocm_wheels.executors import SlurmSubmission

    mode = _choose_mode(options)
    _refuse_unused(mode, click.get_current_context())
    env = read_environment()
    submission = SlurmSubmission.from_plan(
        plan, _make_site(options), env, options["cpus"], in_arrays=not options["no_array"]
    )
    if options["job_ended"]:
        click.echo(_judge_job(submission, options))
    elif options["dry_run"]:
        _print_dry_run(submission, options)
    elif options["status"]:
        _print_states(submission.read_states()[1], as_json=options["as_json"])
    elif options["cancel"]:
        names = submission.cancel(options["steps"])
        log_note(f"cancelled: {', '.join(names)}" if names else "no such job is in the queue")
    else:
        _submit_plan(submission, options)


def _choose_mode(options: Mapping[str, Any]) -> str:
    """Return what is to be done: one of ``_MODES``. Raises UsageError for two of them."""
    chosen = [name for name in _MODES if options[name]]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(map(_format_option, chosen))} exclude each other")
    return chosen[0] if chosen else "submit"


def _refuse_unused(mode: str, ctx: click.Context) -> None:
    """Refuse options that would be of no effect."""
    for name in ctx.params:
        on_command_line = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if on_command_line and name not in ("plan", "executor", mode) and name not in _OPTIONS_OF_MODE[mode]:
            if mode != "submit":
                raise UsageError(f"{_format_option(name)} has no effect with {_format_option(mode)}")
            modes = " and ".join(
                _format_option(other_mode) for other_mode in _MODES if name in _OPTIONS_OF_MODE[other_mode]
            )
            raise UsageError(f"{_format_option(name)} has an effect with {modes} alone")
    if not ctx.params["wait"] and ctx.get_parameter_source("poll") is click.core.ParameterSource.COMMANDLINE:
        raise UsageError("--poll has an effect with --wait alone")
    if ctx.params["no_array"] and ctx.params["array_limit"] is not None:
        raise UsageError("--array-limit has no effect with --no-array")


def _format_option(name: str) -> str:
    return {"options": "--sbatch-option", "as_json": "--json", "steps": "--step"}.get(
        name, f"--{name.replace('_', '-')}"
    )


def _make_site(options: Mapping[str, Any]) -> SlurmSite:
    from rocm_wheels.core import get_own_command
    from rocm_wheels.executors import SlurmSite

    try:
        prefix = tuple(shlex.split(options["container_prefix"]))
    except ValueError as cause:
        raise UsageError(f"--container-prefix: {cause}", tip="close the quotes") from cause
    return SlurmSite(
        program=("rocm-wheels",) if prefix else tuple(get_own_command()),
        partition=options["partition"],
        account=options["account"],
        qos=options["qos"],
        constraint=options["constraint"],
        options=tuple(options["options"]),
        prefix=prefix,
        attempts=options["attempts"],
        network_delay=options["network_delay"],
        array_limit=options["array_limit"],
    )


def _judge_job(submission: SlurmSubmission, options: Mapping[str, Any]) -> str:
    """Write down how a job ended; return what its script is to do: ``stop``, or ``again SECONDS``."""
    from rocm_wheels.executors import compute_delay, judge_end

    step = submission.file.plan.find_step(options["job_ended"]).id
    end = judge_end(
        submission.folder,
        step,
        submission.file.request.work / "runs",
        code=options["exit_code"],
        because=options["because"],
        attempts=options["attempts"],
    )
    submission.folder.write_end(step, end)
    log_note(f"== {step}: {end.kind}{f', {end.reason}' if end.reason else ''}")
    return f"again {compute_delay(end, options['network_delay'])}" if end.again else "stop"


def _print_dry_run(submission: SlurmSubmission, options: Mapping[str, Any]) -> None:
    from rocm_wheels.executors import describe_submission, has_slurm

    here = has_slurm(submission.env)
    if not here:
        log_note("there is no Slurm here: as if nothing were queued, with sizes that no partition limits")
    _, decided = submission.make_decisions(
        submission.settle_plan(), retry_failed=options["retry_failed"], queued=here
    )
    lines = describe_submission(submission, decided)
    for line in lines:
        click.echo(line)
    _report_decisions(decided, sum(line.startswith("sbatch ") for line in lines), would=True)


def _submit_plan(submission: SlurmSubmission, options: Mapping[str, Any]) -> None:
    from rocm_wheels.executors import check_shared, find_program, refuse_undone, wait_for_jobs

    find_program("sbatch", submission.env)
    if not options["assume_shared"]:
        check_shared(submission)
    decided = submission.submit(retry_failed=options["retry_failed"])
    ids = {
        decision.state.job.id for decision in decided if decision.submits and decision.state.job is not None
    }
    _report_decisions(decided, len(ids), would=False)
    stopped = [decision for decision in decided if decision.action == "stopped"]
    if not options["wait"]:
        if options["as_json"]:
            _print_states(submission.read_states()[1], as_json=True)
        if stopped:
            raise UsageError(
                (
                    f"not submitted: {', '.join(decision.step.id for decision in stopped)} failed for a "
                    "reason that stays"
                ),
                tip="see above; --retry-failed submits it again",
            )
        return
    try:
        states = wait_for_jobs(submission, every=options["poll"])
    except KeyboardInterrupt:
        log_note("the jobs keep running; `submit --status` shows them, `submit --cancel` ends them")
        raise
    _print_states(states, as_json=options["as_json"])
    refuse_undone(submission, states)


def _report_decisions(decided: Sequence[Decision], calls: int, *, would: bool) -> None:
    """Tell what was decided about each step, and how many jobs there are."""
    for decision in decided:
        job = f"job {decision.state.job}" if decision.state.job is not None and not would else ""
        if decision.submits:
            why = f" ({decision.why})" if decision.why else ""
            log_note(f"{decision.step.id}: {'would be submitted' if would else f'submitted, {job}'}{why}")
        elif decision.action == "leave":
            log_note(f"{decision.step.id}: {decision.why} already, job {decision.state.job}")
        elif decision.action != "left out":
            log_note(f"{decision.step.id}: {decision.action}{f', {decision.why}' if decision.why else ''}")
    count = sum(decision.submits for decision in decided)
    message = f"{format_count(count, 'job')} {'would be submitted' if would else 'submitted'}"
    log_note(f"{message} by {calls} calls of sbatch" if 1 < calls < count else message)


def _print_states(states: Mapping[str, StepState], *, as_json: bool) -> None:
    """Print where each step is."""
    if as_json:
        click.echo(json.dumps([step_state.as_json() for step_state in states.values()], indent=1))
        return
    rows = [(state.state, state.step, str(state.job or ""), state.why) for state in states.values()]
    for line in align_rows(rows):
        click.echo(line)
