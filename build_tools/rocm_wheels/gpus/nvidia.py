"""Query NVIDIA's cards with nvidia-smi, where its driver is installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from .gpu import Gpu
from .programs import Look

_QUERY_FIELDS = ("index", "name", "pci.bus_id", "uuid", "memory.total", "compute_cap")
_QUERY_COMMAND = ("nvidia-smi", f"--query-gpu={','.join(_QUERY_FIELDS)}", "--format=csv,noheader,nounits")


def query_nvidia(look: Look, gpus: Sequence[Gpu]) -> tuple[list[Gpu], str | None]:
    """Return NVIDIA's cards as nvidia-smi names them, else ``gpus``; and the CUDA version of the driver."""
    printed = look.ask(_QUERY_COMMAND)
    if printed is None:
        return list(gpus), None
    listed_gpus = parse_nvidia_smi(printed)
    look.tried.append(f"nvidia-smi: {len(listed_gpus)} NVIDIA GPUs")
    if not listed_gpus:
        look.faults.append(f"nvidia-smi printed no GPUs, but {printed.strip()[:60]!r}")
        return list(gpus), None
    remaining, merged = list(gpus), []
    for gpu in listed_gpus:
        # Windows tells no slots
        card = next((card for card in remaining if card.address in {None, gpu.address}), None)
        if card is None:
            merged.append(gpu)
            continue
        remaining.remove(card)
        capability = gpu.capability or card.capability
        merged.append(replace(gpu, pci_id=card.pci_id, integrated=card.integrated, capability=capability))
    banner = look.run(("nvidia-smi",), {**look.env, "LC_ALL": "C"}, 20.0)
    cuda = re.search(r"CUDA Version: *([0-9]+\.[0-9]+)", banner.out)
    return [*merged, *remaining], cuda[1] if cuda else None


def parse_nvidia_smi(text: str) -> list[Gpu]:
    """Read the table of comma-separated values that was asked for."""
    gpus = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_QUERY_FIELDS) or not cells[0].isdecimal():
            continue
        _, name, slot, uuid, memory, capability = cells
        slot_match = re.search(r"([0-9a-f]{4}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$", slot.lower())
        gpus.append(
            Gpu(
                vendor="nvidia",
                name=name,
                address=f"{slot_match[1]}:{slot_match[2]}" if slot_match else None,
                uuid=uuid if uuid.startswith("GPU-") else None,
                memory=int(memory) * 2**20 if memory.isdecimal() else None,
                capability=capability if re.fullmatch(r"\d+\.\d", capability) else None,
                source="nvidia-smi",
                confidence="read",
            )
        )
    return gpus
