"""Plan and publish views: for a channel and a GPU target, the newest set that passed on it, of each
platform.

A view is an index of one set for Linux and one for Windows, where both have one: a machine finds the
wheels of its own there. Each platform has the newest torch that is good on that GPU, whatever came after
it. Where no set passed there is no view: nothing is found (404), and never another set. A set that fails
later leaves, and the one before it is back.

May the sets of two platforms be in one view? It is about wheels for every platform (``py3-none-any``)
alone; the same file in both sets is no matter. Else one may be taken for both where both sets have its
version, with other bytes (no pin tells them apart; promotion refuses that today), or wheels of either set
are not pinned to it. Then the set for Linux stays, and Windows has the newest that goes with it.

In a folder a view changes by one rename. Elsewhere its pages show both sets for a moment, the new one
from its dependencies on, then the old one goes from its dependents on: by their pins one or the other is
whole at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rocm_wheels.core import Store, log_warning
from rocm_wheels.index import HTML_PAGE, JSON_PAGE, PageExchange, can_rename_at_once, exchange_pages
from rocm_wheels.release.channel_status import ChannelView, SetStatus, StoredStatus
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.pages import make_set_pages
from rocm_wheels.release.set_conflicts import ANY_VALUE, UNPINNED_PREFIXES, list_installer_slots
from rocm_wheels.release.set_list import ReleasedSets
from rocm_wheels.release.wheel_set import PLATFORM_ORDER, SetDocument, SetFile


@dataclass(frozen=True)
class PlatformConflicts:
    """Tells which sets of two platforms cannot be in one view, and says so once of each pair."""

    released: ReleasedSets
    _found_by_pair: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def have_conflict(self, status: SetStatus, other_status: SetStatus) -> bool:
        """Tell whether wheels of a set would be taken in the place of another's."""
        pair = status.set, other_status.set
        if pair not in self._found_by_pair:
            has_unpinned = any(
                line.startswith(UNPINNED_PREFIXES) for line in (*status.told, *other_status.told)
            )
            self._found_by_pair[pair] = projects = find_platform_conflicts(
                *self.released.read_documents(pair), has_unpinned=has_unpinned
            )
            if projects:
                message = (
                    f"{status.set} ({status.os}) is in no view beside {other_status.set} ({other_status.os})"
                )
                log_warning(f"{message}: installers would take {', '.join(projects)} of one for both")
        return bool(self._found_by_pair[pair])


def find_platform_conflicts(
    first: SetDocument, second: SetDocument, *, has_unpinned: bool
) -> tuple[str, ...]:
    """Return the projects of which a wheel of one set would be taken for the other, sorted.

    ``has_unpinned``: there are wheels that are not pinned to their set.
    """
    return tuple(
        sorted(
            {
                *_find_taken_projects(first, second, has_unpinned),
                *_find_taken_projects(second, first, has_unpinned),
            }
        )
    )


def _find_taken_projects(document: SetDocument, rival: SetDocument, has_unpinned: bool) -> Iterator[str]:
    rivals: Mapping[str, list[SetFile]] = {
        project: [file for file in rival.files if file.project == project] for project in rival.projects
    }
    for file in document.files:
        slots = list_installer_slots(file)
        if file.sha256 in rival.hashes or not any(slot.platform == ANY_VALUE for slot in slots):
            continue
        rival_files = rivals.get(file.project, [])
        if rival_files and (
            has_unpinned
            or any(
                slot.overlaps(rival_slot)
                for slot in slots
                for f in rival_files
                for rival_slot in list_installer_slots(f)
            )
        ):
            yield file.project


def find_newest_by_platform(
    sets: Iterable[SetStatus], channel: str, conflict: Callable[[SetStatus, SetStatus], bool] | None = None
) -> tuple[SetStatus, ...]:
    """Return the newest set of each platform, that of Linux first; none that has a clash with one before."""
    newest, chosen = (
        sorted(sets, key=lambda status: status.rank_for(channel), reverse=True),
        list[SetStatus](),
    )
    for platform in PLATFORM_ORDER:
        candidates = (status for status in newest if status.os == platform)
        chosen += [
            status
            for status in candidates
            if conflict is None or not any(conflict(status, other) for other in chosen)
        ][:1]
    return tuple(chosen)


def find_view_sets(
    sets: Sequence[SetStatus], channel: str, conflict: Callable[[SetStatus, SetStatus], bool] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the sets of each target's view, by platform; a target that no set passed on has none."""
    ids_by_target = {}
    for gfx in sorted({target.gfx for status in sets for target in status.targets}):
        if newest := find_newest_by_platform(
            (status for status in sets if status.passed_on(gfx)), channel, conflict
        ):
            ids_by_target[gfx] = tuple(status.set for status in newest)
    return ids_by_target


def plan_views(
    stored: StoredStatus, ids_by_target: Mapping[str, tuple[str, ...]], present: Sequence[str]
) -> tuple[ChannelView, ...]:
    """Return all views; those not ``settled`` have pages to be exchanged.

    ``present`` are the targets that have pages, whatever the document says.
    """
    before = {item.gfx: item for item in stored.document.views}
    views = []
    for gfx in sorted({*before, *ids_by_target, *present}):
        old, new = before.get(gfx), ids_by_target.get(gfx, ())
        if old is not None and old.shown == new and old.settled and gfx in present:
            views.append(old)
            continue
        was = [*old.was, *old.shown] if old is not None else []
        kept_before = tuple(dict.fromkeys(item for item in was if item not in new))
        views.append(ChannelView.make(gfx, new, kept_before, settled=False))
    return tuple(views)


def list_view_targets(store: Store, paths: FamilyPaths, channel: str) -> list[str]:
    """Return the targets for which a channel has a view in the store."""
    folder = paths.view_pages("x", channel).rsplit("/", 2)[0]
    names = store.folders(folder)
    return [gfx for gfx in names if store.head(f"{paths.view_pages(gfx, channel)}/{HTML_PAGE}") is not None]


def publish_view(released: ReleasedSets, channel: str, view: ChannelView, check: Callable[[], None]) -> int:
    """Have the pages of a view be what it says, and return how many were written or removed.

    ``check`` raises when somebody else is about to change it.
    """
    store, paths = released.store, released.paths
    folder, builds = paths.view_pages(view.gfx, channel), paths.build_folder(f"{channel}.{view.gfx}")

    def pages(*ids: str) -> dict[str, bytes]:
        documents = released.read_documents(ids)
        return make_set_pages(
            folder, paths, ((file, document.created) for document in documents for file in document.files)
        )

    view_pages = pages(*view.shown) if view.shown else {}
    if can_rename_at_once(store, folder):
        exchange = PageExchange(folder, builds, view_pages, (), adds=bool(view.shown))
        return exchange_pages(store, exchange, check)
    present = (
        store.head(f"{folder}/{HTML_PAGE}") is not None or store.head(f"{folder}/{JSON_PAGE}") is not None
    )
    ids = tuple(dict.fromkeys([*view.was, *view.shown]))
    order, writes = released.sort_projects(ids), 0
    if view.shown and view.was and present:
        both = PageExchange(folder, builds, pages(*ids), order, adds=True)
        writes += exchange_pages(store, both, check)
    adds = bool(view.shown) and not view.was
    return writes + exchange_pages(store, PageExchange(folder, builds, view_pages, order, adds), check)
