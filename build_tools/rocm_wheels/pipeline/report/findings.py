"""What was found out around a build: preflight, targets that do not compile, the compiler cache."""

from __future__ import annotations

from rocm_wheels.pipeline.record.reading import RecordedRun
from rocm_wheels.pipeline.record.vocabulary import Event
from rocm_wheels.pipeline.report.markup import Markup, join_markup, make_tag
from rocm_wheels.pipeline.report.tables import make_table

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
        return "none asked for", ""
    return f"{hits:,} of {hits + misses:,}", f"{100 * hits / (hits + misses):.0f} %"


def _list_events(run: RecordedRun, name: str) -> list[Event]:
    return [event for event in run.events if event["event"] == name]
