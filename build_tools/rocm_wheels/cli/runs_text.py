"""Runs as text for a terminal: the list, one run in full, and what is at work now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels import log
from rocm_wheels.pipeline.record.plain import shorten_digests, join_lines, strip_controls
from rocm_wheels.pipeline.summary import format_size, format_duration

if TYPE_CHECKING:
    from rocm_wheels.pipeline.record.reading import RecordedRun, RecordedStep
    from rocm_wheels.pipeline.record.status import RunStatus, StepStatus

_LONGEST_LINE = 300  # characters of a line of a message; its log and the report have it whole
_STYLES = {"done": ("green",), "running": ("bold",), "skipped": ("dim",)}


def format_runs(run_list: Sequence[RecordedRun], *, width: int | None) -> str:
    """Return a line a run: id, state, when, how long, its steps, and the command, cut at ``width``."""
    head = ["run", "state", "began", "time", "steps", "command"]
    rows = [
        [
            run.id,
            describe_run_state(run),
            format_start(run),
            _format_time(run),
            count_steps(run),
            join_lines(run.begun.get("command") or ""),
        ]
        for run in run_list
    ]
    return _align_rows([head, *rows], width=width)


def describe_run_state(run: RecordedRun) -> str:
    """Return the state of a run, with where it is when that cannot be asked."""
    return f"running on {join_lines(run.begun['host'])}?" if run.elsewhere else run.state


def format_start(run: RecordedRun) -> str:
    """Return when a run began, in UTC to the second."""
    return str(run.begun.get("time", ""))[:19].replace("T", " ")


def count_steps(run: RecordedRun) -> str:
    """Count the steps of a run by their state: ``3 done, 1 failed``."""
    states = [step.state for step in run.steps.values()]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))


def describe_damage(run: RecordedRun) -> list[str]:
    """Say what of a record could not be read."""
    notes = []
    if run.damaged:
        notes.append(f"{run.damaged} damaged {'line' if run.damaged == 1 else 'lines'} left out")
    if run.torn and run.state != "running":
        notes.append("the last line broke off")
    return notes


def describe_run(run: RecordedRun, *, width: int | None) -> str:
    """Return one run in full: where, what, each step, each wheel, each failure."""
    begun = run.begun
    machine = [join_lines(begun.get("platform") or "")]
    if begun.get("cores"):
        machine.append(f"{begun['cores']:g} cores")
    machine.append(format_size(begun.get("memory")))
    facts = [
        ("run", run.id),
        ("state", " after ".join(filter(None, (describe_run_state(run), _format_time(run))))),
        ("began", f"{format_start(run)} UTC" if begun else ""),
        (
            "on",
            f"{join_lines(begun.get('host') or '')} ({', '.join(filter(None, machine))})" if begun else "",
        ),
        ("version", join_lines(begun.get("version") or "")),
        ("command", join_lines(begun.get("command") or "")),
        ("targets", ", ".join(map(join_lines, begun.get("targets") or []))),
        ("lock", " ".join(map(join_lines, filter(None, (begun.get("lock"), begun.get("lock_digest")))))),
        ("record", "; ".join([str(run.folder), *describe_damage(run)])),
    ]
    blocks = ["\n".join(f"{name:8}  {value}" for name, value in facts if value)]
    if run.steps:
        head = ["step", "outcome", "time", "peak memory", "why"]
        blocks.append(_align_rows([head, *[_step_row(step) for step in run.steps.values()]], width=width))
    wheels = [output for step in run.steps.values() for output in step.outputs]
    if wheels:
        rows = [
            [
                join_lines(w.get("path") or "?").rpartition("/")[2],
                format_size(w.get("size")),
                join_lines(w.get("sha256") or ""),
            ]
            for w in wheels
        ]
        blocks.append(_align_rows([["output", "size", "sha256"], *rows], width=None))
    blocks += ["\n".join(lines)] if (lines := list(_cache_lines(run))) else []
    blocks += [failure for step in run.steps.values() if (failure := _describe_failure(step))]
    return "\n\n".join(blocks)


def describe_work(run_status: RunStatus, *, width: int | None) -> str:
    """Return what a run is at now: two lines a step, its times and the last line of its log."""
    run = run_status.run
    head = f"run {run.id}: {log.paint_text(describe_run_state(run), *_STYLES.get(run.state, ('red',)))}"
    head += f", {format_duration(run_status.seconds)}" if run.begun else ""
    head += (
        f", at least {format_duration(run_status.seconds_left)} left"
        if run_status.seconds_left is not None
        else ""
    )
    counted = [
        count_steps(run),
        f"{run_status.to_come} to come" if run_status.to_come and run.state == "running" else "",
    ]
    lines = [head, ", ".join(filter(None, counted)), *describe_damage(run)]
    for step in run_status.running:
        name, figures = join_lines(step.id), "  ".join(_list_figures(step))
        fitting = figures if width is None else _cut_line(figures, width - len(name) - 2)
        lines += ["", f"{log.paint_text(name, 'bold')}  {fitting}"]
        lines += [_cut_line(f"  {step.line}", width)] if step.line else []
    ended = [step for step in run.steps.values() if step.state not in {"running", "done", "skipped"}]
    for ended_step in ended:
        lines += ["", _describe_failure(ended_step) or f"{join_lines(ended_step.id)} was killed"]
    return "\n".join(line for line in lines if line is not None)


def _list_figures(step: StepStatus) -> Iterable[str]:
    yield format_duration(step.seconds)
    if step.seconds_left is not None and step.expected is not None:
        source = f" ({_brief_source(step.source)})" if step.source else ""
        if step.seconds_left >= 0:
            yield f"about {format_duration(step.seconds_left)} left{source}"
        else:
            yield f"{format_duration(-step.seconds_left)} longer than the {format_duration(step.expected)} expected{source}"
    if step.memory is not None:
        yield format_size(step.memory)


def _brief_source(source: str) -> str:
    """Return where an estimate is from without its details, which plan and report have."""
    return join_lines(source).partition(":")[0].partition(" (")[0]


def _cache_lines(run: RecordedRun) -> Iterable[str]:
    """Say what a compiler cache did for each build, and whether it passed its test."""
    for event in run.events:
        if event["event"] == "cache-test":
            verdict = "can" if event.get("trusted") else "CANNOT"
            yield f"{join_lines(str(event.get('kind')))} {verdict} be trusted with device code"
        elif event["event"] == "cache":
            hits = [
                f"{side} {figures['hits']} of {figures['hits'] + figures['misses']}"
                for side in ("host", "device", "unsorted")
                if (figures := event.get(side)) and figures.get("hits", 0) + figures.get("misses", 0)
            ]
            name = join_lines(str(event.get("step")))
            yield f"{name}: {join_lines(str(event.get('kind')))} hits: {', '.join(hits) or 'none asked for'}"


def _step_row(step: RecordedStep) -> list[str]:
    duration = "" if step.seconds is None else format_duration(step.seconds)
    return [
        join_lines(step.id),
        step.state,
        duration,
        format_size(step.peak_memory or None),
        shorten_digests(join_lines(step.why)),
    ]


def _describe_failure(step: RecordedStep) -> str:
    """Return what a step that did not succeed said, with its tip and where to read on."""
    if step.state in {"done", "skipped", "running"}:
        return ""
    ended = step.ended or {}
    lost = "no end is recorded" if step.ended is None else "no reason is recorded"
    message = strip_controls(ended.get("message") or "").strip() or lost
    message_lines = [_cut_line(line, _LONGEST_LINE) for line in message.splitlines()]
    lines = [f"{join_lines(step.id)}: {step.state}: {message_lines[0]}", *message_lines[1:]]
    if step.state == "interrupted":  # which is all that there is to say
        lines = [f"{join_lines(step.id)}: interrupted"]
    elif ended.get("tip"):
        lines.append(f"tip: {strip_controls(ended['tip']).strip()}")
    if step.log is not None and str(step.log) not in message and not _is_log_missing(step.log):
        lines.append(f"log: {join_lines(str(step.log))}")
    return "\n".join(lines)


def _is_log_missing(log_file: Path) -> bool:
    """Tell whether a step ended before it wrote a log: its run is here, and that is not."""
    try:
        return log_file.parent.is_dir() and not log_file.exists()
    except (OSError, ValueError):
        return False


def _format_time(run: RecordedRun) -> str:
    return "" if run.seconds is None or run.state == "running" else format_duration(run.seconds)


def _align_rows(rows: Sequence[Sequence[str]], *, width: int | None) -> str:
    """Return rows in columns; the last column is cut at ``width``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(_cut_line(line, width) for line in lines)


def _cut_line(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else line[: max(width - 1, 1)] + "…"
