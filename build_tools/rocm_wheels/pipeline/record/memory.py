"""How much memory a process and all that it started hold now."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PARENT, _RESIDENT = 1, 21  # behind the name in /proc/<pid>/stat (proc(5)): fields 4 and 24


def tree_memory(root: int) -> int | None:
    """Return the resident bytes of a process and its descendants; ``None`` where that cannot be known.

    Memory that several of them share counts for each. Known on Linux alone.
    """
    if sys.platform != "linux":
        return None
    parents, pages = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(entry.name)], pages[int(entry.name)] = int(fields[_PARENT]), int(fields[_RESIDENT])
    if root not in pages:
        return None
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += pages[pid]
        waiting += children.get(pid, [])
    return total * os.sysconf("SC_PAGE_SIZE")
