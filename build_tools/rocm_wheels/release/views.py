"""What follows from channels: views for each GPU target, and ``support.json``.

For a channel and a GPU target a view shows the newest set that passed on it, of each platform. Where the
channel does not ask for signatures a pass that nobody known signed counts, too; of the newest version a set
with a signed one goes first. A view is an
index of one set for Linux and one for Windows, where both have one: a machine finds the
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

``support.json`` says which wheels are for which machines, how they were tested and how they are installed;
``public.json``, where the store is seen from. For installers, in one form for a family
(``v2/<family>/support.json``) and for all (``v2/support.json``)::

    {"schema": 1,
     "public_url": "https://wheels.example.org/",    "" when nobody said where the store is seen from
     "other_indexes": ["https://…/"],                where wheels find what is not in their set
     "channels": [{"family", "channel", "current": set id, "index", "url", "install",
                   "sets": [{"os", "set", "version", "install"}]}],        the newest of each platform
     "releases": [{"family", "channel", "set", "created", "promoted",          newest first
                   "project": "torch", "version": "2.9.1+rocm7.1.0", "rocm": "7.1.0" or null,
                   "os": "linux|windows", "kind": "per-family|multi-arch|variants", "origin": set id or null,
                   "state": "tested|partly tested|reported, unsigned|untested|tests failed|checks failed",
                   "told": [lines: targets, named exceptions, waivers],
                   "targets": [{"gfx", "state": "tested|reported, unsigned|failed|untested",
                                "by": ["smoke tests", "full tests"],
                                "pythons": ["3.12"], "when": "2026-11-21" or ""}],
                   "wheels": [{"file", "sha256", "pythons", "platforms", "gfx", "label", "rocm"}],
                   "index", "url", "install"}],
     "views": [{"family", "channel", "gfx", "set", "version", "index", "url", "install",
                "sets": [{"os", "set", "version", "install"}]}]}           what it shows, by platform

``index`` is relative to the URL of the document itself, ``url`` absolute or null. ``install`` has a
command for ``uv``, one for ``pip`` (null for variants, which it does not know, and for versions that PyPI
may have, too: without ``+rocm…``), and our own as ``rocm_wheels``, which alone asks which GPU there is;
where the URL is not known ``{index}`` stands for it. The index of a release never changes; that of a view
is always at the newest sets of a channel that passed on a target, one of each platform; a channel has all
of its sets.

The newest is that of the newest torch, ``current`` the set that came last. In ``sets`` Linux is first,
and ``set``, ``version`` and ``install`` beside it are those of the first.

pip has no first index: it takes what it finds of exactly that version, wherever that is. uv does not look
further for what the first index has.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from rocm_wheels.core import errors, log, records
from rocm_wheels.index import publish
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE
from rocm_wheels.models import project_names
from rocm_wheels.release import policy, set_conflicts, set_list, snapshots, wheel_set
from rocm_wheels.release.channel import (
    ChannelStatus,
    ChannelView,
    PublishedSet,
    SetStatus,
    StoredStatus,
    read_channel_status,
)
from rocm_wheels.release.layout import FamilyPaths, StoreLayout
from rocm_wheels.release.pages import make_set_pages
from rocm_wheels.stores.store import (
    RUN_AGAIN_TIP,
    ChangedInStoreError,
    NotInStoreError,
    Store,
    change_documents,
)


@dataclass(frozen=True)
class PlatformConflicts:
    """Tells which sets of two platforms cannot be in one view, and says so once of each pair."""

    released: set_list.ReleasedSets
    _found_by_pair: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def have_conflict(self, status: SetStatus, other_status: SetStatus) -> bool:
        """Tell whether wheels of a set would be taken in the place of another's."""
        pair = status.set, other_status.set
        if pair not in self._found_by_pair:
            has_unpinned = any(
                line.startswith(set_conflicts.UNPINNED_PREFIXES)
                for line in (*status.told, *other_status.told)
            )
            self._found_by_pair[pair] = projects = find_platform_conflicts(
                *self.released.read_documents(pair), has_unpinned=has_unpinned
            )
            if projects:
                message = (
                    f"{status.set} ({status.os}) is in no view beside {other_status.set} ({other_status.os})"
                )
                log.log_warning(f"{message}: installers would take {', '.join(projects)} of one for both")
        return bool(self._found_by_pair[pair])


def find_platform_conflicts(
    first: wheel_set.SetDocument, second: wheel_set.SetDocument, *, has_unpinned: bool
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


def _find_taken_projects(
    document: wheel_set.SetDocument, rival: wheel_set.SetDocument, has_unpinned: bool
) -> Iterator[str]:
    rivals: Mapping[str, list[wheel_set.SetFile]] = {
        project: [file for file in rival.files if file.project == project] for project in rival.projects
    }
    for file in document.files:
        slots = set_conflicts.list_installer_slots(file)
        if file.sha256 in rival.hashes or not any(slot.platform == set_conflicts.ANY_VALUE for slot in slots):
            continue
        rival_files = rivals.get(file.project, [])
        if rival_files and (
            has_unpinned
            or any(
                slot.overlaps(rival_slot)
                for slot in slots
                for f in rival_files
                for rival_slot in set_conflicts.list_installer_slots(f)
            )
        ):
            yield file.project


def find_newest_by_platform(
    sets: Iterable[SetStatus],
    channel: str,
    conflict: Callable[[SetStatus, SetStatus], bool] | None = None,
    gfx: str = "",
) -> tuple[SetStatus, ...]:
    """Return the newest set of each platform, that of Linux first; none that has a clash with one before.

    With ``gfx``, of the newest version one that is tested there goes before those that are reported.
    """
    newest, chosen = (
        sorted(sets, key=lambda status: status.rank_for(channel, gfx), reverse=True),
        list[SetStatus](),
    )
    for platform in wheel_set.PLATFORM_ORDER:
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
            (status for status in sets if status.passed_on(gfx)), channel, conflict, gfx
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


def make_view_pages(
    paths: FamilyPaths, folder: str, documents: Sequence[wheel_set.SetDocument]
) -> dict[str, bytes]:
    """Return the pages of a view in ``folder`` that shows these sets."""
    files = [(file, document.created) for document in documents for file in document.files]
    return make_set_pages(folder, paths, files)


def list_view_states(
    released: set_list.ReleasedSets, channel: str, view: ChannelView
) -> dict[str, tuple[bytes, ...]]:
    """Return what the pages of a view may be while it is being exchanged, by path."""
    folder = released.paths.view_pages(view.gfx, channel)
    states: dict[str, tuple[bytes, ...]] = {}
    for ids in dict.fromkeys((view.shown, tuple(dict.fromkeys((*view.was, *view.shown))))):
        documents = released.read_documents(ids)
        for path, content in make_view_pages(released.paths, folder, documents).items() if view.shown else ():
            states[path] = (*states.get(path, ()), content)
    return states


def publish_view(
    released: set_list.ReleasedSets,
    channel: str,
    view: ChannelView,
    check: Callable[[], None],
    kept: frozenset[str] = frozenset(),
) -> int:
    """Have the pages of a view be what it says, and return how many were written or removed.

    ``check`` raises when somebody else is about to change it. ``kept`` are paths that stay beside the pages.
    """
    store, paths = released.store, released.paths
    folder, builds = paths.view_pages(view.gfx, channel), paths.build_folder(f"{channel}.{view.gfx}")

    def pages(*ids: str) -> dict[str, bytes]:
        return make_view_pages(paths, folder, released.read_documents(ids))

    view_pages = pages(*view.shown) if view.shown else {}
    if publish.can_rename_at_once(store, folder):
        exchange = publish.PageExchange(folder, builds, view_pages, (), adds=bool(view.shown), kept=kept)
        return publish.exchange_pages(store, exchange, check)
    present = (
        store.head(f"{folder}/{HTML_PAGE}") is not None or store.head(f"{folder}/{JSON_PAGE}") is not None
    )
    ids = tuple(dict.fromkeys([*view.was, *view.shown]))
    order, writes = released.sort_projects(ids), 0
    if view.shown and view.was and present:
        both = publish.PageExchange(folder, builds, pages(*ids), order, adds=True, kept=kept)
        writes += publish.exchange_pages(store, both, check)
    adds = bool(view.shown) and not view.was
    exchange = publish.PageExchange(folder, builds, view_pages, order, adds, kept)
    return writes + publish.exchange_pages(store, exchange, check)


class PublicLocation(records.Record):
    """``url`` is the URL that the store itself has outside ("": nobody said), ending in ``/``.

    ``other_indexes`` are where wheels find what is not in their set (ROCm's own packages, a mirror of PyPI).
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    url: str = ""
    other_indexes: tuple[str, ...] = ()

    def address_of(self, store: Store, path: str) -> str:
        """Return where a file or folder of the store is seen from outside, as far as anybody said."""
        return f"{self.url}{path}" if self.url else store.url_of(path)


def read_public(store: Store, layout: StoreLayout) -> PublicLocation:
    """Return what is known of it. DataError for a damaged document."""
    return _read_public(store, layout)[0]


def update_public(
    store: Store,
    layout: StoreLayout,
    url: str | None,
    other_indexes: tuple[str, ...] | None,
    signer: snapshots.ReleaseSigner | None = None,
) -> bool:
    """Write down what is given (``None``: as it was), and tell whether that is new."""

    path, snapshot = _public_path(layout), snapshots.keep_whole_snapshot(store, layout, signer)
    snapshot.require_signer()

    def update() -> bool:
        before, tag = _read_public(store, layout)
        if signer is not None:
            snapshot.require_content(path, _read_content(store, path))
        changed: dict[str, object] = {}
        if url is not None:
            changed["url"] = check_public_url(url) if url else ""
        if other_indexes is not None:
            changed["other_indexes"] = tuple(
                check_public_url(address) for address in other_indexes if address
            )
        updated = before.model_copy(update=changed)
        if updated == before:
            return False
        content = (json.dumps(updated.model_dump(mode="json", by_alias=True), indent=1) + "\n").encode()
        snapshot.add({path: (content,)})
        store.replace(path, content, tag)
        return True

    return change_documents(update, description=path)


def check_public_url(url: str) -> str:
    """Return the URL of a folder, with ``/`` at its end. UsageError for one that installers cannot use."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname or parts.scheme == "file")
    except ValueError:
        has_host = False
    has_odd_character = any(
        character.isspace() or ord(character) < 32 or character in "\"'<>\\{}" for character in url
    )
    if has_odd_character or not has_host or parts.scheme not in {"https", "http", "file"}:
        raise errors.UsageError(
            f"{url!r} is no URL of a folder", tip="for example: https://wheels.example.org/"
        )
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise errors.UsageError(
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}… has more than a place in it",
            tip="everybody reads it: no user, password, ? or #",
        )
    return url if url.endswith("/") else f"{url}/"


def _public_path(layout: StoreLayout) -> str:
    return f"{layout.release}/{layout.public}"


def _read_public(store: Store, layout: StoreLayout) -> tuple[PublicLocation, str | None]:
    path = _public_path(layout)
    try:
        stored = store.read(path)
    except NotInStoreError:
        return PublicLocation(), None
    try:
        return PublicLocation.model_validate_json(stored.content), stored.tag
    except ValidationError as cause:
        where = store.url_of(path)
        tip = "restore it from a copy of the store, or delete it and run `refresh` with --public-url"
        raise errors.DataError(f"{where} does not say where the store is seen from", tip=tip) from cause


_SUPPORT_ATTEMPTS = 8
_PYPI_URL = "https://pypi.org/simple/"
_INDEX_PLACEHOLDER = "{index}"


class InstallCommands(records.Record):
    """Commands for a shell. ``pip`` is null where it might take the torch of PyPI (see above)."""

    uv: str
    pip: str | None
    rocm_wheels: str


class PlatformSet(records.Record):
    """What people with a platform get of an index."""

    os: project_names.Platform
    set: wheel_set.SetId
    version: str
    install: InstallCommands


class _SupportIndex(records.Record):
    family: str
    channel: str
    index: str
    url: str | None
    install: InstallCommands


class ChannelIndex(_SupportIndex):
    """A channel: all its sets, with the newest of each platform."""

    current: wheel_set.SetId
    sets: tuple[PlatformSet, ...]


class ViewIndex(_SupportIndex):
    """A view: one set of each platform, which others follow. ``set`` is the first."""

    gfx: str
    set: wheel_set.SetId
    version: str
    sets: tuple[PlatformSet, ...]


class SupportRelease(PublishedSet, _SupportIndex):
    """A set on a channel, with the index that is its own."""


class SupportDocument(records.Record):
    """The document."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    public_url: str = ""
    other_indexes: tuple[str, ...] = ()
    channels: tuple[ChannelIndex, ...] = ()
    releases: tuple[SupportRelease, ...] = ()
    views: tuple[ViewIndex, ...] = ()

    def to_json(self) -> bytes:
        """Return its file: the same knowledge is the same bytes."""
        return (self.model_dump_json(by_alias=True, indent=1) + "\n").encode()


def write_support(store: Store, paths: FamilyPaths, signer: snapshots.ReleaseSigner | None = None) -> bool:
    """Bring the document of a family to what is known; tell whether it was not there.

    With a signer it follows from documents that are signed alone: ReleaseError for others.
    """
    snapshot = snapshots.keep_support_snapshot(store, paths, signer)

    def derive() -> bytes | None:
        if signer is not None:
            _require_signed_sources(store, paths, signer)
        return derive_support(store, paths)

    return _write_document(store, paths.support_document, derive, snapshot)


def _require_signed_sources(store: Store, paths: FamilyPaths, signer: snapshots.ReleaseSigner) -> None:
    """Raise ReleaseError where what support.json of a family follows from is not what was signed."""
    for channel in policy.CHANNEL_NAMES:
        path = paths.channel_status(channel)
        snapshots.keep_channel_snapshot(store, paths, channel, signer).require_content(
            path, _read_content(store, path)
        )
    _require_signed_public(store, paths.layout, signer)


def _require_signed_public(store: Store, layout: StoreLayout, signer: snapshots.ReleaseSigner) -> None:
    path = _public_path(layout)
    snapshots.keep_whole_snapshot(store, layout, signer).require_content(path, _read_content(store, path))


def _read_content(store: Store, path: str) -> bytes | None:
    try:
        return store.read(path).content
    except NotInStoreError:
        return None


def derive_support(store: Store, paths: FamilyPaths) -> bytes | None:
    """Return what the document of a family is to be, None where nothing is known of it."""
    public = read_public(store, paths.layout)
    stored = [read_channel_status(store, paths, channel) for channel in policy.CHANNEL_NAMES]
    statuses = [item.document for item in stored if item.tag is not None]
    return make_support(paths, statuses, public).to_json() if statuses else None


def write_whole_support(
    store: Store, layout: StoreLayout, signer: snapshots.ReleaseSigner | None = None
) -> bool:
    """Bring the document of all families to what theirs say; tell whether it was not there.

    With a signer as ``write_support``.
    """
    path, snapshot = (
        f"{layout.release}/{layout.support}",
        snapshots.keep_whole_snapshot(store, layout, signer),
    )

    def derive() -> bytes:
        if signer is not None:
            _require_signed_public(store, layout, signer)
            for family in store.folders(layout.release):
                paths = FamilyPaths(layout, family, "release")
                content = _read_content(store, paths.support_document)
                snapshots.keep_support_snapshot(store, paths, signer).require_content(
                    paths.support_document, content
                )
        return derive_whole_support(store, layout)

    return _write_document(store, path, derive, snapshot, others=(_public_path(layout),))


def derive_whole_support(store: Store, layout: StoreLayout) -> bytes:
    """Return what the document of all families is to be. ReleaseError where one of theirs is damaged."""
    public = read_public(store, layout)
    listed = store.folders(layout.release)
    documents = [
        (family_name, _read_support(store, FamilyPaths(layout, family_name, "release")))
        for family_name in listed
    ]
    return merge_support([pair for pair in documents if pair[1] is not None], public).to_json()


def make_support(
    paths: FamilyPaths, statuses: Sequence[ChannelStatus], public: PublicLocation
) -> SupportDocument:
    """Return the document of a family. Views that are being exchanged are left out."""
    indexes = _IndexDescriber(paths, public)
    channels: list[ChannelIndex] = []
    releases: list[SupportRelease] = []
    views: list[ViewIndex] = []
    for status in statuses:
        if newest := find_newest_by_platform(status.sets, status.channel):
            description = indexes.describe_for_platforms(status, paths.channel_pages(status.channel), newest)
            channels.append(ChannelIndex.model_validate({**description, "current": status.sets[-1].set}))
        for set_status in sorted(status.sets, key=lambda item: (item.created, item.set), reverse=True):
            of_set = indexes.describe(status, paths.set_index(set_status.set), set_status)
            details = {name: getattr(set_status, name) for name in PublishedSet.model_fields}
            releases.append(SupportRelease.model_validate({**of_set, **details}))
        by_id = {set_status.set: set_status for set_status in status.sets}
        for view in status.views:
            view_sets = [by_id[item] for item in view.shown if item in by_id]
            if view.settled and view_sets and len(view_sets) == len(view.shown):
                description = indexes.describe_for_platforms(
                    status, paths.view_pages(view.gfx, status.channel), view_sets
                )
                details = {"gfx": view.gfx, "set": view_sets[0].set, "version": view_sets[0].version}
                views.append(ViewIndex.model_validate({**description, **details}))
    return SupportDocument(
        public_url=public.url,
        other_indexes=public.other_indexes,
        channels=tuple(channels),
        releases=tuple(releases),
        views=tuple(views),
    )


def merge_support(
    documents: Iterable[tuple[str, SupportDocument | None]], public: PublicLocation
) -> SupportDocument:
    """Return the document of all families. ``index`` is relative to where it lies, a folder above theirs."""
    documents_by_family = [(family, item) for family, item in documents if item is not None]

    def below(family: str, indexes: Sequence[_SupportIndex]) -> list[dict[str, object]]:
        return [{**dict(index), "index": f"{family}/{index.index}"} for index in indexes]

    return SupportDocument.model_validate(
        {
            "schema": 1,
            "public_url": public.url,
            "other_indexes": public.other_indexes,
            "channels": tuple(
                item
                for family, family_document in documents_by_family
                for item in below(family, family_document.channels)
            ),
            "releases": tuple(
                item
                for family, family_document in documents_by_family
                for item in below(family, family_document.releases)
            ),
            "views": tuple(
                item
                for family, family_document in documents_by_family
                for item in below(family, family_document.views)
            ),
        }
    )


class _IndexDescriber:
    """What is said of every index of a family."""

    def __init__(self, paths: FamilyPaths, public: PublicLocation) -> None:
        self._paths, self._public = paths, public

    def describe(self, status: ChannelStatus, folder: str, newest: SetStatus) -> dict[str, object]:
        url = f"{self._public.url}{folder}/" if self._public.url else None
        return {
            "family": status.family,
            "channel": status.channel,
            "index": f"{folder.removeprefix(f'{self._paths.family_folder}/')}/",
            "url": url,
            "install": self._make_commands(url or _INDEX_PLACEHOLDER, newest),
        }

    def describe_for_platforms(
        self, status: ChannelStatus, folder: str, newest: Sequence[SetStatus]
    ) -> dict[str, object]:
        """Return what is said of an index that people with several platforms use; the first set leads."""
        descriptions = [self.describe(status, folder, set_status) for set_status in newest]
        sets = tuple(
            PlatformSet.model_validate(
                {
                    "os": set_status.os,
                    "set": set_status.set,
                    "version": set_status.version,
                    "install": description["install"],
                }
            )
            for set_status, description in zip(newest, descriptions, strict=True)
        )
        return {**descriptions[0], "sets": sets}

    def _make_commands(self, index: str, newest: SetStatus) -> InstallCommands:
        other_indexes, variants = self._public.other_indexes, newest.kind == "variants"
        requirement = f"{newest.project}=={newest.version}"
        uv = ["uv", "pip", "install", *(["--preview-features", "wheel-variants"] if variants else [])]
        uv += [word for address in (index, *other_indexes) for word in ("--index", address)]
        rocm_wheels = ["rocm-wheels", "install", "--index", index]
        rocm_wheels += [word for address in other_indexes[:1] for word in ("--rocm-index", address)]
        extra = [*other_indexes, *([] if _PYPI_URL in other_indexes else [_PYPI_URL])]
        pip = ["pip", "install", "--index-url", index]
        pip += [word for address in extra for word in ("--extra-index-url", address)]
        return InstallCommands(
            uv=_shell_line([*uv, requirement]),
            pip=None if variants or "+" not in newest.version else _shell_line([*pip, requirement]),
            rocm_wheels=_shell_line([*rocm_wheels, requirement]),
        )


def _shell_line(words: Sequence[str]) -> str:
    return " ".join(word if word == _INDEX_PLACEHOLDER else shlex.quote(word) for word in words)


def _read_support(store: Store, paths: FamilyPaths) -> SupportDocument | None:
    path = paths.support_document
    try:
        content = store.read(path).content
    except NotInStoreError:
        return None
    try:
        return SupportDocument.model_validate_json(content)
    except ValidationError as cause:
        tip = f"`rocm-wheels set refresh {store.url} --family {paths.family}` makes it again"
        raise errors.ReleaseError(f"{store.url_of(path)} is damaged", tip=tip) from cause


def _write_document(
    store: Store,
    path: str,
    make: Callable[[], bytes | None],
    snapshot: snapshots.SnapshotKeeper,
    others: Sequence[str] = (),
) -> bool:
    """Replace a document by what follows from others, which are read after it; tell whether it was not there.

    After a write all is read once more: others may have gone back, meanwhile, to what was there before it.
    Then its ``snapshot`` states it, and ``others``.
    """
    written = False
    for _ in range(_SUPPORT_ATTEMPTS):
        signed = snapshot.read() if snapshot.signer is not None else None
        try:
            stored = store.read(path)
            before, tag = stored.content, stored.tag
        except NotInStoreError:
            before, tag = None, None
        content = make()
        try:
            if content is None or content == before:
                contents = {item: _read_content(store, item) for item in others} | {path: before}
                present = {item: text for item, text in contents.items() if text is not None}
                if signed is not None and present:
                    snapshot.settle(signed, present)
                return written
            snapshot.add({path: (content,)})
            store.replace(path, content, tag)
        except ChangedInStoreError:
            continue
        written = True
    raise errors.ReleaseError(f"{path} is changed by others all the time", tip=RUN_AGAIN_TIP)
