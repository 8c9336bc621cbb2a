"""``submit``: run the steps of a plan as jobs of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.options import Duration, GivenPath
from rocm_wheels.core import UsageError, align_rows, format_count, log_note
from rocm_wheels.executors import EXECUTORS, load_executor, refuse_undone, wait_for_jobs

if TYPE_CHECKING:
    from rocm_wheels.executors import Decision, Executor, StepState

_MODES = ("dry_run", "status", "cancel", "job_ended")
_JOB_OPTIONS = {"cpus", "attempts", "network_delay", "retry_failed"}
_OPTIONS_OF_MODE = {
    "submit": _JOB_OPTIONS | {"assume_shared", "wait", "poll", "as_json"},
    "dry_run": _JOB_OPTIONS,
    "status": {"as_json"},
    "cancel": {"steps"},
    "job_ended": {"exit_code", "because", "attempts", "network_delay"},
}
# what each executor takes beside the options of all; two may share an option
_EXECUTOR_OPTIONS = {name: load_executor(name).options for name in EXECUTORS}


def _add_executor_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every executor to a command, in the order of the table."""
    options = {option.name: option for options in _EXECUTOR_OPTIONS.values() for option in options}
    for option in reversed(options.values()):
        settings: dict[str, Any] = {"metavar": option.metavar, "envvar": option.variable}
        if option.kind == "flag":
            settings = {"is_flag": True}
        elif option.kind == "count":
            settings["type"] = click.IntRange(min=1)
        settings["multiple"] = option.kind == "words"
        command = click.option(option.spelling, option.name, help=option.help, **settings)(command)
    return command


@click.command("submit")
@click.argument("plan", type=GivenPath())
@click.option(
    "--executor",
    type=click.Choice([*EXECUTORS]),
    default=next(iter(EXECUTORS)),
    show_default=True,
    help="Who runs the steps.",
)
@_add_executor_options
@click.option(
    "--cpus", type=click.IntRange(min=1), metavar="N", help="CPUs of a build [default: a node's, 32 at most]."
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
    """Submit the steps of a plan as jobs of a cluster: of Slurm.

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
    mode = _choose_mode(options)
    _refuse_unused(mode, click.get_current_context())
    executor = load_executor(options["executor"]).open_plan(plan, options, read_environment())
    if options["job_ended"]:
        click.echo(executor.judge_job(options["job_ended"], options["exit_code"], options["because"]))
    elif options["dry_run"]:
        preview = executor.preview(retry_failed=options["retry_failed"])
        for line in preview.lines:
            click.echo(line)
        _report_decisions(preview.decisions, preview.requests, would=True)
    elif options["status"]:
        _print_states(executor.read_states(), as_json=options["as_json"])
    elif options["cancel"]:
        names = executor.cancel(options["steps"])
        log_note(f"cancelled: {', '.join(names)}" if names else "no such job is in the queue")
    else:
        _submit_plan(executor, options)


def _choose_mode(options: Mapping[str, Any]) -> str:
    """Return what is to be done: one of ``_MODES``. Raises UsageError for two of them."""
    chosen = [name for name in _MODES if options[name]]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(map(_format_option, chosen))} exclude each other")
    return chosen[0] if chosen else "submit"


def _refuse_unused(mode: str, ctx: click.Context) -> None:
    """Refuse options that would be of no effect."""
    spellings = {option.name: option.spelling for options in _EXECUTOR_OPTIONS.values() for option in options}
    own_options = {option.name for option in _EXECUTOR_OPTIONS[ctx.params["executor"]]}
    modes_of: dict[str, list[str]] = {name: ["submit", "dry_run"] for name in spellings}
    for other_mode, names in _OPTIONS_OF_MODE.items():
        for name in names:
            modes_of.setdefault(name, []).append(other_mode)
    for name in ctx.params:
        on_command_line = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if not on_command_line or name in ("plan", "executor", mode):
            continue
        if name in spellings and name not in own_options:
            raise UsageError(f"{spellings[name]} is no option of the executor {ctx.params['executor']}")
        if mode not in modes_of.get(name, ()):
            if mode != "submit":
                raise UsageError(f"{_format_option(name)} has no effect with {_format_option(mode)}")
            modes = " and ".join(map(_format_option, modes_of.get(name, ())))
            raise UsageError(f"{_format_option(name)} has an effect with {modes} alone")
    if not ctx.params["wait"] and ctx.get_parameter_source("poll") is click.core.ParameterSource.COMMANDLINE:
        raise UsageError("--poll has an effect with --wait alone")


def _format_option(name: str) -> str:
    return {"as_json": "--json", "steps": "--step"}.get(name, f"--{name.replace('_', '-')}")


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
            raise UsageError(
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
        log_note("the jobs keep running; `submit --status` shows them, `submit --cancel` ends them")
        raise
    _print_states(states, as_json=options["as_json"])
    refuse_undone(executor, states)


def _report_decisions(decided: Sequence[Decision], requests: int, *, would: bool) -> None:
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
    log_note(f"{message} by {requests} requests" if 1 < requests < count else message)


def _print_states(states: Mapping[str, StepState], *, as_json: bool) -> None:
    """Print where each step is."""
    if as_json:
        click.echo(json.dumps([step_state.as_json() for step_state in states.values()], indent=1))
        return
    rows = [(state.state, state.step, str(state.job or ""), state.why) for state in states.values()]
    for line in align_rows(rows):
        click.echo(line)
