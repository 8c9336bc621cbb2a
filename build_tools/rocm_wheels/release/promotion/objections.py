"""Why a channel is not changed, in words: the gate, somebody else, a set that it does not show."""

from __future__ import annotations

from collections.abc import Sequence

from rocm_wheels.errors import ReleaseError
from rocm_wheels.records import suggest_name
from rocm_wheels.release.gate.verdict import Verdict
from rocm_wheels.release.promotion.channel import ChannelAction, Channel
from rocm_wheels.stores.store import RUN_AGAIN_TIP, ChangedInStoreError, Store


def require_shown(channel: Channel, set_id: str) -> None:
    """Raise ReleaseError for a set that a channel does not show."""
    if set_id in channel.shown:
        return
    listed = ", ".join(reversed(channel.shown)) or "no sets"
    message = f"{set_id} is not on {channel.channel} of {channel.family}"
    raise ReleaseError(f"{message}{suggest_name(set_id, channel.shown)}", tip=f"it shows {listed}")


def resolve_set_id(channel: Channel, begins: str) -> str:
    """Return the set that is meant, by its id or how that begins, of those that a channel shows or showed.

    What nothing begins with is returned as it is. Raises ReleaseError that lists what it could be.
    """
    known_ids = {*channel.shown, *channel.demoted, *(channel.pending.sets if channel.pending else ())}
    matches = (
        [begins]
        if begins in known_ids
        else sorted(set_id for set_id in known_ids if begins and set_id.startswith(begins))
    )
    if len(matches) > 1:
        raise ReleaseError(f"{begins} could be {', '.join(matches)}", tip="give the whole id")
    return matches[0] if matches else begins


def require_pass(verdict: Verdict, store: Store, begun_channel: Channel | None = None) -> Verdict:
    """Return what a gate said. Raises ReleaseError when it holds the set, also one that was ``begun_channel``."""
    if verdict.passed:
        return verdict
    reasons = "\n".join(f"{rule.title}: {rule.why}" for rule in verdict.failures)
    tip = verdict.next_step.replace(" STORE ", f" {store.url} ") or None
    if begun_channel is not None:
        reasons += f"\nan earlier run had passed and was killed: {begun_channel.pending}"
        tip = (
            f"{tip}; or undo what it did: {_undo_command(begun_channel)}"
            if tip
            else f"undo what it did: {_undo_command(begun_channel)}"
        )
    raise ReleaseError(f"{verdict.set} may not go to {verdict.channel}:\n{reasons}", tip=tip)


def require_same_change(channel: Channel, action: ChannelAction, sets: Sequence[str] | None) -> None:
    """Raise ReleaseError that names what is pending, where that is something else."""
    pending = channel.pending
    assert pending is not None
    if pending.action != action or (sets is not None and set(sets) != set(pending.sets)):
        raise make_pending_error(channel)


def make_pending_error(channel: Channel) -> ReleaseError:
    """Return what to say when another change was begun."""
    pending = channel.pending
    assert pending is not None
    tip = f"wait for it; if that run is gone, run it again to finish it, or undo it: {_undo_command(channel)}"
    if pending.action == "abandon":
        tip = f"wait for it; if that run is gone, finish it: {_undo_command(channel)}"
    if pending.action == "refresh":
        tip = "wait for it; if that run is gone, `rocm-wheels refresh STORE` finishes it"
    return ReleaseError(f"{channel.channel} of {channel.family} is being changed: {pending}", tip=tip)


def make_overtaken_error(channel: Channel) -> ChangedInStoreError:
    """Return what to say to one who was overtaken."""
    last = channel.pending or (channel.history[-1] if channel.history else "nothing is known of it")
    tip = "look at it, then run the same command again: it sees to the pages, too"
    return ChangedInStoreError(f"{channel.channel} was changed by somebody else meanwhile: {last}", tip=tip)


def make_busy_error(channel: Channel) -> ReleaseError:
    """Return what to say when others are always faster."""
    return ReleaseError(f"{channel.channel} is changed by others all the time", tip=RUN_AGAIN_TIP)


def _undo_command(channel: Channel) -> str:
    assert channel.pending is not None
    options = f"--channel {channel.channel} --family {channel.family} --set {channel.pending.sets[0]}"
    return f"rocm-wheels promote STORE {options} --abandon"
