"""The report of a run: one page of HTML that needs no network, made from its record.

An outcome in one sentence, then every section that the record has something for. ``templates`` say how it
looks, and take what they show from the record; here is what has to be put together first. Steps are bars on
one axis of time, in CSS; ``trace`` draws the commands that ninja ran. There is no script.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocm_wheels.core import errors, page_templates, tables
from rocm_wheels.pipeline import ninja_log, run_record, trace
from rocm_wheels.pipeline.status import shorten_digests

_TEMPLATES = Path(__file__).with_name("templates")
_VERDICTS = {
    "done": "Done in {}",
    "interrupted": "Interrupted after {}",
    "killed": "Killed; last heard of after {}",
    "running": "Still running after {}",
}
_COUNTED_STATES: dict[str, tuple[run_record.State, ...]] = {
    "done": ("done",),
    "up to date": ("skipped",),
    "failed": ("failed",),
    "interrupted": ("interrupted",),
    "killed": ("killed",),
    "running": ("running",),
}
_LISTED_EDGES = 15


def render_report(run: run_record.RecordedRun) -> str:
    """Return the page: HTML and its style in one text. The same record gives the same bytes."""
    counts = {word: run.count_steps(*states) for word, states in _COUNTED_STATES.items()}
    counts["not begun"] = max((run.begun.count("steps") or 0) - len(run.steps), 0)
    steps, time = _place_steps(run), tables.format_duration(run.seconds or 0.0)
    failed = [step for step in run.steps.values() if step.state not in ("done", "skipped", "running")]
    caches = [event for event in run.events if event.kind in ("cache", "cache-test")]
    ran = [step for step in run.steps.values() if step.state != "skipped"]
    sections = (
        ("failures", "What went wrong", failed),
        ("steps", "Steps", steps),
        ("wheels", "Wheels", _list_files(run)),
        ("checks", "Checks", _list_checks(run)),
        ("cache", "Compiler cache", caches),
        ("ninja", "What ninja ran", list(_list_ninjas(run))),
        ("commands", "Commands", ran),
    )
    templates = page_templates.make_page_templates(_TEMPLATES)
    templates.filters |= {
        "duration": lambda seconds: "" if seconds is None else tables.format_duration(seconds),
        "size": lambda size: tables.format_size(size or None, unknown=""),
        "shortened": shorten_digests,
    }
    return templates.get_template("report.html").render(
        run=run,
        verdict=_VERDICTS.get(run.state, "Failed after {}").format(time),
        counts=", ".join(f"{count} {word}" for word, count in counts.items() if count),
        warnings=list(_list_warnings(run)),
        sections=[section for section in sections if section[-1]],
        steps=steps,
    )


def _list_warnings(run: run_record.RecordedRun) -> Iterator[str]:
    if run.elsewhere:
        yield "It ran on another machine, which could not be asked whether it still runs."
    if run.damaged:
        lines = "line of the record is" if run.damaged == 1 else "lines of the record are"
        yield f"{run.damaged} {lines} damaged and left out: what follows may lack something."
    if run.torn and run.state != "running":
        yield "The last line of the record broke off and is left out."


def _place_steps(run: run_record.RecordedRun) -> list[dict[str, Any]]:
    """Return every step with its place in the run's time, in percent, and whether the run waited for it."""
    whole = max(run.last_clock - run.events[0]["clock"], 0.001) if run.events else 1.0
    critical, rows = find_critical_path(run), []
    for step in run.steps.values():
        begin, seconds = trace.find_stretch(run, step)
        left = min(begin / whole, 1.0) * 100
        width = min(seconds / whole * 100, 100 - left) if step.state != "skipped" else 0.0
        source = step.begun.part("estimate").text("source")
        place = {"left": left, "width": width}
        rows.append({"step": step, **place, "source": source, "is_critical": step in critical})
    return rows


def find_critical_path(run: run_record.RecordedRun) -> list[run_record.RecordedStep]:
    """Return the steps that made the run as long as it was, in their order: of each, what it waited for.

    That is, of the steps that it comes after, the one that ended last. Steps that did not end count for
    nothing; one that was up to date took no time, and nobody waited for it.
    """
    ends = {step.id: sum(trace.find_stretch(run, step)) for step in run.steps.values() if step.seconds}
    path: list[run_record.RecordedStep] = []
    last = max(ends, key=ends.__getitem__, default=None)
    while last is not None and run.steps[last] not in path:
        path.insert(0, run.steps[last])
        earlier = [name for name in path[0].begun.texts("after") if name in ends]
        last = max(earlier, key=ends.__getitem__, default=None)
    return path if len(path) > 1 else []


def _list_files(run: run_record.RecordedRun) -> list[dict[str, Any]]:
    """Return every file that the steps made, or had made before, with the targets of its libraries."""
    from rocm_wheels.audit import outputs

    files = []
    for step in run.steps.values():
        for output in step.outputs:
            holder, held = output if "targets" in output else step.begun, output.part("libraries")
            targets = sorted(holder.texts("targets"), key=lambda name: (len(name), name))
            file = {
                "name": (output.text("path") or "?").replace("\\", "/").rpartition("/")[2],
                "output": output,
                "is_older": step.state == "skipped",
                "version": output.text("version") or step.begun.text("version"),
                "targets": ", ".join(targets) or ("none" if holder.get("targets") == [] else "not read"),
                "libraries": outputs.group_libraries({name: frozenset(held.texts(name)) for name in held}),
            }
            files.append(file)
    return files


def _list_checks(run: run_record.RecordedRun) -> list[dict[str, Any]]:
    """Return what was found before the build, by compiling for each target, and in the wheels.

    What is said alike of several wheels is one row, with the places where it was found.
    """
    from rocm_wheels.audit import audited_wheel

    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for event in run.events:
        findings = event.parts("findings") if event.kind in ("preflight", "audit") else []
        for target, fault in event.part("targets").items() if event.kind == "probe" else ():
            if isinstance(fault, str):
                findings.append(run_record.Event(check=target, severity="error", what=fault))
        if more := event.count("more"):
            text = f"{tables.format_count(more, 'finding')} more: see the log"
            findings.append(run_record.Event(severity="info", what=text))
        for finding in findings:
            severity, what = finding.text("severity"), finding.text("what") or finding.text("text")
            new_row = {
                "severity": audited_wheel.SEVERITY_WORDS.get(severity, severity),
                "name": f"{finding.text('id')} {finding.text('check')}".strip(),
                "what": what,
                "tip": finding.text("tip"),
                "places": [],
            }
            row = rows.setdefault((severity, finding.text("check"), what), new_row)
            if wheel := event.text("wheel"):
                row["places"].append((wheel, finding.text("where")))
    ranks = {word: rank for rank, word in enumerate(audited_wheel.SEVERITY_WORDS.values())}
    return sorted(rows.values(), key=lambda row: ranks.get(row["severity"], len(ranks)))


def _list_ninjas(run: run_record.RecordedRun) -> Iterator[dict[str, Any]]:
    """Yield what each ninja ran: how much of it at a time, and what took longest; or why nobody knows."""
    for event in run.events:
        if event.kind != "ninja":
            continue
        try:
            edges = ninja_log.read_ninja_log(run.folder, event.text("log"))
        except errors.DataError as unreadable:
            yield {"step": event.text("step"), "note": f"{unreadable}.", "longest": []}
            continue
        whole = max([1, *(edge.end for edge in edges)])
        lanes = ninja_log.assign_lanes((edge.begin, edge.end) for edge in edges)
        note = (
            f"{tables.format_count(len(edges), 'command')} in {tables.format_duration(whole / 1000)}, up to "
            f"{max(lanes, default=-1) + 1} at a time and "
            f"{sum(edge.end - edge.begin for edge in edges) / whole:.1f} on average."
        )
        longest = sorted(edges, key=lambda edge: (edge.begin - edge.end, edge.outputs))[:_LISTED_EDGES]
        yield {"step": event.text("step"), "note": note, "longest": longest}
