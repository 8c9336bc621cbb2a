"""The steps of a run: how each ended and why it ran, what went wrong, which commands ran where."""

from __future__ import annotations

from collections.abc import Mapping

from rocm_wheels.pipeline.record.plain import shorten_digests
from rocm_wheels.pipeline.record.reading import RecordedRun, RecordedStep
from rocm_wheels.pipeline.record.vocabulary import Event
from rocm_wheels.pipeline.report.markup import Markup, join_markup, make_tag
from rocm_wheels.pipeline.report.tables import make_code, make_outcome, make_table
from rocm_wheels.pipeline.summary import format_size, format_duration
from rocm_wheels.words import format_count

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
                format_size(step.peak_memory or None),  # 0: it ended before anybody looked
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
    count = f"{len(rows)} changed {'variable' if len(rows) == 1 else 'variables'}"
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
