"""``jobs``: run the steps of a plan as jobs of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary
from rocm_wheels.cli.command import group, option
from rocm_wheels.cli.options import Duration, GivenPath
from rocm_wheels.core import errors, log, tables
from rocm_wheels.executors.executor import EXECUTORS, load_executor, refuse_undone, wait_for_jobs

if TYPE_CHECKING:
    from rocm_wheels.executors.executor import Decision, Executor, StepState

# what each executor takes beside the options of all; two may share an option
_EXECUTOR_OPTIONS = {name: load_executor(name).options for name in EXECUTORS}
_NEW_JOBS_DEFAULTS = {"cpus": None, "attempts": 3, "network_delay": 300.0, "assume_shared": False}

_plan_argument = click.argument("plan", type=GivenPath())
_executor_option = option(
    "--executor",
    type=click.Choice([*EXECUTORS]),
    default=next(iter(EXECUTORS)),
    show_default=True,
    help="Who runs the steps.",
)
_attempts_option = option(
    "--attempts",
    type=click.IntRange(min=1),
    default=_NEW_JOBS_DEFAULTS["attempts"],
    show_default=True,
    metavar="N",
    help="Attempts of a step that ran out of memory, met a broken network or lost its node.",
)
_delay_option = option(
    "--network-delay",
    type=Duration(),
    default="5m",
    show_default=True,
    metavar="TIME",
    help="Before a step that met a broken network is tried again; twice as long each time.",
)


def _add_executor_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every executor to a command, in the order of the table."""
    options = {row.name: row for rows in _EXECUTOR_OPTIONS.values() for row in rows}
    for row in reversed(options.values()):
        settings: dict[str, Any] = {"metavar": row.metavar, "envvar": row.variable}
        if row.kind == "flag":
            settings = {"is_flag": True}
        elif row.kind == "count":
            settings["type"] = click.IntRange(min=1)
        settings["multiple"] = row.kind == "words"
        command = option(row.spelling, row.name, help=row.help, **settings)(command)
    return command


@group("jobs")
def jobs_group() -> None:
    """Run the steps of a plan as jobs of a cluster: of Slurm."""


@jobs_group.command("jobs submit")
@_plan_argument
@_executor_option
@_add_executor_options
@option(
    "--cpus", type=click.IntRange(min=1), metavar="N", help="CPUs of a build [default: a node's, 32 at most]."
)
@_attempts_option
@_delay_option
@option("--assume-shared", is_flag=True, help="All nodes see the plan's folders, whatever it looks like.")
@option("--retry-failed", is_flag=True, help="Submit steps again that failed for good, too.")
@option("--wait", is_flag=True, help="Wait for the end; submit lost jobs again.")
@option(
    "--poll",
    type=Duration(),
    default="30s",
    show_default=True,
    metavar="TIME",
    help="With --wait: how often to ask for the state of the jobs.",
)
@option("--dry-run", is_flag=True, help="Print the jobs that would be submitted; write nothing.")
@option("--json", "as_json", is_flag=True, help="Print the steps as JSON.")
def submit_command(plan: Path, **options: Any) -> None:
    """Submit the steps of a plan as jobs.

    A job is one step, by `run-step`; the same step of several Pythons is one array of jobs. Scripts, logs and
    records are in a folder beside the plan (plan.slurm).
    Run again, it takes up what is queued, skips what is done, and submits again what failed for a reason
    that may pass. Jobs get the environment of this command.

    \b
    Examples:
      rocm-wheels plan --install-rocm --rocm-index URL --gfx gfx942 \\
          --work-dir /shared/work --output-dir /shared/dist -o /shared/plan.json
      rocm-wheels jobs submit /shared/plan.json --partition cpu --wait
    """
    _refuse_unused(click.get_current_context())
    executor = load_executor(options["executor"]).open_plan(plan, options, boundary.read_environment())
    if options["dry_run"]:
        preview = executor.preview(retry_failed=options["retry_failed"])
        for line in preview.lines:
            click.echo(line)
        _report_decisions(preview.decisions, preview.requests, would=True)
    else:
        _submit_plan(executor, options)


@jobs_group.command("jobs status")
@_plan_argument
@_executor_option
@option("--json", "as_json", is_flag=True, help="Print the steps as JSON.")
def status_command(plan: Path, executor: str, as_json: bool) -> None:
    """Show where the steps of a plan are.

    \b
    Example:
      rocm-wheels jobs status /shared/plan.json
    """
    _print_states(_open_submitted(plan, executor).read_states(), as_json=as_json)


@jobs_group.command("jobs cancel")
@_plan_argument
@_executor_option
@option(
    "--step",
    "steps",
    multiple=True,
    metavar="NAME",
    help="The jobs of this step, or of this array, alone; can be given several times.",
)
@option("--json", "as_json", is_flag=True, help="Print the names of the jobs as JSON.")
def cancel_command(plan: Path, executor: str, steps: tuple[str, ...], as_json: bool) -> None:
    """Take the jobs of a plan from the queue.

    \b
    Example:
      rocm-wheels jobs cancel /shared/plan.json --step build-pytorch-cp312
    """
    names = _open_submitted(plan, executor).cancel(steps)
    if as_json:
        click.echo(json.dumps({"cancelled": names}, indent=1))
    else:
        log.log_note(f"cancelled: {', '.join(names)}" if names else "no such job is in the queue")


@jobs_group.command("jobs judge", hidden=True)
@_plan_argument
@click.argument("step")
@_executor_option
@_attempts_option
@_delay_option
@option("--exit-code", type=int, default=0, help="Exit code of the step.")
@option("--because", type=click.Choice(["", "time", "signal"]), default="", help="Why the job was ended.")
def judge_command(
    plan: Path,
    step: str,
    executor: str,
    exit_code: int,
    because: str,
    **options: Any,
) -> None:
    """Write down how a job ended, and print what its script is to do: ``stop``, or ``again SECONDS``."""
    submitted = _open_submitted(plan, executor, **options)
    click.echo(submitted.judge_job(step, exit_code, because))


def _open_submitted(plan: Path, executor: str, **settings: Any) -> Executor:
    """Return the executor of a plan whose jobs are looked at, judged or ended: it makes no new ones."""
    unset = {row.name: () if row.kind == "words" else None for row in _EXECUTOR_OPTIONS[executor]}
    options = {**unset, **_NEW_JOBS_DEFAULTS, **settings}
    return load_executor(executor).open_plan(plan, options, boundary.read_environment())


def _refuse_unused(ctx: click.Context) -> None:
    """Refuse options that would be of no effect."""
    typed = {
        name
        for name in ctx.params
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    executor = ctx.params["executor"]
    own_options = {row.name for row in _EXECUTOR_OPTIONS[executor]}
    for row in (row for rows in _EXECUTOR_OPTIONS.values() for row in rows):
        if row.name in typed and row.name not in own_options:
            raise errors.UsageError(f"{row.spelling} is no option of the executor {executor}")
    if "poll" in typed and not ctx.params["wait"]:
        raise errors.UsageError("--poll has an effect with --wait alone")
    for name in ("wait", "poll", "assume_shared", "as_json") if ctx.params["dry_run"] else ():
        if name in typed:
            spelling = {"as_json": "--json"}.get(name, f"--{name.replace('_', '-')}")
            raise errors.UsageError(f"{spelling} has no effect with --dry-run")


def _submit_plan(executor: Executor, options: Mapping[str, Any]) -> None:
    decided = executor.submit(retry_failed=options["retry_failed"])
    ids = {
        decision.state.job.id for decision in decided if decision.submits and decision.state.job is not None
    }
    _report_decisions(decided, len(ids), would=False)
    stopped = [decision for decision in decided if decision.action == "stopped"]
    if not options["wait"]:
        if options["as_json"]:
            _print_states(executor.read_states(), as_json=True)
        if stopped:
            raise errors.UsageError(
                (
                    f"not submitted: {', '.join(decision.step.id for decision in stopped)} failed for a "
                    "reason that stays"
                ),
                tip="see above; --retry-failed submits it again",
            )
        return
    try:
        states = wait_for_jobs(executor, every=options["poll"])
    except KeyboardInterrupt:
        log.log_note("the jobs keep running; `jobs status` shows them, `jobs cancel` ends them")
        raise
    _print_states(states, as_json=options["as_json"])
    refuse_undone(executor, states)


def _report_decisions(decided: Sequence[Decision], requests: int, *, would: bool) -> None:
    """Tell what was decided about each step, and how many jobs there are."""
    for decision in decided:
        job = f"job {decision.state.job}" if decision.state.job is not None and not would else ""
        if decision.submits:
            why = f" ({decision.why})" if decision.why else ""
            log.log_note(f"{decision.step.id}: {'would be submitted' if would else f'submitted, {job}'}{why}")
        elif decision.action == "leave":
            log.log_note(f"{decision.step.id}: {decision.why} already, job {decision.state.job}")
        elif decision.action != "left out":
            log.log_note(
                f"{decision.step.id}: {decision.action}{f', {decision.why}' if decision.why else ''}"
            )
    count = sum(decision.submits for decision in decided)
    message = f"{tables.format_count(count, 'job')} {'would be submitted' if would else 'submitted'}"
    log.log_note(f"{message} by {requests} requests" if 1 < requests < count else message)


def _print_states(states: Mapping[str, StepState], *, as_json: bool) -> None:
    """Print where each step is."""
    if as_json:
        click.echo(json.dumps([step_state.as_json() for step_state in states.values()], indent=1))
        return
    rows = [(state.state, state.step, str(state.job or ""), state.why) for state in states.values()]
    for line in tables.align_rows(rows):
        click.echo(line)
