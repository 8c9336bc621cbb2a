"""The steps of a run on one axis of time, as SVG that is as wide as the page it is on.

Places on the axis are percentages, so that nothing has to be scaled and text keeps its size on a phone.
How a step ended is said in words and by the pattern of its bar; colour only repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rocm_wheels.pipeline.record.reading import RecordedRun, RecordedStep
from rocm_wheels.pipeline.record.vocabulary import parse_event_time
from rocm_wheels.pipeline.report.markup import Markup, join_markup, format_percent, make_tag
from rocm_wheels.pipeline.summary import format_duration
from rocm_wheels.words import format_count

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
            since = f"+{_format_round_time(seconds)}" if seconds else "begin"
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


def _format_round_time(seconds: float) -> str:
    """Return a round time without what is nought of it: ``1 h``, ``1 h 30 min``, ``2 d``."""
    parts, rest = [], round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts)
