"""What was found out around a build: preflight, targets that do not compile, the compiler cache."""

from __future__ import annotations

from rocm_wheels.pipeline.record.reading import Run
from rocm_wheels.pipeline.record.vocabulary import Event
from rocm_wheels.pipeline.report.markup import Markup, join, tag
from rocm_wheels.pipeline.report.tables import table

_COUNTED = ("hits", "misses")


def dropped_targets(run: Run) -> list[str]:
    """Return the targets that were left out because they do not compile."""
    return list(dict.fromkeys(name for probe in _all(run, "probe") for name in probe.get("dropped") or []))


def preflight_part(run: Run) -> Markup | None:
    """List what the checks before the build found; ``None`` when they did not run."""
    events = _all(run, "preflight")
    if not events:
        return None
    found = [finding for event in events for finding in event.get("findings") or []]
    if not found:
        return tag("p", "Nothing was found.")
    rows = [
        [
            finding.get("check") or "",
            finding.get("severity") or "",
            join(finding.get("text") or "", tag("span", f"Tip: {tip}", class_="of"))
            if (tip := finding.get("tip"))
            else finding.get("text") or "",
        ]
        for finding in found
    ]
    return table(["check", "severity", "found"], rows, wide={2})


def probe_part(run: Run) -> Markup | None:
    """Show for which targets a small kernel compiles, and which were left out."""
    parts = []
    for event in _all(run, "probe"):
        faults = event.get("targets") or {}
        dropped = event.get("dropped") or []
        good = [target for target, fault in faults.items() if fault is None]
        parts.append(tag("p", f"Compiles for {', '.join(good)}.") if good else None)
        rows = [
            [target, tag("pre", fault), "left out" if target in dropped else "the build was refused"]
            for target, fault in faults.items()
            if fault is not None
        ]
        parts.append(table(["target", "first error", "so it was"], rows, wide={1}) if rows else None)
    return join(parts) if _all(run, "probe") else None


def cache_part(run: Run) -> Markup | None:
    """Show the hits of the compiler cache, host and device apart, and whether it passed its test."""
    parts: list[Markup] = []
    events = [(step, event) for step in run.steps.values() for event in step.of("cache")]
    if events:
        sides = {"host": "host code", "device": "device code"}
        if any(sum((event.get("unsorted") or {}).get(one) or 0 for one in _COUNTED) for _, event in events):
            sides["unsorted"] = "not told apart"
        head = ["step", "cache", *[title for words in sides.values() for title in (f"{words}: hits", "rate")]]
        rows = [
            [step.id, event.get("kind") or "", *[cell for side in sides for cell in _hits(event, side)]]
            for step, event in events
        ]
        parts.append(table(head, rows, numbers=range(2, len(head))))
    for event in _all(run, "cache-test"):
        trusted = event.get("trusted")
        said = "can be trusted" if trusted else "cannot be trusted"
        parts.append(tag("p", tag("strong", f"{event.get('kind')} {said} with device code.")))
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
            parts.append(table(["tried", "expected", "seen", "verdict"], checks))
    return join(parts) if parts else None


def _hits(event: Event, side: str) -> tuple[str, str]:
    figures = event.get(side) or {}
    hits, misses = figures.get("hits"), figures.get("misses")
    if hits is None or misses is None:
        return "not known", ""
    if not hits + misses:
        return "none asked for", ""
    return f"{hits:,} of {hits + misses:,}", f"{100 * hits / (hits + misses):.0f} %"


def _all(run: Run, name: str) -> list[Event]:
    return [event for event in run.events if event["event"] == name]
