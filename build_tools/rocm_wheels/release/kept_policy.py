"""The policy that a channel keeps: by it people get its sets, whoever promotes or refreshes next.

It lies in the document of the channel, and changes with it: claimed, signed and logged as sets are. What is
kept is what is said of that channel and family alone, without waivers that have ended. Whoever
changes a channel first has it keep his. Another policy that somebody names is refused, unless he
says that it is to be kept from then on; where nobody names one, the kept one counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from rocm_wheels.core import errors, log, records
from rocm_wheels.models import gfx
from rocm_wheels.release.channel import Channel
from rocm_wheels.release.policy import Policy

_MOST_NAMED = 6
_NOTHING = "nothing"


@dataclass(frozen=True)
class PolicyUse:
    """A policy that somebody has, on a day. ``named``: he named it; else it is what there is without.

    ``change``: the channel is to keep it.
    """

    policy: Policy
    today: date
    named: bool = True
    change: bool = False

    def choose(self, channel: Channel) -> tuple[Policy, Mapping[str, Any] | None]:
        """Return the policy to judge a channel by, and what it is to keep from now on (None: as it does).

        Raises ReleaseError, which says what differs, where the channel keeps another one than was named.
        """
        offered = dump_policy(self.policy, channel, self.today)
        kept = read_kept_policy(channel)
        if kept is None:
            return _load(offered, channel), offered
        kept = _keep_relevant(kept, self.today)
        if kept == offered:
            return _load(offered, channel), None
        differences = describe_differences(kept, offered)
        name = f"{channel.channel} of {channel.family}"
        if self.change:
            log.log_note(f"{name} keeps another policy from now on: {differences}")
            return _load(offered, channel), offered
        if self.named:
            raise errors.ReleaseError(
                f"{name} keeps another policy: {differences}",
                tip="leave out --policy to judge by the one it keeps; --change-policy has it keep this one",
            )
        _note_once(f"{name} is judged by the policy that it keeps, not by the usual one: {differences}")
        return _load(kept, channel), None


def find_kept_policy(channel: Channel, default: Policy, today: date) -> Policy:
    """Return the policy that a channel keeps, or the default where it keeps none, or that has no channel."""
    if read_kept_policy(channel) is None or channel.channel not in default.channels:
        return default
    return PolicyUse(default, today, named=False).choose(channel)[0]


def read_kept_policy(channel: Channel) -> Mapping[str, Any] | None:
    """Return what a channel keeps, or is about to keep."""
    return (channel.pending.policy if channel.pending is not None else None) or channel.policy


def dump_policy(policy: Policy, channel: Channel, today: date) -> dict[str, Any]:
    """Return what a policy says of a channel of a family, as JSON has it. KeyError for an unknown channel.

    What is as it is where nobody says it is left out: a later version may know of more.
    """
    name, family = channel.channel, channel.family
    targets = gfx.get_gfx_families().get(family)

    def concerns(other: str | None) -> bool:
        """Tell whether a family is this one, or has targets of it; a set of all families has all."""
        return other is None or targets is None or bool({*targets} & {*gfx.get_gfx_families().get(other, ())})

    families = {
        other: said.model_copy(
            update={"channels": {key: rules for key, rules in said.channels.items() if key == name}}
        )
        for other, said in policy.families.items()
        if concerns(other)
    }
    waivers = [
        waiver.model_copy(update={"channels": (name,)})
        for waiver in policy.waivers
        if name in waiver.channels
        and concerns(waiver.family)
        and (waiver.gfx is None or targets is None or waiver.gfx in targets)
    ]
    part = policy.model_copy(
        update={"channels": {name: policy.channels[name]}, "families": families, "waivers": tuple(waivers)}
    )
    return _keep_relevant(part.model_dump(mode="json", exclude_defaults=True), today)


def describe_differences(kept: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return which rules differ: ``channels.nightly.rules.smoke.fresh is 7d, and would be 14d``."""
    old, new = dict(_list_leaves(kept)), dict(_list_leaves(other))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    lines = [
        f"{name} is {old.get(name, _NOTHING)}, and would be {new.get(name, _NOTHING)}"
        for name in names[:_MOST_NAMED]
    ]
    more = len(names) - len(lines)
    return "; ".join([*lines, *([f"and {more} more"] if more else [])])


@cache
def _note_once(message: str) -> None:
    """Say something once, however often a channel is asked for it."""
    log.log_note(message)


def _load(values: Mapping[str, Any], channel: Channel) -> Policy:
    return records.parse_record(
        json.dumps(values), Policy, name=f"the policy that {channel.channel} of {channel.family} keeps"
    )


def _keep_relevant(values: Mapping[str, Any], today: date) -> dict[str, Any]:
    """Return a part of a policy without waivers that have ended, and without what is about pruning."""
    waivers = [item for item in values.get("waivers", ()) if str(item.get("expires", "")) >= str(today)]
    rules = {name: value for name, value in values.items() if name != "retention"}
    return {**rules, "waivers": waivers}


def _list_leaves(values: Mapping[str, Any], *place: str) -> Iterator[tuple[str, str]]:
    """Yield what is said, by its place; lists as one."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _list_leaves(value, *place, key)
        else:
            yield ".".join((*place, key)), value if isinstance(value, str) else json.dumps(value)
