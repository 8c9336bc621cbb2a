"""Detect the hardware of a machine: every GPU with its source, every ROCm, and whatever was odd.

The order of trust: what variables state, the kernel driver's own files, rocminfo, the PCI bus with a
table. A tool that is missing, fails, hangs or prints rubbish is reported and never stops anything.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .gpu import INTEGRATED_TARGETS, Gpu, Hardware
from .kfd import KfdTopology, read_topology
from .pci import PciCard, count_cards, make_gpu, query_lspci, read_pci_cards
from .programs import Runner, read_text, run_program
from .rocm import find_rocm_installations
from .variables import (
    CUDA_VERSION_VARIABLE,
    GFX_VARIABLES,
    OVERRIDE_VARIABLE,
    SM_ARCH_VARIABLE,
    ForcedHardware,
    find_ineffective_variables,
    mark_visible_gpus,
    read_forced_hardware,
    read_overrides,
)
from .vendors import GPU_VENDORS, load_vendor_query

UNKNOWN_TARGET = "its target is unknown"  # of an AMD GPU, among the faults


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
        (
            f"{gpu.name or 'an AMD GPU'} ({gpu.pci_id or 'without PCI id'}): {UNKNOWN_TARGET}; "
            f"{GFX_VARIABLES[0]} can state it"
        )
        for gpu in unknown
    ]


def make_forced_gpus(forced: ForcedHardware) -> list[Gpu]:
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

    machine = LinuxDetection(request.env, request.root, request.run)
    amd = (
        machine.detect_amd_gpus(request.overrides)
        if "amd" in request.vendors and request.forced.chips is None
        else []
    )
    other_gpus = machine.detect_other_gpus(request) if request.vendors - {"amd"} else []
    return Hardware(
        gpus=(*amd, *other_gpus),
        driver=machine.read_driver_version(),
        cuda=machine.cuda,
        faults=tuple(machine.faults),
        tried=tuple(machine.tried),
    )


def _detect_on_windows(request: _DetectionRequest) -> Hardware:
    """Ask Windows. Its HIP has no ROCm runtime below it, so nothing poses as anything else."""
    from .windows_macos import detect_windows_gpus

    if request.forced.chips is not None and request.vendors == {"amd"}:
        return Hardware()
    faults: list[str] = []
    tried: list[str] = []
    cards = detect_windows_gpus(request.env, request.run, faults, tried, only_amd=request.vendors == {"amd"})
    gpus = [gpu for gpu in cards if gpu.vendor in request.vendors]
    present = {gpu.vendor for gpu in gpus}
    gpus, cuda = _query_vendors(gpus, present, request, faults, tried)
    return Hardware(gpus=tuple(gpus), cuda=cuda, faults=tuple(faults), tried=tuple(tried))


def _query_vendors(
    gpus: list[Gpu],
    vendors: Collection[str],
    request: _DetectionRequest,
    faults: list[str],
    tried: list[str],
) -> tuple[list[Gpu], str | None]:
    """Ask the programs of vendors; return all cards, and the CUDA version of NVIDIA's driver."""
    stated = {"nvidia"} if request.forced.capability is not None else set()
    cuda = None
    for vendor in GPU_VENDORS:
        if vendor not in vendors or vendor in stated or (query := load_vendor_query(vendor)) is None:
            continue
        cards, version = query(
            [gpu for gpu in gpus if gpu.vendor == vendor], request.env, request.run, faults, tried
        )
        gpus = [*cards, *(gpu for gpu in gpus if gpu.vendor != vendor)]
        cuda = version if vendor == "nvidia" else cuda
    return gpus, cuda


def _detect_on_macos(request: _DetectionRequest) -> Hardware:
    """Ask macOS. There is no ROCm for it, so an AMD card of a Mac is of no use to any ROCm wheel."""
    from .windows_macos import detect_macos_gpus

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
    kind = (gpu.integrated is True, list(GPU_VENDORS).index(gpu.vendor))
    unknown = gpu.confidence == "unknown"
    return (not gpu.visible, *kind, unknown, gpu.index is None, gpu.index or 0)


_WSL_DEVICE = "dev/dxg"
_AMDGPU_MODULE = "sys/module/amdgpu"


class LinuxDetection:
    """One look at a Linux machine; ``faults`` and ``tried`` fill up as it goes."""

    def __init__(self, env: Mapping[str, str], root: Path, run: Runner) -> None:
        """Read the PCI bus; everything else is asked for."""
        self._env, self._root, self._run = env, root, run
        self.faults: list[str] = []
        self.tried: list[str] = []
        self.cuda: str | None = None
        self._cards, self._bus_seen = read_pci_cards(root)
        self._source = "pci"
        if self._bus_seen:
            self.tried.append(f"PCI bus: {count_cards(self._cards)}")

    def detect_amd_gpus(self, overrides: Mapping[int | None, str]) -> list[Gpu]:
        """Return AMD's cards by the best source that answers."""
        topology = read_topology(self._root)
        self.faults += topology.faults
        summary = f"{len(topology.gpus)} AMD GPUs" if topology.present else "no such driver"
        self.tried.append(f"kfd: {summary}")
        if topology.gpus:
            self.faults += _describe_unused_overrides(topology, overrides)
            return self._add_unnumbered_cards(_apply_overrides(topology, overrides))
        if self._bus_seen and not self._select_cards("1002") and not self._is_wsl():
            self.tried.append("rocminfo: not asked, there is no AMD card on the PCI bus")
            return []
        from .rocm import query_rocminfo

        gpus = query_rocminfo(self._env, self._run, self.faults, self.tried)
        if gpus:
            return self._add_unnumbered_cards([_apply_override(gpu, overrides.get(None)) for gpu in gpus])
        if self._is_wsl():
            return [
                _apply_override(replace(gpu, index=number), overrides.get(None))
                for number, gpu in enumerate(self._query_windows("amd"))
            ]
        self._query_lspci()
        bus_gpus = [make_gpu(card, self._source) for card in self._select_cards("1002")]
        return [_apply_override(gpu, overrides.get(None)) for gpu in bus_gpus if gpu]

    def detect_other_gpus(self, request: _DetectionRequest) -> list[Gpu]:
        """Return the cards of other makers, as their drivers name them where there is a program to ask."""
        if not self._bus_seen:
            self._query_lspci()
        bus_gpus = [
            make_gpu(card, self._source) for card in self._cards if not card.pci_id.startswith("1002:")
        ]
        gpus = [gpu for gpu in bus_gpus if gpu and gpu.vendor in request.vendors]
        present = {gpu.vendor for gpu in gpus}
        if not self._bus_seen or self._is_wsl():  # the bus says nothing: ask all
            present = {*request.vendors}
        gpus, self.cuda = _query_vendors(gpus, present, request, self.faults, self.tried)
        return gpus

    def read_driver_version(self) -> str | None:
        """Return the version of the amdgpu driver: its own, or the kernel's that it is a part of."""
        if not os.path.isdir(self._root / _AMDGPU_MODULE):  # noqa: PTH112
            return None
        version = read_text(self._root / _AMDGPU_MODULE / "version")
        return (
            version
            or f"in Linux {read_text(self._root / 'proc/sys/kernel/osrelease') or 'of unknown version'}"
        )

    def _select_cards(self, vendor: str) -> list[PciCard]:
        return [card for card in self._cards if card.pci_id.startswith(f"{vendor}:")]

    def _is_wsl(self) -> bool:
        return os.path.exists(self._root / _WSL_DEVICE)  # noqa: PTH110 - a closed folder is no reason to stop

    def _query_windows(self, vendor: str) -> list[Gpu]:
        """Ask the Windows around: the bus of a WSL has none of its cards."""
        from .windows_macos import query_wsl_host

        gpus = query_wsl_host(self._env, self._run, self.faults, self.tried)
        return [gpu for gpu in gpus if gpu.vendor == vendor]

    def _query_lspci(self) -> None:
        if not self._bus_seen and self._source == "pci":
            self._source = "lspci"
            self._cards = query_lspci(self._env, self._run, self.faults, self.tried)

    def _add_unnumbered_cards(self, gpus: list[Gpu]) -> list[Gpu]:
        """Add the cards of the bus that the runtime does not number: too old for it, or given to others."""
        slots = {gpu.address for gpu in gpus}
        unplaced = Counter(gpu.pci_id for gpu in gpus if gpu.address is None)
        if None in unplaced:  # a source that tells names only: nobody knows which card is which
            return gpus
        for card in self._select_cards("1002"):
            if card.address in slots:
                continue
            if unplaced[card.pci_id] > 0:
                unplaced[card.pci_id] -= 1
                continue
            if gpu := make_gpu(card, self._source):
                hidden = f"{gpus[0].source}, which does not list it for this process"
                gpus.append(replace(gpu, visible=False, hidden_by=hidden))
        return gpus


def _apply_overrides(topology: KfdTopology, overrides: Mapping[int | None, str]) -> list[Gpu]:
    pairs = zip(topology.gpus, topology.nodes, strict=True)
    return [_apply_override(gpu, overrides.get(node, overrides.get(None))) for gpu, node in pairs]


def _describe_unused_overrides(topology: KfdTopology, overrides: Mapping[int | None, str]) -> list[str]:
    """Return a sentence for each override of a node that is no GPU: many take it for the GPU's index."""
    strange = [node for node in overrides if node is not None and node not in topology.nodes]
    nodes = ", ".join(map(str, topology.nodes))
    return [f"{OVERRIDE_VARIABLE}_{node} is of no GPU: their nodes are {nodes}" for node in sorted(strange)]


def _apply_override(gpu: Gpu, target: str | None) -> Gpu:
    if target is None:
        return gpu
    return replace(
        gpu,
        gfx=target,
        notes=(*gpu.notes, f"{OVERRIDE_VARIABLE} makes {gpu.native or 'it'} pose as {target}"),
    )
