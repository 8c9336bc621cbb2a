"""Views: for a channel and a GPU target, an index of one set: the newest that passed on it, as known now.

Where no set passed there is no view: nothing is found (404), and never another set. A set that fails later
leaves, and the one before it is back.

In a folder a view changes by one rename. Elsewhere its pages show both sets for a moment, the new one from
its dependencies on, then the old one goes from its dependents on: by their pins one or the other is whole
at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rocm_wheels.index.views import HTML, JSON
from rocm_wheels.release.layout import Places
from rocm_wheels.release.pages import index_pages
from rocm_wheels.release.promotion.released import Released
from rocm_wheels.release.promotion.switching import Exchange, exchange, is_one_rename
from rocm_wheels.release.stores.store import Store
from rocm_wheels.release.views.known import Kept, Known, View


def newest_known_first(sets: Sequence[Known]) -> list[Known]:
    """Return sets in the order in which the newest is looked for (as ``standing.newest_first``)."""
    return sorted(sets, key=lambda one: (one.created, one.set), reverse=True)


def wanted_views(sets: Sequence[Known]) -> dict[str, str]:
    """Return the set of each target's view; a target that no set passed on has none."""
    newest = newest_known_first(sets)
    targets = sorted({target.gfx for one in sets for target in one.targets})
    return {gfx: one.set for gfx in targets for one in [_first(newest, gfx)] if one is not None}


def _first(newest: Sequence[Known], gfx: str) -> Known | None:
    return next((one for one in newest if one.passed_on(gfx)), None)


def planned_views(kept: Kept, wanted: Mapping[str, str], there: Sequence[str]) -> tuple[View, ...]:
    """Return all views; those not ``settled`` have pages to be exchanged.

    ``there`` are the targets that have pages, whatever the document says.
    """
    before = {one.gfx: one for one in kept.document.views}
    found = []
    for gfx in sorted({*before, *wanted, *there}):
        old, new = before.get(gfx), wanted.get(gfx)
        if old is not None and old.set == new and old.settled and gfx in there:
            found.append(old)
            continue
        was = [*old.was, old.set] if old is not None else []
        kept_before = tuple(dict.fromkeys(one for one in was if one not in {None, new}))
        found.append(View(gfx=gfx, set=new, was=tuple(filter(None, kept_before)), settled=False))
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

    wanted = pages(view.set) if view.set is not None else {}
    if is_one_rename(store, folder):
        return exchange(store, Exchange(folder, builds, wanted, (), view.set is not None, check))
    present = store.head(f"{folder}/{HTML}") is not None or store.head(f"{folder}/{JSON}") is not None
    ids = tuple(dict.fromkeys([*view.was, *([view.set] if view.set else [])]))
    order, writes = released.in_order(ids), 0
    if view.set is not None and view.was and present:
        writes += exchange(store, Exchange(folder, builds, pages(*ids), order, adds=True, check=check))
    adds = view.set is not None and not view.was
    return writes + exchange(store, Exchange(folder, builds, wanted, order, adds=adds, check=check))
