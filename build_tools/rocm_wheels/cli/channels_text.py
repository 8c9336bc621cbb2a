"""What a change of channels came to, in lines for people and as JSON: promote, demote and refresh."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocm_wheels.release.promotion.promoting import ChannelChange
    from rocm_wheels.release.views.refreshing import RefreshResult


@dataclass(frozen=True)
class ChangeReport:
    """What was done to a channel, and to its views (None: they do not follow yet).

    ``index`` is the address of the channel's pages, ``set_indexes`` are those of the sets alone.
    """

    done: ChannelChange
    refreshed: RefreshResult | None
    index: str
    set_indexes: list[str]


def format_document(document: Mapping[str, object], writes: list[str] | None) -> str:
    """Return a document; that of a dry run has what ``writes`` have been written."""
    return json.dumps(
        {**document, "dry_run": True, "writes": writes} if writes is not None else document, indent=1
    )


def planned_write_lines(writes: list[str] | None) -> list[str]:
    """Return what a dry run would have written."""
    return [f"would {line}" for line in writes or ()]


def dry_run_prefix(writes: list[str] | None) -> str:
    """Return how lines begin that say what was done."""
    return "dry run: " if writes is not None else ""


def change_as_json(change: ChangeReport, store: str, layout: Path | None) -> dict[str, object]:
    """Return what was done to a channel."""
    done, channel, refreshed = change.done, change.done.channel, change.refreshed
    return {
        "action": done.action,
        "sets": list(done.sets),
        "family": channel.family,
        "channel": channel.channel,
        "revision": channel.revision,
        "current": channel.current,
        "shown": list(channel.shown),
        "index": change.index,
        "set_indexes": change.set_indexes,
        "copied": done.copied,
        "pages": done.pages,
        "finished": done.finished,
        "views": views_as_json(refreshed),
        "failing": failing_as_json(store, refreshed, layout) if refreshed else [],
    }


def change_lines(
    change: ChangeReport, writes: list[str] | None, store: str, layout: Path | None
) -> Iterator[str]:
    """Yield what was done to a channel, or would be, for people."""
    from rocm_wheels.release.promotion.channel import describe_action

    done, channel, refreshed = change.done, change.done.channel, change.refreshed
    yield from planned_write_lines(writes)
    word = (
        "nothing to do" if done.action is None else f"{', '.join(done.sets)} {describe_action(done.action)}"
    )
    begun = " (an earlier run had begun it)" if done.finished else ""
    yield (
        f"{dry_run_prefix(writes)}{word}{begun}; "
        f"{channel.channel} of {channel.family} is at {channel.current or 'no set'}: "
        f"{done.copied} files copied, {done.pages} pages changed"
    )
    yield f"index: {change.index}"
    if refreshed:
        yield from view_lines(refreshed)
        yield from failing_lines(store, refreshed, layout)
    for set_index in change.set_indexes if done.action == "promote" else ():
        yield f"index of the set alone, which never changes: {set_index}"


def refreshed_as_json(refreshed: RefreshResult, store: str, layout: Path | None) -> dict[str, object]:
    """Return what was done for a channel."""
    return {
        "family": refreshed.family,
        "channel": refreshed.channel,
        "told": list(refreshed.retold),
        "views": views_as_json(refreshed),
        "evidence": refreshed.evidence,
        "pages": refreshed.pages,
        "left": refreshed.other_change or None,
        "failing": failing_as_json(store, refreshed, layout),
    }


def describe_refreshed(refreshed: RefreshResult) -> str:
    """Return what was done for a channel, for people."""
    name = f"{refreshed.channel} of {refreshed.family}"
    if refreshed.other_change:
        return f"{name}: left as it is"
    if not (refreshed.retold or refreshed.views or refreshed.evidence or refreshed.pages):
        return f"{name}: nothing to do"
    updates = f"tells anew of {', '.join(refreshed.retold)}; " if refreshed.retold else ""
    return f"{name}: {updates}{refreshed.evidence} results copied, {refreshed.pages} pages changed"


def views_as_json(done: RefreshResult | None) -> list[dict[str, str | None]]:
    """Return the views that changed, each platform's set alone."""
    moved = done.views if done else ()
    return [{"gfx": gfx, "before": old, "now": new, "os": platform} for gfx, old, new, platform in moved]


def view_lines(done: RefreshResult) -> list[str]:
    """Return the views that changed, for people."""
    return [
        f"view of {gfx}{' for Windows' if platform == 'windows' else ''} in {done.channel} of {done.family}: "
        f"{new or 'none'} (it was {old or 'none'})"
        for gfx, old, new, platform in done.views
    ]


def failing_lines(store: str, done: RefreshResult, layout: Path | None = None) -> list[str]:
    """Return what failed since it was released, for people, each with what takes it away."""
    lines = list[str]()
    for bad in done.failing:
        lines.append(f"{bad.set}: {'; '.join((bad.state, *bad.told))}")
        lines.append(f"  take it away: {format_demote_command(store, done, bad.set, layout)}")
    return lines


def failing_as_json(store: str, done: RefreshResult, layout: Path | None = None) -> list[dict[str, object]]:
    """Return what failed since it was released."""
    return [
        {
            "set": bad.set,
            "state": bad.state,
            "told": list(bad.told),
            "command": format_demote_command(store, done, bad.set, layout),
        }
        for bad in done.failing
    ]


def format_demote_command(store: str, done: RefreshResult, set_id: str, layout: Path | None = None) -> str:
    """Return the command that takes a set away."""
    words = [
        "rocm-wheels",
        "demote",
        store,
        "--family",
        done.family,
        "--channel",
        done.channel,
        "--set",
        set_id,
    ]
    return shlex.join([*words, *(["--store-layout", str(layout)] if layout else [])])
