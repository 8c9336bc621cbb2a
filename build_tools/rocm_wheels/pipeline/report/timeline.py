"""The steps of a run on one axis of time, as SVG that is as wide as the page it is on.

Places on the axis are percentages, so that nothing has to be scaled and text keeps its size on a phone.
How a step ended is said in words and by the pattern of its bar; colour only repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rocm_wheels.pipeline.record.reading import Run, StepView
from rocm_wheels.pipeline.record.vocabulary import time_of
from rocm_wheels.pipeline.report.markup import Markup, join, percent, tag
from rocm_wheels.pipeline.summary import human_time
from rocm_wheels.words import counted

_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MOST_TICKS = 4
_AXIS, _BAR, _LINE, _GAP = 40, 12, 18, 16
_HAIR = 0.01  # of the axis: less is drawn as a mark of fixed width
_LINE_HOLDS = 50  # characters, on a phone
_LATEST = 10 * 365 * 86400.0  # longer than that, an axis would leave the calendar

# beyond colour: hatches for what went wrong, dots for what somebody stopped, an open frame for what goes on
PATTERNS = {
    "failed": ("M-1 1l2-2M0 8l8-8M7 9l2-2", 8),
    "timeout": ("M2 0v8M6 0v8", 8),
    "killed": ("M0 8l8-8M0 0l8 8", 8),
    "interrupted": ("M1 2h2M5 6h2", 8),
}


@dataclass(frozen=True)
class Axis:
    """A stretch of time: when it begins (UTC) and how many seconds it has."""

    begin: datetime | None
    seconds: float

    def ticks(self) -> list[float]:
        """Return where to put marks, in seconds from its begin: few and round."""
        unit = next((t for t in _TICKS if self.seconds / t <= _MOST_TICKS), None)
        if unit is None:
            unit = _TICKS[-1] * (int(self.seconds / _TICKS[-1] / _MOST_TICKS) + 1)
        return [float(number * unit) for number in range(int(self.seconds / unit) + 1)]

    def place(self, seconds: float) -> str:
        """Return where a moment lies, in percent."""
        return percent(seconds, self.seconds)

    def drawn(self, height: float) -> Markup:
        """Return the marks with the time of day and the time since then, and lines down to ``height``."""
        parts = []
        for seconds in self.ticks():
            share = seconds / self.seconds if self.seconds else 0
            anchor = "start" if share < 0.08 else "end" if share > 0.92 else "middle"
            place = self.place(seconds)
            parts.append(tag("line", class_="grid", x1=place, x2=place, y1=_AXIS - 6, y2=height))
            parts.append(tag("text", self._day(seconds), class_="tick", x=place, y=12, text_anchor=anchor))
            since = f"+{_round(seconds)}" if seconds else "begin"
            parts.append(tag("text", since, class_="tick quiet", x=place, y=27, text_anchor=anchor))
        return join(parts)

    def _day(self, seconds: float) -> str:
        if self.begin is None:
            return ""
        moment = self.begin + timedelta(seconds=min(seconds, _LATEST))
        return moment.strftime("%H:%M:%S" if self.seconds < 600 else "%H:%M")


def axis_of(run: Run) -> Axis:
    """Return the axis from the first event of a run to its last."""
    begin = time_of(run.events[0]) if run.events else None
    return Axis(begin, min(max(run.last_clock - run.first_clock, 0.001), _LATEST))


def timeline(run: Run, steps: Sequence[StepView]) -> Markup:
    """Draw the steps that ran, in the order in which they began."""
    axis, rows, top = axis_of(run), [], float(_AXIS)
    for step in steps:
        begin, length = _stretch(run, step)
        how = outcome_of(step, length)
        two = len(step.id) + len(how) > _LINE_HOLDS
        rows.append(_label(step.id, how, top, two=two))
        top += _LINE * (2 if two else 1)
        rows.append(_bar(step, axis, begin, length, top))
        top += _BAR + _GAP
    what = f"{counted(len(steps), 'step')} in {human_time(axis.seconds)}"
    return tag(
        "svg",
        axis.drawn(top - _GAP / 2),
        rows,
        class_="timeline",
        width="100%",
        height=top,
        role="img",
        aria_label=what,
    )


def outcome_of(step: StepView, length: float) -> str:
    """Say how a step ended and after how long."""
    if step.state == "done":
        return human_time(length)
    if step.state == "running":
        return f"running for {human_time(length)}"
    if step.ended is None:
        return f"{step.state}, no end recorded"
    return f"{step.state} after {human_time(length)}"


def patterns() -> Markup:
    """Define the patterns of the bars, once a page."""
    made = [
        tag(
            "pattern",
            tag("rect", width=size, height=size, class_="wash"),
            tag("path", d=path),
            id=f"pattern-{name}",
            class_=f"pattern {name}",
            width=size,
            height=size,
            patternUnits="userSpaceOnUse",
        )
        for name, (path, size) in PATTERNS.items()
    ]
    return tag("svg", tag("defs", made), width=0, height=0, class_="defs", aria_hidden="true")


def _stretch(run: Run, step: StepView) -> tuple[float, float]:
    """Return when a step began, in seconds since the run did, and how long it took as far as is known."""
    begin = max(step.begun["clock"] - run.first_clock, 0.0)
    known = step.seconds
    return begin, max(run.last_clock - step.begun["clock"], 0.0) if known is None else known


def _label(name: str, how: str, top: float, *, two: bool) -> Markup:
    said = tag("tspan", name, class_="name")
    if two:
        return join(
            tag("text", said, x=0, y=top + 13),
            tag("text", how, class_="how", x=0, y=top + _LINE + 13),
        )
    return tag("text", said, tag("tspan", how, class_="how", dx=8), x=0, y=top + 13)


def _bar(step: StepView, axis: Axis, begin: float, length: float, top: float) -> Markup:
    end = min(begin + length, axis.seconds)
    place = {"x": axis.place(begin), "y": top, "height": _BAR}
    width = percent(max(end - begin, 0.0), axis.seconds)
    if end - begin < _HAIR * axis.seconds:
        bar = tag("rect", class_=f"bar {step.state}", width=3, **place)  # seen however short the step was
    else:
        bar = tag("rect", class_=f"bar {step.state}", width=width, rx=2, **place)
    track = tag("rect", class_="track", x=0, y=top + _BAR / 2 - 0.5, width="100%", height=1)
    return join(track, bar)


def _round(seconds: float) -> str:
    """Return a round time without what is nought of it: ``1 h``, ``1 h 30 min``, ``2 d``."""
    parts, rest = [], round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts)
