"""The steps of a run: how each ended and why it ran, what went wrong, which commands ran where."""

from __future__ import annotations

from collections.abc import Mapping

from rocm_wheels.pipeline.record.plain import brief
from rocm_wheels.pipeline.record.reading import Run, StepView
from rocm_wheels.pipeline.record.vocabulary import Event
from rocm_wheels.pipeline.report.markup import Markup, join, tag
from rocm_wheels.pipeline.report.tables import code, outcome, table
from rocm_wheels.pipeline.summary import human_size, human_time
from rocm_wheels.words import counted

_LONG = 400  # characters of a line that nobody reads at first
WRONG = ("failed", "timeout", "interrupted", "killed")


def steps_part(run: Run) -> Markup:
    """List every step: outcome, times, memory, and why it ran or did not."""
    rows = []
    for step in run.steps.values():
        ended, estimate = step.ended or {}, step.begun.get("estimate") or {}
        expected = estimate.get("seconds")
        after = step.begun.get("after") or []
        rows.append(
            [
                step.id,
                outcome(step.state),
                "" if step.seconds is None else human_time(step.seconds),
                "" if expected is None else human_time(expected),
                human_size(step.peak_memory or None),  # 0: it ended before anybody looked
                _cores(step, ended),
                join(
                    brief(step.why), tag("span", f"after {', '.join(after)}", class_="of") if after else None
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
    waiting = [step.id for step in run.planned if step.id not in run.steps]
    return join(
        table(head, rows, numbers={2, 3, 4, 5}, wide={6}),
        tag("p", "Expected times come from:", class_="note") if sources else None,
        tag("ul", [tag("li", source) for source in sources], class_="note") if sources else None,
        tag("p", f"Not begun: {', '.join(waiting)}.", class_="note") if waiting else None,
    )


def failures_part(run: Run) -> Markup | None:
    """Say what every step that did not succeed said last, what to do, and where its log is."""
    parts = []
    for step in run.steps.values():
        if step.state not in WRONG:
            continue
        ended = step.ended or {}
        message = ended.get("message") or (
            "No end is recorded: its process is gone." if step.ended is None else "No reason is recorded."
        )
        parts.append(
            tag(
                "article",
                tag("h3", step.id, " ", outcome(step.state)),
                _message(message),
                tag("p", tag("strong", "Tip: "), ended["tip"]) if ended.get("tip") else None,
                tag("p", "Log: ", code(step.log)) if step.log and str(step.log) not in message else None,
                class_=f"failure {step.state}",
            )
        )
    return join(parts) if parts else None


def _message(message: str) -> Markup:
    """Show a message; its very long lines (a command with its whole environment) are folded."""
    lines = message.strip("\n").split("\n")
    short = [line for line in lines if len(line) <= _LONG]
    long = [line.strip() for line in lines if len(line) > _LONG]
    folded = [
        tag("details", tag("summary", f"{line[:60]}…"), tag("pre", line), class_="inner") for line in long
    ]
    return join(tag("pre", "\n".join(short)) if short else None, folded)


def commands_part(run: Run) -> Markup | None:
    """Show, folded, what every step ran: its own line, each program, and what each environment changed."""
    parts = []
    for step in run.steps.values():
        commands = step.of("command")
        if step.state == "skipped" or not (commands or step.begun.get("command")):
            continue
        count = counted(len(commands), "program") if commands else ""
        own = step.begun.get("command")
        parts.append(
            tag(
                "details",
                tag("summary", step.id, tag("span", count, class_="how") if count else None),
                tag("pre", own) if own else None,
                _environment(step.begun.get("environment")),
                _facts(step),
                [_command(command) for command in commands],
            )
        )
    return join(parts) if parts else None


def _facts(step: StepView) -> Markup:
    made_from = (step.ended or {}).get("fingerprint") or step.begun.get("fingerprint")
    jobs = step.begun.get("jobs")
    said = [
        f"{jobs} compile jobs" if jobs else None,
        join("fingerprint ", code(made_from)) if made_from else None,
        join("log ", code(step.log)) if step.log else None,
    ]
    return tag(
        "p", [join(" · " if n else None, one) for n, one in enumerate(filter(None, said))], class_="note"
    )


def _command(command: Event) -> Markup:
    status, seconds = command.get("returncode"), command.get("seconds")
    said = []
    if seconds is not None:
        said.append(human_time(seconds))
    if status:
        said.append(f"killed by signal {-status}" if status < 0 else f"exit code {status}")
    if command.get("cwd"):
        said.append(f"in {command['cwd']}")
    return tag(
        "div",
        tag("pre", command.get("command") or "?"),
        tag("p", " · ".join(said), class_="note") if said else None,
        _environment(command.get("environment")),
        class_="command",
    )


def _environment(changes: Mapping[str, str | None] | None) -> Markup | None:
    if not changes:
        return None
    rows = [
        [code(name), tag("em", "removed") if value is None else code(value)]
        for name, value in sorted(changes.items())
    ]
    count = f"{len(rows)} changed {'variable' if len(rows) == 1 else 'variables'}"
    return tag("details", tag("summary", count), table(["variable", "value"], rows, wide={1}), class_="inner")


def _cores(step: StepView, ended: Event) -> str:
    """Return how many cores a step kept busy on average."""
    used = ended.get("cpu_seconds")
    return f"{used / step.seconds:.1f}" if used and step.seconds else ""
