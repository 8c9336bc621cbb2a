"""The numbers by which the ROCm runtime knows cards apart: its nodes, processors counted.

``HSA_OVERRIDE_GFX_VERSION_<n>`` takes them. Source: topology.c of libhsakmt (ROCm/rocm-systems): the
driver's nodes in order, without those GPUs whose render device this process may not open.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_NODES = "sys/class/kfd/kfd/topology/nodes"


def gpu_nodes(root: Path = Path("/")) -> tuple[int, ...]:
    """Return the runtime's node number of each GPU, by its index; nothing without the driver."""
    folder = root / _NODES
    numbered = sorted((int(one.name), one) for one in folder.glob("*") if one.name.isdecimal())
    found: list[int] = []
    node = 0
    for _, place in numbered:
        kind = _kind(place, root)
        if kind == "gpu":
            found.append(node)
        if kind != "closed":
            node += 1
    return tuple(found)


def _kind(place: Path, root: Path) -> str:
    """Return ``processor``, ``gpu``, or ``closed`` for what this process may not use."""
    try:
        number = (place / "gpu_id").read_text(encoding="ascii", errors="replace").strip()
        text = (place / "properties").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "closed"
    if number in ("", "0"):
        return "processor"
    minor = re.search(r"(?m)^drm_render_minor (\d+)$", text)
    device = root / f"dev/dri/renderD{minor[1]}" if minor else None
    return "gpu" if device is not None and os.access(device, os.R_OK | os.W_OK) else "closed"
