"""The commands that ninja ran in a step: lanes side by side, how many of each kind, the longest by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rocm_wheels.errors import DataError
from rocm_wheels.pipeline.record.reading import Run, StepView
from rocm_wheels.pipeline.record.vocabulary import Event, time_of
from rocm_wheels.pipeline.report.markup import Markup, join, tag
from rocm_wheels.pipeline.report.ninja import Edge, blocks, lanes, read_ninja_log
from rocm_wheels.pipeline.report.tables import table
from rocm_wheels.pipeline.report.timeline import Axis
from rocm_wheels.pipeline.summary import human_time

_WIDTH = 1200  # units of the drawing, which is stretched to the page
_NAMED, _LISTED = 60, 15
_AXIS = 40

WORDS = {
    "device": "device code (HIP)",
    "host": "host code",
    "link": "libraries",
    "other": "other commands",
    "many": "many short ones in a row",
}


def ninja_part(run: Run, step: StepView, event: Event) -> Markup:
    """Show one ninja: a picture, figures a kind, the longest edges; or why its log cannot be shown."""
    given = Path(str(event.get("log") or ""))
    path = run.folder / given
    if not path.is_file():
        path = run.folder / given.name  # the work directory was moved
    try:
        edges = read_ninja_log(path)
    except DataError as unreadable:
        return tag("p", str(unreadable), class_="note")
    if not edges:
        return tag("p", "ninja had nothing to do.", class_="note")
    packed = lanes(edges)
    whole = max([1, *(edge.end for edge in edges)])
    began = event.get("began")
    begin = None if began is None else time_of(event) + timedelta(seconds=began - event["clock"])
    work = sum(edge.milliseconds for edge in edges)
    said = (
        f"{len(edges):,} commands in {human_time(whole / 1000)}, up to {len(packed)} at a time and "
        f"{work / whole:.1f} on average."
    )
    return join(
        tag("p", said),
        _picture(Axis(begin, whole / 1000), packed, whole, label=f"Commands of ninja in {step.id}: {said}"),
        _kinds(edges),
        _longest(edges),
    )


@dataclass(frozen=True)
class _Scale:
    """``unit`` milliseconds are one unit of the drawing; lanes lie ``tall`` apart and are ``thick``."""

    unit: float
    tall: int
    thick: int


def _picture(axis: Axis, packed: Sequence[Sequence[Edge]], whole: int, *, label: str) -> Markup:
    tall = max(4, min(14, 420 // len(packed)))
    scale = _Scale(whole / _WIDTH, tall, tall - 1 if tall > 4 else tall)
    height = tall * len(packed)
    paths = _paths(packed, scale)
    inner = tag(
        "svg",
        [tag("path", class_=f"edge {kind}", d=path) for kind, path in paths.items()],
        _boxes(packed, scale),
        y=_AXIS,
        width="100%",
        height=height,
        viewBox=f"0 0 {_WIDTH} {height}",
        preserveAspectRatio="none",
    )
    total = _AXIS + height
    picture = tag(
        "svg",
        axis.drawn(total),
        inner,
        class_="timeline ninja",
        width="100%",
        height=total,
        role="img",
        aria_label=label,
    )
    return join(picture, _legend(paths))


def _paths(packed: Sequence[Sequence[Edge]], scale: _Scale) -> dict[str, str]:
    """Return a path a kind of command, in the order of ``WORDS``: a box for each block of a lane."""
    found: dict[str, list[str]] = {}
    for number, lane in enumerate(packed):
        for members in blocks(lane, scale.unit):
            kind = members[0].kind if len(members) == 1 else "many"
            left, right = round(members[0].begin / scale.unit), round(members[-1].end / scale.unit)
            box = f"M{left} {number * scale.tall}h{max(right - left, 1)}v{scale.thick}H{left}z"
            found.setdefault(kind, []).append(box)
    return {kind: "".join(found[kind]) for kind in WORDS if kind in found}


def _boxes(packed: Sequence[Sequence[Edge]], scale: _Scale) -> list[Markup]:
    """Return a box that says its name over each of the longest commands."""
    longest = sorted(_placed(packed), key=lambda one: (-one[1].milliseconds, one[1].outputs))[:_NAMED]
    return [
        tag(
            "rect",
            tag("title", f"{edge.outputs[0]}: {human_time(edge.milliseconds / 1000)}"),
            class_="named",
            x=round(edge.begin / scale.unit),
            y=lane * scale.tall,
            width=max(round(edge.milliseconds / scale.unit), 1),
            height=scale.thick,
        )
        for lane, edge in longest
    ]


def _placed(packed: Sequence[Sequence[Edge]]) -> Iterator[tuple[int, Edge]]:
    for number, lane in enumerate(packed):
        for edge in lane:
            yield number, edge


def _legend(kinds: Iterable[str]) -> Markup:
    """Say what the kinds are: shades, and a frame around libraries, tell them apart without colour."""
    return tag(
        "ul",
        [tag("li", tag("span", class_=f"swatch {kind}", aria_hidden="true"), WORDS[kind]) for kind in kinds],
        class_="legend",
    )


def _kinds(edges: Sequence[Edge]) -> Markup:
    rows = []
    for kind, words in WORDS.items():
        times = [edge.milliseconds / 1000 for edge in edges if edge.kind == kind]
        if times:
            rows.append([words, f"{len(times):,}", human_time(sum(times)), human_time(max(times))])
    return table(["kind", "commands", "their time in all", "longest"], rows, numbers={1, 2, 3})


def _longest(edges: Sequence[Edge]) -> Markup:
    chosen = sorted(edges, key=lambda edge: (-edge.milliseconds, edge.outputs))[:_LISTED]
    rows = [
        [
            tag("code", edge.outputs[0]),
            human_time(edge.milliseconds / 1000),
            f"+{human_time(edge.begin / 1000)}",
        ]
        for edge in chosen
    ]
    return tag(
        "details",
        tag("summary", f"The {len(rows)} longest commands" if len(rows) > 1 else "The command"),
        table(["made", "time", "begun"], rows, numbers={1, 2}),
    )
