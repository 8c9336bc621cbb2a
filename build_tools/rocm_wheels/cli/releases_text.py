"""Channels and found sets for people, in lines, and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rocm_wheels.words import counted

if TYPE_CHECKING:
    from rocm_wheels.release.queries import Answer, ChannelNow

_MOST = 5


def channel_lines(found: ChannelNow) -> Iterator[str]:
    """Yield what a person reads of a channel: the newest set first."""
    channel = found.channel
    shows = f"shows {counted(len(found.sets), 'set')}" if found.sets else "shows no set"
    yield f"{channel.channel} of {channel.family} {shows}  {found.index}"
    if channel.pending is not None:
        yield f"  pending: {channel.pending}; people may see parts of it until that is finished or undone"
    for one in found.sets:
        yield f"  {one.shown.set}  ROCm {one.document.rocm_in_words or 'unknown'}  {one.now.os}"
        yield f"    since {one.shown.when}, by {one.shown.by}"
        yield f"    pages say: {_told(one.shown.state, one.shown.told)}"
        yield f"    known now: {_told(one.now.state, one.now.told)}"
        yield f"    index: {one.index}"


def channel_as_json(found: ChannelNow) -> dict[str, Any]:
    """Return a channel as ``releases --help`` says."""
    channel, pending = found.channel, found.channel.pending
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
        "index": found.index,
        "pending": change,
        "sets": [
            {
                "set": one.shown.set,
                "version": one.document.version,
                "rocm": one.document.rocm_in_words or None,
                "os": one.now.os,
                "since": one.shown.when,
                "by": one.shown.by,
                "index": one.index,
                "then": {"state": one.shown.state, "told": list(one.shown.told)},
                "now": {
                    "state": one.now.state,
                    "told": list(one.now.told),
                    "targets": [target.model_dump(mode="json") for target in one.now.targets],
                },
            }
            for one in found.sets
        ],
    }


def answer_lines(answer: Answer) -> Iterator[str]:
    """Yield what a person reads of a set that was looked for on a target."""
    found = answer.found
    on = f"{answer.gfx}{' on Windows' if answer.os == 'windows' else ''}"
    if found is None:
        yield f"{on}: {answer.why}"
    else:
        yield f"{on}: {found.id}  {found.family}  ROCm {found.rocm or 'unknown'}  {found.created}"
        yield f"  {answer.why}"
        yield f"  index: {answer.index}"
        yield f"  {answer.install}"
    for row, why in answer.newer[:_MOST]:
        yield f"  {'newer' if found else 'not'}: {row.id}: {why}"
    if len(answer.newer) > _MOST:
        yield f"  and {len(answer.newer) - _MOST} more"


def answer_as_json(answer: Answer) -> dict[str, Any]:
    """Return it as ``releases --help`` says."""
    row = answer.found
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
        "newer": [{"set": one.id, "family": one.family, "why": why} for one, why in answer.newer],
        "os": answer.os,
    }


def _told(word: str, lines: tuple[str, ...]) -> str:
    return f"{word} ({'; '.join(lines)})" if lines else word
