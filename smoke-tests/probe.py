"""Say what torch is installed, which AMD GPUs it sees, and whether the first calculates, from a process that
may die of it.

    python probe.py FILE

Writes a line of JSON to FILE when torch is imported, a second one when it has listed its devices, a third one
when the first of them has added up some numbers: what is missing there, was not survived. Standard library
and torch.
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


def devices(torch: Any) -> list[dict[str, Any]]:
    """Return the AMD GPUs that torch numbers; this starts the runtime."""
    if not getattr(torch.version, "hip", None) or not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        of = torch.cuda.get_device_properties(index)
        found.append({"index": index, "name": str(of.name), "arch": str(of.gcnArchName)})
    return found


def calculated(torch: Any) -> bool:
    """Tell whether the first GPU adds up whole numbers as the CPU does."""
    numbers = torch.arange(1 << 16, dtype=torch.int64)
    return int((numbers.to("cuda:0") * 3).sum()) == int(numbers.sum()) * 3


def main(answer: str) -> None:
    """Write down all answers, each as soon as it is known."""
    import torch

    with Path(answer).open("a", encoding="utf-8") as sink:
        sink.write(json.dumps(of_torch(torch)) + "\n")
        sink.flush()
        there = devices(torch)
        sink.write(json.dumps({"devices": there}) + "\n")
        sink.flush()
        if there:
            sink.write(json.dumps({"calculated": calculated(torch)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
