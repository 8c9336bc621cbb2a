"""Make pages of what came of a night, for people and programs: HTML, Markdown, JSON.

``index.html`` is for those who install, ``night.html`` for those who release, ``dashboard.json`` has what
both say. Each page is one file that needs no network; the same facts are the same bytes. The summary is for
a job of GitHub, which shows Markdown of 1 MiB at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.core import (
    SourceError,
    format_duration,
    format_markdown_table,
    make_page_templates,
    strip_controls,
)
from rocm_wheels.models import get_gfx_targets
from rocm_wheels.release.dashboard import (
    CELL_STATES,
    BuildTime,
    CellState,
    ChannelState,
    Dashboard,
    NightCell,
    NightRow,
    SourceChange,
)
from rocm_wheels.release.policy import CHANNEL_NAMES
from rocm_wheels.release.views import InstallCommands, SupportRelease
from rocm_wheels.sources import CommitRange, ProjectPath, format_diff_json, format_diff_report

Histories = Sequence[Mapping[ProjectPath, CommitRange | SourceError]]
LANDING_PAGE, NIGHT_PAGE, DASHBOARD_DOCUMENT = "index.html", "night.html", "dashboard.json"
_TEMPLATES = Path(__file__).with_name("templates")
_STATE_WORDS: Mapping[CellState, str] = {"untested": "not tested"}
_WORST_FIRST: tuple[CellState, ...] = (
    *("failed", "lost", "missing", "held", "untested", "passed", "promoted"),
)
_MOST_COMMITS = 20
_MOST_ROWS = 100  # of a table of the summary
_MOST_TIMES = 20


def make_dashboard_files(dashboard: Dashboard, histories: Histories) -> dict[str, bytes]:
    """Return the files of a dashboard by name. ``histories`` are the commits of each of its changes."""
    templates = make_page_templates(_TEMPLATES)
    night = templates.get_template("night.html").render(_describe_night(dashboard, histories))
    landing = templates.get_template("landing.html").render(_describe_landing(dashboard))
    document = json.dumps(dump_dashboard(dashboard, histories), indent=1) + "\n"
    return {
        NIGHT_PAGE: night.encode(),
        LANDING_PAGE: landing.encode(),
        DASHBOARD_DOCUMENT: document.encode(),
    }


def dump_dashboard(dashboard: Dashboard, histories: Histories) -> dict[str, Any]:
    """Return what a program reads. Keys are added, never renamed."""
    changes = [
        {
            "line": change.line,
            "sets": [{"family": family, "before": old, "set": new} for family, old, new in change.sets],
            "diff": change.diff and format_diff_json(change.diff, history, limit=_MOST_COMMITS),
        }
        for change, history in zip(dashboard.changes, histories, strict=True)
    ]
    return {
        "schema": 1,
        "day": str(dashboard.day),
        "store": dashboard.store,
        "channel": dashboard.channel,
        "states": dashboard.count_states(),
        "rows": [asdict(row) for row in dashboard.rows],
        "failures": [{"key": failure.key, **asdict(failure)} for failure in dashboard.failures],
        "flaky": [asdict(note) for note in dashboard.flaky],
        "lost": [asdict(note) for note in dashboard.lost],
        "changes": changes,
        "installs": [asdict(check) for check in dashboard.installs],
        "channels": [asdict(channel) for channel in dashboard.channels],
        "unread": list(dashboard.unread),
    }


def format_summary(dashboard: Dashboard, histories: Histories) -> str:
    """Return what came of a night as Markdown."""
    parts = [f"## Wheels of {dashboard.day}\n\n{describe_states(dashboard)}\n"]
    for line, rows in _group_by_line(dashboard):
        pythons = list_pythons(rows)
        table = [
            [
                row.family,
                row.os,
                *(_name_cell(row, python) for python in pythons),
                _code(row.set),
                ", ".join(row.channels),
            ]
            for row in rows
        ]
        header = ["family", "system", *pythons, "set", "shown on"]
        parts.append(f"### torch {line}\n\n{format_markdown_table(header, table)}")
        reasons = [
            f"- {row.family} ({row.os}) {word}, {where}: {_text(why)}"
            for row, word, where, why in _list_reasons(rows)
        ]
        parts.append("\n".join(reasons) + "\n" if reasons else "")
    if dashboard.failures:
        header = ["", "test or check", "family", "torch", "GPU", "Python", "log"]
        table = [
            [
                "**new**" if failure.new else "",
                _code(failure.name),
                failure.family,
                failure.line,
                " ".join(failure.gfx),
                " ".join(failure.pythons),
                _text(failure.log),
            ]
            for failure in dashboard.failures[:_MOST_ROWS]
        ]
        more = len(dashboard.failures) - len(table)
        note = f"\nand {more} more on the page\n" if more else ""
        parts.append(f"### Failed\n\n{format_markdown_table(header, table)}{note}")
    for title, notes in (("Flaky", dashboard.flaky), ("Lost GPUs", dashboard.lost)):
        lines = [
            f"- {note.family}, torch {note.line}, {note.gfx}, {_text(note.host)}: {_code(note.what)}"
            for note in notes[:_MOST_ROWS]
        ]
        if lines:
            parts.append(f"### {title}\n\n" + "\n".join(lines) + "\n")
    if dashboard.installs:
        table = [
            [
                check.image,
                check.family,
                check.version,
                check.python,
                "installed" if check.passed else f"**failed**: {_text(check.step)}, {_text(check.detail)}",
            ]
            for check in dashboard.installs[:_MOST_ROWS]
        ]
        header = ["image", "family", "torch", "Python", "came of it"]
        parts.append(f"### Installed from the channel\n\n{format_markdown_table(header, table)}")
    for change, history in zip(dashboard.changes, histories, strict=True):
        report = "\n".join(_list_change_lines(change, history)).replace("```", "'''")
        parts.append(
            f"### New in torch {change.line}\n\n{_describe_change_sets(change)}\n\n```text\n{report}\n```\n"
        )
    return "\n".join(part for part in parts if part)


def describe_states(dashboard: Dashboard) -> str:
    """Return how many cells came to what, in a sentence, the worst first."""
    counts = dashboard.count_states()
    words = [f"{counts[state]} {name_state(state)}" for state in _WORST_FIRST if state in counts]
    return f"{', '.join(words)}." if words else "No set was staged, and none was due."


def name_state(state: CellState) -> str:
    """Return the word of a state for people."""
    return _STATE_WORDS.get(state, state)


def list_pythons(rows: Sequence[NightRow]) -> list[str]:
    """Return the Pythons of rows, in the order of the first that has them."""
    names = [cell.python for row in rows for cell in row.cells]
    return sorted(dict.fromkeys(names), key=lambda name: (len(name.rstrip("t")), name))


def _group_by_line(dashboard: Dashboard) -> Iterator[tuple[str, list[NightRow]]]:
    lines = dict.fromkeys(row.line for row in dashboard.rows)
    for line in lines:
        yield line, [row for row in dashboard.rows if row.line == line]


def _find_cell(row: NightRow, python: str) -> NightCell | None:
    return next((cell for cell in row.cells if cell.python == python), None)


def _name_cell(row: NightRow, python: str) -> str:
    cell = _find_cell(row, python)
    if cell is not None:
        return name_state(cell.state)
    return "" if row.set else "missing"


def _list_reasons(rows: Sequence[NightRow]) -> Iterator[tuple[NightRow, str, str, str]]:
    """Yield why cells are what they are: row, state, Pythons, reason; the same reason once for a row."""
    for row in rows:
        if not row.set:
            last = f"the last set is {row.before} of {row.before_created[:10]}"
            yield row, "missing", "every Python", last
        by_reason: dict[tuple[CellState, str], list[str]] = {}
        for cell in row.cells:
            if cell.why and (cell.state not in {"passed", "promoted"} or "not tested" in cell.why):
                by_reason.setdefault((cell.state, cell.why), []).append(cell.python)
        for (state, why), pythons in sorted(
            by_reason.items(), key=lambda item: _WORST_FIRST.index(item[0][0])
        ):
            yield row, name_state(state), f"Python {', '.join(pythons)}", why


def _describe_change_sets(change: SourceChange) -> str:
    return "; ".join(f"{family}: {old} → {new}" for family, old, new in change.sets)


def _list_change_lines(
    change: SourceChange, history: Mapping[ProjectPath, CommitRange | SourceError]
) -> list[str]:
    if change.diff is None:
        return ["not known: a lock is gone from the store"]
    return list(format_diff_report(change.diff, history, limit=_MOST_COMMITS))


def _describe_night(dashboard: Dashboard, histories: Histories) -> dict[str, Any]:
    """Return what ``night.html`` shows."""
    lines = []
    for line, rows in _group_by_line(dashboard):
        pythons = list_pythons(rows)
        grid = [
            {
                "row": row,
                "cells": [_find_cell(row, python) or ("" if row.set else "missing") for python in pythons],
            }
            for row in rows
        ]
        reasons = [
            {
                "row": row,
                "state": word.replace("not tested", "untested"),
                "word": word,
                "where": where,
                "why": why,
            }
            for row, word, where, why in _list_reasons(rows)
        ]
        lines.append({"line": line, "pythons": pythons, "rows": grid, "reasons": reasons})
    counts = dashboard.count_states()
    return {
        "dashboard": dashboard,
        "landing": LANDING_PAGE,
        "states": [(state, name_state(state), counts[state]) for state in _WORST_FIRST if state in counts],
        "all_states": [(state, name_state(state)) for state in CELL_STATES],
        "name_state": name_state,
        "lines": lines,
        "new": [failure for failure in dashboard.failures if failure.new],
        "old": [failure for failure in dashboard.failures if not failure.new],
        "notes": (("flaky", "Flaky", dashboard.flaky), ("lost", "Lost GPUs", dashboard.lost)),
        "changes": [
            {
                "line": change.line,
                "sets": change.sets,
                "report": "\n".join(_list_change_lines(change, history)),
            }
            for change, history in zip(dashboard.changes, histories, strict=True)
        ],
        "times": [(row, _describe_times(row.times)) for row in dashboard.rows if row.set],
    }


def _describe_times(times: Sequence[BuildTime]) -> dict[str, Any]:
    longest = [
        (item.project, item.python, format_duration(item.seconds), item.cache or "not recorded")
        for item in times[:_MOST_TIMES]
    ]
    return {
        "total": format_duration(sum(item.seconds for item in times)),
        "count": len(times),
        "longest": longest,
    }


@dataclass(frozen=True)
class _Offer:
    """What a channel of a family has for those who install: the newest sets, and how to get them."""

    state: ChannelState
    releases: tuple[SupportRelease, ...]
    commands: tuple[tuple[str, str], ...]


def _describe_landing(dashboard: Dashboard) -> dict[str, Any]:
    """Return what ``index.html`` shows: families with their channels, the steadiest first."""
    support, offers = dashboard.support, dict[str, list[_Offer]]()
    by_name = {(item.family, item.channel): item for item in support.channels}
    for state in sorted(dashboard.channels, key=lambda item: -CHANNEL_NAMES.index(item.channel)):
        index = by_name[state.family, state.channel]
        newest = [item.set for item in index.sets] or [index.current]
        releases = tuple(
            item
            for item in support.releases
            if (item.family, item.channel) == (state.family, state.channel) and item.set in newest
        )
        commands = tuple(_list_commands(index.install, state.index))
        offers.setdefault(state.family, []).append(_Offer(state, releases, commands))
    views = [(view, next(_list_commands(view.install, view.url or view.index))[1]) for view in support.views]
    return {
        "dashboard": dashboard,
        "public": support.public_url,
        "families": [
            {
                "name": family,
                "offers": family_offers,
                "gpus": list(_list_gpus(family_offers)),
                "views": [(view, command) for view, command in views if view.family == family],
            }
            for family, family_offers in sorted(offers.items())
        ],
        "night": NIGHT_PAGE,
        "document": DASHBOARD_DOCUMENT,
        "describe_pythons": _describe_pythons,
    }


def _list_gpus(offers: Sequence[_Offer]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the GPU targets of what is offered, and the cards that have them."""
    names = {target.gfx for offer in offers for item in offer.releases for target in item.targets}
    for gfx in sorted(names):
        target = get_gfx_targets().get(gfx)
        yield gfx, target.products if target is not None else ()


def _list_commands(install: InstallCommands, index: str) -> Iterator[tuple[str, str]]:
    """Yield commands by the tool that they need, the shortest way first."""
    for tool, command in (
        ("uv", install.uv),
        ("rocm-wheels, which asks which GPU there is", install.rocm_wheels),
        ("pip", install.pip),
    ):
        if command:
            yield tool, command.replace("{index}", index)


def _describe_pythons(release: SupportRelease) -> str:
    pythons = {
        f"{name[2]}.{name[3:]}" if name.startswith("cp") else name
        for wheel in release.wheels
        for name in wheel.pythons
    }
    return ", ".join(sorted(pythons, key=lambda name: (len(name.rstrip("t")), name)))


def _code(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return f"`{strip_controls(text).replace('`', chr(39))}`" if text else ""


def _text(text: str) -> str:
    """Return text in which Markdown finds no mark-up."""
    plain = strip_controls(text)
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|~@!" else letter for letter in plain)
