"""Say what torch is installed, which GPUs it sees, and whether one calculates, from a process that may die of
it.

    python probe.py FILE [DEVICE]

Writes a line of JSON to FILE when torch is imported, a second one when it has listed its GPUs, a third one
when DEVICE, else the first of them, has added up some numbers: what is missing there, was not survived. Of
``cpu`` only the first line is written. Standard library and torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def of_torch(torch: Any) -> dict[str, Any]:
    """Return what torch says of itself; ``kind`` is rocm, cuda, xpu or cpu."""
    version = torch.version
    hip, cuda, xpu = (getattr(version, name, None) for name in ("hip", "cuda", "xpu"))
    kind = "rocm" if hip else "cuda" if cuda else "xpu" if xpu else "cpu"
    return {
        "version": str(torch.__version__),
        "kind": kind,
        "of": str(hip or cuda or xpu or ""),
        "file": str(torch.__file__),
    }


def list_gpus(torch: Any) -> list[dict[str, Any]]:
    """Return the GPUs that torch numbers; this starts the runtime. ``arch``: gfx942:sramecc+, 8.9, or ""."""
    gpus = []
    for kind in ("cuda", "xpu"):
        backend = getattr(torch, kind, None)
        if gpus or backend is None or not backend.is_available():
            continue
        for index in range(backend.device_count()):
            properties = backend.get_device_properties(index)
            major, minor = getattr(properties, "major", None), getattr(properties, "minor", None)
            capability = f"{major}.{minor}" if kind == "cuda" and major is not None else ""
            gpus.append(
                {
                    "device": f"{kind}:{index}",
                    "name": str(properties.name),
                    "arch": str(getattr(properties, "gcnArchName", "") or capability),
                    "memory": int(getattr(properties, "total_memory", 0)),
                }
            )
    mps = getattr(getattr(torch, "backends", None), "mps", None)
    if not gpus and mps is not None and mps.is_available():
        gpus.append({"device": "mps", "name": "Apple GPU", "arch": "", "memory": 0})
    return gpus


def calculates(torch: Any, device: str) -> bool:
    """Tell whether a GPU adds up whole numbers as the CPU does."""
    numbers = torch.arange(1 << 16, dtype=torch.int64)
    return int((numbers.to(device) * 3).sum()) == int(numbers.sum()) * 3


def main(answer: str, device: str = "") -> None:
    """Write down all answers, each as soon as it is known."""
    import torch

    with Path(answer).open("a", encoding="utf-8") as sink:
        sink.write(json.dumps(of_torch(torch)) + "\n")
        sink.flush()
        if device == "cpu":
            return
        gpus = list_gpus(torch)
        sink.write(json.dumps({"devices": gpus}) + "\n")
        sink.flush()
        if gpus:
            tested = device or gpus[0]["device"]
            sink.write(json.dumps({"calculated": calculates(torch, tested)}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
