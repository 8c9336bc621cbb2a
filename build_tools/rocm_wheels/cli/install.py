"""``rocm-wheels install``: torch and what belongs to it, for the GPUs of this machine."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath

if TYPE_CHECKING:
    from rocm_wheels.hosts.install.cache import WheelCache
    from rocm_wheels.hosts.install.plan import InstallPlan

_INSTALL_HELP = """Install torch and its companions: the builds for this machine's GPUs, from one index.

PACKAGES are names with versions as pip reads them: torch 'torchvision>=0.24' 'torch==2.9.*'
[default: $ROCM_WHEELS_PACKAGES, else torch torchvision torchaudio]. torch is chosen as `rocm-wheels choose`
says; triton and ROCm's packages are those that it requires. Nothing is installed before every file is here
and checked; afterwards what is installed is compared with what was chosen. The exit code is 17 when anything
did not happen.

\b
Where it comes from:
  torch, torchvision, torchaudio, triton…, rocm…, amd-…   the chosen index, never PyPI; rocm… or --rocm-index
  other torch projects that it lacks (torchao)            PyPI, if without compiled code
  the rest that it lacks (sympy, numpy)                   PyPI, or --dependency-index

Downloads are kept in ~/.cache/rocm-wheels; one that broke off goes on from there.
"""


@click.command("install", help=_INSTALL_HELP)
@click.argument("packages", nargs=-1, metavar="[PACKAGES]...", envvar="ROCM_WHEELS_PACKAGES")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and the commands to do it by hand.")
@click.option(
    "--uv/--pip",
    "by_uv",
    default=True,
    help="Install by uv, which comes with this program [default], or by the pip of the environment.",
)
@click.option(
    "--target-python",
    type=GivenPath(),
    metavar="PATH",
    help="Environment or interpreter to install into [default: the active one, else that of this program].",
)
@click.option(
    "--venv",
    type=GivenPath(file_okay=False),
    metavar="DIR",
    help="Install into this virtual environment, made of --target-python where it is not there yet.",
)
@click.option(
    "--index", metavar="URL|DIR", help="Where the builds come from [default: by GPU and --channel]."
)
@click.option(
    "--dependency-index",
    metavar="URL",
    help="Index of what the chosen one lacks [default: UV_DEFAULT_INDEX, PIP_INDEX_URL, else PyPI].",
)
@click.option(
    "--rocm-index", metavar="URL|DIR", help="Index of ROCm's own packages, where the chosen one has none."
)
@click.option(
    "--channel",
    metavar="NAME",
    help="Of the known indexes, without --index: stable, prerelease, nightly or dev [default: stable].",
)
@click.option("--pre", is_flag=True, help="Take pre-releases too.")
@click.option(
    "--gfx",
    multiple=True,
    metavar="LIST|none",
    help="For these GPUs, not those found here: gfx942,gfx1100 or 'RX 7900 XTX'; none: for the CPU.",
)
@click.option("--rocm", metavar="VERSION", help="For this ROCm, not the one found here.")
@click.option("--cache-dir", type=GivenPath(file_okay=False), metavar="DIR", help="Where downloads are kept.")
@click.option("--no-cache", is_flag=True, help="Keep no downloads.")
@click.option("--require-hashes", is_flag=True, help="Refuse files of which the index states no sha256.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan, and what came of it, as JSON.")
def install_command(  # noqa: PLR0917 - click passes them by name
    packages: tuple[str, ...],
    dry_run: bool,
    by_uv: bool,
    target_python: Path | None,
    venv: Path | None,
    index: str | None,
    dependency_index: str | None,
    rocm_index: str | None,
    channel: str | None,
    pre: bool,
    gfx: tuple[str, ...],
    rocm: str | None,
    cache_dir: Path | None,
    no_cache: bool,
    require_hashes: bool,
    as_json: bool,
) -> None:
    """Plan, and unless it is a dry run carry out; non-zero when anything did not happen."""
    from rocm_wheels.cli.choose import refuse_index_and_channel
    from rocm_wheels.errors import UsageError
    from rocm_wheels.hosts.install import InstallRequest, carry_out_plan, plan_installation

    if cache_dir is not None and no_cache:
        raise UsageError("--cache-dir and --no-cache say opposite things", tip="leave one of them out")
    refuse_index_and_channel(index, channel)
    env = read_environment()
    request = InstallRequest(
        packages=packages,
        index=index,
        dependency_index=dependency_index,
        rocm_index=rocm_index,
        python=target_python,
        venv=venv,
        installer="uv" if by_uv else "pip",
        channel=channel or "stable",
        pre=pre,
        gfx=gfx,
        rocm=rocm,
        require_hashes=require_hashes,
    )
    with _open_cache(cache_dir, no_cache=no_cache, env=env) as cache:
        planned = plan_installation(request, cache, env)
        installed: list[str] = []
        if not dry_run:
            for line in _describe_plan(planned.plan):
                log.log_note(line)
            installed = carry_out_plan(planned, cache, env, cached=not no_cache)
        _print_outcome(planned.plan, cache, installed, dry_run=dry_run, as_json=as_json)


def _print_outcome(
    plan: InstallPlan, cache: WheelCache, installed: list[str], *, dry_run: bool, as_json: bool
) -> None:
    from rocm_wheels.hosts.install.plan import make_plan_json as plan_as_json

    if as_json:
        done = {"dry_run": dry_run, "installed": installed}
        click.echo(json.dumps({**plan_as_json(plan, cache), **done}, indent=1))
    elif dry_run:
        _print_plan(plan, cache)
    else:
        _print_result(plan, installed)


@contextlib.contextmanager
def _open_cache(folder: Path | None, *, no_cache: bool, env: dict[str, str]) -> Iterator[WheelCache]:
    from rocm_wheels.hosts.install.cache import WheelCache, find_cache_folder
    from rocm_wheels.hosts.install.carrying_out import make_temporary_cache

    if no_cache:
        with make_temporary_cache() as cache:
            yield cache
    else:
        yield WheelCache(folder.absolute() if folder else find_cache_folder(env, sys.platform))


def _print_plan(plan: InstallPlan, cache: WheelCache) -> None:
    from rocm_wheels.hosts.install.plan import list_commands

    for line in _describe_plan(plan):
        click.echo(line)
    for line in plan.warnings:
        log.log_warning(line)
    by_hand = list_commands(plan, cache)
    click.echo("by hand:" if by_hand else "nothing is to be done")
    for line in by_hand:
        click.echo(f"  {line}")


def _describe_plan(plan: InstallPlan) -> list[str]:
    from rocm_wheels.shell import hide_credentials
    from rocm_wheels.words import format_size

    lines = [f"into {plan.target}, by {plan.installer}", f"from {hide_credentials(plan.index)}"]
    if any(item.offer.source == "dependencies" for item in plan.items):
        lines.append(f"what it lacks from {hide_credentials(plan.dependencies)}")
    if plan.choice is not None:
        lines += [f"note: {note}" for note in plan.choice.notes]
    names = [f"{item.offer.project} {item.offer.version}" for item in plan.items]
    wide = max((len(name) for name in names), default=0)
    for name, item in zip(names, plan.items, strict=True):
        label = f" variant {item.offer.label}" if item.offer.label else ""
        size = "" if item.keep else f"{format_size(item.offer.size)}, "
        lines.append(f"  {name:{wide}}  {size}{item.action}{label}")
    lines += [f"removed first: {package}, whose files are in the way" for package in plan.removed]
    if plan.changed:
        vague = any(item.offer.size is None and not item.is_local for item in plan.changed)
        lines.append(f"to fetch: {'at least ' * vague}{format_size(plan.bytes_to_fetch)}")
    return lines


def _print_result(plan: InstallPlan, installed: list[str]) -> None:
    for line in plan.warnings:
        log.log_warning(line)
    how = "installed" if plan.changed else "all of it was installed already"
    click.echo(f"{how} in {plan.target.environment.prefix}: {', '.join(installed)}")
    if plan.visible_line:
        click.echo(f"torch has no kernels for some GPUs here; hide them: export {plan.visible_line}")
