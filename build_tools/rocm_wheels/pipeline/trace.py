"""Write a run as a trace: steps, and the commands that ninja ran in them, for Perfetto and Chrome.

The form is Chrome's "Trace Event Format" in JSON, which Perfetto (ui.perfetto.dev) opens as well: complete
events (``ph: X``) with begin and duration in microseconds, and metadata (``ph: M``) that names processes
and threads. The steps are one process, each build's ninja another; a thread is what ran one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rocm_wheels.core import errors, log
from rocm_wheels.pipeline import ninja_log, run_record, status

# name, category, begin and end in microseconds since the run began, and what else is known
_Stretch = tuple[str, str, int, int, Mapping[str, object]]


def find_stretch(run: run_record.RecordedRun, step: run_record.RecordedStep) -> tuple[float, float]:
    """Return when a step began, in seconds since the run did, and how long it took as far as is known."""
    begun = float(step.begun["clock"])
    seconds = run.last_clock - begun if step.seconds is None else step.seconds
    return max(begun - run.events[0]["clock"], 0.0), max(seconds, 0.0)


def make_trace(run: run_record.RecordedRun) -> dict[str, Any]:
    """Return the trace of a run as JSON has it. Times are microseconds since the run began.

    A log of ninja that cannot be read is named in a warning, and left out.
    """
    steps = [(step, *find_stretch(run, step)) for step in run.steps.values() if step.state != "skipped"]
    stretches: list[_Stretch] = []
    processes = [(f"steps of run {run.id}", stretches)]
    for step, begin, seconds in sorted(steps, key=lambda item: item[1]):
        facts = {"state": step.state, "why": step.why, "peak memory": step.peak_memory}
        stretches.append((step.id, "step", round(begin * 1e6), round((begin + seconds) * 1e6), facts))
        for event in step.events_of_kind("ninja"):
            try:
                edges = ninja_log.read_ninja_log(run.folder, event.text("log"))
            except errors.DataError as unreadable:
                warning = f"{step.id}: {unreadable}; its commands are not in the trace"
                log.log_warning(status.join_lines(warning))
                continue
            began = event.number("began")
            offset = begin if began is None else max(began - run.events[0]["clock"], 0.0)
            commands = [_place_edge(edge, round(offset * 1e6)) for edge in edges]
            processes.append((f"ninja in {step.id}", commands))
    events = (_format_process(number, *named) for number, named in enumerate(processes, 1))
    return {
        "displayTimeUnit": "ms",
        "otherData": {"run": run.id, "state": run.state, "command": run.begun.text("command")},
        "traceEvents": [event for of_process in events for event in of_process],
    }


def _place_edge(edge: ninja_log.NinjaEdge, offset: int) -> _Stretch:
    name = edge.outputs[0].rpartition("/")[2]
    begin, end = offset + edge.begin * 1000, offset + edge.end * 1000
    return name, edge.kind, begin, end, {"outputs": list(edge.outputs)}


def _format_process(number: int, name: str, stretches: Sequence[_Stretch]) -> Iterator[dict[str, Any]]:
    yield {"name": "process_name", "ph": "M", "pid": number, "tid": 0, "args": {"name": name}}
    lanes = ninja_log.assign_lanes((begin, end) for _, _, begin, end, _ in stretches)
    for (title, category, begin, end, facts), lane in zip(stretches, lanes, strict=True):
        place = {"ts": begin, "dur": end - begin, "pid": number, "tid": lane + 1}
        yield {"name": title, "cat": category, "ph": "X", **place, "args": facts}
