"""Say why channels would refuse a set as things are, before anybody promotes it."""

from __future__ import annotations

from collections.abc import Sequence

from rocm_wheels.core import errors
from rocm_wheels.release import channel as channels
from rocm_wheels.release import policy, set_conflicts, wheel_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores.store import Store


def list_refusals(
    store: Store, document: wheel_set.SetDocument, names: Sequence[str] = policy.CHANNEL_NAMES
) -> dict[str, list[str]]:
    """Return why ``promote`` would refuse a staged set whatever the gate says, each reason with the channels.

    Channels that show it refuse nothing. What cannot be read (the document of a channel, of a set that it
    shows) is such a reason, too: nothing is promoted until it is mended.
    """
    paths = FamilyPaths(document.family)
    reasons: dict[str, list[str]] = {}

    def note(refusal: errors.RocmWheelsError, name: str) -> None:
        message, tip = errors.split_explanation(refusal)
        reasons.setdefault(f"{message}; {tip}" if tip else message, []).append(name)

    present: dict[str, channels.Channel] = {}
    for name in policy.CHANNEL_NAMES:
        try:
            present[name] = channels.read_channel(store, paths, name).channel
        except errors.DataError as damage:
            for refusing in names:
                note(damage, refusing)
    asked = [name for name in names if name in present and document.id not in present[name].shown]
    try:  # a name belongs to its bytes in all channels alike
        if asked:
            channels.require_own_names(store, document, present)
    except (errors.ReleaseError, errors.DataError) as refusal:
        for refusing in asked:
            note(refusal, refusing)
        return reasons
    requires = set_conflicts.read_requirements(store, paths, document)
    for channel in (present[name] for name in asked):
        try:
            channels.require_fitting(store, document, requires, channel)
        except (errors.ReleaseError, errors.DataError) as refusal:
            note(refusal, channel.channel)
    return reasons
