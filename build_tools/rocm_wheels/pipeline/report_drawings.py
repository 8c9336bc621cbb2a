"""The drawings of a report, as SVG: the steps of a run on one axis of time, and the commands that ninja ran.

Places on the axis are percentages, so that nothing has to be scaled and text keeps its size on a phone.
How a step ended is said in words and by the pattern of its bar; colour only repeats it.

A log of ninja has a head (``# ninja log v7``) and a line an output: begin and end in milliseconds since
that ninja began, time of the output's last change, path, hash of the command, with tabs between. Versions
5 to 7 differ in the unit of the change and in the hash (ninja's src/build_log.cc), which are of no
account here. Only what succeeded is in it. Each ninja appends: the ends of its edges never go back, so
where they do another one began, and the last one counts.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from rocm_wheels.core import DataError, format_count, format_duration
from rocm_wheels.pipeline.report_html import Markup, format_percent, join_markup, make_table, make_tag
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

# beyond colour: hatches for what went wrong, dots for what somebody stopped, an open frame for what goes on
BAR_PATTERNS = {
    "failed": ("M-1 1l2-2M0 8l8-8M7 9l2-2", 8),
    "timeout": ("M2 0v8M6 0v8", 8),
    "killed": ("M0 8l8-8M0 0l8 8", 8),
    "interrupted": ("M1 2h2M5 6h2", 8),
}


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
        return format_percent(seconds, self.seconds)

    def draw(self, height: float) -> Markup:
        """Return the marks with the time of day and the time since then, and lines down to ``height``."""
        parts = []
        for seconds in self.find_ticks():
            share = seconds / self.seconds if self.seconds else 0
            anchor = "start" if share < 0.08 else "end" if share > 0.92 else "middle"
            x = self.position(seconds)
            parts.append(make_tag("line", class_="grid", x1=x, x2=x, y1=_AXIS - 6, y2=height))
            parts.append(
                make_tag(
                    "text", self._format_time_of_day(seconds), class_="tick", x=x, y=12, text_anchor=anchor
                )
            )
            since = f"+{format_duration(seconds)}" if seconds else "begin"
            parts.append(make_tag("text", since, class_="tick quiet", x=x, y=27, text_anchor=anchor))
        return join_markup(parts)

    def _format_time_of_day(self, seconds: float) -> str:
        if self.begin is None:
            return ""
        moment = self.begin + timedelta(seconds=min(seconds, _MAX_AXIS_SECONDS))
        return moment.strftime("%H:%M:%S" if self.seconds < 600 else "%H:%M")


def make_axis(run: RecordedRun) -> TimeAxis:
    """Return the axis from the first event of a run to its last."""
    begin = parse_event_time(run.events[0]) if run.events else None
    return TimeAxis(begin, min(max(run.last_clock - run.first_clock, 0.001), _MAX_AXIS_SECONDS))


def draw_timeline(run: RecordedRun, steps: Sequence[RecordedStep]) -> Markup:
    """Draw the steps that ran, in the order in which they began."""
    axis, rows, top = make_axis(run), [], float(_AXIS)
    for step in steps:
        begin, length = _find_stretch(run, step)
        outcome = describe_outcome(step, length)
        two = len(step.id) + len(outcome) > _LINE_CHARACTERS
        rows.append(_draw_label(step.id, outcome, top, two=two))
        top += _LINE * (2 if two else 1)
        rows.append(_draw_bar(step, axis, begin, length, top))
        top += _BAR + _GAP
    label = f"{format_count(len(steps), 'step')} in {format_duration(axis.seconds)}"
    return make_tag(
        "svg",
        axis.draw(top - _GAP / 2),
        rows,
        class_="timeline",
        width="100%",
        height=top,
        role="img",
        aria_label=label,
    )


def describe_outcome(step: RecordedStep, length: float) -> str:
    """Say how a step ended and after how long."""
    if step.state == "done":
        return format_duration(length)
    if step.state == "running":
        return f"running for {format_duration(length)}"
    if step.ended is None:
        return f"{step.state}, no end recorded"
    return f"{step.state} after {format_duration(length)}"


def draw_patterns() -> Markup:
    """Define the patterns of the bars, once a page."""
    elements = [
        make_tag(
            "pattern",
            make_tag("rect", width=size, height=size, class_="wash"),
            make_tag("path", d=path),
            id=f"pattern-{name}",
            class_=f"pattern {name}",
            width=size,
            height=size,
            patternUnits="userSpaceOnUse",
        )
        for name, (path, size) in BAR_PATTERNS.items()
    ]
    return make_tag("svg", make_tag("defs", elements), width=0, height=0, class_="defs", aria_hidden="true")


def _find_stretch(run: RecordedRun, step: RecordedStep) -> tuple[float, float]:
    """Return when a step began, in seconds since the run did, and how long it took as far as is known."""
    begin = max(step.begun["clock"] - run.first_clock, 0.0)
    seconds = step.seconds
    return begin, max(run.last_clock - step.begun["clock"], 0.0) if seconds is None else seconds


def _draw_label(name: str, outcome: str, top: float, *, two: bool) -> Markup:
    name_span = make_tag("tspan", name, class_="name")
    if two:
        return join_markup(
            make_tag("text", name_span, x=0, y=top + 13),
            make_tag("text", outcome, class_="how", x=0, y=top + _LINE + 13),
        )
    return make_tag("text", name_span, make_tag("tspan", outcome, class_="how", dx=8), x=0, y=top + 13)


def _draw_bar(step: RecordedStep, axis: TimeAxis, begin: float, length: float, top: float) -> Markup:
    end = min(begin + length, axis.seconds)
    position = {"x": axis.position(begin), "y": top, "height": _BAR}
    width = format_percent(max(end - begin, 0.0), axis.seconds)
    if end - begin < _MIN_BAR_SHARE * axis.seconds:
        bar = make_tag(
            "rect", class_=f"bar {step.state}", width=3, **position
        )  # seen however short the step was
    else:
        bar = make_tag("rect", class_=f"bar {step.state}", width=width, rx=2, **position)
    track = make_tag("rect", class_="track", x=0, y=top + _BAR / 2 - 0.5, width="100%", height=1)
    return join_markup(track, bar)


_NINJA_WIDTH = 1200  # units of the drawing, which is stretched to the page
_NAMED_EDGES, _LISTED_EDGES = 60, 15
_NINJA_AXIS = 40

EDGE_KIND_WORDS = {
    "device": "device code (HIP)",
    "host": "host code",
    "link": "libraries",
    "other": "other commands",
    "many": "many short ones in a row",
}


def draw_ninja(run: RecordedRun, step: RecordedStep, event: Event) -> Markup:
    """Show one ninja: a picture, figures a kind, the longest edges; or why its log cannot be shown."""
    recorded_path = Path(str(event.get("log") or ""))
    path = run.folder / recorded_path
    if not path.is_file():
        path = run.folder / recorded_path.name  # the work directory was moved
    try:
        edges = read_ninja_log(path)
    except DataError as unreadable:
        return make_tag("p", str(unreadable), class_="note")
    if not edges:
        return make_tag("p", "ninja had nothing to do.", class_="note")
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
    return join_markup(
        make_tag("p", caption),
        _draw_lanes(
            TimeAxis(begin, whole / 1000), packed, whole, label=f"Commands of ninja in {step.id}: {caption}"
        ),
        _make_kinds_table(edges),
        _make_longest_table(edges),
    )


@dataclass(frozen=True)
class _NinjaScale:
    """``unit`` milliseconds are one unit of the drawing; lanes lie ``tall`` apart and are ``thick``."""

    unit: float
    tall: int
    thick: int


def _draw_lanes(axis: TimeAxis, packed: Sequence[Sequence[NinjaEdge]], whole: int, *, label: str) -> Markup:
    tall = max(4, min(14, 420 // len(packed)))
    scale = _NinjaScale(whole / _NINJA_WIDTH, tall, tall - 1 if tall > 4 else tall)
    height = tall * len(packed)
    paths = _make_paths(packed, scale)
    inner = make_tag(
        "svg",
        [make_tag("path", class_=f"edge {kind}", d=path) for kind, path in paths.items()],
        _make_name_boxes(packed, scale),
        y=_NINJA_AXIS,
        width="100%",
        height=height,
        viewBox=f"0 0 {_NINJA_WIDTH} {height}",
        preserveAspectRatio="none",
    )
    total = _NINJA_AXIS + height
    picture = make_tag(
        "svg",
        axis.draw(total),
        inner,
        class_="timeline ninja",
        width="100%",
        height=total,
        role="img",
        aria_label=label,
    )
    return join_markup(picture, _draw_legend(paths))


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


def _make_name_boxes(packed: Sequence[Sequence[NinjaEdge]], scale: _NinjaScale) -> list[Markup]:
    """Return a box that says its name over each of the longest commands."""
    longest = sorted(_iterate_edges(packed), key=lambda item: (-item[1].milliseconds, item[1].outputs))[
        :_NAMED_EDGES
    ]
    return [
        make_tag(
            "rect",
            make_tag("title", f"{edge.outputs[0]}: {format_duration(edge.milliseconds / 1000)}"),
            class_="named",
            x=round(edge.begin / scale.unit),
            y=lane * scale.tall,
            width=max(round(edge.milliseconds / scale.unit), 1),
            height=scale.thick,
        )
        for lane, edge in longest
    ]


def _iterate_edges(packed: Sequence[Sequence[NinjaEdge]]) -> Iterator[tuple[int, NinjaEdge]]:
    for number, lane in enumerate(packed):
        for edge in lane:
            yield number, edge


def _draw_legend(kinds: Iterable[str]) -> Markup:
    """Say what the kinds are: shades, and a frame around libraries, tell them apart without colour."""
    return make_tag(
        "ul",
        [
            make_tag(
                "li", make_tag("span", class_=f"swatch {kind}", aria_hidden="true"), EDGE_KIND_WORDS[kind]
            )
            for kind in kinds
        ],
        class_="legend",
    )


def _make_kinds_table(edges: Sequence[NinjaEdge]) -> Markup:
    rows = []
    for kind, words in EDGE_KIND_WORDS.items():
        times = [edge.milliseconds / 1000 for edge in edges if edge.kind == kind]
        if times:
            rows.append([words, f"{len(times):,}", format_duration(sum(times)), format_duration(max(times))])
    return make_table(["kind", "commands", "their time in all", "longest"], rows, numbers={1, 2, 3})


def _make_longest_table(edges: Sequence[NinjaEdge]) -> Markup:
    chosen = sorted(edges, key=lambda edge: (-edge.milliseconds, edge.outputs))[:_LISTED_EDGES]
    rows = [
        [
            make_tag("code", edge.outputs[0]),
            format_duration(edge.milliseconds / 1000),
            f"+{format_duration(edge.begin / 1000)}",
        ]
        for edge in chosen
    ]
    return make_tag(
        "details",
        make_tag("summary", f"The {len(rows)} longest commands" if len(rows) > 1 else "The command"),
        make_table(["made", "time", "begun"], rows, numbers={1, 2}),
    )
