"""Look at a machine: every GPU with what it was found by, every ROCm, and whatever was odd.

The order of trust: what variables state, the kernel driver's own files, ROCm's tools, the PCI bus with a
table. A tool that is missing, fails, hangs or prints rubbish is said and never stops anything.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .forced import (
    GFX_VARIABLES,
    CUDA_VERSION_VARIABLE,
    SM_ARCH_VARIABLE,
    ForcedHardware,
    read_forced_hardware,
    read_overrides,
    find_ineffective_variables,
)
from .gpu import Gpu, Hardware
from .programs import Runner, run_program
from .rocm import find_rocm_installations
from .visible import mark_visible_gpus

VENDORS = ("amd", "nvidia", "intel", "apple")

UNKNOWN_TARGET = "its target is not known"  # of an AMD GPU, among the faults


def detect_hardware(
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
    forced = read_forced_hardware(env)
    overrides = read_overrides(env)
    rocm, rocm_faults = find_rocm_installations(
        env, root=root, platform=platform, site_packages=site_packages, forced=forced
    )
    hardware = _SYSTEMS.get(platform, _detect_on_linux)(
        _DetectionRequest(env, root, run, forced, overrides, frozenset(vendors))
    )
    gpus, warnings = list(hardware.gpus), find_ineffective_variables(env, vendors)
    if forced.chips is not None:
        gpus = [*make_forced_gpus(forced), *(gpu for gpu in gpus if gpu.vendor != "amd")]
    else:
        gpus, masks = mark_visible_gpus(gpus, env, windows=platform == "win32")
        warnings += masks
    gpus = _apply_forced_nvidia(gpus, forced) if "nvidia" in vendors else gpus
    return replace(
        hardware,
        gpus=sort_gpus(gpus),
        rocm=rocm,
        cuda=forced.cuda or hardware.cuda,
        faults=(*hardware.faults, *_describe_unknown_gpus(gpus), *warnings, *rocm_faults),
        tried=((f"{forced.chips_by} says which AMD GPUs there are",) if forced.chips_by else ())
        + hardware.tried,
    )


def sort_gpus(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return GPUs in the order of ``Hardware.gpus``."""
    return tuple(sorted(gpus, key=_rank_gpu))


def _describe_unknown_gpus(gpus: Sequence[Gpu]) -> list[str]:
    unknown = [gpu for gpu in gpus if gpu.vendor == "amd" and gpu.confidence == "unknown"]
    return [
        f"{gpu.name or 'an AMD GPU'} ({gpu.pci_id or 'without PCI id'}): {UNKNOWN_TARGET}; {GFX_VARIABLES[0]} can state it"
        for gpu in unknown
    ]


def make_forced_gpus(forced: ForcedHardware) -> list[Gpu]:
    """Return the AMD GPUs that a variable states."""
    template = Gpu("amd", source="forced", confidence="forced", notes=(f"by {forced.chips_by}",))
    return [
        replace(template, gfx=chip, native=chip, index=index, hip_index=index)
        for index, chip in enumerate(forced.chips or ())
    ]


def _apply_forced_nvidia(gpus: Sequence[Gpu], forced: ForcedHardware) -> list[Gpu]:
    if forced.cuda is None and forced.capability is None:
        return list(gpus)
    note = f"by {SM_ARCH_VARIABLE if forced.capability else CUDA_VERSION_VARIABLE}"
    nvidia_gpus = [gpu for gpu in gpus if gpu.vendor == "nvidia"] or [Gpu("nvidia")]
    forced_gpus = [
        replace(
            gpu,
            capability=forced.capability or gpu.capability,
            source="forced",
            confidence="forced",
            notes=(*gpu.notes, note),
        )
        for gpu in nvidia_gpus
    ]
    return [*(gpu for gpu in gpus if gpu.vendor != "nvidia"), *forced_gpus]


@dataclass(frozen=True)
class _DetectionRequest:
    """What a system is asked with."""

    env: Mapping[str, str]
    root: Path
    run: Runner
    forced: ForcedHardware
    overrides: Mapping[int | None, str]
    vendors: frozenset[str]


def _detect_on_linux(request: _DetectionRequest) -> Hardware:
    from .linux import LinuxDetection

    machine = LinuxDetection(request.env, request.root, request.run)
    amd = (
        machine.detect_amd_gpus(request.overrides)
        if "amd" in request.vendors and request.forced.chips is None
        else []
    )
    other_gpus = (
        machine.detect_other_gpus(request.forced, request.vendors) if request.vendors - {"amd"} else []
    )
    return Hardware(
        gpus=(*amd, *other_gpus),
        driver=machine.read_driver_version(),
        cuda=machine.cuda,
        faults=tuple(machine.faults),
        tried=tuple(machine.tried),
    )


def _detect_on_windows(request: _DetectionRequest) -> Hardware:
    """Ask Windows. Its HIP has no ROCm runtime below it, so nothing poses as anything else."""
    from .nvidia import query_nvidia
    from .other_systems import detect_windows_gpus

    if request.forced.chips is not None and request.vendors == {"amd"}:
        return Hardware()
    faults: list[str] = []
    tried: list[str] = []
    cards = detect_windows_gpus(request.env, request.run, faults, tried, only_amd=request.vendors == {"amd"})
    gpus = [gpu for gpu in cards if gpu.vendor in request.vendors]
    nvidia, cuda = [gpu for gpu in gpus if gpu.vendor == "nvidia"], None
    if nvidia and request.forced.capability is None:
        nvidia, cuda = query_nvidia(nvidia, request.env, request.run, faults, tried)
    other_gpus = [gpu for gpu in gpus if gpu.vendor != "nvidia"]
    return Hardware(gpus=(*other_gpus, *nvidia), cuda=cuda, faults=tuple(faults), tried=tuple(tried))


def _detect_on_macos(request: _DetectionRequest) -> Hardware:
    """Ask macOS. There is no ROCm for it, so an AMD card of a Mac is of no use to any ROCm wheel."""
    from .other_systems import detect_macos_gpus

    if request.vendors == {"amd"}:
        return Hardware(tried=("macOS has no ROCm: nothing was looked for",))
    faults: list[str] = []
    tried: list[str] = []
    gpus = [
        replace(gpu, visible=False, hidden_by="macOS, which has no ROCm") if gpu.vendor == "amd" else gpu
        for gpu in detect_macos_gpus(request.env, request.run, faults, tried)
        if gpu.vendor in request.vendors
    ]
    return Hardware(gpus=tuple(gpus), faults=tuple(faults), tried=tuple(tried))


_SYSTEMS = {"win32": _detect_on_windows, "darwin": _detect_on_macos}


def _rank_gpu(gpu: Gpu) -> tuple[object, ...]:
    # a graphics unit inside a processor is no match for a card, whoever made that
    kind = (gpu.integrated is True, VENDORS.index(gpu.vendor))
    unknown = gpu.confidence == "unknown"
    return (not gpu.visible, *kind, unknown, gpu.index is None, gpu.index or 0)
