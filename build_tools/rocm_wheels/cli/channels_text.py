"""What a change of channels came to, in lines for people and as JSON: promote, demote and refresh."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocm_wheels.release.promotion.promoting import Done
    from rocm_wheels.release.views.refreshing import Refreshed


@dataclass(frozen=True)
class Change:
    """What was done to a channel, and to its views (None: they do not follow yet).

    ``index`` is the address of the channel's pages, ``own`` are those of the sets alone.
    """

    done: Done
    refreshed: Refreshed | None
    index: str
    own: list[str]


def json_text(said: Mapping[str, object], would: list[str] | None) -> str:
    """Return a document; that of a dry run has what ``would`` have been written."""
    return json.dumps({**said, "dry_run": True, "writes": would} if would is not None else said, indent=1)


def would_lines(would: list[str] | None) -> list[str]:
    """Return what a dry run would have written."""
    return [f"would {line}" for line in would or ()]


def head_of(would: list[str] | None) -> str:
    """Return how lines begin that say what was done."""
    return "dry run: " if would is not None else ""


def change_as_json(change: Change, store: str, layout: Path | None) -> dict[str, object]:
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
        "set_indexes": change.own,
        "copied": done.copied,
        "pages": done.pages,
        "finished": done.finished,
        "views": views_as_json(refreshed),
        "failing": failing_as_json(store, refreshed, layout) if refreshed else [],
    }


def change_lines(change: Change, would: list[str] | None, store: str, layout: Path | None) -> Iterator[str]:
    """Yield what was done to a channel, or would be, for people."""
    from rocm_wheels.release.promotion.channel import done_word

    done, channel, refreshed = change.done, change.done.channel, change.refreshed
    yield from would_lines(would)
    word = "nothing to do" if done.action is None else f"{', '.join(done.sets)} {done_word(done.action)}"
    begun = " (an earlier run had begun it)" if done.finished else ""
    yield (
        f"{head_of(would)}{word}{begun}; "
        f"{channel.channel} of {channel.family} is at {channel.current or 'no set'}: "
        f"{done.copied} files copied, {done.pages} pages changed"
    )
    yield f"index: {change.index}"
    if refreshed:
        yield from view_lines(refreshed)
        yield from failing_lines(store, refreshed, layout)
    for one in change.own if done.action == "promote" else ():
        yield f"index of the set alone, which never changes: {one}"


def refreshed_as_json(one: Refreshed, store: str, layout: Path | None) -> dict[str, object]:
    """Return what was done for a channel."""
    return {
        "family": one.family,
        "channel": one.channel,
        "told": list(one.told),
        "views": views_as_json(one),
        "evidence": one.evidence,
        "pages": one.pages,
        "left": one.left or None,
        "failing": failing_as_json(store, one, layout),
    }


def refreshed_line(one: Refreshed) -> str:
    """Return what was done for a channel, for people."""
    name = f"{one.channel} of {one.family}"
    if one.left:
        return f"{name}: left as it is"
    if not (one.told or one.views or one.evidence or one.pages):
        return f"{name}: nothing to do"
    told = f"tells anew of {', '.join(one.told)}; " if one.told else ""
    return f"{name}: {told}{one.evidence} results copied, {one.pages} pages changed"


def views_as_json(done: Refreshed | None) -> list[dict[str, str | None]]:
    """Return the views that changed, each platform's set alone."""
    moved = done.views if done else ()
    return [{"gfx": gfx, "before": old, "now": new, "os": platform} for gfx, old, new, platform in moved]


def view_lines(done: Refreshed) -> list[str]:
    """Return the views that changed, for people."""
    return [
        f"view of {gfx}{' for Windows' if platform == 'windows' else ''} in {done.channel} of {done.family}: "
        f"{new or 'none'} (it was {old or 'none'})"
        for gfx, old, new, platform in done.views
    ]


def failing_lines(store: str, done: Refreshed, layout: Path | None = None) -> list[str]:
    """Return what failed since it was released, for people, each with what takes it away."""
    lines = list[str]()
    for bad in done.failing:
        lines.append(f"{bad.set}: {'; '.join((bad.state, *bad.told))}")
        lines.append(f"  take it away: {demote_line(store, done, bad.set, layout)}")
    return lines


def failing_as_json(store: str, done: Refreshed, layout: Path | None = None) -> list[dict[str, object]]:
    """Return what failed since it was released."""
    return [
        {
            "set": bad.set,
            "state": bad.state,
            "told": list(bad.told),
            "command": demote_line(store, done, bad.set, layout),
        }
        for bad in done.failing
    ]


def demote_line(store: str, done: Refreshed, set_id: str, layout: Path | None = None) -> str:
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
