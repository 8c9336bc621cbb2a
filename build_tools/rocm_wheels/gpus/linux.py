"""Cards of Linux: the kernel driver's topology, ROCm's tools where that is not there, and the PCI bus."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from .forced import OVERRIDE_VARIABLE, ForcedHardware
from .gpu import Gpu
from .kfd import KfdTopology, read_topology
from .pci_bus import PciCard, query_lspci, make_gpu, read_pci_cards
from .programs import Runner

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
            self.tried.append(f"PCI bus: {len(self._cards)} cards")

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
            self.tried.append("ROCm's tools: not asked, there is no AMD card on the PCI bus")
            return []
        from .rocm_tools import query_rocm_tools

        gpus = query_rocm_tools(self._env, self._run, self.faults, self.tried)
        if gpus:
            return self._add_unnumbered_cards([_apply_override(gpu, overrides.get(None)) for gpu in gpus])
        self._query_lspci()
        bus_gpus = [make_gpu(card, self._source) for card in self._select_cards("1002")]
        return [_apply_override(gpu, overrides.get(None)) for gpu in bus_gpus if gpu]

    def detect_other_gpus(self, forced: ForcedHardware, vendors: Collection[str]) -> list[Gpu]:
        """Return the cards of other makers; NVIDIA's as its driver names them."""
        if not self._bus_seen:
            self._query_lspci()
        bus_gpus = [
            make_gpu(card, self._source) for card in self._cards if not card.pci_id.startswith("1002:")
        ]
        gpus = [gpu for gpu in bus_gpus if gpu and gpu.vendor in vendors]
        nvidia = [gpu for gpu in gpus if gpu.vendor == "nvidia"]
        if (
            "nvidia" in vendors
            and forced.capability is None
            and (nvidia or not self._bus_seen or self._is_wsl())
        ):
            from .nvidia import query_nvidia

            nvidia_gpus, self.cuda = query_nvidia(nvidia, self._env, self._run, self.faults, self.tried)
            return [*nvidia_gpus, *(gpu for gpu in gpus if gpu.vendor != "nvidia")]
        return gpus

    def read_driver_version(self) -> str | None:
        """Return the version of the amdgpu driver: its own, or the kernel's that it is a part of."""
        if not os.path.isdir(self._root / _AMDGPU_MODULE):  # noqa: PTH112
            return None
        version = _read_text(self._root / _AMDGPU_MODULE / "version")
        return (
            version
            or f"in Linux {_read_text(self._root / 'proc/sys/kernel/osrelease') or 'of unknown version'}"
        )

    def _select_cards(self, vendor: str) -> list[PciCard]:
        return [card for card in self._cards if card.pci_id.startswith(f"{vendor}:")]

    def _is_wsl(self) -> bool:
        return os.path.exists(self._root / _WSL_DEVICE)  # noqa: PTH110 - a closed folder is no reason to stop

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


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
