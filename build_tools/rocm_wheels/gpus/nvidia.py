"""NVIDIA's own word on its cards, where its driver is: nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .gpu import Gpu
from .programs import Runner, is_answer

_QUERY = ("index", "name", "pci.bus_id", "uuid", "memory.total", "compute_cap")
_ASK = ("nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits")
_TIMEOUT = 20.0


def ask_nvidia(
    gpus: Sequence[Gpu], env: Mapping[str, str], run: Runner, faults: list[str], tried: list[str]
) -> tuple[list[Gpu], str | None]:
    """Return NVIDIA's cards as nvidia-smi names them, else ``gpus``; and the CUDA version of the driver."""
    answer = run(_ASK, {**env, "LC_ALL": "C"}, _TIMEOUT)
    if not is_answer(answer, "nvidia-smi", faults, tried):
        return list(gpus), None
    found = read_nvidia_smi(answer.out)
    tried.append(f"nvidia-smi: {len(found)} NVIDIA GPUs")
    if not found:
        faults.append(f"nvidia-smi printed no GPUs, but {answer.out.strip()[:60]!r}")
        return list(gpus), None
    left = list(gpus)
    merged = []
    for one in found:
        card = next(
            (card for card in left if card.address in {None, one.address}), None
        )  # Windows tells no slots
        left = [other for other in left if other is not card]
        merged.append(_merged(one, card))
    banner = run(("nvidia-smi",), {**env, "LC_ALL": "C"}, _TIMEOUT)
    cuda = re.search(r"CUDA Version: *([0-9]+\.[0-9]+)", banner.out)
    return [*merged, *left], cuda[1] if cuda else None


def read_nvidia_smi(text: str) -> list[Gpu]:
    """Read the table of comma-separated values that was asked for."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_QUERY) or not cells[0].isdecimal():
            continue
        _, name, slot, uuid, memory, capability = cells
        place = re.search(r"([0-9a-f]{4}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$", slot.lower())
        found.append(
            Gpu(
                vendor="nvidia",
                name=name,
                address=f"{place[1]}:{place[2]}" if place else None,
                uuid=uuid if uuid.startswith("GPU-") else None,
                memory=int(memory) * 2**20 if memory.isdecimal() else None,
                capability=capability if re.fullmatch(r"\d+\.\d", capability) else None,
                source="nvidia-smi",
                confidence="read",
            )
        )
    return found


def _merged(one: Gpu, card: Gpu | None) -> Gpu:
    if card is None:
        return one
    return replace(
        one,
        pci_id=card.pci_id,
        integrated=card.integrated,
        capability=one.capability or card.capability,
    )
