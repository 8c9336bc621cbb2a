"""Detect the hardware of a machine: every GPU with its source, every ROCm, and whatever was odd.

The order of trust: what variables state, the kernel driver's own files, rocminfo, the PCI bus with a
table. A tool that is missing, fails, hangs or prints rubbish is reported and never stops anything.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .gpu import INTEGRATED_TARGETS, Gpu, Hardware
from .kfd import read_topology
from .pci_bus import PciCard, count_cards, make_gpu, query_lspci, read_pci_cards
from .programs import Look, Runner, read_text, run_program
from .rocm import find_rocm_installations, query_rocminfo
from .variables import (
    GFX_VARIABLES,
    OVERRIDE_VARIABLE,
    ForcedHardware,
    find_ineffective_variables,
    mark_visible_gpus,
    read_forced_hardware,
    read_overrides,
)
from .vendors import GPU_VENDORS, load_vendor_query

UNKNOWN_TARGET = "its target is unknown"  # of an AMD GPU, among the faults
_WSL_DEVICE = "dev/dxg"
_AMDGPU_MODULE = "sys/module/amdgpu"
Overrides = Mapping[int | None, str]


def detect_hardware(
    env: Mapping[str, str],
    *,
    root: Path = Path("/"),
    platform: str = sys.platform,
    run: Runner = run_program,
    site_packages: Sequence[Path] = (),
    vendors: Collection[str] = GPU_VENDORS.keys(),
) -> Hardware:
    """Return the hardware of the machine whose files are below ``root`` and whose programs ``run`` starts.

    ``platform`` is as ``sys.platform`` says it; only the GPUs of ``vendors`` are looked for. ValueError only
    for a variable that states something and cannot be read, and for two that contradict each other; it
    names them.
    """
    forced, overrides = read_forced_hardware(env), read_overrides(env)
    rocm, rocm_faults = find_rocm_installations(
        env, root=root, platform=platform, site_packages=site_packages, forced=forced
    )
    look = Look(env, root, run)
    if forced.chips_by:
        look.tried.append(f"{forced.chips_by} says which AMD GPUs there are")
    looked_for = {vendor for vendor in vendors if vendor != "amd" or forced.chips is None}
    if platform == "win32":
        gpus, present = _detect_on_windows(look, looked_for)
    elif platform == "darwin":
        gpus, present = _detect_on_macos(look, looked_for), set()
    else:
        gpus, present = _detect_on_linux(look, looked_for, overrides)

    # the programs of the drivers know more of their cards, but for what is stated
    cuda = None
    for vendor in GPU_VENDORS:
        if vendor in present & looked_for and (query := load_vendor_query(vendor)):
            cards, version = query(look, [gpu for gpu in gpus if gpu.vendor == vendor])
            gpus = [*cards, *(gpu for gpu in gpus if gpu.vendor != vendor)]
            cuda = version if vendor == "nvidia" else cuda

    warnings = find_ineffective_variables(env)
    if forced.chips is not None:
        gpus = [*_make_forced_gpus(forced), *gpus]
    else:
        gpus, masks = mark_visible_gpus(gpus, env, windows=platform == "win32")
        warnings += masks
    unknown = [
        f"{gpu.name or 'an AMD GPU'} ({gpu.pci_id or 'without PCI id'}): {UNKNOWN_TARGET}; "
        f"{GFX_VARIABLES[0]} can state it"
        for gpu in gpus
        if gpu.vendor == "amd" and gpu.confidence == "unknown"
    ]
    return Hardware(
        gpus=sort_gpus(gpus),
        rocm=rocm,
        driver=None if platform in {"win32", "darwin"} else _read_driver_version(root),
        cuda=cuda,
        faults=(*look.faults, *unknown, *warnings, *rocm_faults),
        tried=tuple(look.tried),
        sanitizer=forced.sanitizer,
    )


def sort_gpus(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return GPUs in the order of ``Hardware.gpus``."""
    return tuple(sorted(gpus, key=_rank_gpu))


def _rank_gpu(gpu: Gpu) -> tuple[object, ...]:
    # a graphics unit inside a processor is no match for a card, whoever made that
    kind = (gpu.integrated is True, list(GPU_VENDORS).index(gpu.vendor))
    unknown = gpu.confidence == "unknown"
    return (not gpu.visible, *kind, unknown, gpu.index is None, gpu.index or 0)


def _make_forced_gpus(forced: ForcedHardware) -> list[Gpu]:
    """Return the AMD GPUs that a variable states."""
    template = Gpu("amd", source="forced", confidence="forced", notes=(f"by {forced.chips_by}",))
    return [
        replace(
            template,
            gfx=chip,
            native=chip,
            index=index,
            hip_index=index,
            integrated=chip in INTEGRATED_TARGETS or None,
        )
        for index, chip in enumerate(forced.chips or ())
    ]


def _read_driver_version(root: Path) -> str | None:
    """Return the version of the amdgpu driver: its own, or the kernel's that it is a part of."""
    if not os.path.isdir(root / _AMDGPU_MODULE):  # noqa: PTH112 - a closed folder is no reason to stop
        return None
    kernel = read_text(root / "proc/sys/kernel/osrelease") or "of unknown version"
    return read_text(root / _AMDGPU_MODULE / "version") or f"in Linux {kernel}"


def _detect_on_windows(look: Look, vendors: set[str]) -> tuple[list[Gpu], set[str]]:
    """Ask Windows. Its HIP has no ROCm runtime below it, so nothing poses as anything else."""
    from .windows_macos import detect_windows_gpus

    cards = detect_windows_gpus(look, only_amd=vendors == {"amd"}) if vendors else []
    gpus = [gpu for gpu in cards if gpu.vendor in vendors]
    return gpus, {gpu.vendor for gpu in gpus}


def _detect_on_macos(look: Look, vendors: set[str]) -> list[Gpu]:
    """Ask macOS. There is no ROCm for it, so an AMD card of a Mac is of no use to any ROCm wheel."""
    from .windows_macos import detect_macos_gpus

    if vendors <= {"amd"}:
        look.tried.append("macOS has no ROCm: nothing was looked for")
        return []
    return [
        replace(gpu, visible=False, hidden_by="macOS, which has no ROCm") if gpu.vendor == "amd" else gpu
        for gpu in detect_macos_gpus(look)
        if gpu.vendor in vendors
    ]


def _detect_on_linux(look: Look, vendors: set[str], overrides: Overrides) -> tuple[list[Gpu], set[str]]:
    """Return the cards by the best source that answers, and whose drivers may know more of theirs."""
    cards, bus_seen = read_pci_cards(look.root)
    if bus_seen:
        look.tried.append(f"PCI bus: {count_cards(cards)}")
    is_wsl = os.path.exists(look.root / _WSL_DEVICE)  # noqa: PTH110 - a closed folder is no reason to stop
    amd: list[Gpu] | None = []
    if "amd" in vendors:
        amd_cards = [card for card in cards if card.vendor == "amd"]
        amd = _query_amd(look, amd_cards if bus_seen else None, overrides, is_wsl=is_wsl)
    if not bus_seen and (amd is None or vendors - {"amd"}):
        cards = query_lspci(look)
    made = [make_gpu(card, "pci" if bus_seen else "lspci") for card in cards]
    gpus = [gpu for gpu in made if gpu and gpu.vendor in vendors]
    others = [gpu for gpu in gpus if gpu.vendor != "amd"]
    # where the bus says nothing, every driver is asked
    present = {gpu.vendor for gpu in others} if bus_seen and not is_wsl else vendors
    if amd is None:
        amd = [_apply_override(gpu, overrides.get(None)) for gpu in gpus if gpu.vendor == "amd"]
    return [*amd, *others], present


def _query_amd(
    look: Look, bus_cards: list[PciCard] | None, overrides: Overrides, *, is_wsl: bool
) -> list[Gpu] | None:
    """Return AMD's cards by what knows more than the bus, None where nothing does.

    ``bus_cards`` are those of the bus, None where it cannot be seen.
    """
    topology = read_topology(look.root)
    look.faults += topology.faults
    summary = f"{len(topology.gpus)} AMD GPUs" if topology.present else "no such driver"
    look.tried.append(f"kfd: {summary}")
    if topology.gpus:
        # many take the number in the name of an override for the GPU's index
        nodes = ", ".join(map(str, topology.nodes))
        look.faults += [
            f"{OVERRIDE_VARIABLE}_{node} is of no GPU: their nodes are {nodes}"
            for node in sorted(node for node in overrides if node is not None)
            if node not in topology.nodes
        ]
        numbered = zip(topology.gpus, topology.nodes, strict=True)
        gpus = [_apply_override(gpu, overrides.get(node, overrides.get(None))) for gpu, node in numbered]
        return _add_unnumbered_cards(gpus, bus_cards or [])
    if bus_cards == [] and not is_wsl:
        look.tried.append("rocminfo: not asked, there is no AMD card on the PCI bus")
        return []
    gpus = query_rocminfo(look)
    if not gpus and is_wsl:  # the bus of a WSL has none of the cards of the Windows around
        from .windows_macos import query_windows

        listed = [gpu for gpu in query_windows(look, "powershell.exe") if gpu.vendor == "amd"]
        gpus = [replace(gpu, index=number) for number, gpu in enumerate(listed)]
        return [_apply_override(gpu, overrides.get(None)) for gpu in gpus]
    posed = [_apply_override(gpu, overrides.get(None)) for gpu in gpus]
    return _add_unnumbered_cards(posed, bus_cards or []) if posed else None


def _add_unnumbered_cards(gpus: list[Gpu], bus_cards: list[PciCard]) -> list[Gpu]:
    """Add the cards of the bus that the runtime does not number: too old for it, or given to others."""
    slots = {gpu.address for gpu in gpus}
    unplaced = Counter(gpu.pci_id for gpu in gpus if gpu.address is None)
    if None in unplaced:  # a source that tells names only: nobody knows which card is which
        return gpus
    hidden = f"{gpus[0].source}, which does not list it for this process"
    for card in bus_cards:
        if card.address in slots:
            continue
        if unplaced[card.pci_id] > 0:
            unplaced[card.pci_id] -= 1
        elif gpu := make_gpu(card, "pci"):
            gpus.append(replace(gpu, visible=False, hidden_by=hidden))
    return gpus


def _apply_override(gpu: Gpu, target: str | None) -> Gpu:
    if target is None:
        return gpu
    note = f"{OVERRIDE_VARIABLE} makes {gpu.native or 'it'} pose as {target}"
    return replace(gpu, gfx=target, notes=(*gpu.notes, note))
