"""The page of a run: an outcome in one sentence, then every part that its record has something for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.pipeline.record.reading import Run
from rocm_wheels.pipeline.record.vocabulary import time_of
from rocm_wheels.pipeline.report.edges import ninja_part
from rocm_wheels.pipeline.report.findings import cache_part, dropped_targets, preflight_part, probe_part
from rocm_wheels.pipeline.report.lock import lock_part
from rocm_wheels.pipeline.report.markup import Markup, join, tag
from rocm_wheels.pipeline.report.steps import commands_part, failures_part, steps_part
from rocm_wheels.pipeline.report.tables import code, facts
from rocm_wheels.pipeline.report.timeline import patterns, timeline
from rocm_wheels.pipeline.report.wheels import device_code_part, wheels_part
from rocm_wheels.pipeline.summary import human_size, human_time

_STYLE = Path(__file__).with_name("style.css")
_VERDICTS = {
    "done": "Done in {time}",
    "failed": "Failed after {time}",
    "interrupted": "Interrupted after {time}",
    "killed": "Killed; last heard of after {time}",
    "running": "Still running after {time}",
}


def report_page(run: Run) -> str:
    """Return the page: HTML, its drawings and its style in one text. The same record gives the same bytes."""
    sections = [(name, title, part) for name, title, part in _parts(run) if part]
    body = join(
        patterns(),
        _header(run),
        tag(
            "nav",
            tag("ul", [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in sections]),
            aria_label="Contents",
        ),
        tag(
            "main",
            [
                tag(
                    "section",
                    tag("h2", title, id=f"{name}-title"),
                    part,
                    id=name,
                    aria_labelledby=f"{name}-title",
                )
                for name, title, part in sections
            ],
        ),
        _footer(run),
    )
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"Run {run.id}: {run.state}"),
        Markup(f"<style>\n{_STYLE.read_text(encoding='utf-8')}</style>"),
    )
    page = join(
        Markup("<!DOCTYPE html>\n"), tag("html", tag("head", head), "\n", tag("body", body), lang="en")
    )
    return page + "\n"


def _parts(run: Run) -> Iterator[tuple[str, str, Markup | None]]:
    ran = [step for step in run.steps.values() if step.state != "skipped"]
    yield "failures", "What went wrong", failures_part(run)
    yield "preflight", "Checks before the build", preflight_part(run)
    yield "timeline", "Time", _time(run)
    yield "steps", "Steps", steps_part(run) if run.steps else None
    yield "wheels", "Wheels", wheels_part(run)
    yield "device-code", "Device code", device_code_part(run)
    yield "probe", "Targets that compile", probe_part(run)
    yield "cache", "Compiler cache", cache_part(run)
    ninjas = [(step, event) for step in ran for event in step.of("ninja")]
    yield (
        "ninja",
        "What ninja ran",
        join([(tag("h3", step.id), ninja_part(run, step, event)) for step, event in ninjas])
        if ninjas
        else None,
    )
    yield "commands", "Commands", commands_part(run)
    yield "lock", "Lock", lock_part(run)


def _time(run: Run) -> Markup | None:
    ran = [step for step in run.steps.values() if step.state != "skipped"]
    skipped = len(run.steps) - len(ran)
    said = f"{skipped} {'step was' if skipped == 1 else 'steps were'} up to date and took no time."
    note = tag("p", said, class_="note") if skipped else None
    return join(timeline(run, ran) if ran else None, note) if run.steps else None


def _header(run: Run) -> Markup:
    begun = run.begun
    verdict = _VERDICTS[run.state].format(time=human_time(run.seconds or 0.0))
    when = f"{time_of(begun).day} {time_of(begun):%B %Y, %H:%M} UTC" if begun else None
    cores = f"{begun['cores']:g} cores" if begun.get("cores") else None
    machine = [begun.get("platform"), cores, human_size(begun.get("memory"))]
    dropped = dropped_targets(run)
    return tag(
        "header",
        tag("p", "rocm-wheels run ", tag("b", run.id), class_="kicker"),
        tag("h1", verdict, class_=run.state),
        tag("p", _sentence(run), class_="lead"),
        [tag("p", said, class_="warning") for said in _warnings(run)],
        facts(
            [
                ("began", when),
                ("host", begun.get("host")),
                ("machine", ", ".join(filter(None, machine))),
                ("rocm-wheels", begun.get("version")),
                ("targets", ", ".join(begun.get("targets") or [])),
                ("left out", ", ".join(dropped)),
                ("Pythons", ", ".join(begun.get("pythons") or [])),
                ("output", code(begun["output"]) if begun.get("output") else None),
                ("lock, sha256", code(begun["lock_digest"]) if begun.get("lock_digest") else None),
            ]
        ),
        tag("pre", begun["command"], class_="line") if begun.get("command") else None,
    )


def _sentence(run: Run) -> str:
    """Say in numbers what a run came to."""
    counts = [
        (run.count("done"), "done"),
        (run.count("skipped"), "up to date"),
        (run.count("failed", "timeout"), "failed"),
        (run.count("interrupted"), "interrupted"),
        (run.count("killed"), "killed"),
        (run.count("running"), "running"),
        (max((run.begun.get("steps") or 0) - len(run.steps), 0), "not begun"),
    ]
    said = ", ".join(f"{count} {word}" for count, word in counts if count)
    return f"Steps: {said}." if said else "No step is recorded."


def _warnings(run: Run) -> Iterator[str]:
    if run.elsewhere:
        yield "It ran on another machine, which could not be asked whether it still runs."
    if dropped := dropped_targets(run):
        yield f"{', '.join(dropped)}: left out, because a small kernel did not compile for it."
    if run.damaged:
        lines = "line of the record is" if run.damaged == 1 else "lines of the record are"
        yield f"{run.damaged} {lines} damaged and left out: what follows may lack something."
    if run.torn and run.state != "running":
        yield "The last line of the record broke off and is left out."


def _footer(run: Run) -> Markup:
    return tag("footer", tag("p", "Made from the record in ", code(run.folder), "."))
