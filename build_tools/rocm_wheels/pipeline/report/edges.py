"""The commands that ninja ran in a step: lanes side by side, how many of each kind, the longest by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rocm_wheels.errors import DataError
from rocm_wheels.pipeline.record.reading import RecordedRun, RecordedStep
from rocm_wheels.pipeline.record.vocabulary import Event, parse_event_time
from rocm_wheels.pipeline.report.markup import Markup, join_markup, make_tag
from rocm_wheels.pipeline.report.ninja import NinjaEdge, group_edges, assign_lanes, read_ninja_log
from rocm_wheels.pipeline.report.tables import make_table
from rocm_wheels.pipeline.report.timeline import TimeAxis
from rocm_wheels.pipeline.summary import format_duration

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
        f"{len(edges):,} commands in {format_duration(whole / 1000)}, up to {len(packed)} at a time and "
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
    """Return a path a kind of command, in the order of ``EDGE_KIND_WORDS``: a box for each block of a lane."""
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
