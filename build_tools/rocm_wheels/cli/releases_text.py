"""Channels and found sets for people, in lines, and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rocm_wheels.words import format_count

if TYPE_CHECKING:
    from rocm_wheels.release.queries import QueryAnswer, ChannelNow

_MOST_NEWER = 5


def channel_lines(channel_now: ChannelNow) -> Iterator[str]:
    """Yield what a person reads of a channel: the newest set first."""
    channel = channel_now.channel
    shows = f"shows {format_count(len(channel_now.sets), 'set')}" if channel_now.sets else "shows no set"
    yield f"{channel.channel} of {channel.family} {shows}  {channel_now.index}"
    if channel.pending is not None:
        yield f"  pending: {channel.pending}; people may see parts of it until that is finished or undone"
    for entry in channel_now.sets:
        yield f"  {entry.channel_set.set}  ROCm {entry.document.rocm_in_words or 'unknown'}  {entry.now.os}"
        yield f"    since {entry.channel_set.when}, by {entry.channel_set.by}"
        yield f"    pages say: {_describe_state(entry.channel_set.state, entry.channel_set.told)}"
        yield f"    known now: {_describe_state(entry.now.state, entry.now.told)}"
        yield f"    index: {entry.index}"


def channel_as_json(channel_now: ChannelNow) -> dict[str, Any]:
    """Return a channel as ``releases --help`` says."""
    channel, pending = channel_now.channel, channel_now.channel.pending
    change = pending and {
        "action": pending.action,
        "sets": list(pending.sets),
        "by": pending.by,
        "began": pending.began,
    }
    return {
        "family": channel.family,
        "channel": channel.channel,
        "revision": channel.revision,
        "index": channel_now.index,
        "pending": change,
        "sets": [
            {
                "set": entry.channel_set.set,
                "version": entry.document.version,
                "rocm": entry.document.rocm_in_words or None,
                "os": entry.now.os,
                "since": entry.channel_set.when,
                "by": entry.channel_set.by,
                "index": entry.index,
                "then": {"state": entry.channel_set.state, "told": list(entry.channel_set.told)},
                "now": {
                    "state": entry.now.state,
                    "told": list(entry.now.told),
                    "targets": [target.model_dump(mode="json") for target in entry.now.targets],
                },
            }
            for entry in channel_now.sets
        ],
    }


def answer_lines(answer: QueryAnswer) -> Iterator[str]:
    """Yield what a person reads of a set that was looked for on a target."""
    best = answer.row
    on = f"{answer.gfx}{' on Windows' if answer.os == 'windows' else ''}"
    if best is None:
        yield f"{on}: {answer.why}"
    else:
        yield f"{on}: {best.id}  {best.family}  ROCm {best.rocm or 'unknown'}  {best.created}"
        yield f"  {answer.why}"
        yield f"  index: {answer.index}"
        yield f"  {answer.install}"
    for row, why in answer.newer[:_MOST_NEWER]:
        yield f"  {'newer' if best else 'not'}: {row.id}: {why}"
    if len(answer.newer) > _MOST_NEWER:
        yield f"  and {len(answer.newer) - _MOST_NEWER} more"


def answer_as_json(answer: QueryAnswer) -> dict[str, Any]:
    """Return it as ``releases --help`` says."""
    row = answer.row
    return {
        "gfx": answer.gfx,
        "set": row.id if row else None,
        "family": row.family if row else None,
        "version": row.version if row else None,
        "rocm": row.rocm if row else None,
        "created": row.created if row else None,
        "why": answer.why,
        "index": answer.index or None,
        "install": answer.install or None,
        "newer": [{"set": newer.id, "family": newer.family, "why": why} for newer, why in answer.newer],
        "os": answer.os,
    }


def _describe_state(word: str, lines: tuple[str, ...]) -> str:
    return f"{word} ({'; '.join(lines)})" if lines else word
