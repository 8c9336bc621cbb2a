"""``choose`` and ``install``: which wheels this machine gets and why, and their installation."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import boundary, catalogue, command, evidence
from rocm_wheels.cli.options import (
    GivenPath,
    RegularFile,
    open_memory,
    read_signers,
)
from rocm_wheels.core import errors, log, shell, tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocm_wheels.gpus.gpu import Gpu, Hardware
    from rocm_wheels.user import install_options, installation, plan_install, signed_index, wheel_cache
    from rocm_wheels.user.candidates import ChoiceCandidate, KnownFeature, WheelChoice
    from rocm_wheels.user.host import TargetHost

_MOST_EXCLUDED = 10
_MOST_VALUES = 8
_CHOOSE_HELP = """Choose a wheel of an index for each REQUIREMENT, and say why that one.

The newest version of which a wheel fits is taken. Within it variants come first, in the order of PEP 825,
then null, then wheels without a label. GPUs and ROCm are those of this machine, or what --gfx and --rocm say.
Without --index the best one that is known for the machine is taken.

\b
INDEX is any of
  a URL or folder with a page a project       https://repo.example/simple/
  an address with {family} in it              https://repo.example/v2/{family}/
  a folder or page that just lists wheels     dist/, https://repo.example/links.html

The exit code is 17 when nothing fits; the wheel that came nearest is named. So it is for a torch without code
for the GPUs, as `install` does it: what serves them is listed. Where the index does not say, parts of the
wheel are read.

\b
Examples:
  rocm-wheels choose torch --index https://wheels.example/simple/
  rocm-wheels choose torch --index public --gfx gfx1100 --rocm 7.2
"""


@command.command("choose", help=_CHOOSE_HELP)
@click.argument("requirements", nargs=-1, required=True, metavar="REQUIREMENT...")
@catalogue.INDEX.but(help="Where the wheels are [default: the best known one].")
@catalogue.MACHINE_GFX.but(
    help="GPUs of the machine, best first: gfx942,gfx1100, a family, 'RX 7900 XTX'; new:gfx1399: newer than"
    " the tables; can be repeated [default: look]."
)
@catalogue.ROCM.but(metavar="V|none", help="ROCm of the machine, like 7.2 [default: look].")
@catalogue.PYTHON_VERSIONS.but(
    name="python", help="Python of the machine: 3.12, 3.14t, or one that is asked [default: this one]."
)
@command.option(
    "--platform", metavar="P", help="linux, windows or macos; linux-aarch64 and such [default: this one]."
)
@command.option("--enable", multiple=True, metavar="NAMESPACE", help="Let an optional provider count.")
@catalogue.takes(catalogue.INDEX_CHANNEL, catalogue.PRE, catalogue.RETRIES, catalogue.RELEASED_BY)
@catalogue.ALLOW_CPU
@catalogue.ALL.but(help="List every wheel that is out, not only the first ten.")
@catalogue.JSON
def choose_command(  # noqa: PLR0917 - click passes them by name
    requirements: tuple[str, ...],
    index: str | None,
    gfx: tuple[str, ...],
    rocm: str | None,
    python: str | None,
    platform: str | None,
    enable: tuple[str, ...],
    channel: str | None,
    pre: bool,
    retries: int,
    released_by: tuple[Path, ...],
    allow_cpu: bool,
    everything: bool,
    as_json: bool,
) -> None:
    """Choose, and print what was chosen; 17 when something has no wheel that fits."""
    from rocm_wheels.index.reader import IndexReader
    from rocm_wheels.user import choose, kernel_proof
    from rocm_wheels.user.host import StatedMachine, make_host

    refuse_index_and_channel(index, channel)
    env, reader = boundary.read_environment(), IndexReader(retries=retries)
    if (signed := _require_released_by(released_by, env)) is not None:
        reader.page_check = signed.check_page
    host = make_host(env, StatedMachine(gfx, rocm, python, platform, enable))
    choices = choose.choose_wheels(
        requirements, index, host, reader, channel=channel or "stable", pre=pre, allow_cpu=allow_cpu
    )
    if not allow_cpu:
        choices = tuple(kernel_proof.prove_choice(choice, host, reader) for choice in choices)
    if as_json:
        whole = {"host": host_as_json(host), "choices": [choice_as_json(choice) for choice in choices]}
        click.echo(shell.hide_credentials(json.dumps(whole, indent=1)))
        return
    lines = [
        *describe_host(host),
        *(line for choice in choices for line in ["", *_describe_choice(choice, everything)]),
    ]
    click.echo(shell.hide_credentials("\n".join(lines)))
    for choice in choices:
        for note in choice.notes:
            log.log_note(f"{choice.project}: {note}" if len(choices) > 1 else note)


def _require_released_by(keys: tuple[Path, ...], env: Mapping[str, str]) -> signed_index.SignedIndexes | None:
    """Return which pages are taken where they must be signed by one of these keys, None without keys."""
    from rocm_wheels.user import signed_index

    if not keys:
        return None
    return signed_index.SignedIndexes(read_signers(keys, env), env, open_memory(env), evidence.current_time())


def refuse_index_and_channel(index: str | None, channel: str | None) -> None:
    """Refuse a channel beside an index, which has none. Raises UsageError."""
    if index is not None and channel is not None:
        raise errors.UsageError(
            f"--channel {channel} is of the indexes that are known, and --index names another",
            tip="leave one of them out",
        )


def host_as_json(host: TargetHost) -> dict[str, object]:
    """Return a machine as ``--json`` prints it."""
    from dataclasses import asdict

    return {
        "platform": host.platform,
        "machine": host.machine,
        "python": host.full_python or host.python,
        "gpus": [asdict(gpu) for gpu in host.hardware.gpus],
        "rocm": [asdict(rocm) for rocm in host.hardware.rocm],
        "driver": host.hardware.driver,
        "faults": list(host.hardware.faults),
        "supported": {
            ns: {f: list(v) for f, v in features.items()} for ns, features in host.supported.items()
        },
    }


def choice_as_json(choice: WheelChoice) -> dict[str, object]:
    """Return a choice as ``--json`` prints it: the fields of the record; GPUs by their place and target."""
    from dataclasses import asdict

    return {
        "requirement": choice.requirement,
        "project": choice.project,
        "extras": list(choice.extras),
        "index": choice.index,
        "layout": choice.layout,
        "picked": choice.picked.as_json() if choice.picked else None,
        "requires": list(choice.requires),
        "served": [{"index": gpu.index, "gfx": gpu.gfx, "served": good} for gpu, good in choice.served],
        "visible_line": choice.visible_line,
        "override_line": choice.override_line,
        "known": [asdict(entry) for entry in choice.known],
        "notes": list(choice.notes),
        "candidates": [candidate.as_json() for candidate in choice.candidates],
    }


def describe_host(host: TargetHost) -> list[str]:
    """Return lines about a machine: its Python, GPUs and ROCm, each with where it is known from."""
    lines = [f"machine  {host.platform} {host.machine}, Python {host.full_python or host.python}"]
    lines += [f"GPU      {_describe_gpu(gpu)}" for gpu in host.hardware.gpus] or [
        f"GPU      none{_describe_search(host.hardware)}"
    ]
    lines += [f"ROCm     {rocm.version} ({rocm.source}: {rocm.path})" for rocm in host.hardware.rocm[:1]]
    return lines + [f"fault    {fault}" for fault in host.hardware.faults]


def _describe_gpu(gpu: Gpu) -> str:
    number = "-" if gpu.index is None else str(gpu.index)
    words = [
        number,
        gpu.gfx or _describe_vendor(gpu),
        gpu.name,
        f"({', '.join(dict.fromkeys((gpu.source, gpu.confidence)))})",
    ]
    hidden = [] if gpu.visible else [f"hidden by {gpu.hidden_by}"]
    return " ".join(filter(None, [*words, *hidden])) + "".join(f"; {note}" for note in gpu.notes)


def _describe_vendor(gpu: Gpu) -> str:
    if gpu.vendor == "nvidia":
        return f"NVIDIA, compute capability {gpu.capability or 'not known'}"
    return {"amd": "AMD, target unknown", "intel": "Intel", "apple": "Apple"}.get(gpu.vendor, gpu.vendor)


def _describe_search(hardware: Hardware) -> str:
    return f" ({'; '.join(hardware.tried)})" if hardware.tried else " (stated)"


def _describe_choice(choice: WheelChoice, everything: bool) -> list[str]:
    picked = choice.picked
    lines = [f"{choice.requirement}  from {choice.index} ({choice.layout})"]
    if picked is not None:
        lines += [f"  takes    {picked.name}", f"  why      {picked.reason}"]
    lines += [f"  pin      {requirement}" for requirement in choice.requires]
    settings = (choice.override_line, choice.visible_line)
    lines += [f"  set      {line}" for line in settings if line]
    lines += [f"  has      {_describe_feature(feature, choice.candidates)}" for feature in choice.known]
    return lines + _list_candidates(choice.candidates, everything)


def _describe_feature(feature: KnownFeature, candidates: Sequence[ChoiceCandidate]) -> str:
    """Return what is supported of a feature; of a long list only what some wheel wants."""
    values = feature.values
    if len(values) > _MOST_VALUES:
        wheels = [
            wheel.properties.get(feature.namespace, {}).get(feature.feature, ()) for wheel in candidates
        ]
        needed = {value for several in wheels for value in several}
        values = (*(value for value in values if value in needed), f"… {len(feature.values)} values in all")
    return f"{feature.namespace} :: {feature.feature} :: {', '.join(values) or '-'}  ({feature.source})"


def _list_candidates(candidates: Sequence[ChoiceCandidate], everything: bool) -> list[str]:
    ranked = [candidate for candidate in candidates if candidate.rank is not None]
    out = [candidate for candidate in candidates if candidate.rank is None]
    listed = [*ranked, *(out if everything else out[:_MOST_EXCLUDED])]
    rows = [(str(candidate.rank or "out"), candidate.name, candidate.reason) for candidate in listed]
    lines = [f"  {line}" for line in tables.align_rows(rows, right=[0])]
    hidden = len(ranked) + len(out) - len(listed)
    return lines + ([f"         and {hidden} more that are out: --all lists them"] if hidden else [])


_INSTALL_HELP = """Install torch and its companions: the builds for this machine's GPUs, from one index.

PACKAGES are names with versions as pip reads them: torch 'torchvision>=0.24' 'torch==2.9.*'
[default: $ROCM_WHEELS_PACKAGES, else torch torchvision torchaudio]. torch is chosen as `rocm-wheels choose`
says; triton and ROCm's packages are those that it requires. Nothing is installed before every file is here
and checked; afterwards what is installed is compared with what was chosen. The exit code is 17 when anything
did not happen.

Before a wheel is fetched, torch's METADATA and parts of its files say what it is built for, and whether it
has code for the GPU; where a server sends no parts, that is read after the download. A torch without code for
the GPU is not installed, unless --allow-cpu is given.

\b
Where it comes from:
  torch, torchvision, torchaudio, triton…, rocm…, amd-…   the chosen index, never PyPI; rocm… or --rocm-index
  other torch projects that it lacks (torchao)            PyPI, if without compiled code
  the rest that it lacks (sympy, numpy)                   PyPI, or --dependency-index

With --released-by the pages of the index must be those that a key has signed (`rocm-wheels set refresh
--sign-with`), not expired, and not older than this machine has seen; otherwise nothing is installed.

With --lock everything is as a file says: `rocm-wheels lock install` writes one for many machines, with the
wheels for each kind of GPU; of another program's, what fits this Python is taken.

Downloads are kept in ~/.cache/rocm-wheels; an interrupted one continues from there.

\b
Examples:
  rocm-wheels install --venv .venv
  rocm-wheels install --lock pylock.toml --venv .venv
  rocm-wheels install torch torchvision --index URL --dry-run
"""


@command.command("install", help=_INSTALL_HELP)
@click.argument("packages", nargs=-1, metavar="[PACKAGES]...", envvar="ROCM_WHEELS_PACKAGES")
@catalogue.DRY_RUN.but(help="Print what would be done, and the commands to do it by hand.")
@command.option(
    "--uv/--pip",
    "by_uv",
    default=True,
    help="Install by uv [default], or by the pip of the environment; uv resolves for both.",
)
@catalogue.PYTHON.but(
    name="target_python",
    help="Environment or Python to install into [default: the active one, never that of this program].",
)
@catalogue.VENV.but(help="Install into this virtual environment, made of --python where it is not there yet.")
@catalogue.takes(catalogue.INDEX, catalogue.DEPENDENCY_INDEX)
@catalogue.OTHER_ROCM_INDEX
@catalogue.takes(catalogue.INDEX_CHANNEL, catalogue.PRE, catalogue.MACHINE_GFX)
@catalogue.ALLOW_CPU.but(
    help="Take a torch that computes on the CPU, where none has code for the GPU here (on a terminal:"
    " without asking)."
)
@catalogue.ROCM.but(metavar="VERSION", help="For this ROCm, not the one found here.")
@catalogue.CACHE_DIR
@command.option("--no-cache", is_flag=True, help="Keep no downloads.")
@command.option(
    "--keep-wheels",
    type=GivenPath(file_okay=False),
    metavar="DIR",
    help="Put the wheels that are installed into this folder, too: for `tests --wheels DIR`.",
)
@command.option("--require-hashes", is_flag=True, help="Refuse files of which the index states no sha256.")
@catalogue.SIGNED_BY.but(
    help="Refuse wheels of torch and its companions unless one of these public keys (Ed25519, SSH) has signed"
    " the statement beside them."
)
@command.option(
    "--provenance",
    type=click.Choice(["required", "optional", "off"]),
    help="Statements of how torch and its companions were made: every wheel must have one that is about its"
    " bytes, one that is there must be, or nobody looks [default: optional; with --signed-by required].",
)
@catalogue.RELEASED_BY
@catalogue.LOCK.but(
    type=RegularFile(),
    help="Install what a pylock.toml (PEP 751) has for this machine: nothing is chosen or looked up.",
)
@catalogue.JSON
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
    allow_cpu: bool,
    rocm: str | None,
    cache_dir: Path | None,
    no_cache: bool,
    keep_wheels: Path | None,
    require_hashes: bool,
    keys: tuple[Path, ...],
    provenance: plan_install.ProvenanceMode | None,
    released_by: tuple[Path, ...],
    lock: Path | None,
    as_json: bool,
) -> None:
    """Plan, and unless it is a dry run carry out; non-zero when anything did not happen."""
    from dataclasses import replace

    from rocm_wheels.user import fleet, install, install_options, plan_install

    if cache_dir is not None and no_cache:
        raise errors.UsageError("--cache-dir and --no-cache say opposite things", tip="leave one of them out")
    refuse_index_and_channel(index, channel)
    if lock is not None:
        _refuse_choices(
            {
                "packages": packages,
                "--index": index,
                "--channel": channel,
                "--rocm-index": rocm_index,
                "--pre": pre,
                "--rocm": rocm,
                "--signed-by": keys,
                "--provenance": provenance,
                "--released-by": released_by,
            }
        )
    env = boundary.read_environment()
    request = plan_install.InstallRequest(
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
        signers=read_signers(keys, env) or None,
        provenance=provenance or "",
        signed=_require_released_by(released_by, env),
        allow_cpu=allow_cpu,
    )
    with open_wheel_cache(cache_dir, no_cache=no_cache, env=env) as cache:

        def plan(request: plan_install.InstallRequest) -> plan_install.PlannedInstall:
            if lock is not None:
                return fleet.plan_locked_installation(lock, request, cache, env)
            return plan_install.plan_installation(request, cache, env)

        try:
            planned = plan(request)
        except install_options.UnservedGpuError as refusal:
            if as_json or not _is_on_terminal():
                raise
            _confirm_cpu(refusal)
            planned = plan(replace(request, allow_cpu=True))
        installed: list[str] = []
        if not dry_run:
            for line in _describe_plan(planned.plan):
                log.log_note(line)
            installed = install.carry_out_plan(
                planned, cache, env, cached=not no_cache, keep_wheels=keep_wheels
            )
        _print_outcome(planned.plan, cache, installed, dry_run=dry_run, as_json=as_json)


def _refuse_choices(options: Mapping[str, object]) -> None:
    """Refuse what says how to choose, beside a lock, which has chosen. Raises UsageError."""
    choosing = [name for name, value in options.items() if value]
    if choosing:
        raise errors.UsageError(
            f"--lock has the files already, and {', '.join(choosing)} would choose others",
            tip="leave one of them out; `rocm-wheels lock install` makes another lock",
        )


def _is_on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _confirm_cpu(refusal: install_options.UnservedGpuError) -> None:
    """Ask whether a torch for the CPU will do; HostError when it will not."""
    click.echo(refusal.message, err=True)
    if not click.confirm("Install a torch that computes on the CPU?", default=False, err=True):
        raise errors.HostError("nothing was installed", tip=refusal.tip) from None


def _print_outcome(
    plan: installation.InstallPlan,
    cache: wheel_cache.WheelCache,
    installed: list[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from rocm_wheels.user import installation

    if as_json:
        done = {"dry_run": dry_run, "installed": installed}
        click.echo(json.dumps({**installation.make_plan_json(plan, cache), **done}, indent=1))
    elif dry_run:
        _print_plan(plan, cache)
    else:
        _print_result(plan, installed)


@contextlib.contextmanager
def open_wheel_cache(
    folder: Path | None, *, no_cache: bool, env: dict[str, str]
) -> Iterator[wheel_cache.WheelCache]:
    """Give the cache of downloads; one that is gone afterwards with ``no_cache``."""
    from rocm_wheels.core import user_folders
    from rocm_wheels.user import install, wheel_cache

    if no_cache:
        with install.make_temporary_cache() as cache:
            yield cache
    else:
        yield wheel_cache.WheelCache(
            folder.absolute() if folder else user_folders.find_cache_folder(env, sys.platform)
        )


def _print_plan(plan: installation.InstallPlan, cache: wheel_cache.WheelCache) -> None:
    from rocm_wheels.user import installation

    for line in _describe_plan(plan):
        click.echo(line)
    for line in plan.warnings:
        log.log_warning(line)
    by_hand = installation.list_commands(plan, cache)
    click.echo("by hand:" if by_hand else "nothing is to be done")
    for line in by_hand:
        click.echo(f"  {line}")


def _describe_plan(plan: installation.InstallPlan) -> list[str]:

    lines = [f"into {plan.target}, by {plan.installer}", f"from {shell.hide_credentials(plan.index)}"]
    if any(item.offer.source == "dependencies" for item in plan.items):
        lines.append(f"what it lacks from {shell.hide_credentials(plan.dependencies)}")
    if plan.choice is not None:
        lines += [f"note: {note}" for note in plan.choice.notes]
    lines += plan.proof_lines
    rows = []
    for item in plan.items:
        label = f" variant {item.offer.label}" if item.offer.label else ""
        size = "" if item.keep else f"{tables.format_size(item.offer.size)}, "
        statement = f", statement {item.statement}" if item.statement else ""
        rows.append((f"{item.offer.project} {item.offer.version}", f"{size}{item.action}{label}{statement}"))
    lines += [f"  {line}" for line in tables.align_rows(rows)]
    lines += [f"removed first: {package}, whose files are in the way" for package in plan.removed]
    if plan.changed:
        vague = any(item.offer.size is None and not item.is_local for item in plan.changed)
        lines.append(f"to download: {'at least ' * vague}{tables.format_size(plan.bytes_to_fetch)}")
    return lines


def _print_result(plan: installation.InstallPlan, installed: list[str]) -> None:
    for line in plan.warnings:
        log.log_warning(line)
    how = "installed" if plan.changed else "all of it was installed already"
    click.echo(f"{how} in {plan.target.environment.prefix}: {', '.join(installed)}")
    if plan.override_line:
        click.echo(f"torch needs it for the GPU here: export {plan.override_line}")
    if plan.visible_line:
        click.echo(f"torch has no kernels for some GPUs here; hide them: export {plan.visible_line}")
