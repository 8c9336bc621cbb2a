"""Read ninja's own log: which commands it ran, when, and what each made.

A log of ninja has a head (``# ninja log v7``) and a line an output: begin and end in milliseconds since
that ninja began, time of the output's last change, path, hash of the command, with tabs between. Versions
5 to 7 differ in the unit of the change and in the hash (ninja's src/build_log.cc), which are of no
account here. Only what succeeded is in it. Each ninja appends: the ends of its edges never go back, so
where they do another one began, and the last one counts.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import errors

_LOG_HEAD = re.compile(r"# ninja log v[567]\s*")

# by the name of an output; PyTorch's own build calls device objects torch_hip_generated_…
_EDGE_KINDS = {
    "device": re.compile(r"(?i)\.(hip|cu)\.(o|obj)$|hip_generated|_hip\.(o|obj)$"),
    "host": re.compile(r"(?i)\.(o|obj|pch|gch)$"),
    "link": re.compile(r"(?i)\.(so(\.\d+)*|dll|pyd|a|lib|exe)$"),
}


@dataclass(frozen=True)
class NinjaEdge:
    """A command that ninja ran: begin and end in milliseconds, and all that it made."""

    begin: int
    end: int
    outputs: tuple[str, ...]

    @property
    def kind(self) -> str:
        """What it made, by the name of the first: device, host, link or other."""
        kinds = (kind for kind, pattern in _EDGE_KINDS.items() if pattern.search(self.outputs[0]))
        return next(kinds, "other")


def read_ninja_log(run: Path, recorded: str) -> tuple[NinjaEdge, ...]:
    """Return the edges of the last ninja that wrote a log, in the order in which they began.

    ``recorded``: where the copy in the folder ``run`` was; the folder may have been moved. Raises DataError
    for a log that cannot be read or has a version that is not known.
    """
    path = run / recorded
    path = path if path.is_file() else run / path.name
    try:
        head, *lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except (OSError, ValueError) as cause:  # ValueError: of a path that cannot be one
        raise errors.DataError(f"the copy of ninja's log cannot be read: {path.name}") from cause
    if _LOG_HEAD.fullmatch(head) is None:
        raise errors.DataError(f"{path.name} is no log of ninja, or of a version other than 5 to 7")
    outputs: dict[tuple[int, int, str], list[str]] = {}
    latest = -1
    for line in lines:
        fields = line.split("\t")
        if len(fields) != 5 or not (fields[0].isdecimal() and fields[1].isdecimal()):
            continue  # torn, or a second head
        begin, end = int(fields[0][:12]), int(fields[1][:12])
        if end < latest:
            outputs.clear()
        latest = end
        outputs.setdefault((begin, max(end, begin), fields[4]), []).append(fields[3])
    return tuple(NinjaEdge(begin, end, tuple(made)) for (begin, end, _), made in sorted(outputs.items()))


def assign_lanes(stretches: Iterable[tuple[float, float]]) -> list[int]:
    """Return a lane for each stretch of time, from 0: as few as run side by side.

    A stretch is its begin and end; they come in the order of their begins.
    """
    busy: list[tuple[float, int]] = []  # (end of its last stretch, lane)
    idle: list[int] = []
    lanes = []
    for begin, end in stretches:
        while busy and busy[0][0] <= begin:
            heapq.heappush(idle, heapq.heappop(busy)[1])
        lanes.append(heapq.heappop(idle) if idle else len(busy))
        heapq.heappush(busy, (end, lanes[-1]))
    return lanes
