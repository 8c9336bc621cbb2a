"""Say what torch is installed and which AMD GPUs it sees, from a process that may die of it.

    python probe.py FILE

Writes a line of JSON to FILE when torch is imported, and a second one when it has listed its devices: what
is missing there, was not survived. Standard library and torch.
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


def main(answer: str) -> None:
    """Write down both answers, each as soon as it is known."""
    import torch

    with Path(answer).open("a", encoding="utf-8") as sink:
        sink.write(json.dumps(of_torch(torch)) + "\n")
        sink.flush()
        sink.write(json.dumps({"devices": devices(torch)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
