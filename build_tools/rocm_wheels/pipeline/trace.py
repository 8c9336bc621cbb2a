"""Write a run as a trace: steps, and the commands that ninja ran in them, for Perfetto and Chrome.

The form is Chrome's "Trace Event Format" in JSON, which Perfetto (ui.perfetto.dev) opens as well: complete
events (``ph: X``) with begin and duration in microseconds, and metadata (``ph: M``) that names processes
and threads. The steps are one process, each build's ninja another; a thread is what ran one after the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rocm_wheels.core import errors, log
from rocm_wheels.pipeline import ninja_log, run_record

_STEPS = 1  # the process of the steps; those of ninjas follow


def make_trace(run: run_record.RecordedRun) -> dict[str, Any]:
    """Return the trace of a run as JSON has it. Times are microseconds since the run began.

    A log of ninja that cannot be read is named in a warning, and left out.
    """
    begun = [step for step in run.steps.values() if step.state != "skipped"]
    events = [_name_process(_STEPS, f"steps of run {run.id}"), *_place_steps(run, begun)]
    process = _STEPS
    for step in begun:
        for event in step.events_of_kind("ninja"):
            try:
                edges = ninja_log.read_ninja_log(ninja_log.find_ninja_log(run, event))
            except errors.DataError as unreadable:
                log.log_warning(f"{step.id}: {unreadable}; its commands are not in the trace")
                continue
            process += 1
            began = event.get("began")
            offset = max((step.begun["clock"] if began is None else began) - run.first_clock, 0.0)
            events.append(_name_process(process, f"ninja in {step.id}"))
            events += _place_commands(process, ninja_log.assign_lanes(edges), round(offset * 1e6))
    return {
        "displayTimeUnit": "ms",
        "otherData": {"run": run.id, "state": run.state, "command": str(run.begun.get("command") or "")},
        "traceEvents": events,
    }


def _place_steps(
    run: run_record.RecordedRun, steps: Iterable[run_record.RecordedStep]
) -> Iterator[dict[str, Any]]:
    """Yield the steps in as few threads as ran side by side."""
    busy: list[tuple[float, int]] = []  # (end, thread) of the last step of each
    for step in sorted(steps, key=lambda step: float(step.begun["clock"])):
        begin = max(step.begun["clock"] - run.first_clock, 0.0)
        recorded = step.seconds
        seconds = max(run.last_clock - step.begun["clock"], 0.0) if recorded is None else recorded
        if busy and busy[0][0] <= begin:
            thread = heapq.heappop(busy)[1]
        else:
            thread = len(busy) + 1
        heapq.heappush(busy, (begin + seconds, thread))
        facts = {"state": step.state, "why": step.why, "peak memory": step.peak_memory}
        stretch = round(begin * 1e6), round(seconds * 1e6)
        yield _make_event(step.id, "step", process=_STEPS, thread=thread, stretch=stretch, facts=facts)


def _place_commands(
    process: int, lanes: Sequence[Sequence[ninja_log.NinjaEdge]], offset: int
) -> Iterator[dict[str, Any]]:
    for thread, lane in enumerate(lanes, 1):
        for edge in lane:
            stretch = offset + edge.begin * 1000, edge.milliseconds * 1000
            name = edge.outputs[0].rpartition("/")[2]
            facts = {"outputs": list(edge.outputs)}
            yield _make_event(name, edge.kind, process=process, thread=thread, stretch=stretch, facts=facts)


def _make_event(
    name: str,
    category: str,
    *,
    process: int,
    thread: int,
    stretch: tuple[int, int],
    facts: dict[str, Any],
) -> dict[str, Any]:
    begin, duration = stretch
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": begin,
        "dur": duration,
        "pid": process,
        "tid": thread,
        "args": facts,
    }


def _name_process(process: int, name: str) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": name}}
