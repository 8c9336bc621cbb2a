"""The page of a run: an outcome in one sentence, then every part that its record has something for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.pipeline.record.reading import RecordedRun
from rocm_wheels.pipeline.record.vocabulary import parse_event_time
from rocm_wheels.pipeline.report.edges import draw_ninja
from rocm_wheels.pipeline.report.findings import (
    render_cache,
    list_dropped_targets,
    render_preflight,
    render_probe,
)
from rocm_wheels.pipeline.report.lock import render_lock
from rocm_wheels.pipeline.report.markup import Markup, join_markup, make_tag
from rocm_wheels.pipeline.report.steps import render_commands, render_failures, render_steps
from rocm_wheels.pipeline.report.tables import make_code, make_fact_list
from rocm_wheels.pipeline.report.timeline import draw_patterns, draw_timeline
from rocm_wheels.pipeline.report.wheels import render_device_code, render_wheels
from rocm_wheels.pipeline.summary import format_size, format_duration

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
    machine = [begun.get("platform"), cores, format_size(begun.get("memory"))]
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
