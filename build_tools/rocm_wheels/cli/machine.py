"""``doctor``, ``configure`` and ``test``: what this machine needs for torch, and whether torch works here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import boundary, catalogue, command, output
from rocm_wheels.core import errors, installation, log
from rocm_wheels.core.shell import format_command

if TYPE_CHECKING:
    from rocm_wheels.user import selftest, settings

_SEVERITY_COLOURS = {"ok": "green", "info": "blue", "warning": "yellow", "error": "red"}


@command.command("doctor")
@catalogue.PYTHON.but(
    help="Python or environment to check [default: the active one, else that of this program]."
)
@catalogue.MACHINE_GFX.but(help="GPUs instead of those found here: gfx942,gfx1100, a family, 'RX 7900 XTX'.")
@catalogue.JSON
def doctor_command(python: Path | None, gfx: tuple[str, ...], as_json: bool) -> None:
    """Find what keeps torch from working on this machine, and how to fix it.

    It checks driver, devices and their permissions, container or WSL, every ROCm, torch and its companions,
    harmful variables, and whether the installed files hold kernels for this machine's GPUs. Nothing is
    imported or changed; it works without torch and without a GPU. The exit code is 17 if there are errors.

    \b
    Examples:
      rocm-wheels doctor
      rocm-wheels doctor --python .venv --gfx 'RX 7900 XTX'
    """
    from rocm_wheels.user import doctor

    subject = doctor.inspect_host(boundary.read_environment(), python=python, gfx=gfx)
    findings = doctor.run_checks(subject)
    if as_json:
        output.print_result(doctor.make_report_json(subject, findings), (), as_json=True)
    else:
        for line in doctor.format_findings(findings, _paint_severity):
            click.echo(line)
    if doctor.count_findings(findings, "error"):
        raise errors.HostError(f"this machine is not right for torch: {doctor.summarize_findings(findings)}")


def _paint_severity(text: str, severity: errors.Severity) -> str:
    return log.paint_result(text, _SEVERITY_COLOURS[severity])


_SHELL_ALIASES = {"bash": "sh", "zsh": "sh", "pwsh": "powershell"}
_SHELLS = ("auto", "sh", "fish", "powershell", "cmd", "github", *_SHELL_ALIASES)
_CONFIGURE_HELP = """Show which variables this machine's GPUs need for the installed torch.

Most need none. HSA_OVERRIDE_GFX_VERSION is for a card for which torch has no kernels, and which is known to
run another card's; HIP_VISIBLE_DEVICES hides cards that torch cannot use beside one that it can. Variables
that you have set are reported, never changed. The exit code is 17 if torch can use no GPU here in any way.
With --gfx and no installed torch, it is about the one that `rocm-wheels install` would take.

\b
  eval "$(rocm-wheels configure --print)"              in a shell
  rocm-wheels configure --print github >> "$GITHUB_ENV"
  rocm_wheels.configure()                              in Python, before torch

\b
Examples:
  rocm-wheels configure
"""


@command.command("configure", help=_CONFIGURE_HELP, apart=[("--print", "--json")])
@command.option(
    "--print",
    "reader",
    type=click.Choice(_SHELLS),
    is_flag=False,
    flag_value="auto",
    help="Print only lines for a shell to run; auto, or no word: for $SHELL.",
)
@catalogue.JSON
@catalogue.PYTHON.but(help="Python or virtual environment with the torch [default: this one].")
@catalogue.MACHINE_GFX.but(
    metavar="LIST", help="Cards instead of those found, in the runtime's order: gfx1030,gfx1100."
)
def configure_command(reader: str | None, as_json: bool, python: Path | None, gfx: tuple[str, ...]) -> None:
    """Look, decide, print."""
    from rocm_wheels.user import settings

    env = boundary.read_environment()
    advice = settings.make_configuration(env, python=python, gfx=gfx)
    if as_json:
        document = {
            "settings": advice.settings,
            "notes": [installation.adapt_commands(note) for note in advice.notes],
            "torch": advice.torch,
            "targets": advice.targets,
            "gpus": advice.hardware.gpus,
        }
        output.print_result(document, (), as_json=True)
        _require_served(advice)
        return
    for note in advice.notes:
        log.log_note(installation.adapt_commands(note))
    _require_served(advice)
    if reader:
        shell = settings.detect_shell(env, sys.platform) if reader == "auto" else reader
        for setting in advice.settings:
            click.echo(output.format_variable(setting.name, setting.value, _SHELL_ALIASES.get(shell, shell)))
        return
    log.log_note(installation.adapt_commands(advice.torch))
    for setting in advice.settings:
        click.echo(f"{setting.name}={setting.value}\n  {setting.why}\n  {setting.source}")
    if not advice.settings:
        click.echo("no variable is needed")
        return
    stated = [*(["--python", str(python)] if python else []), *(["--gfx", ",".join(gfx)] if gfx else [])]
    line = format_command(["rocm-wheels", "configure", "--print", *stated])
    log.log_note(installation.adapt_commands(f'tip: eval "$({line})"'))


def _require_served(advice: settings.HostConfiguration) -> None:
    """Raise HostError where torch can use no GPU, whatever is set."""
    if advice.unserved:
        cards = ", ".join(advice.unserved)
        raise errors.HostError(f"{advice.torch} has no kernels for {cards}", tip=advice.tip)


_OUTCOME_COLOURS = {"pass": "green", "skip": "dim", "fail": "red", "crash": "red", "timeout": "red"}
_TEST_HELP = """Test the installed torch by the quick part of the smoke tests: all of it, or some of import,
devices, compile, math, functions.

A crash or hang fails one check only; the others run on in a fresh process. A failed check is tried again
alone. Numbers are compared with float64 on the CPU. The exit code is 16 if a check failed, crashed or was
stopped, and 17 if there is no torch.

\b
Examples:
  rocm-wheels test
  rocm-wheels test quick import devices --python .venv
"""


@command.command("test quick", help=_TEST_HELP)
@click.argument("groups", nargs=-1, metavar="[all|import|devices|compile|math|functions]...")
@command.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="auto (every GPU, else the CPU), all (both), cpu, gpu (every GPU; none is a failure), or one as"
    " torch names it: cuda:1.",
)
@catalogue.PYTHON.but(help="Python or virtual environment with the torch to test [default: this one].")
@catalogue.JSON
def selftest_command(groups: tuple[str, ...], device: str, python: Path | None, as_json: bool) -> None:
    """Run the checks, show each outcome as it comes, and leave with 16 when one is bad."""
    from rocm_wheels.user import selftest

    chosen = selftest.parse_groups(groups)
    report = selftest.run_self_test(
        boundary.read_environment(),
        chosen,
        device=device,
        python=python,
        done=_note_failure if as_json else _print_outcome,
    )
    if as_json:
        output.print_result({**output.to_plain(report), "ok": not report.failures}, (), as_json=True)
    else:
        click.echo(report.summary())
    if report.failures:
        names = ", ".join(str(outcome) for outcome in report.failures[:3])
        more = f" and {len(report.failures) - 3} more" if len(report.failures) > 3 else ""
        raise errors.ChecksError(f"torch does not work here: {names}{more}", tip=_choose_tip(report, python))


def _print_outcome(outcome: selftest.SelfTestOutcome) -> None:
    state = log.paint_result(f"{outcome.state:7}", _OUTCOME_COLOURS[outcome.state])
    click.echo(f"{state} {outcome}" + (f": {outcome.detail}" if outcome.detail else ""))


def _note_failure(outcome: selftest.SelfTestOutcome) -> None:
    if outcome.state not in ("pass", "skip"):
        log.log_note(f"{outcome.state}: {outcome}: {outcome.detail}")


def _choose_tip(report: selftest.SelfTestReport, python: Path | None) -> str:
    from rocm_wheels.user import selftest

    place = ["--python", str(python)] if python else []
    doctor = format_command(["rocm-wheels", "doctor", *place])
    details = [outcome.detail for outcome in report.failures]
    if any(sign in text for text in details for sign in selftest.NO_KERNEL_MESSAGES):
        configure = format_command(["rocm-wheels", "configure", *place])
        return f"torch has no kernels for a GPU; `{configure}` says whether a variable helps, `{doctor}` more"
    return f"`{doctor}` looks for what is wrong"
