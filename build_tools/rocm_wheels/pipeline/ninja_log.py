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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rocm_wheels.core import errors
from rocm_wheels.pipeline import run_record

_LOG_HEAD = re.compile(r"# ninja log v(\d+)")
_LOG_VERSIONS = range(5, 8)

# by the name of an output; PyTorch's own build calls device objects torch_hip_generated_…
EDGE_KINDS = {
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

    @cached_property
    def kind(self) -> str:
        """What it made, by the name of the first: device, host, link or other."""
        return next(
            (kind for kind, pattern in EDGE_KINDS.items() if pattern.search(self.outputs[0])), "other"
        )

    @property
    def milliseconds(self) -> int:
        """How long it ran."""
        return self.end - self.begin


def read_ninja_log(path: Path) -> tuple[NinjaEdge, ...]:
    """Return the edges of the last ninja that wrote this log, in the order of their ends.

    Raises DataError for a log that cannot be read or has a version that is not known.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except (OSError, ValueError) as cause:  # ValueError: of a path that cannot be one
        raise errors.DataError(f"the copy of ninja's log cannot be read: {path.name}") from cause
    head = _LOG_HEAD.fullmatch(lines[0].strip())
    if head is None:
        raise errors.DataError(f"{path.name} is no log of ninja")
    if int(head[1]) not in _LOG_VERSIONS:
        versions = f"{_LOG_VERSIONS[0]} to {_LOG_VERSIONS[-1]}"
        raise errors.DataError(f"{path.name} has version {head[1]} of ninja's log; known are {versions}")
    edges: dict[tuple[int, int, str], list[str]] = {}
    latest = -1
    for line in lines[1:]:
        fields = line.split("\t")
        if len(fields) != 5 or not (fields[0].isdecimal() and fields[1].isdecimal()):
            continue  # torn, or a second head
        begin, end = int(fields[0][:12]), int(fields[1][:12])
        if end < latest:
            edges.clear()
        latest = end
        edges.setdefault((begin, max(end, begin), fields[4]), []).append(fields[3])
    return tuple(NinjaEdge(begin, end, tuple(outputs)) for (begin, end, _), outputs in edges.items())


def assign_lanes(edges: Sequence[NinjaEdge]) -> list[list[NinjaEdge]]:
    """Put edges in as few lanes as run side by side, each in order; the busiest time fills all of them."""
    packed: list[list[NinjaEdge]] = []
    free: list[tuple[int, int]] = []  # (end of its last edge, number of the lane)
    idle: list[int] = []
    for edge in sorted(edges, key=lambda entry: (entry.begin, entry.end, entry.outputs)):
        while free and free[0][0] <= edge.begin:
            heapq.heappush(idle, heapq.heappop(free)[1])
        if idle:
            lane = heapq.heappop(idle)
        else:
            lane = len(packed)
            packed.append([])
        packed[lane].append(edge)
        heapq.heappush(free, (edge.end, lane))
    return packed


def find_ninja_log(run: run_record.RecordedRun, event: run_record.Event) -> Path:
    """Return the copy of a log that an event of a run names, also after the work directory was moved."""
    recorded_path = Path(str(event.get("log") or ""))
    path = run.folder / recorded_path
    return path if path.is_file() else run.folder / recorded_path.name
