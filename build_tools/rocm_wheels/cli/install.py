"""``install``: torch and its companions for this machine's GPUs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, choose, command
from rocm_wheels.cli.options import GivenPath, RegularFile
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, installation, log, tables

if TYPE_CHECKING:
    from rocm_wheels.user import plan as planning


@command.command("install", apart=[choose.ONE_INDEX], needs=[("--output", "--dry-run")])
@click.argument("packages", nargs=-1, metavar="[PACKAGES]...", envvar="ROCM_WHEELS_PACKAGES")
@catalogue.DRY_RUN.but(help="Print what would be done, and the commands to do it by hand.")
@catalogue.PYTHON.but(
    help="Environment or Python to install into [default: the active one, never that of this program].",
)
@catalogue.VENV.but(help="Install into this virtual environment; made of --python if it is missing.")
@catalogue.takes(catalogue.INDEX, catalogue.OTHER_ROCM_INDEX)
@catalogue.FIND_LINKS.but(
    multiple=True,
    help="Folder or page with wheels of torch's companions and of others, beside the index; can be repeated.",
)
@catalogue.takes(catalogue.INDEX_CHANNEL, catalogue.PRE, catalogue.MACHINE_GFX)
@catalogue.ALLOW_CPU.but(
    help="Accept a torch for the CPU, if none has code for the GPU here (on a terminal: without asking)."
)
@command.option(
    "--keep-wheels",
    type=GivenPath(file_okay=False),
    metavar="DIR",
    help="Also put all wheels into this folder, and print the command by which pip installs them offline.",
)
@catalogue.RELEASED_BY
@catalogue.LOCK.but(
    type=RegularFile(), help="Install exactly what a pylock.toml (PEP 751) has for this machine."
)
@catalogue.OUTPUT.but(help="With --dry-run: write the lock, pylock.toml or pylock.NAME.toml.")
@catalogue.JSON
def install_command(
    released_by: tuple[Path, ...],
    dry_run: bool,
    keep_wheels: Path | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Install torch and its companions, built for this machine's GPUs, from one index.

    PACKAGES are names with versions as pip reads them: torch 'torchvision>=0.24' 'torch==2.9.*' [default:
    $ROCM_WHEELS_PACKAGES, else torch torchvision torchaudio]. torch is chosen as `rocm-wheels choose` says;
    uv resolves and installs the rest around it. Nothing is installed until every file is here and its sha256
    is checked. The exit code is 17 if anything fails.

    Before it fetches a wheel, it reads in torch's METADATA and parts of its files what it is built for, and
    whether it has code for the GPU (after the download, if the server sends no parts). A torch without code
    for the GPU is not installed, except with --allow-cpu.

    \b
    Where it comes from:
      all with a recipe (torch), triton…, rocm…, amd-…        the chosen index alone; rocm… or --rocm-index
      other torch projects that it lacks (torchao)            PyPI, if without compiled code
      the rest that it lacks (sympy, numpy)                   PyPI, UV_DEFAULT_INDEX, PIP_INDEX_URL

    With --released-by the pages of the index must be signed by a key (`rocm-wheels set refresh --sign-with`),
    not expired, and not older than this machine has seen; otherwise nothing is installed.

    --dry-run -o pylock.toml writes a lock (PEP 751), which --lock installs on any machine of this kind; it
    also takes locks of other programs. A large interrupted download is resumed.

    \b
    Examples:
      rocm-wheels install --venv my-torch
      rocm-wheels install torch torchvision --index URL --dry-run -o pylock.toml
      rocm-wheels install --lock pylock.toml --venv my-torch
      rocm-wheels install --keep-wheels offline     (and the line for machines without a network)
    """
    from dataclasses import replace

    from rocm_wheels.core.files import write_atomically
    from rocm_wheels.user import install, install_options, package_set
    from rocm_wheels.user import plan as planning

    choosing = {name: options[name] for name in ("index", "channel", "rocm_index", "find_links", "pre")}
    choosing |= {"released_by": released_by}
    stated = [f"--{name.replace('_', '-')}" for name, value in choosing.items() if value]
    stated[:0] = ["packages"] if options["packages"] else []
    if options["lock"] is not None and stated:
        raise errors.UsageError(
            f"--lock has the files already, and {', '.join(stated)} would choose others",
            tip="leave one of them out; --dry-run -o FILE makes another lock",
        )
    if output is not None and not re.fullmatch(r"pylock(\.[^.]+)?\.toml", output.name):
        raise errors.UsageError(
            f"--output {output}: a lock of PEP 751 is called pylock.toml or pylock.NAME.toml",
            tip=f"for example: -o {output.with_name('pylock.toml')}",
        )
    env = boundary.read_environment()
    request = package_set.InstallRequest(
        **{**options, "channel": options["channel"] or "stable"},
        signed=choose.require_released_by(released_by, env),
        whole=output is not None or keep_wheels is not None,
        dry_run=dry_run,
    )
    try:
        plan = planning.plan_install(request, env)
    except install_options.UnservedGpuError as refusal:
        if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        click.echo(installation.adapt_commands(refusal.message), err=True)
        if not click.confirm("Install a torch that computes on the CPU?", default=False, err=True):
            raise errors.HostError("nothing was installed", tip=refusal.tip) from None
        plan = planning.plan_install(replace(request, allow_cpu=True), env)
    if output is not None:
        write_atomically(output, plan.format_lock())
    installed: list[str] = []
    if not dry_run:
        for line in _describe_plan(plan):
            log.log_note(line)
        installed = install.install(plan, keep_wheels)
    for line in plan.warnings:
        log.log_warning(line)
    offline = install.make_offline_line(keep_wheels) if keep_wheels is not None else None
    document = {**plan_as_json(plan), "dry_run": dry_run, "installed": installed, "offline": offline}
    if dry_run:
        by_hand = plan.list_commands()
        lines = [*_describe_plan(plan), "by hand:" if by_hand else "nothing is to be done"]
        lines += [f"  {line}" for line in by_hand]
        lines += [f"lock: {output}"] if output else []
    else:
        how = "installed" if plan.changed else "all of it was installed already"
        lines = [f"{how} in {plan.target.environment.prefix}: {', '.join(installed)}"]
        if plan.override_line:
            lines.append(f"torch needs it for the GPU here: export {plan.override_line}")
        if plan.visible_line:
            lines.append(f"torch has no kernels for some GPUs here; hide them: export {plan.visible_line}")
        if offline:
            lines.append(f"without a network, with the same Python: {offline}")
    print_result(document, lines, as_json=as_json)


def _describe_plan(plan: planning.InstallPlan) -> list[str]:
    lines = [f"into {plan.target}", f"from {plan.index}"]
    if any(plan.find_source(package) == "dependencies" for package in plan.packages):
        lines.append(f"what it lacks from {plan.dependencies}")
    lines += [f"note: {note}" for note in (plan.choice.notes if plan.choice else ())]
    lines += plan.proof_lines
    rows = []
    for package in plan.packages:
        label = f" variant {package.label}" if package.label else ""
        size = "" if package.project in plan.kept else f"{tables.format_size(package.size)}, "
        rows.append((str(package), f"{size}{plan.describe_action(package)}{label}"))
    lines += [f"  {line}" for line in tables.align_rows(rows)]
    lines += [f"removed first: {package}, whose files are in the way" for package in plan.removed]
    if plan.changed:
        vague = any(package.size is None and not plan.is_local(package) for package in plan.changed)
        lines.append(f"to download: {'at least ' * vague}{tables.format_size(plan.bytes_to_fetch)}")
    return lines


def plan_as_json(plan: planning.InstallPlan) -> dict[str, object]:
    """Return a plan for programs; ``choice`` as ``choose`` prints it, without the candidates."""
    from dataclasses import replace

    proof, present, gpus = plan.proof, plan.site.present, []
    for gfx in plan.demand.targets if plan.demand and proof else ():
        support = proof.check(gfx) if proof else None
        served, how = (support.runs, support.kind) if support else (None, None)
        gpus.append({"gfx": gfx, "served": served, "how": how})
    return {
        "python": str(plan.target.python),
        "prefix": str(plan.target.environment.prefix),
        "made_of": str(plan.target.base_python) if plan.target.base_python else None,
        "index": plan.index,
        "dependency_index": plan.dependencies,
        "requirements": list(plan.requirements),
        "choice": plan.choice and choose.choice_as_json(replace(plan.choice, candidates=())),
        "packages": [
            {
                "name": package.project,
                "version": str(package.version),
                "file": package.file,
                "label": package.label,
                "url": package.url,
                "sha256": package.sha256,
                "size": package.size,
                "from": plan.find_source(package),
                "does": "keep" if package.project in plan.kept else "install",
                "at_hand": plan.is_local(package),
                "before": present[package.project].version if package.project in present else None,
            }
            for package in plan.packages
        ],
        "removed": [str(distribution) for distribution in plan.removed],
        "kernels": proof
        and {
            "built_for": proof.kind,
            "by": proof.file or proof.source or None,
            "targets": proof.targets,
            "unread": proof.unread or None,
            "gpus": gpus,
        },
        "bytes_to_fetch": plan.bytes_to_fetch,
        "environment": plan.visible_line,
        "override": plan.override_line,
        "warnings": plan.warnings,
        "commands": plan.list_commands(),
    }
