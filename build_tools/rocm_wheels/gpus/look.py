"""Look at a machine: every GPU with what it was found by, every ROCm, and whatever was odd.

The order of trust: what variables state, the kernel driver's own files, ROCm's tools, the PCI bus with a
table. A tool that is missing, fails, hangs or prints rubbish is said and never stops anything.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .forced import CHIPS, CUDA, SM, Forced, read_forced, read_overrides, without_effect
from .gpu import Gpu, Hardware
from .programs import Runner, run_program
from .rocm import find_rocm
from .visible import mark_visible

VENDORS = ("amd", "nvidia", "intel", "apple")

NO_TARGET = "its target is not known"  # of an AMD GPU, among the faults


def look(
    env: Mapping[str, str],
    *,
    root: Path = Path("/"),
    platform: str = sys.platform,
    run: Runner = run_program,
    site_packages: Sequence[Path] = (),
    vendors: Collection[str] = VENDORS,
) -> Hardware:
    """Return the hardware of the machine whose files are below ``root`` and whose programs ``run`` starts.

    ``platform`` is as ``sys.platform`` says it; only the GPUs of ``vendors`` are looked for. ValueError only
    for a variable that states something and cannot be read, and for two that contradict each other; it
    names them.
    """
    forced = read_forced(env)
    overrides = read_overrides(env)
    rocm, rocm_faults = find_rocm(
        env, root=root, platform=platform, site_packages=site_packages, forced=forced
    )
    seen = _SYSTEMS.get(platform, _linux)(_Question(env, root, run, forced, overrides, frozenset(vendors)))
    gpus, odd = list(seen.gpus), without_effect(env, vendors)
    if forced.chips is not None:
        gpus = [*forced_gpus(forced), *(gpu for gpu in gpus if gpu.vendor != "amd")]
    else:
        gpus, masks = mark_visible(gpus, env, windows=platform == "win32")
        odd += masks
    gpus = _with_forced_nvidia(gpus, forced) if "nvidia" in vendors else gpus
    return replace(
        seen,
        gpus=best_first(gpus),
        rocm=rocm,
        cuda=forced.cuda or seen.cuda,
        faults=(*seen.faults, *_unknown(gpus), *odd, *rocm_faults),
        tried=((f"{forced.chips_by} says which AMD GPUs there are",) if forced.chips_by else ()) + seen.tried,
    )


def best_first(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return GPUs in the order of ``Hardware.gpus``."""
    return tuple(sorted(gpus, key=_rank))


def _unknown(gpus: Sequence[Gpu]) -> list[str]:
    unknown = [gpu for gpu in gpus if gpu.vendor == "amd" and gpu.confidence == "unknown"]
    return [
        f"{gpu.name or 'an AMD GPU'} ({gpu.pci_id or 'without PCI id'}): {NO_TARGET}; {CHIPS[0]} can state it"
        for gpu in unknown
    ]


def forced_gpus(forced: Forced) -> list[Gpu]:
    """Return the AMD GPUs that a variable states."""
    stated = Gpu("amd", source="forced", confidence="forced", notes=(f"by {forced.chips_by}",))
    return [
        replace(stated, gfx=chip, native=chip, index=index, hip_index=index)
        for index, chip in enumerate(forced.chips or ())
    ]


def _with_forced_nvidia(gpus: Sequence[Gpu], forced: Forced) -> list[Gpu]:
    if forced.cuda is None and forced.capability is None:
        return list(gpus)
    note = f"by {SM if forced.capability else CUDA}"
    found = [gpu for gpu in gpus if gpu.vendor == "nvidia"] or [Gpu("nvidia")]
    stated = [
        replace(
            gpu,
            capability=forced.capability or gpu.capability,
            source="forced",
            confidence="forced",
            notes=(*gpu.notes, note),
        )
        for gpu in found
    ]
    return [*(gpu for gpu in gpus if gpu.vendor != "nvidia"), *stated]


@dataclass(frozen=True)
class _Question:
    """What a system is asked with."""

    env: Mapping[str, str]
    root: Path
    run: Runner
    forced: Forced
    overrides: Mapping[int | None, str]
    vendors: frozenset[str]


def _linux(asked: _Question) -> Hardware:
    from .linux import LinuxMachine

    machine = LinuxMachine(asked.env, asked.root, asked.run)
    amd = machine.amd(asked.overrides) if "amd" in asked.vendors and asked.forced.chips is None else []
    others = machine.others(asked.forced, asked.vendors) if asked.vendors - {"amd"} else []
    return Hardware(
        gpus=(*amd, *others),
        driver=machine.driver(),
        cuda=machine.cuda,
        faults=tuple(machine.faults),
        tried=tuple(machine.tried),
    )


def _windows(asked: _Question) -> Hardware:
    """Ask Windows. Its HIP has no ROCm runtime below it, so nothing poses as anything else."""
    from .nvidia import ask_nvidia
    from .other_systems import windows_gpus

    if asked.forced.chips is not None and asked.vendors == {"amd"}:
        return Hardware()
    faults: list[str] = []
    tried: list[str] = []
    found = windows_gpus(asked.env, asked.run, faults, tried, only_amd=asked.vendors == {"amd"})
    gpus = [gpu for gpu in found if gpu.vendor in asked.vendors]
    nvidia, cuda = [gpu for gpu in gpus if gpu.vendor == "nvidia"], None
    if nvidia and asked.forced.capability is None:
        nvidia, cuda = ask_nvidia(nvidia, asked.env, asked.run, faults, tried)
    rest = [gpu for gpu in gpus if gpu.vendor != "nvidia"]
    return Hardware(gpus=(*rest, *nvidia), cuda=cuda, faults=tuple(faults), tried=tuple(tried))


def _macos(asked: _Question) -> Hardware:
    """Ask macOS. There is no ROCm for it, so an AMD card of a Mac is of no use to any ROCm wheel."""
    from .other_systems import macos_gpus

    if asked.vendors == {"amd"}:
        return Hardware(tried=("macOS has no ROCm: nothing was looked for",))
    faults: list[str] = []
    tried: list[str] = []
    gpus = [
        replace(gpu, visible=False, hidden_by="macOS, which has no ROCm") if gpu.vendor == "amd" else gpu
        for gpu in macos_gpus(asked.env, asked.run, faults, tried)
        if gpu.vendor in asked.vendors
    ]
    return Hardware(gpus=tuple(gpus), faults=tuple(faults), tried=tuple(tried))


_SYSTEMS = {"win32": _windows, "darwin": _macos}


def _rank(gpu: Gpu) -> tuple[object, ...]:
    # a graphics unit inside a processor is no match for a card, whoever made that
    kind = (gpu.integrated is True, VENDORS.index(gpu.vendor))
    unknown = gpu.confidence == "unknown"
    return (not gpu.visible, *kind, unknown, gpu.index is None, gpu.index or 0)
