"""``rocm-wheels choose``: which file of an index a machine gets, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.errors import UsageError
from rocm_wheels.shell import hide_credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.gpus.gpu import Gpu, Hardware
    from rocm_wheels.hosts.choose.candidate import ChoiceCandidate, WheelChoice, KnownFeature
    from rocm_wheels.hosts.choose.host import TargetHost

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

The exit code is 17 when nothing fits; the wheel that came nearest is named.
"""


@click.command("choose", help=_CHOOSE_HELP)
@click.argument("requirements", nargs=-1, required=True, metavar="REQUIREMENT...")
@click.option("--index", metavar="URL|DIR", help="Where the wheels are [default: the best known one].")
@click.option(
    "--gfx",
    multiple=True,
    metavar="LIST|none",
    help="GPUs of the machine, best first: gfx942,gfx1100 or 'RX 7900 XTX'; can be repeated [default: look].",
)
@click.option("--rocm", metavar="V|none", help="ROCm of the machine, like 7.2 [default: look].")
@click.option("--python", metavar="V", help="Python of the machine, like 3.12 or 3.14t [default: this one].")
@click.option(
    "--platform", metavar="P", help="linux, windows or macos; linux-aarch64 and such [default: this one]."
)
@click.option("--enable", multiple=True, metavar="NAMESPACE", help="Let an optional provider count.")
@click.option(
    "--channel",
    type=click.Choice(["stable", "prerelease", "nightly", "dev"]),
    help="Of the indexes that are known, without --index [default: stable].",
)
@click.option("--pre", is_flag=True, help="Take pre-releases too.")
@click.option(
    "--retries",
    type=click.IntRange(0, 20),
    default=4,
    show_default=True,
    help="How often a server is asked again.",
)
@click.option(
    "--all", "everything", is_flag=True, help="List every wheel that is out, not only the first ten."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
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
    everything: bool,
    as_json: bool,
) -> None:
    """Choose, and print what was chosen; 17 when something has no wheel that fits."""
    from rocm_wheels.hosts.choose.choosing import choose_wheels
    from rocm_wheels.hosts.choose.machine import StatedMachine, make_host
    from rocm_wheels.index.reach import IndexReader

    refuse_index_and_channel(index, channel)
    host = make_host(read_environment(), StatedMachine(gfx, rocm, python, platform, enable))
    choices = choose_wheels(
        requirements, index, host, IndexReader(retries=retries), channel=channel or "stable", pre=pre
    )
    if as_json:
        whole = {"host": host_as_json(host), "choices": [choice_as_json(choice) for choice in choices]}
        click.echo(hide_credentials(json.dumps(whole, indent=1)))
        return
    lines = [
        *describe_host(host),
        *(line for choice in choices for line in ["", *_describe_choice(choice, everything)]),
    ]
    click.echo(hide_credentials("\n".join(lines)))
    for choice in choices:
        for note in choice.notes:
            log.log_note(f"{choice.project}: {note}" if len(choices) > 1 else note)


def refuse_index_and_channel(index: str | None, channel: str | None) -> None:
    """Refuse a channel beside an index, which has none. Raises UsageError."""
    if index is not None and channel is not None:
        raise UsageError(
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
        "picked": asdict(choice.picked) if choice.picked else None,
        "requires": list(choice.requires),
        "served": [{"index": gpu.index, "gfx": gpu.gfx, "served": good} for gpu, good in choice.served],
        "visible_line": choice.visible_line,
        "known": [asdict(entry) for entry in choice.known],
        "notes": list(choice.notes),
        "candidates": [asdict(entry) for entry in choice.candidates],
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
    return {"amd": "AMD, target not known", "intel": "Intel", "apple": "Apple"}.get(gpu.vendor, gpu.vendor)


def _describe_search(hardware: Hardware) -> str:
    return f" ({'; '.join(hardware.tried)})" if hardware.tried else " (stated)"


def _describe_choice(choice: WheelChoice, everything: bool) -> list[str]:
    picked = choice.picked
    lines = [f"{choice.requirement}  from {choice.index} ({choice.layout})"]
    if picked is not None:
        lines += [f"  takes    {picked.name}", f"  why      {picked.reason}"]
    lines += [f"  pin      {requirement}" for requirement in choice.requires]
    if choice.visible_line:
        lines.append(f"  set      {choice.visible_line}")
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
    width = max((len(candidate.name) for candidate in listed), default=0)
    lines = [
        f"  {candidate.rank or 'out':>4}   {candidate.name:{width}}  {candidate.reason}"
        for candidate in listed
    ]
    hidden = len(ranked) + len(out) - len(listed)
    return lines + ([f"         and {hidden} more that are out: --all lists them"] if hidden else [])
