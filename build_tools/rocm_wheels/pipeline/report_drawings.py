"""Where the drawings of a report have what: steps on one axis of time, and the commands that ninja ran.

``templates/drawings.html`` draws them as SVG.

A log of ninja has a head (``# ninja log v7``) and a line an output: begin and end in milliseconds since
that ninja began, time of the output's last change, path, hash of the command, with tabs between. Versions
5 to 7 differ in the unit of the change and in the hash (ninja's src/build_log.cc), which are of no
account here. Only what succeeded is in it. Each ninja appends: the ends of its edges never go back, so
where they do another one began, and the last one counts.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from rocm_wheels.core import DataError, format_count, format_duration
from rocm_wheels.pipeline.run_record import Event, RecordedRun, RecordedStep, parse_event_time

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
        raise DataError(f"the copy of ninja's log cannot be read: {path.name}") from cause
    head = _LOG_HEAD.fullmatch(lines[0].strip())
    if head is None:
        raise DataError(f"{path.name} is no log of ninja")
    if int(head[1]) not in _LOG_VERSIONS:
        versions = f"{_LOG_VERSIONS[0]} to {_LOG_VERSIONS[-1]}"
        raise DataError(f"{path.name} has version {head[1]} of ninja's log; known are {versions}")
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


def group_edges(lane: Sequence[NinjaEdge], unit: float) -> list[list[NinjaEdge]]:
    """Return what is drawn as one: an edge, or several that are too short to be seen.

    Edges shorter than ``unit`` milliseconds, the width of a hair on the page, are drawn as one while they
    follow each other within that time.
    """
    groups: list[list[NinjaEdge]] = []
    for edge in lane:
        last = groups[-1][-1] if groups else None
        short = last is not None and edge.milliseconds < unit and last.milliseconds < unit
        if short and last is not None and edge.begin - last.end < unit:
            groups[-1].append(edge)
        else:
            groups.append([edge])
    return groups


_TICK_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MAX_TICKS = 4
_AXIS, _BAR, _LINE, _GAP = 40, 12, 18, 16
_MIN_BAR_SHARE = 0.01  # of the axis: less is drawn as a mark of fixed width
_LINE_CHARACTERS = 50  # characters, on a phone
_MAX_AXIS_SECONDS = 10 * 365 * 86400.0  # longer than that, an axis would leave the calendar


@dataclass(frozen=True)
class TimeAxis:
    """A stretch of time: when it begins (UTC) and how many seconds it has."""

    begin: datetime | None
    seconds: float

    def find_ticks(self) -> list[float]:
        """Return where to put marks, in seconds from its begin: few and round."""
        unit = next((t for t in _TICK_SECONDS if self.seconds / t <= _MAX_TICKS), None)
        if unit is None:
            unit = _TICK_SECONDS[-1] * (int(self.seconds / _TICK_SECONDS[-1] / _MAX_TICKS) + 1)
        return [float(number * unit) for number in range(int(self.seconds / unit) + 1)]

    def position(self, seconds: float) -> str:
        """Return where a moment lies, in percent."""
        share = max(min(seconds / self.seconds, 1.0), 0.0) if self.seconds > 0 else 0.0
        return f"{share * 100:.2f}".rstrip("0").rstrip(".") + "%"

    def place_marks(self) -> list[dict[str, str]]:
        """Return the marks: place, time of day, and time since the begin."""
        marks = []
        for seconds in self.find_ticks():
            share = seconds / self.seconds if self.seconds else 0
            marks.append(
                {
                    "x": self.position(seconds),
                    "anchor": "start" if share < 0.08 else "end" if share > 0.92 else "middle",
                    "time": self._format_time_of_day(seconds),
                    "since": f"+{format_duration(seconds)}" if seconds else "begin",
                }
            )
        return marks

    def _format_time_of_day(self, seconds: float) -> str:
        if self.begin is None:
            return ""
        moment = self.begin + timedelta(seconds=min(seconds, _MAX_AXIS_SECONDS))
        return moment.strftime("%H:%M:%S" if self.seconds < 600 else "%H:%M")


def make_axis(run: RecordedRun) -> TimeAxis:
    """Return the axis from the first event of a run to its last."""
    begin = parse_event_time(run.events[0]) if run.events else None
    return TimeAxis(begin, min(max(run.last_clock - run.first_clock, 0.001), _MAX_AXIS_SECONDS))


def place_timeline(run: RecordedRun, steps: Sequence[RecordedStep]) -> dict[str, Any]:
    """Place the steps that ran, in the order in which they began."""
    axis, rows, top = make_axis(run), [], float(_AXIS)
    for step in steps:
        begin, length = _find_stretch(run, step)
        outcome = describe_outcome(step, length)
        is_long = len(step.id) + len(outcome) > _LINE_CHARACTERS
        row = {"name": step.id, "outcome": outcome, "state": step.state, "is_long": is_long}
        row |= {"label_y": top + 13, "outcome_y": top + _LINE + 13}
        top += _LINE * (2 if is_long else 1)
        rows.append(row | _place_bar(axis, begin, length, top))
        top += _BAR + _GAP
    label = f"{format_count(len(steps), 'step')} in {format_duration(axis.seconds)}"
    drawing = {"label": label, "height": top, "bottom": top - _GAP / 2}
    return drawing | {"marks": axis.place_marks(), "rows": rows}


def describe_outcome(step: RecordedStep, length: float) -> str:
    """Say how a step ended and after how long."""
    if step.state == "done":
        return format_duration(length)
    if step.state == "running":
        return f"running for {format_duration(length)}"
    if step.ended is None:
        return f"{step.state}, no end recorded"
    return f"{step.state} after {format_duration(length)}"


def _find_stretch(run: RecordedRun, step: RecordedStep) -> tuple[float, float]:
    """Return when a step began, in seconds since the run did, and how long it took as far as is known."""
    begin = max(step.begun["clock"] - run.first_clock, 0.0)
    seconds = step.seconds
    return begin, max(run.last_clock - step.begun["clock"], 0.0) if seconds is None else seconds


def _place_bar(axis: TimeAxis, begin: float, length: float, top: float) -> dict[str, object]:
    end = min(begin + length, axis.seconds)
    is_short = end - begin < _MIN_BAR_SHARE * axis.seconds  # seen however short the step was
    return {
        "x": axis.position(begin),
        "y": top,
        "track_y": top + _BAR / 2 - 0.5,
        "thick": _BAR,
        "width": 3 if is_short else axis.position(max(end - begin, 0.0)),
        "is_round": not is_short,
    }


_NINJA_WIDTH = 1200  # units of the drawing, which is stretched to the page
_NAMED_EDGES, _LISTED_EDGES = 60, 15

EDGE_KIND_WORDS = {
    "device": "device code (HIP)",
    "host": "host code",
    "link": "libraries",
    "other": "other commands",
    "many": "many short ones in a row",
}


def place_ninja(run: RecordedRun, step: RecordedStep, event: Event) -> dict[str, Any]:
    """Show one ninja: a picture, figures a kind, the longest edges; or a note why its log cannot be shown."""
    recorded_path = Path(str(event.get("log") or ""))
    path = run.folder / recorded_path
    if not path.is_file():
        path = run.folder / recorded_path.name  # the work directory was moved
    try:
        edges = read_ninja_log(path)
    except DataError as unreadable:
        return {"step": step.id, "note": str(unreadable)}
    if not edges:
        return {"step": step.id, "note": "ninja had nothing to do."}
    packed = assign_lanes(edges)
    whole = max([1, *(edge.end for edge in edges)])
    began = event.get("began")
    begin = None if began is None else parse_event_time(event) + timedelta(seconds=began - event["clock"])
    work = sum(edge.milliseconds for edge in edges)
    caption = (
        f"{format_count(len(edges), 'command')} in {format_duration(whole / 1000)}, "
        f"up to {len(packed)} at a time and "
        f"{work / whole:.1f} on average."
    )
    drawing = _place_lanes(packed, whole)
    drawing["label"] = f"Commands of ninja in {step.id}: {caption}"
    drawing["marks"] = TimeAxis(begin, whole / 1000).place_marks()
    return {
        "step": step.id,
        "note": "",
        "caption": caption,
        "drawing": drawing,
        "kinds": _list_kinds(edges),
        "longest": _list_longest(edges),
    }


@dataclass(frozen=True)
class _NinjaScale:
    """``unit`` milliseconds are one unit of the drawing; lanes lie ``tall`` apart and are ``thick``."""

    unit: float
    tall: int
    thick: int


def _place_lanes(packed: Sequence[Sequence[NinjaEdge]], whole: int) -> dict[str, Any]:
    tall = max(4, min(14, 420 // len(packed)))
    scale = _NinjaScale(whole / _NINJA_WIDTH, tall, tall - 1 if tall > 4 else tall)
    return {
        "width": _NINJA_WIDTH,
        "height": tall * len(packed),
        "paths": _make_paths(packed, scale),
        "boxes": _make_name_boxes(packed, scale),
        "words": EDGE_KIND_WORDS,
    }


def _make_paths(packed: Sequence[Sequence[NinjaEdge]], scale: _NinjaScale) -> dict[str, str]:
    """Return a path a kind of command, ordered as ``EDGE_KIND_WORDS``: a box for each block of a lane."""
    boxes: dict[str, list[str]] = {}
    for number, lane in enumerate(packed):
        for members in group_edges(lane, scale.unit):
            kind = members[0].kind if len(members) == 1 else "many"
            start, end = round(members[0].begin / scale.unit), round(members[-1].end / scale.unit)
            box = f"M{start} {number * scale.tall}h{max(end - start, 1)}v{scale.thick}H{start}z"
            boxes.setdefault(kind, []).append(box)
    return {kind: "".join(boxes[kind]) for kind in EDGE_KIND_WORDS if kind in boxes}


def _make_name_boxes(packed: Sequence[Sequence[NinjaEdge]], scale: _NinjaScale) -> list[dict[str, object]]:
    """Return a box that says its name over each of the longest commands."""
    lanes = sorted(_iterate_edges(packed), key=lambda item: (-item[1].milliseconds, item[1].outputs))
    return [
        {
            "title": f"{edge.outputs[0]}: {format_duration(edge.milliseconds / 1000)}",
            "x": round(edge.begin / scale.unit),
            "y": lane * scale.tall,
            "width": max(round(edge.milliseconds / scale.unit), 1),
            "height": scale.thick,
        }
        for lane, edge in lanes[:_NAMED_EDGES]
    ]


def _iterate_edges(packed: Sequence[Sequence[NinjaEdge]]) -> Iterator[tuple[int, NinjaEdge]]:
    for number, lane in enumerate(packed):
        for edge in lane:
            yield number, edge


def _list_kinds(edges: Sequence[NinjaEdge]) -> list[list[str]]:
    """Return a row a kind of command: how many, their time in all, and that of the longest."""
    rows = []
    for kind, words in EDGE_KIND_WORDS.items():
        times = [edge.milliseconds / 1000 for edge in edges if edge.kind == kind]
        if times:
            rows.append([words, f"{len(times):,}", format_duration(sum(times)), format_duration(max(times))])
    return rows


def _list_longest(edges: Sequence[NinjaEdge]) -> list[tuple[str, str, str]]:
    """Return what the longest commands made, their time, and when they began."""
    chosen = sorted(edges, key=lambda edge: (-edge.milliseconds, edge.outputs))[:_LISTED_EDGES]
    return [
        (edge.outputs[0], format_duration(edge.milliseconds / 1000), format_duration(edge.begin / 1000))
        for edge in chosen
    ]
