"""Runs as text for a terminal: the list, one run in full, and what is at work now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels import log
from rocm_wheels.pipeline.record.plain import brief, one_line, plain
from rocm_wheels.pipeline.summary import human_size, human_time

if TYPE_CHECKING:
    from rocm_wheels.pipeline.record.reading import Run, StepView
    from rocm_wheels.pipeline.record.status import RunStatus, StepStatus

_LONG = 300  # characters of a line of a message; its log and the report have it whole
_STYLES = {"done": ("green",), "running": ("bold",), "skipped": ("dim",)}


def listed(runs: Sequence[Run], *, width: int | None) -> str:
    """Return a line a run: id, state, when, how long, its steps, and the command, cut at ``width``."""
    head = ["run", "state", "began", "time", "steps", "command"]
    rows = [
        [run.id, state_of(run), when(run), _time(run), tally(run), one_line(run.begun.get("command") or "")]
        for run in runs
    ]
    return _aligned([head, *rows], width=width)


def state_of(run: Run) -> str:
    """Return the state of a run, with where it is when that cannot be asked."""
    return f"running on {one_line(run.begun['host'])}?" if run.elsewhere else run.state


def when(run: Run) -> str:
    """Return when a run began, in UTC to the second."""
    return str(run.begun.get("time", ""))[:19].replace("T", " ")


def tally(run: Run) -> str:
    """Count the steps of a run by their state: ``3 done, 1 failed``."""
    states = [step.state for step in run.steps.values()]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))


def damage_of(run: Run) -> list[str]:
    """Say what of a record could not be read."""
    said = []
    if run.damaged:
        said.append(f"{run.damaged} damaged {'line' if run.damaged == 1 else 'lines'} left out")
    if run.torn and run.state != "running":
        said.append("the last line broke off")
    return said


def shown(run: Run, *, width: int | None) -> str:
    """Return one run in full: where, what, each step, each wheel, each failure."""
    begun = run.begun
    machine = [one_line(begun.get("platform") or "")]
    if begun.get("cores"):
        machine.append(f"{begun['cores']:g} cores")
    machine.append(human_size(begun.get("memory")))
    facts = [
        ("run", run.id),
        ("state", " after ".join(filter(None, (state_of(run), _time(run))))),
        ("began", f"{when(run)} UTC" if begun else ""),
        ("on", f"{one_line(begun.get('host') or '')} ({', '.join(filter(None, machine))})" if begun else ""),
        ("version", one_line(begun.get("version") or "")),
        ("command", one_line(begun.get("command") or "")),
        ("targets", ", ".join(map(one_line, begun.get("targets") or []))),
        ("lock", " ".join(map(one_line, filter(None, (begun.get("lock"), begun.get("lock_digest")))))),
        ("record", "; ".join([str(run.folder), *damage_of(run)])),
    ]
    blocks = ["\n".join(f"{name:8}  {value}" for name, value in facts if value)]
    if run.steps:
        head = ["step", "outcome", "time", "peak memory", "why"]
        blocks.append(_aligned([head, *[_step_row(step) for step in run.steps.values()]], width=width))
    wheels = [output for step in run.steps.values() for output in step.outputs]
    if wheels:
        rows = [
            [
                one_line(w.get("path") or "?").rpartition("/")[2],
                human_size(w.get("size")),
                one_line(w.get("sha256") or ""),
            ]
            for w in wheels
        ]
        blocks.append(_aligned([["output", "size", "sha256"], *rows], width=None))
    blocks += ["\n".join(told)] if (told := list(_cache_lines(run))) else []
    blocks += [failure for step in run.steps.values() if (failure := _failure(step))]
    return "\n\n".join(blocks)


def working(status: RunStatus, *, width: int | None) -> str:
    """Return what a run is at now: two lines a step, its times and the last line of its log."""
    run = status.run
    head = f"run {run.id}: {log.paint(state_of(run), *_STYLES.get(run.state, ('red',)))}"
    head += f", {human_time(status.seconds)}" if run.begun else ""
    head += f", at least {human_time(status.left)} left" if status.left is not None else ""
    counted = [tally(run), f"{status.to_come} to come" if status.to_come and run.state == "running" else ""]
    lines = [head, ", ".join(filter(None, counted)), *damage_of(run)]
    for step in status.running:
        name, figures = one_line(step.id), "  ".join(_figures(step))
        fitting = figures if width is None else _cut(figures, width - len(name) - 2)
        lines += ["", f"{log.paint(name, 'bold')}  {fitting}"]
        lines += [_cut(f"  {step.line}", width)] if step.line else []
    ended = [step for step in run.steps.values() if step.state not in {"running", "done", "skipped"}]
    for one in ended:
        lines += ["", _failure(one) or f"{one_line(one.id)} was killed"]
    return "\n".join(line for line in lines if line is not None)


def _figures(step: StepStatus) -> Iterable[str]:
    yield human_time(step.seconds)
    if step.left is not None and step.expected is not None:
        source = f" ({_brief_source(step.source)})" if step.source else ""
        if step.left >= 0:
            yield f"about {human_time(step.left)} left{source}"
        else:
            yield f"{human_time(-step.left)} longer than the {human_time(step.expected)} expected{source}"
    if step.memory is not None:
        yield human_size(step.memory)


def _brief_source(source: str) -> str:
    """Return where an estimate is from without its details, which plan and report have."""
    return one_line(source).partition(":")[0].partition(" (")[0]


def _cache_lines(run: Run) -> Iterable[str]:
    """Say what a compiler cache did for each build, and whether it passed its test."""
    for event in run.events:
        if event["event"] == "cache-test":
            verdict = "can" if event.get("trusted") else "CANNOT"
            yield f"{one_line(str(event.get('kind')))} {verdict} be trusted with device code"
        elif event["event"] == "cache":
            hits = [
                f"{side} {figures['hits']} of {figures['hits'] + figures['misses']}"
                for side in ("host", "device", "unsorted")
                if (figures := event.get(side)) and figures.get("hits", 0) + figures.get("misses", 0)
            ]
            name = one_line(str(event.get("step")))
            yield f"{name}: {one_line(str(event.get('kind')))} hits: {', '.join(hits) or 'none asked for'}"


def _step_row(step: StepView) -> list[str]:
    time = "" if step.seconds is None else human_time(step.seconds)
    return [
        one_line(step.id),
        step.state,
        time,
        human_size(step.peak_memory or None),
        brief(one_line(step.why)),
    ]


def _failure(step: StepView) -> str:
    """Return what a step that did not succeed said, with its tip and where to read on."""
    if step.state in {"done", "skipped", "running"}:
        return ""
    ended = step.ended or {}
    lost = "no end is recorded" if step.ended is None else "no reason is recorded"
    said = plain(ended.get("message") or "").strip() or lost
    told = [_cut(line, _LONG) for line in said.splitlines()]
    lines = [f"{one_line(step.id)}: {step.state}: {told[0]}", *told[1:]]
    if step.state == "interrupted":  # which is all that there is to say
        lines = [f"{one_line(step.id)}: interrupted"]
    elif ended.get("tip"):
        lines.append(f"tip: {plain(ended['tip']).strip()}")
    if step.log is not None and str(step.log) not in said and not _never_written(step.log):
        lines.append(f"log: {one_line(str(step.log))}")
    return "\n".join(lines)


def _never_written(log_file: Path) -> bool:
    """Tell whether a step ended before it wrote a log: its run is here, and that is not."""
    try:
        return log_file.parent.is_dir() and not log_file.exists()
    except (OSError, ValueError):
        return False


def _time(run: Run) -> str:
    return "" if run.seconds is None or run.state == "running" else human_time(run.seconds)


def _aligned(rows: Sequence[Sequence[str]], *, width: int | None) -> str:
    """Return rows in columns; the last column is cut at ``width``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(_cut(line, width) for line in lines)


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else line[: max(width - 1, 1)] + "…"
