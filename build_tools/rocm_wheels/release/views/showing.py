"""Views: for a channel and a GPU target, the newest set that passed on it, as known now, of each platform.

It is an index of one set for Linux and one for Windows, where both have one: a machine finds the wheels of
its own there. Each platform has the newest torch that is good on that GPU (``release.newest``), whatever came
after it. Where no set passed there is no view: nothing is found (404), and never another set. A set that
fails later leaves, and the one before it is back.

Where wheels of one platform would be taken on the other (``platforms``) the set for Linux stays, and Windows
has the newest that goes with it.

In a folder a view changes by one rename. Elsewhere its pages show both sets for a moment, the new one from
its dependencies on, then the old one goes from its dependents on: by their pins one or the other is whole
at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rocm_wheels.index.views import HTML, JSON
from rocm_wheels.release.layout import Places
from rocm_wheels.release.newest import PLATFORMS
from rocm_wheels.release.pages import index_pages
from rocm_wheels.release.promotion.released import Released
from rocm_wheels.release.promotion.switching import Exchange, exchange, is_one_rename
from rocm_wheels.release.views.known import Kept, Known, View
from rocm_wheels.stores.store import Store


def newest_of_each(
    sets: Iterable[Known], channel: str, clash: Callable[[Known, Known], bool] | None = None
) -> tuple[Known, ...]:
    """Return the newest set of each platform, that of Linux first; none that has a clash with one before."""
    newest, found = sorted(sets, key=lambda one: one.rank(channel), reverse=True), list[Known]()
    for platform in PLATFORMS:
        own = (one for one in newest if one.os == platform)
        found += [one for one in own if clash is None or not any(clash(one, other) for other in found)][:1]
    return tuple(found)


def wanted_views(
    sets: Sequence[Known], channel: str, clash: Callable[[Known, Known], bool] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the sets of each target's view, by platform; a target that no set passed on has none."""
    found = {}
    for gfx in sorted({target.gfx for one in sets for target in one.targets}):
        if shown := newest_of_each((one for one in sets if one.passed_on(gfx)), channel, clash):
            found[gfx] = tuple(one.set for one in shown)
    return found


def planned_views(
    kept: Kept, wanted: Mapping[str, tuple[str, ...]], there: Sequence[str]
) -> tuple[View, ...]:
    """Return all views; those not ``settled`` have pages to be exchanged.

    ``there`` are the targets that have pages, whatever the document says.
    """
    before = {one.gfx: one for one in kept.document.views}
    found = []
    for gfx in sorted({*before, *wanted, *there}):
        old, new = before.get(gfx), wanted.get(gfx, ())
        if old is not None and old.shown == new and old.settled and gfx in there:
            found.append(old)
            continue
        was = [*old.was, *old.shown] if old is not None else []
        kept_before = tuple(dict.fromkeys(one for one in was if one not in new))
        found.append(View.at(gfx, new, kept_before, settled=False))
    return tuple(found)


def targets_with_pages(store: Store, places: Places, channel: str) -> list[str]:
    """Return the targets for which a channel has a view in the store."""
    folder = places.view("x", channel).rsplit("/", 2)[0]
    names = store.folders(folder)
    return [gfx for gfx in names if store.head(f"{places.view(gfx, channel)}/{HTML}") is not None]


def show(released: Released, channel: str, view: View, check: Callable[[], None]) -> int:
    """Have the pages of a view be what it says, and return how many were written or removed.

    ``check`` raises when somebody else is about to change it.
    """
    store, places = released.store, released.places
    folder, builds = places.view(view.gfx, channel), places.builds(f"{channel}.{view.gfx}")

    def pages(*ids: str) -> dict[str, bytes]:
        found = released.documents(ids)
        return index_pages(folder, places, ((file, one.created) for one in found for file in one.files))

    wanted = pages(*view.shown) if view.shown else {}
    if is_one_rename(store, folder):
        return exchange(store, Exchange(folder, builds, wanted, (), bool(view.shown), check))
    present = store.head(f"{folder}/{HTML}") is not None or store.head(f"{folder}/{JSON}") is not None
    ids = tuple(dict.fromkeys([*view.was, *view.shown]))
    order, writes = released.in_order(ids), 0
    if view.shown and view.was and present:
        writes += exchange(store, Exchange(folder, builds, pages(*ids), order, adds=True, check=check))
    adds = bool(view.shown) and not view.was
    return writes + exchange(store, Exchange(folder, builds, wanted, order, adds=adds, check=check))
