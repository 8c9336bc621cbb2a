"""``choose``: which wheels of an index this machine gets, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, command, output
from rocm_wheels.cli.options import open_memory, read_signers
from rocm_wheels.core import log, tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocm_wheels.gpus.gpu import Gpu
    from rocm_wheels.index import signed_index
    from rocm_wheels.user.candidates import ChoiceCandidate, KnownFeature, WheelChoice
    from rocm_wheels.user.host import TargetHost

_MOST_EXCLUDED = 10
_MOST_VALUES = 8


# a channel is of the indexes that are known, and an index that is named has none
ONE_INDEX = ("--index", "--channel")


@command.command("choose", apart=[ONE_INDEX])
@click.argument("requirements", nargs=-1, required=True, metavar="REQUIREMENT...")
@catalogue.INDEX.but(help="Where the wheels are [default: the best known one].")
@catalogue.MACHINE_GFX.but(
    help="GPUs of the machine, best first: gfx942,gfx1100, a family, 'RX 7900 XTX'; new:gfx1399: newer than"
    " the tables; can be repeated [default: detect]."
)
@catalogue.ROCM.but(metavar="V|none", help="ROCm of the machine, such as 7.2 [default: detect].")
@catalogue.PYTHON_VERSIONS.but(
    name="python", help="Python of the machine: 3.12, 3.14t, or a path [default: this one]."
)
@command.option(
    "--platform", metavar="P", help="linux, windows or macos; linux-aarch64 and such [default: this one]."
)
@catalogue.takes(catalogue.INDEX_CHANNEL, catalogue.RELEASED_BY, catalogue.ALLOW_CPU)
@catalogue.JSON
def choose_command(  # noqa: PLR0917 - click passes them by name
    requirements: tuple[str, ...],
    index: str | None,
    channel: str | None,
    released_by: tuple[Path, ...],
    allow_cpu: bool,
    as_json: bool,
    **machine: Any,
) -> None:
    """Choose a wheel of an index for each REQUIREMENT, and explain why.

    It takes the newest version that has a fitting wheel; of that version variants first, in the order of PEP
    825, then null, then wheels without a label. GPUs and ROCm are those of this machine, or of --gfx and
    --rocm. Without --index it asks the known indexes for the machine, best first.

    \b
    INDEX is any of
      a URL or folder with a page a project       https://repo.example/simple/
      an address with {family} in it              https://repo.example/v2/{family}/
      a folder or page that just lists wheels     dist/, https://repo.example/links.html

    The exit code is 17 if nothing fits; the closest wheel is named. A torch without code for the GPUs is
    refused too, as by `install`: parts of its files are read, whatever the index says, and what serves the
    GPUs is listed.

    \b
    Examples:
      rocm-wheels choose torch --index https://wheels.example/simple/
      rocm-wheels choose torch --index public --gfx gfx1100 --rocm 7.2
    """
    from rocm_wheels.index.reader import IndexReader
    from rocm_wheels.user.host import StatedMachine, make_host
    from rocm_wheels.user.kernel_proof import choose_proven_wheels

    env, reader = boundary.read_environment(), IndexReader()
    if (signed := require_released_by(released_by, env)) is not None:
        reader.page_check = signed.check_page
    host = make_host(env, StatedMachine(**machine))
    choices = choose_proven_wheels(
        requirements, index, host, reader, channel=channel or "stable", allow_cpu=allow_cpu
    )
    document = {"host": host_as_json(host), "choices": [choice_as_json(choice) for choice in choices]}
    lines = describe_host(host)
    for choice in choices:
        lines += ["", *_describe_choice(choice)]
    output.print_result(document, lines, as_json=as_json)
    for choice in () if as_json else choices:
        for note in choice.notes:
            log.log_note(f"{choice.project}: {note}" if len(choices) > 1 else note)


def require_released_by(keys: tuple[Path, ...], env: Mapping[str, str]) -> signed_index.SignedIndexes | None:
    """Return which pages are taken where they must be signed by one of these keys, None without keys."""
    if not keys:
        return None
    from rocm_wheels.cli import evidence
    from rocm_wheels.index import signed_index

    return signed_index.SignedIndexes(read_signers(keys, env), env, open_memory(env), evidence.current_time())


def host_as_json(host: TargetHost) -> dict[str, object]:
    """Return a machine as ``--json`` prints it."""
    hardware = host.hardware
    return {
        "platform": host.platform,
        "machine": host.machine,
        "python": host.full_python or host.python,
        **{name: getattr(hardware, name) for name in ("gpus", "rocm", "driver", "faults")},
        "supported": host.supported,
    }


def choice_as_json(choice: WheelChoice) -> dict[str, object]:
    """Return a choice as ``--json`` prints it: the fields of the record; GPUs by their place and target."""
    names = "requirement project extras index layout requires visible_line override_line notes"
    return {
        **{name: getattr(choice, name) for name in names.split()},
        "picked": choice.picked.as_json(),
        "served": [{"index": gpu.index, "gfx": gpu.gfx, "served": good} for gpu, good in choice.served],
        "known": choice.known,
        "candidates": [candidate.as_json() for candidate in choice.candidates],
    }


def describe_host(host: TargetHost) -> list[str]:
    """Return lines about a machine: its Python, GPUs and ROCm, each with where it is known from."""
    lines = [f"machine  {host.platform} {host.machine}, Python {host.full_python or host.python}"]
    lines += [f"GPU      {_describe_gpu(gpu)}" for gpu in host.hardware.gpus]
    if not host.hardware.gpus:
        lines.append(f"GPU      none ({'; '.join(host.hardware.tried) or 'stated'})")
    lines += [f"ROCm     {rocm.version} ({rocm.source}: {rocm.path})" for rocm in host.hardware.rocm[:1]]
    return lines + [f"fault    {fault}" for fault in host.hardware.faults]


def _describe_gpu(gpu: Gpu) -> str:
    vendors = {
        "amd": "AMD, target unknown",
        "nvidia": f"NVIDIA, compute capability {gpu.capability or 'not known'}",
        "intel": "Intel",
        "apple": "Apple",
    }
    number = "-" if gpu.index is None else str(gpu.index)
    source = f"({', '.join(dict.fromkeys((gpu.source, gpu.confidence)))})"
    hidden = "" if gpu.visible else f"hidden by {gpu.hidden_by}"
    words = [number, gpu.gfx or vendors.get(gpu.vendor, gpu.vendor), gpu.name, source, hidden]
    return "; ".join([" ".join(filter(None, words)), *gpu.notes])


def _describe_choice(choice: WheelChoice) -> list[str]:
    picked = choice.picked
    lines = [f"{choice.requirement}  from {choice.index} ({choice.layout})"]
    lines += [f"  takes    {picked.name}", f"  why      {picked.reason}"]
    lines += [f"  pin      {requirement}" for requirement in choice.requires]
    settings = (choice.override_line, choice.visible_line)
    lines += [f"  set      {line}" for line in settings if line]
    lines += [f"  has      {_describe_feature(feature, choice.candidates)}" for feature in choice.known]
    return lines + _list_candidates(choice.candidates)


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


def _list_candidates(candidates: Sequence[ChoiceCandidate]) -> list[str]:
    ranked = [candidate for candidate in candidates if candidate.rank is not None]
    out = [candidate for candidate in candidates if candidate.rank is None]
    listed = [*ranked, *out[:_MOST_EXCLUDED]]
    rows = [(str(candidate.rank or "out"), candidate.name, candidate.reason) for candidate in listed]
    lines = [f"  {line}" for line in tables.align_rows(rows, right=[0])]
    hidden = len(ranked) + len(out) - len(listed)
    return lines + ([f"         and {hidden} more that are out: --json lists them"] if hidden else [])
