"""The report of a run: one page of HTML that needs no network, made from its record.

An outcome in one sentence, then every section that the record has something for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rocm_wheels.core import DataError, format_count, format_duration, format_size
from rocm_wheels.pipeline.console_text import shorten_digests
from rocm_wheels.pipeline.report_drawings import draw_ninja, draw_patterns, draw_timeline
from rocm_wheels.pipeline.report_html import (
    Markup,
    join_markup,
    make_code,
    make_fact_list,
    make_outcome,
    make_table,
    make_tag,
)
from rocm_wheels.pipeline.run_record import Event, RecordedRun, RecordedStep, parse_event_time

_COUNT_FIELDS = ("hits", "misses")


def list_dropped_targets(run: RecordedRun) -> list[str]:
    """Return the targets that were left out because they do not compile."""
    return list(
        dict.fromkeys(name for probe in _list_events(run, "probe") for name in probe.get("dropped") or [])
    )


def render_preflight(run: RecordedRun) -> Markup | None:
    """List what the checks before the build found; ``None`` when they did not run."""
    events = _list_events(run, "preflight")
    if not events:
        return None
    findings = [finding for event in events for finding in event.get("findings") or []]
    if not findings:
        return make_tag("p", "Nothing was found.")
    rows = [
        [
            finding.get("check") or "",
            finding.get("severity") or "",
            join_markup(finding.get("text") or "", make_tag("span", f"Tip: {tip}", class_="of"))
            if (tip := finding.get("tip"))
            else finding.get("text") or "",
        ]
        for finding in findings
    ]
    return make_table(["check", "severity", "found"], rows, wide={2})


def render_probe(run: RecordedRun) -> Markup | None:
    """Show for which targets a small kernel compiles, and which were left out."""
    parts = []
    for event in _list_events(run, "probe"):
        faults = event.get("targets") or {}
        dropped = event.get("dropped") or []
        good = [target for target, fault in faults.items() if fault is None]
        parts.append(make_tag("p", f"Compiles for {', '.join(good)}.") if good else None)
        rows = [
            [target, make_tag("pre", fault), "left out" if target in dropped else "the build was refused"]
            for target, fault in faults.items()
            if fault is not None
        ]
        parts.append(make_table(["target", "first error", "so it was"], rows, wide={1}) if rows else None)
    return join_markup(parts) if _list_events(run, "probe") else None


def render_cache(run: RecordedRun) -> Markup | None:
    """Show the hits of the compiler cache, host and device apart, and whether it passed its test."""
    parts: list[Markup] = []
    events = [(step, event) for step in run.steps.values() for event in step.events_of_kind("cache")]
    if events:
        sides = {"host": "host code", "device": "device code"}
        if any(
            sum((event.get("unsorted") or {}).get(field) or 0 for field in _COUNT_FIELDS)
            for _, event in events
        ):
            sides["unsorted"] = "not told apart"
        head = ["step", "cache", *[title for words in sides.values() for title in (f"{words}: hits", "rate")]]
        rows = [
            [
                step.id,
                event.get("kind") or "",
                *[cell for side in sides for cell in _format_hits(event, side)],
            ]
            for step, event in events
        ]
        parts.append(make_table(head, rows, numbers=range(2, len(head))))
    for event in _list_events(run, "cache-test"):
        trusted = event.get("trusted")
        trust_text = "can be trusted" if trusted else "cannot be trusted"
        parts.append(make_tag("p", make_tag("strong", f"{event.get('kind')} {trust_text} with device code.")))
        checks = [
            [
                check.get("what") or "",
                check.get("expected"),
                check.get("seen"),
                "does not apply"
                if check.get("passed") is None
                else "passed"
                if check["passed"]
                else "FAILED",
            ]
            for check in event.get("checks") or []
        ]
        if checks:
            parts.append(make_table(["tried", "expected", "seen", "verdict"], checks))
    return join_markup(parts) if parts else None


def _format_hits(event: Event, side: str) -> tuple[str, str]:
    figures = event.get(side) or {}
    hits, misses = figures.get("hits"), figures.get("misses")
    if hits is None or misses is None:
        return "not known", ""
    if not hits + misses:
        return "no requests", ""
    return f"{hits:,} of {hits + misses:,}", f"{100 * hits / (hits + misses):.0f} %"


def _list_events(run: RecordedRun, name: str) -> list[Event]:
    return [event for event in run.events if event["event"] == name]


def render_lock(run: RecordedRun) -> Markup | None:
    """Show the lock's digest, and its content where the file still has that digest."""
    location, digest = run.begun.get("lock"), run.begun.get("lock_digest")
    if not location and not digest:
        return None
    lock_facts = make_fact_list(
        [
            ("file", make_code(location) if location else None),
            ("sha256", make_code(digest) if digest else None),
        ]
    )
    return join_markup(
        lock_facts, _render_lock_content(Path(location), digest) if location and digest else None
    )


def _render_lock_content(path: Path, digest: str) -> Markup:
    from rocm_wheels.sources import digest_lock, format_lock, read_lock

    try:
        lock = read_lock(path)
    except (DataError, OSError, ValueError):  # ValueError: of a path that cannot be one
        return make_tag(
            "p", "The file cannot be read as a lock any more: its content is not shown.", class_="note"
        )
    if digest_lock(lock) != digest:
        return make_tag("p", "The file is another lock by now: its content is not shown.", class_="note")
    return make_tag("details", make_tag("summary", "Its content"), make_tag("pre", format_lock(lock)))


_LONG_LINE = 400  # characters of a line that nobody reads at first
FAILED_STATES = ("failed", "timeout", "interrupted", "killed")


def render_steps(run: RecordedRun) -> Markup:
    """List every step: outcome, times, memory, and why it ran or did not."""
    rows = []
    for step in run.steps.values():
        ended, estimate = step.ended or {}, step.begun.get("estimate") or {}
        expected = estimate.get("seconds")
        after = step.begun.get("after") or []
        rows.append(
            [
                step.id,
                make_outcome(step.state),
                "" if step.seconds is None else format_duration(step.seconds),
                "" if expected is None else format_duration(expected),
                format_size(step.peak_memory or None, unknown=""),  # 0: it ended before anybody looked
                _format_cores(step, ended),
                join_markup(
                    shorten_digests(step.why),
                    make_tag("span", f"after {', '.join(after)}", class_="of") if after else None,
                ),
            ]
        )
    head = ["step", "outcome", "time", "expected", "peak memory", "cores", "why"]
    sources = sorted(
        {
            estimate["source"]
            for step in run.steps.values()
            if (estimate := step.begun.get("estimate")) and estimate.get("source")
        }
    )
    not_begun = [step.id for step in run.planned if step.id not in run.steps]
    return join_markup(
        make_table(head, rows, numbers={2, 3, 4, 5}, wide={6}),
        make_tag("p", "Expected times come from:", class_="note") if sources else None,
        make_tag("ul", [make_tag("li", source) for source in sources], class_="note") if sources else None,
        make_tag("p", f"Not begun: {', '.join(not_begun)}.", class_="note") if not_begun else None,
    )


def render_failures(run: RecordedRun) -> Markup | None:
    """Say what every step that did not succeed said last, what to do, and where its log is."""
    parts = []
    for step in run.steps.values():
        if step.state not in FAILED_STATES:
            continue
        ended = step.ended or {}
        message = ended.get("message") or (
            "No end is recorded: its process is gone." if step.ended is None else "No reason is recorded."
        )
        parts.append(
            make_tag(
                "article",
                make_tag("h3", step.id, " ", make_outcome(step.state)),
                _render_message(message),
                make_tag("p", make_tag("strong", "Tip: "), ended["tip"]) if ended.get("tip") else None,
                make_tag("p", "Log: ", make_code(step.log))
                if step.log and str(step.log) not in message
                else None,
                class_=f"failure {step.state}",
            )
        )
    return join_markup(parts) if parts else None


def _render_message(message: str) -> Markup:
    """Show a message; its very long lines (a command with its whole environment) are folded."""
    lines = message.strip("\n").split("\n")
    short = [line for line in lines if len(line) <= _LONG_LINE]
    long = [line.strip() for line in lines if len(line) > _LONG_LINE]
    folded = [
        make_tag("details", make_tag("summary", f"{line[:60]}…"), make_tag("pre", line), class_="inner")
        for line in long
    ]
    return join_markup(make_tag("pre", "\n".join(short)) if short else None, folded)


def render_commands(run: RecordedRun) -> Markup | None:
    """Show, folded, what every step ran: its own line, each program, and what each environment changed."""
    parts = []
    for step in run.steps.values():
        commands = step.events_of_kind("command")
        if step.state == "skipped" or not (commands or step.begun.get("command")):
            continue
        count = format_count(len(commands), "program") if commands else ""
        step_command = step.begun.get("command")
        parts.append(
            make_tag(
                "details",
                make_tag("summary", step.id, make_tag("span", count, class_="how") if count else None),
                make_tag("pre", step_command) if step_command else None,
                _render_environment(step.begun.get("environment")),
                _render_step_facts(step),
                [_render_command(command) for command in commands],
            )
        )
    return join_markup(parts) if parts else None


def _render_step_facts(step: RecordedStep) -> Markup:
    made_from = (step.ended or {}).get("fingerprint") or step.begun.get("fingerprint")
    jobs = step.begun.get("jobs")
    items = [
        f"{jobs} compile jobs" if jobs else None,
        join_markup("fingerprint ", make_code(made_from)) if made_from else None,
        join_markup("log ", make_code(step.log)) if step.log else None,
    ]
    return make_tag(
        "p",
        [join_markup(" · " if n else None, item) for n, item in enumerate(filter(None, items))],
        class_="note",
    )


def _render_command(command: Event) -> Markup:
    status, seconds = command.get("returncode"), command.get("seconds")
    notes = []
    if seconds is not None:
        notes.append(format_duration(seconds))
    if status:
        notes.append(f"killed by signal {-status}" if status < 0 else f"exit code {status}")
    if command.get("cwd"):
        notes.append(f"in {command['cwd']}")
    return make_tag(
        "div",
        make_tag("pre", command.get("command") or "?"),
        make_tag("p", " · ".join(notes), class_="note") if notes else None,
        _render_environment(command.get("environment")),
        class_="command",
    )


def _render_environment(changes: Mapping[str, str | None] | None) -> Markup | None:
    if not changes:
        return None
    rows = [
        [make_code(name), make_tag("em", "removed") if value is None else make_code(value)]
        for name, value in sorted(changes.items())
    ]
    count = format_count(len(rows), "changed variable")
    return make_tag(
        "details",
        make_tag("summary", count),
        make_table(["variable", "value"], rows, wide={1}),
        class_="inner",
    )


def _format_cores(step: RecordedStep, ended: Event) -> str:
    """Return how many cores a step kept busy on average."""
    used = ended.get("cpu_seconds")
    return f"{used / step.seconds:.1f}" if used and step.seconds else ""


_MAX_SINGLE_ROWS = 30  # libraries of a wheel; of more, those of one folder with the same targets share a row


def render_wheels(run: RecordedRun) -> Markup | None:
    """List every file that the steps made, or had made before, with its size and digest."""
    rows = []
    total = 0
    for step, output in _list_outputs(run):
        total += output.get("size") or 0
        targets = output.get("targets")
        if targets is None:
            targets = step.begun.get("targets")
        rows.append(
            [
                join_markup(
                    make_code(_read_output_name(output)),
                    make_tag("span", f"sha256 {output.get('sha256') or '?'}", class_="digest"),
                    make_tag("span", "made before this run", class_="of")
                    if step.state == "skipped"
                    else None,
                ),
                format_size(output.get("size"), unknown=""),
                output.get("version") or step.begun.get("version") or "",
                "not read" if targets is None else ", ".join(_sort_targets(targets)) or "none",
            ]
        )
    if not rows:
        return None
    where = run.begun.get("output")
    return join_markup(
        make_tag(
            "p",
            f"{format_size(total)} in all",
            join_markup(", in ", make_code(where)) if where else None,
            ".",
        ),
        make_table(["file", "size", "version", "targets"], rows, numbers={1}, wide={0, 3}),
    )


def render_device_code(run: RecordedRun) -> Markup | None:
    """Show which library holds device code for which target."""
    wheel_libraries = [
        (output, _group_libraries(output["libraries"]))
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
                _make_target_cell(target in targets, requested=target in requested) for target in columns
            ]
            rows.append([join_markup(make_tag("span", wheel, class_="of"), make_code(member)), *cells])
    head = ["library", *[make_tag("span", target, class_="upright") for target in columns]]
    extra = _sort_targets(present - set(requested)) if requested else []
    request_text = f"Asked for {', '.join(requested)}." if requested else None
    return join_markup(
        make_tag("p", request_text, f" Found besides: {', '.join(extra)}." if extra else None)
        if request_text or extra
        else None,
        make_table(head, rows, label="Device code: libraries by targets", class_="grid"),
        make_tag("p", "✓ holds device code for the target; – holds none.", class_="note"),
    )


def _list_outputs(run: RecordedRun) -> list[tuple[RecordedStep, Event]]:
    return [(step, output) for step in run.steps.values() for output in step.outputs]


def _read_output_name(output: Event) -> str:
    return str(output.get("path") or "?").replace("\\", "/").rpartition("/")[2]


def _make_target_cell(present: bool, *, requested: bool) -> Markup:
    return make_tag(
        "span", "✓" if present else "–", class_="held" if present else "lacking" if requested else "quiet"
    )


def _group_libraries(libraries: Mapping[str, Sequence[str]]) -> list[tuple[str, frozenset[str]]]:
    """Return a row a library; of very many, a row for those of one folder with the same targets."""
    if len(libraries) <= _MAX_SINGLE_ROWS:
        return [(member, frozenset(targets or ())) for member, targets in sorted(libraries.items())]
    shared: dict[tuple[str, frozenset[str]], list[str]] = {}
    for member, targets in sorted(libraries.items()):
        shared.setdefault((member.rpartition("/")[0], frozenset(targets or ())), []).append(member)
    return [
        (members[0] if len(members) == 1 else f"{folder}/ ({format_count(len(members), 'file')})", targets)
        for (folder, targets), members in shared.items()
    ]


def _sort_targets(targets: object) -> list[str]:
    assert isinstance(targets, (list, set, frozenset, tuple))
    return sorted(targets, key=lambda name: (len(name), name))


_STYLE_SHEET = Path(__file__).with_name("style.css")
_VERDICT_SENTENCES = {
    "done": "Done in {time}",
    "failed": "Failed after {time}",
    "interrupted": "Interrupted after {time}",
    "killed": "Killed; last heard of after {time}",
    "running": "Still running after {time}",
}


def render_report(run: RecordedRun) -> str:
    """Return the page: HTML, its drawings and its style in one text. The same record gives the same bytes."""
    sections = [(name, title, part) for name, title, part in _render_sections(run) if part]
    body = join_markup(
        draw_patterns(),
        _render_header(run),
        make_tag(
            "nav",
            make_tag(
                "ul", [make_tag("li", make_tag("a", title, href=f"#{name}")) for name, title, _ in sections]
            ),
            aria_label="Contents",
        ),
        make_tag(
            "main",
            [
                make_tag(
                    "section",
                    make_tag("h2", title, id=f"{name}-title"),
                    part,
                    id=name,
                    aria_labelledby=f"{name}-title",
                )
                for name, title, part in sections
            ],
        ),
        _render_footer(run),
    )
    head = join_markup(
        make_tag("meta", charset="utf-8"),
        make_tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        make_tag("meta", name="color-scheme", content="light dark"),
        make_tag("meta", name="referrer", content="no-referrer"),
        make_tag("title", f"Run {run.id}: {run.state}"),
        Markup(f"<style>\n{_STYLE_SHEET.read_text(encoding='utf-8')}</style>"),
    )
    page = join_markup(
        Markup("<!DOCTYPE html>\n"),
        make_tag("html", make_tag("head", head), "\n", make_tag("body", body), lang="en"),
    )
    return page + "\n"


def _render_sections(run: RecordedRun) -> Iterator[tuple[str, str, Markup | None]]:
    ran = [step for step in run.steps.values() if step.state != "skipped"]
    yield "failures", "What went wrong", render_failures(run)
    yield "preflight", "Checks before the build", render_preflight(run)
    yield "timeline", "Time", _render_time(run)
    yield "steps", "Steps", render_steps(run) if run.steps else None
    yield "wheels", "Wheels", render_wheels(run)
    yield "device-code", "Device code", render_device_code(run)
    yield "probe", "Targets that compile", render_probe(run)
    yield "cache", "Compiler cache", render_cache(run)
    ninjas = [(step, event) for step in ran for event in step.events_of_kind("ninja")]
    yield (
        "ninja",
        "What ninja ran",
        join_markup([(make_tag("h3", step.id), draw_ninja(run, step, event)) for step, event in ninjas])
        if ninjas
        else None,
    )
    yield "commands", "Commands", render_commands(run)
    yield "lock", "Lock", render_lock(run)


def _render_time(run: RecordedRun) -> Markup | None:
    ran = [step for step in run.steps.values() if step.state != "skipped"]
    skipped = len(run.steps) - len(ran)
    note_text = f"{skipped} {'step was' if skipped == 1 else 'steps were'} up to date and took no time."
    note = make_tag("p", note_text, class_="note") if skipped else None
    return join_markup(draw_timeline(run, ran) if ran else None, note) if run.steps else None


def _render_header(run: RecordedRun) -> Markup:
    begun = run.begun
    verdict = _VERDICT_SENTENCES[run.state].format(time=format_duration(run.seconds or 0.0))
    when = f"{parse_event_time(begun).day} {parse_event_time(begun):%B %Y, %H:%M} UTC" if begun else None
    cores = f"{begun['cores']:g} cores" if begun.get("cores") else None
    machine = [begun.get("platform"), cores, format_size(begun.get("memory"), unknown="")]
    dropped = list_dropped_targets(run)
    return make_tag(
        "header",
        make_tag("p", "rocm-wheels run ", make_tag("b", run.id), class_="kicker"),
        make_tag("h1", verdict, class_=run.state),
        make_tag("p", _summarize_steps(run), class_="lead"),
        [make_tag("p", warning, class_="warning") for warning in _list_warnings(run)],
        make_fact_list(
            [
                ("began", when),
                ("host", begun.get("host")),
                ("machine", ", ".join(filter(None, machine))),
                ("rocm-wheels", begun.get("version")),
                ("targets", ", ".join(begun.get("targets") or [])),
                ("left out", ", ".join(dropped)),
                ("Pythons", ", ".join(begun.get("pythons") or [])),
                ("output", make_code(begun["output"]) if begun.get("output") else None),
                ("lock, sha256", make_code(begun["lock_digest"]) if begun.get("lock_digest") else None),
            ]
        ),
        make_tag("pre", begun["command"], class_="line") if begun.get("command") else None,
    )


def _summarize_steps(run: RecordedRun) -> str:
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


def _list_warnings(run: RecordedRun) -> Iterator[str]:
    if run.elsewhere:
        yield "It ran on another machine, which could not be asked whether it still runs."
    if dropped := list_dropped_targets(run):
        yield f"{', '.join(dropped)}: left out, because a small kernel did not compile for it."
    if run.damaged:
        lines = "line of the record is" if run.damaged == 1 else "lines of the record are"
        yield f"{run.damaged} {lines} damaged and left out: what follows may lack something."
    if run.torn and run.state != "running":
        yield "The last line of the record broke off and is left out."


def _render_footer(run: RecordedRun) -> Markup:
    return make_tag("footer", make_tag("p", "Made from the record in ", make_code(run.folder), "."))
