"""The report of a run: one page of HTML that needs no network, made from its record.

An outcome in one sentence, then every section that the record has something for: ``describe_…`` says what a
section shows, ``templates`` how it looks. Steps are bars on one axis of time, in CSS; ``trace`` draws the
commands that ninja ran. There is no script: a command is selected whole by one click.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocm_wheels.core import errors, page_templates, tables
from rocm_wheels.pipeline import ninja_log, run_record
from rocm_wheels.pipeline.status import shorten_digests


def place_timeline(run: run_record.RecordedRun, steps: Sequence[run_record.RecordedStep]) -> dict[str, Any]:
    """Place the steps that ran, in the order in which they began, in percent of the run's time."""
    whole, rows = max(run.last_clock - run.first_clock, 0.001), []
    for step in steps:
        begin, length = _find_stretch(run, step)
        left = max(min(begin / whole, 1.0), 0.0) * 100
        width = max(min(length / whole * 100, 100 - left), 0.0)
        outcome = describe_outcome(step, length)
        rows.append({"name": step.id, "outcome": outcome, "state": step.state, "left": left, "width": width})
    return {"seconds": tables.format_duration(whole), "rows": rows}


def describe_outcome(step: run_record.RecordedStep, length: float) -> str:
    """Say how a step ended and after how long."""
    if step.state == "done":
        return tables.format_duration(length)
    if step.state == "running":
        return f"running for {tables.format_duration(length)}"
    if step.ended is None:
        return f"{step.state}, no end recorded"
    return f"{step.state} after {tables.format_duration(length)}"


def _find_stretch(run: run_record.RecordedRun, step: run_record.RecordedStep) -> tuple[float, float]:
    """Return when a step began, in seconds since the run did, and how long it took as far as is known."""
    begin = max(step.begun["clock"] - run.first_clock, 0.0)
    seconds = step.seconds
    return begin, max(run.last_clock - step.begun["clock"], 0.0) if seconds is None else seconds


_LISTED_EDGES = 15

EDGE_KIND_WORDS = {
    "device": "device code (HIP)",
    "host": "host code",
    "link": "libraries",
    "other": "other commands",
}


def describe_ninja(
    run: run_record.RecordedRun, step: run_record.RecordedStep, event: run_record.Event
) -> dict[str, Any]:
    """Describe one ninja: figures a kind, the longest edges; or a note why its log cannot be shown."""
    try:
        edges = ninja_log.read_ninja_log(ninja_log.find_ninja_log(run, event))
    except errors.DataError as unreadable:
        return {"step": step.id, "note": str(unreadable)}
    if not edges:
        return {"step": step.id, "note": "ninja had nothing to do."}
    whole = max([1, *(edge.end for edge in edges)])
    work = sum(edge.milliseconds for edge in edges)
    caption = (
        f"{tables.format_count(len(edges), 'command')} in {tables.format_duration(whole / 1000)}, "
        f"up to {len(ninja_log.assign_lanes(edges))} at a time and "
        f"{work / whole:.1f} on average."
    )
    return {
        "step": step.id,
        "note": "",
        "caption": caption,
        "kinds": _list_kinds(edges),
        "longest": _list_longest(edges),
    }


def _list_kinds(edges: Sequence[ninja_log.NinjaEdge]) -> list[list[str]]:
    """Return a row a kind of command: how many, their time in all, and that of the longest."""
    rows = []
    for kind, words in EDGE_KIND_WORDS.items():
        times = [edge.milliseconds / 1000 for edge in edges if edge.kind == kind]
        if times:
            rows.append(
                [
                    words,
                    f"{len(times):,}",
                    tables.format_duration(sum(times)),
                    tables.format_duration(max(times)),
                ]
            )
    return rows


def _list_longest(edges: Sequence[ninja_log.NinjaEdge]) -> list[tuple[str, str, str]]:
    """Return what the longest commands made, their time, and when they began."""
    chosen = sorted(edges, key=lambda edge: (-edge.milliseconds, edge.outputs))[:_LISTED_EDGES]
    return [
        (
            edge.outputs[0],
            tables.format_duration(edge.milliseconds / 1000),
            tables.format_duration(edge.begin / 1000),
        )
        for edge in chosen
    ]


_COUNT_FIELDS = ("hits", "misses")


def list_dropped_targets(run: run_record.RecordedRun) -> list[str]:
    """Return the targets that were left out because they do not compile."""
    return list(
        dict.fromkeys(name for probe in _list_events(run, "probe") for name in probe.get("dropped") or [])
    )


def describe_preflight(run: run_record.RecordedRun) -> dict[str, Any] | None:
    """List what the checks before the build found; ``None`` when they did not run."""
    events = _list_events(run, "preflight")
    all_findings = [finding for event in events for finding in event.get("findings") or []]
    keys = ("check", "severity", "text", "tip")
    findings = [{key: finding.get(key) for key in keys} for finding in all_findings]
    return {"findings": findings} if events else None


def describe_probe(run: run_record.RecordedRun) -> list[dict[str, Any]]:
    """Say for which targets a small kernel compiles, and which were left out."""
    probes = []
    for event in _list_events(run, "probe"):
        texts = event.get("targets") or {}
        dropped = event.get("dropped") or []
        faults = [
            {"target": target, "text": text, "is_dropped": target in dropped}
            for target, text in texts.items()
            if text is not None
        ]
        good = ", ".join(target for target, text in texts.items() if text is None)
        probes.append({"good": good, "faults": faults})
    return probes


def describe_cache(run: run_record.RecordedRun) -> dict[str, Any] | None:
    """Return the hits of the compiler cache, host and device apart, and whether it passed its test."""
    events = [(step, event) for step in run.steps.values() for event in step.events_of_kind("cache")]
    sides = {"host": "host code", "device": "device code"}
    if any(_has_counts(event, "unsorted") for _, event in events):
        sides["unsorted"] = "not told apart"
    head = ["step", "cache"]
    for words in sides.values():
        head += [f"{words}: hits", "rate"]
    rows = []
    for step, event in events:
        row = [step.id, event.get("kind") or ""]
        for side in sides:
            row += _format_hits(event, side)
        rows.append(row)
    tests = []
    for event in _list_events(run, "cache-test"):
        checks = [
            (check.get("what") or "", check.get("expected"), check.get("seen"), _word_verdict(check))
            for check in event.get("checks") or []
        ]
        tests.append({"kind": event.get("kind"), "trusted": event.get("trusted"), "checks": checks})
    return {"head": head, "rows": rows, "tests": tests} if rows or tests else None


def _has_counts(event: run_record.Event, side: str) -> bool:
    figures = event.get(side) or {}
    return any(figures.get(field) for field in _COUNT_FIELDS)


def _word_verdict(check: Mapping[str, Any]) -> str:
    if check.get("passed") is None:
        return "does not apply"
    return "passed" if check["passed"] else "FAILED"


def _format_hits(event: run_record.Event, side: str) -> tuple[str, str]:
    figures = event.get(side) or {}
    hits, misses = figures.get("hits"), figures.get("misses")
    if hits is None or misses is None:
        return "not known", ""
    if not hits + misses:
        return "no requests", ""
    return f"{hits:,} of {hits + misses:,}", f"{100 * hits / (hits + misses):.0f} %"


def _list_events(run: run_record.RecordedRun, name: str) -> list[run_record.Event]:
    return [event for event in run.events if event["event"] == name]


def describe_lock(run: run_record.RecordedRun) -> dict[str, Any] | None:
    """Return the lock's digest, and its content where the file still has that digest."""
    file, digest = run.begun.get("lock"), run.begun.get("lock_digest")
    if not file and not digest:
        return None
    note, content = _read_lock_content(Path(file), digest) if file and digest else ("", "")
    return {"file": file, "digest": digest, "note": note, "content": content}


def _read_lock_content(path: Path, digest: str) -> tuple[str, str]:
    """Return why a lock cannot be shown, or its content."""
    from rocm_wheels.sources.lock import digest_lock, format_lock, read_lock

    try:
        lock = read_lock(path)
    except (errors.DataError, OSError, ValueError):  # ValueError: of a path that cannot be one
        return "The file cannot be read as a lock any more: its content is not shown.", ""
    if digest_lock(lock) != digest:
        return "The file is another lock by now: its content is not shown.", ""
    return "", format_lock(lock)


_LONG_LINE = 400  # characters of a line that nobody reads at first
FAILED_STATES = ("failed", "timeout", "interrupted", "killed")


def describe_steps(run: run_record.RecordedRun) -> dict[str, Any] | None:
    """List every step: outcome, times, memory, and why it ran or did not."""
    steps, sources = [], set()
    for step in run.steps.values():
        estimate = step.begun.get("estimate") or {}
        expected = estimate.get("seconds")
        sources.add(estimate.get("source"))
        steps.append(
            {
                "id": step.id,
                "state": step.state,
                "time": "" if step.seconds is None else tables.format_duration(step.seconds),
                "expected": "" if expected is None else tables.format_duration(expected),
                "memory": tables.format_size(
                    step.peak_memory or None, unknown=""
                ),  # 0: ended before anybody looked
                "cores": _format_cores(step, step.ended or {}),
                "why": shorten_digests(step.why),
                "after": ", ".join(step.begun.get("after") or []),
            }
        )
    not_begun = ", ".join(step.id for step in run.planned if step.id not in run.steps)
    named_sources = sorted(source for source in sources if source)
    return {"steps": steps, "sources": named_sources, "not_begun": not_begun} if steps else None


def find_critical_path(run: run_record.RecordedRun) -> list[run_record.RecordedStep]:
    """Return the steps that made the run as long as it was, in their order: of each, what it waited for.

    That is, of the steps that it comes after, the one that ended last. Steps that did not end count for
    nothing; one that was up to date took no time, and nobody waited for it.
    """
    ended = {step.id: step for step in run.steps.values() if step.ended is not None and step.seconds}
    path: list[run_record.RecordedStep] = []
    last = max(ended.values(), key=_find_end, default=None)
    while last is not None and last not in path:
        path.insert(0, last)
        earlier = [ended[name] for name in last.begun.get("after") or [] if name in ended]
        last = max(earlier, key=_find_end, default=None)
    return path


def _find_end(step: run_record.RecordedStep) -> float:
    return float(step.begun["clock"]) + (step.seconds or 0.0)


def describe_critical_path(run: run_record.RecordedRun) -> dict[str, Any] | None:
    """Say which steps made the run as long as it was, and how much of its time each took."""
    path, whole = find_critical_path(run), run.seconds or 0.0
    if len(path) < 2 or not whole:
        return None
    busy = sum(step.seconds or 0.0 for step in path)
    rows = [
        (step.id, tables.format_duration(step.seconds or 0.0), _format_share(step, whole)) for step in path
    ]
    return {"rows": rows, "other": tables.format_duration(max(whole - busy, 0.0))}


def _format_share(step: run_record.RecordedStep, whole: float) -> str:
    return f"{100 * (step.seconds or 0.0) / whole:.0f} %"


def describe_comparison(
    run: run_record.RecordedRun, before: run_record.RecordedRun | None
) -> dict[str, Any] | None:
    """Compare the times of the steps that were done in both runs, the largest change first."""
    if before is None:
        return None
    pairs = []
    for step in run.steps.values():
        other = before.steps.get(step.id)
        if other is not None and step.state == other.state == "done" and step.seconds and other.seconds:
            pairs.append((step, step.seconds, other.seconds))
    pairs.sort(key=lambda pair: -abs(pair[1] - pair[2]))
    rows = [
        (
            step.id,
            tables.format_duration(now),
            tables.format_duration(earlier),
            _format_change(now, earlier),
            step.why,
        )
        for step, now, earlier in pairs
    ]
    return {"run": before.id, "rows": rows} if rows else None


def _format_change(now: float, earlier: float) -> str:
    """Return how much longer or shorter something took, in percent of before."""
    percent = round(100 * (now - earlier) / earlier)
    return f"+{percent} %" if percent > 0 else f"−{-percent} %" if percent else "0 %"


def describe_failures(run: run_record.RecordedRun) -> list[dict[str, Any]]:
    """Say what every step that did not succeed said last, what to do, and where its log is.

    Very long lines of a message (a command with its whole environment) are told apart: they are folded.
    """
    failures = []
    for step in run.steps.values():
        if step.state not in FAILED_STATES:
            continue
        ended = step.ended or {}
        message = ended.get("message") or (
            "No end is recorded: its process is gone." if step.ended is None else "No reason is recorded."
        )
        lines = message.strip("\n").split("\n")
        failures.append(
            {
                "step": step.id,
                "state": step.state,
                "short": "\n".join(line for line in lines if len(line) <= _LONG_LINE),
                "long": [line.strip() for line in lines if len(line) > _LONG_LINE],
                "tip": ended.get("tip"),
                "log": step.log if step.log and str(step.log) not in message else None,
            }
        )
    return failures


def describe_commands(run: run_record.RecordedRun) -> list[dict[str, Any]]:
    """Return what every step ran: its own line, each program, and what each environment changed."""
    steps = []
    for step in run.steps.values():
        commands = step.events_of_kind("command")
        if step.state == "skipped" or not (commands or step.begun.get("command")):
            continue
        steps.append(
            {
                "id": step.id,
                "command": step.begun.get("command"),
                "environment": step.begun.get("environment"),
                "facts": list(_list_step_facts(step)),
                "commands": [_describe_command(command) for command in commands],
            }
        )
    return steps


def _list_step_facts(step: run_record.RecordedStep) -> Iterator[tuple[str, object]]:
    """Yield facts of a step as words, and what of it is read by machines."""
    if jobs := step.begun.get("jobs"):
        yield f"{jobs} compile jobs", None
    if made_from := (step.ended or {}).get("fingerprint") or step.begun.get("fingerprint"):
        yield "fingerprint ", made_from
    if step.log:
        yield "log ", step.log


def _describe_command(command: run_record.Event) -> dict[str, Any]:
    status, seconds = command.get("returncode"), command.get("seconds")
    notes = []
    if seconds is not None:
        notes.append(tables.format_duration(seconds))
    if status:
        notes.append(f"killed by signal {-status}" if status < 0 else f"exit code {status}")
    if command.get("cwd"):
        notes.append(f"in {command['cwd']}")
    line = command.get("command") or "?"
    return {"line": line, "notes": " · ".join(notes), "environment": command.get("environment")}


def _format_cores(step: run_record.RecordedStep, ended: run_record.Event) -> str:
    """Return how many cores a step kept busy on average."""
    used = ended.get("cpu_seconds")
    return f"{used / step.seconds:.1f}" if used and step.seconds else ""


def describe_wheels(run: run_record.RecordedRun) -> dict[str, Any] | None:
    """List every file that the steps made, or had made before, with its size and digest."""
    files = []
    for step, output in _list_outputs(run):
        targets = output.get("targets")
        if targets is None:
            targets = step.begun.get("targets")
        files.append(
            {
                "name": _read_output_name(output),
                "sha256": output.get("sha256") or "?",
                "is_older": step.state == "skipped",
                "note": output.get("note") or "",
                "size": tables.format_size(output.get("size"), unknown=""),
                "version": output.get("version") or step.begun.get("version") or "",
                "targets": "not read" if targets is None else ", ".join(_sort_targets(targets)) or "none",
            }
        )
    total = tables.format_size(sum(output.get("size") or 0 for _, output in _list_outputs(run)))
    return {"files": files, "total": total, "output": run.begun.get("output")} if files else None


def describe_device_code(run: run_record.RecordedRun) -> dict[str, Any] | None:
    """Say which library holds device code for which target."""
    from rocm_wheels.audit import set_page

    wheel_libraries = [
        (
            output,
            set_page.group_libraries({m: frozenset(held or ()) for m, held in output["libraries"].items()}),
        )
        for _, output in _list_outputs(run)
        if output.get("libraries")
    ]
    if not wheel_libraries:
        return None
    requested = run.begun.get("targets") or []
    present = {target for _, libraries in wheel_libraries for _, targets in libraries for target in targets}
    columns = [*requested, *_sort_targets(present - set(requested))]
    rows = []
    for output, libraries in wheel_libraries:
        wheel = _read_output_name(output).partition("-")[0]
        for member, targets in libraries:
            cells = [
                "held" if target in targets else "lacking" if target in requested else "quiet"
                for target in columns
            ]
            rows.append({"wheel": wheel, "member": member, "cells": cells})
    extra = _sort_targets(present - set(requested)) if requested else []
    return {
        "requested": ", ".join(requested),
        "extra": ", ".join(extra),
        "columns": columns,
        "libraries": rows,
    }


def describe_audit(run: run_record.RecordedRun) -> dict[str, Any] | None:
    """Return what checks found in the wheels that were made, gravest first, and what those checks are about.

    What is said alike of several wheels is one row.
    """
    from rocm_wheels.audit import audited_wheel
    from rocm_wheels.audit.checks import ALL_CHECKS

    events = _list_events(run, "audit")
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for event in events:
        wheel = str(event.get("wheel") or "?")
        for finding in event.get("findings") or []:
            severity, check = str(finding.get("severity") or ""), str(finding.get("check") or "")
            row = {key: finding.get(key) or "" for key in ("id", "check", "what", "tip")}
            row |= {"severity": audited_wheel.SEVERITY_WORDS.get(severity, severity), "places": {}}
            key = severity, check, str(finding.get("what") or "")
            places: dict[str, list[str]] = groups.setdefault(key, row)["places"]
            places.setdefault(wheel, []).append(str(finding.get("where") or ""))
    ranks = {severity: rank for rank, severity in enumerate(audited_wheel.SEVERITY_WORDS)}
    rows = sorted(groups.items(), key=lambda item: ranks.get(item[0][0], len(ranks)))
    used = {check for _, check, _ in groups}
    return (
        {
            "wheels": len(events),
            "rows": [row for _, row in rows],
            "more": sum(event.get("more") or 0 for event in events),
            "checks": [check for check in ALL_CHECKS if check.name in used],
            "known": [check.id for check in ALL_CHECKS if check.name in used],
        }
        if events
        else None
    )


def _list_outputs(run: run_record.RecordedRun) -> list[tuple[run_record.RecordedStep, run_record.Event]]:
    return [(step, output) for step in run.steps.values() for output in step.outputs]


def _read_output_name(output: run_record.Event) -> str:
    return str(output.get("path") or "?").replace("\\", "/").rpartition("/")[2]


def _sort_targets(targets: object) -> list[str]:
    assert isinstance(targets, (list, set, frozenset, tuple))
    return sorted(targets, key=lambda name: (len(name), name))


_TEMPLATES = Path(__file__).with_name("templates")
_VERDICT_SENTENCES = {
    "done": "Done in {time}",
    "failed": "Failed after {time}",
    "interrupted": "Interrupted after {time}",
    "killed": "Killed; last heard of after {time}",
    "running": "Still running after {time}",
}


def render_report(run: run_record.RecordedRun, before: run_record.RecordedRun | None = None) -> str:
    """Return the page: HTML and its style in one text. The same records give the same bytes.

    ``before``: the run that it is compared with.
    """
    sections = [
        {"name": name, "title": title, "data": data}
        for name, title, data in _list_sections(run, before)
        if data
    ]
    timeline = next(
        (section["data"]["timeline"] for section in sections if section["name"] == "timeline"), None
    )
    return (
        page_templates.make_page_templates(_TEMPLATES)
        .get_template("report.html")
        .render(
            run=run,
            verdict=_VERDICT_SENTENCES[run.state].format(time=tables.format_duration(run.seconds or 0.0)),
            lead=_summarize_steps(run),
            warnings=list(_list_warnings(run)),
            run_facts=_list_run_facts(run),
            command=run.begun.get("command"),
            sections=sections,
            bars=timeline["rows"] if timeline else [],
        )
    )


def _list_sections(
    run: run_record.RecordedRun, before: run_record.RecordedRun | None
) -> Iterator[tuple[str, str, Any]]:
    ran = [step for step in run.steps.values() if step.state != "skipped"]
    yield "failures", "What went wrong", describe_failures(run)
    yield "preflight", "Checks before the build", describe_preflight(run)
    yield "timeline", "Time", _describe_time(run, ran)
    yield "steps", "Steps", describe_steps(run)
    yield "comparison", "Compared with the run before", describe_comparison(run, before)
    yield "wheels", "Wheels", describe_wheels(run)
    yield "device-code", "Device code", describe_device_code(run)
    yield "audit", "Audit", describe_audit(run)
    yield "probe", "Targets that compile", describe_probe(run)
    yield "cache", "Compiler cache", describe_cache(run)
    ninjas = [describe_ninja(run, step, event) for step in ran for event in step.events_of_kind("ninja")]
    yield "ninja", "What ninja ran", ninjas
    yield "commands", "Commands", describe_commands(run)
    yield "lock", "Lock", describe_lock(run)


def _describe_time(
    run: run_record.RecordedRun, ran: Sequence[run_record.RecordedStep]
) -> dict[str, Any] | None:
    if not run.steps:
        return None
    timeline = place_timeline(run, ran) if ran else None
    return {
        "timeline": timeline,
        "skipped": len(run.steps) - len(ran),
        "critical": describe_critical_path(run),
    }


def _list_run_facts(run: run_record.RecordedRun) -> list[tuple[str, object, bool]]:
    """Return facts of a run: name, value, and whether machines read it."""
    begun = run.begun
    when = (
        f"{run_record.parse_event_time(begun).day} {run_record.parse_event_time(begun):%B %Y, %H:%M} UTC"
        if begun
        else None
    )
    cores = f"{begun['cores']:g} cores" if begun.get("cores") else None
    machine = [begun.get("platform"), cores, tables.format_size(begun.get("memory"), unknown="")]
    return [
        ("began", when, False),
        ("host", begun.get("host"), False),
        ("machine", ", ".join(filter(None, machine)), False),
        ("rocm-wheels", begun.get("version"), False),
        ("targets", ", ".join(begun.get("targets") or []), False),
        ("left out", ", ".join(list_dropped_targets(run)), False),
        ("Pythons", ", ".join(begun.get("pythons") or []), False),
        ("output", begun.get("output"), True),
        ("lock, sha256", begun.get("lock_digest"), True),
    ]


def _summarize_steps(run: run_record.RecordedRun) -> str:
    """Say in numbers what a run came to."""
    counts = [
        (run.count_steps("done"), "done"),
        (run.count_steps("skipped"), "up to date"),
        (run.count_steps("failed", "timeout"), "failed"),
        (run.count_steps("interrupted"), "interrupted"),
        (run.count_steps("killed"), "killed"),
        (run.count_steps("running"), "running"),
        (max((run.begun.get("steps") or 0) - len(run.steps), 0), "not begun"),
    ]
    counts_text = ", ".join(f"{count} {word}" for count, word in counts if count)
    return f"Steps: {counts_text}." if counts_text else "No step is recorded."


def _list_warnings(run: run_record.RecordedRun) -> Iterator[str]:
    if run.elsewhere:
        yield "It ran on another machine, which could not be asked whether it still runs."
    if dropped := list_dropped_targets(run):
        yield f"{', '.join(dropped)}: left out, because a small kernel did not compile for it."
    if run.damaged:
        lines = "line of the record is" if run.damaged == 1 else "lines of the record are"
        yield f"{run.damaged} {lines} damaged and left out: what follows may lack something."
    if run.torn and run.state != "running":
        yield "The last line of the record broke off and is left out."
