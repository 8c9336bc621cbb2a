"""Why a channel is not changed, in words: the gate, somebody else, a set that it does not show."""

from __future__ import annotations

from collections.abc import Sequence

from rocm_wheels.errors import ReleaseError
from rocm_wheels.records import did_you_mean
from rocm_wheels.release.gate.verdict import Verdict
from rocm_wheels.release.promotion.channel import Action, Channel
from rocm_wheels.stores.store import AGAIN, Changed, Store


def require_shown(channel: Channel, set_id: str) -> None:
    """Raise ReleaseError for a set that a channel does not show."""
    if set_id in channel.shown:
        return
    shown = ", ".join(reversed(channel.shown)) or "no sets"
    what = f"{set_id} is not on {channel.channel} of {channel.family}"
    raise ReleaseError(f"{what}{did_you_mean(set_id, channel.shown)}", tip=f"it shows {shown}")


def set_meant(channel: Channel, begins: str) -> str:
    """Return the set that is meant, by its id or how that begins, of those that a channel shows or showed.

    What nothing begins with is returned as it is. Raises ReleaseError that lists what it could be.
    """
    known = {*channel.shown, *channel.demoted, *(channel.pending.sets if channel.pending else ())}
    found = [begins] if begins in known else sorted(one for one in known if begins and one.startswith(begins))
    if len(found) > 1:
        raise ReleaseError(f"{begins} could be {', '.join(found)}", tip="give the whole id")
    return found[0] if found else begins


def require_pass(verdict: Verdict, store: Store, begun: Channel | None = None) -> Verdict:
    """Return what a gate said. Raises ReleaseError when it holds the set, also one that was ``begun``."""
    if verdict.passed:
        return verdict
    held = "\n".join(f"{one.title}: {one.why}" for one in verdict.failures)
    tip = verdict.next_step.replace(" STORE ", f" {store.url} ") or None
    if begun is not None:
        held += f"\nan earlier run had passed and was killed: {begun.pending}"
        tip = f"{tip}; or undo what it did: {_undo(begun)}" if tip else f"undo what it did: {_undo(begun)}"
    raise ReleaseError(f"{verdict.set} may not go to {verdict.channel}:\n{held}", tip=tip)


def require_same(channel: Channel, action: Action, sets: Sequence[str] | None) -> None:
    """Raise ReleaseError that names what is pending, where that is something else."""
    pending = channel.pending
    assert pending is not None
    if pending.action != action or (sets is not None and set(sets) != set(pending.sets)):
        raise other_change(channel)


def other_change(channel: Channel) -> ReleaseError:
    """Return what to say when another change was begun."""
    pending = channel.pending
    assert pending is not None
    tip = f"wait for it; if that run is gone, run it again to finish it, or undo it: {_undo(channel)}"
    if pending.action == "abandon":
        tip = f"wait for it; if that run is gone, finish it: {_undo(channel)}"
    if pending.action == "refresh":
        tip = "wait for it; if that run is gone, `rocm-wheels refresh STORE` finishes it"
    return ReleaseError(f"{channel.channel} of {channel.family} is being changed: {pending}", tip=tip)


def lost(found: Channel) -> Changed:
    """Return what to say to one who was overtaken."""
    last = found.pending or (found.history[-1] if found.history else "nothing is known of it")
    tip = "look at it, then run the same command again: it sees to the pages, too"
    return Changed(f"{found.channel} was changed by somebody else meanwhile: {last}", tip=tip)


def busy(channel: Channel) -> ReleaseError:
    """Return what to say when others are always faster."""
    return ReleaseError(f"{channel.channel} is changed by others all the time", tip=AGAIN)


def _undo(channel: Channel) -> str:
    assert channel.pending is not None
    named = f"--channel {channel.channel} --family {channel.family} --set {channel.pending.sets[0]}"
    return f"rocm-wheels promote STORE {named} --abandon"
