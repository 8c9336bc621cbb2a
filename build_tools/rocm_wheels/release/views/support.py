"""``support.json``: for which machines there are wheels, which were tested, and how they are installed.

For installers, in one form for a family (``v2/<family>/support.json``) and for all (``v2/support.json``)::

    {"schema": 1,
     "public_url": "https://wheels.example.org/",    "" when nobody said where the store is seen from
     "other_indexes": ["https://…/"],                where wheels find what is not in their set
     "channels": [{"family", "channel", "current": set id, "index", "url", "install",
                   "sets": [{"os", "set", "version", "install"}]}],        the newest of each platform
     "releases": [{"family", "channel", "set", "created", "promoted",          newest first
                   "project": "torch", "version": "2.9.1+rocm7.1.0", "rocm": "7.1.0" or null,
                   "os": "linux|windows", "kind": "per-family|multi-arch|variants", "origin": set id or null,
                   "state": "tested|partly tested|untested|tests failed|checks failed",
                   "told": [lines: targets, named exceptions, waivers],
                   "targets": [{"gfx", "state": "tested|failed|untested", "by": ["smoke tests", "full tests"],
                                "pythons": ["3.12"], "when": "2026-11-21" or ""}],
                   "wheels": [{"file", "sha256", "pythons", "platforms", "gfx", "label", "rocm"}],
                   "index", "url", "install"}],
     "views": [{"family", "channel", "gfx", "set", "version", "index", "url", "install",
                "sets": [{"os", "set", "version", "install"}]}]}           what it shows, by platform

``index`` is relative to the URL of the document itself, ``url`` absolute or null. ``install`` has a command
for ``uv``, one for ``pip`` (null for variants, which it does not know, and for versions that PyPI may have,
too: without ``+rocm…``), and our own as ``rocm_wheels``, which alone asks which GPU there is; where
the URL is not known ``{index}`` stands for it. The index of a release never changes; that of a view is always
at the newest sets of a channel that passed on a target, one of each platform; a channel has all of its sets.
The newest is that of the newest torch, ``current`` the set that came last. In ``sets`` Linux is first, and
``set``, ``version`` and ``install`` beside it are those of the first; documents of before have no ``sets``.

pip has no first index: it takes what it finds of exactly that version, wherever that is. uv does not look
further for what the first index has.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels.errors import ReleaseError
from rocm_wheels.model.project import Platform
from rocm_wheels.records import Record
from rocm_wheels.release.gate.policy import CHANNELS
from rocm_wheels.release.layout import Layout, Places
from rocm_wheels.release.promotion.channel import State
from rocm_wheels.release.sets import Kind, SetId
from rocm_wheels.release.views.known import Known, KnownSets, Target, Wheel, read_known
from rocm_wheels.release.views.public import Public, read_public
from rocm_wheels.release.views.showing import newest_of_each
from rocm_wheels.stores.store import AGAIN, Changed, Missing, Store

_ATTEMPTS = 8
_PYPI = "https://pypi.org/simple/"
_UNKNOWN = "{index}"


class Install(Record):
    """Commands for a shell. ``pip`` is null where it might take the torch of PyPI (see above)."""

    uv: str
    pip: str | None
    rocm_wheels: str = ""  # in documents of before


class OfPlatform(Record):
    """What people with a platform get of an index."""

    os: Platform
    set: SetId
    version: str
    install: Install


class _Index(Record):
    family: str
    channel: str
    index: str
    url: str | None
    install: Install


class ChannelIndex(_Index):
    """A channel: all its sets, with the newest of each platform."""

    current: SetId
    sets: tuple[OfPlatform, ...] = ()


class ViewIndex(_Index):
    """A view: one set of each platform, which others follow. ``set`` is the first."""

    gfx: str
    set: SetId
    version: str
    sets: tuple[OfPlatform, ...] = ()


class Release(_Index):
    """A set on a channel, with the index that is its own."""

    set: SetId
    created: str
    promoted: str
    project: str
    version: str
    rocm: str | None
    os: Platform
    kind: Kind
    origin: SetId | None
    state: State
    told: tuple[str, ...]
    targets: tuple[Target, ...]
    wheels: tuple[Wheel, ...]


class Support(Record):
    """The document."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    public_url: str = ""
    other_indexes: tuple[str, ...] = ()
    channels: tuple[ChannelIndex, ...] = ()
    releases: tuple[Release, ...] = ()
    views: tuple[ViewIndex, ...] = ()

    def to_json(self) -> bytes:
        """Return its file: the same knowledge is the same bytes."""
        return (self.model_dump_json(by_alias=True, indent=1) + "\n").encode()


def write_support(store: Store, places: Places) -> bool:
    """Bring the document of a family to what is known; tell whether it was not there."""

    def make() -> bytes | None:
        public = read_public(store, places.layout)
        known = [read_known(store, places, channel) for channel in CHANNELS]
        found = [one.document for one in known if one.tag is not None]
        return support_of(places, found, public).to_json() if found else None

    return _write(store, places.support, make)


def write_support_of_all(store: Store, layout: Layout) -> bool:
    """Bring the document of all families to what theirs say; tell whether it was not there."""

    def make() -> bytes | None:
        public = read_public(store, layout)
        listed = store.folders(layout.release)
        found = [(one, _read(store, Places(layout, one, "release"))) for one in listed]
        return merged([pair for pair in found if pair[1] is not None], public).to_json()

    return _write(store, f"{layout.release}/{layout.support}", make)


def support_of(places: Places, known: Sequence[KnownSets], public: Public) -> Support:
    """Return the document of a family. Views that are being exchanged are left out."""
    indexes = _Indexes(places, public)
    channels: list[ChannelIndex] = []
    releases: list[Release] = []
    views: list[ViewIndex] = []
    for one in known:
        if newest := newest_of_each(one.sets, one.channel):
            said = indexes.of_several(one, places.channel_pages(one.channel), newest)
            channels.append(ChannelIndex.model_validate({**said, "current": one.sets[-1].set}))
        for held in sorted(one.sets, key=lambda it: (it.created, it.set), reverse=True):
            of_set = indexes.of(one, places.index(held.set), held)
            more = {name: getattr(held, name) for name in Release.model_fields if name not in of_set}
            releases.append(Release.model_validate({**of_set, **more}))
        by_id = {held.set: held for held in one.sets}
        for view in one.views:
            at = [by_id[it] for it in view.shown if it in by_id]
            if view.settled and at and len(at) == len(view.shown):
                said = indexes.of_several(one, places.view(view.gfx, one.channel), at)
                more = {"gfx": view.gfx, "set": at[0].set, "version": at[0].version}
                views.append(ViewIndex.model_validate({**said, **more}))
    return Support(
        public_url=public.url,
        other_indexes=public.other_indexes,
        channels=tuple(channels),
        releases=tuple(releases),
        views=tuple(views),
    )


def merged(found: Iterable[tuple[str, Support | None]], public: Public) -> Support:
    """Return the document of all families. ``index`` is relative to where it lies, a folder above theirs."""
    named = [(family, one) for family, one in found if one is not None]

    def below(family: str, given: Sequence[_Index]) -> list[dict[str, object]]:
        return [{**dict(one), "index": f"{family}/{one.index}"} for one in given]

    return Support.model_validate(
        {
            "schema": 1,
            "public_url": public.url,
            "other_indexes": public.other_indexes,
            "channels": tuple(one for family, it in named for one in below(family, it.channels)),
            "releases": tuple(one for family, it in named for one in below(family, it.releases)),
            "views": tuple(one for family, it in named for one in below(family, it.views)),
        }
    )


class _Indexes:
    """What is said of every index of a family."""

    def __init__(self, places: Places, public: Public) -> None:
        self._places, self._public = places, public

    def of(self, known: KnownSets, folder: str, newest: Known) -> dict[str, object]:
        url = f"{self._public.url}{folder}/" if self._public.url else None
        return {
            "family": known.family,
            "channel": known.channel,
            "index": f"{folder.removeprefix(f'{self._places.root}/')}/",
            "url": url,
            "install": self._install(url or _UNKNOWN, newest),
        }

    def of_several(self, known: KnownSets, folder: str, newest: Sequence[Known]) -> dict[str, object]:
        """Return what is said of an index that people with several platforms use; the first set leads."""
        said = [self.of(known, folder, one) for one in newest]
        sets = tuple(
            OfPlatform.model_validate(
                {"os": one.os, "set": one.set, "version": one.version, "install": its["install"]}
            )
            for one, its in zip(newest, said, strict=True)
        )
        return {**said[0], "sets": sets}

    def _install(self, index: str, newest: Known) -> Install:
        others, variants = self._public.other_indexes, newest.kind == "variants"
        requirement = f"{newest.project}=={newest.version}"
        uv = ["uv", "pip", "install", *(["--preview-features", "wheel-variants"] if variants else [])]
        uv += [word for one in (index, *others) for word in ("--index", one)]
        own = ["rocm-wheels", "install", "--index", index]
        own += [word for one in others[:1] for word in ("--rocm-index", one)]
        extra = [*others, *([] if _PYPI in others else [_PYPI])]
        pip = ["pip", "install", "--index-url", index]
        pip += [word for one in extra for word in ("--extra-index-url", one)]
        return Install(
            uv=_line([*uv, requirement]),
            pip=None if variants or "+" not in newest.version else _line([*pip, requirement]),
            rocm_wheels=_line([*own, requirement]),
        )


def _line(words: Sequence[str]) -> str:
    return " ".join(one if one == _UNKNOWN else shlex.quote(one) for one in words)


def _read(store: Store, places: Places) -> Support | None:
    path = places.support
    try:
        content = store.read(path).content
    except Missing:
        return None
    try:
        return Support.model_validate_json(content)
    except ValidationError as cause:
        tip = f"`rocm-wheels refresh {store.url} --family {places.family}` makes it again"
        raise ReleaseError(f"{store.url_of(path)} is damaged", tip=tip) from cause


def _write(store: Store, path: str, make: Callable[[], bytes | None]) -> bool:
    """Replace a document by what follows from others, which are read after it; tell whether it was not there.

    After a write all is read once more: others may have gone back, meanwhile, to what was there before it.
    """
    written = False
    for _ in range(_ATTEMPTS):
        try:
            found = store.read(path)
            before, tag = found.content, found.tag
        except Missing:
            before, tag = None, None
        made = make()
        if made is None or made == before:
            return written
        try:
            store.replace(path, made, tag)
        except Changed:
            continue
        written = True
    raise ReleaseError(f"{path} is changed by others all the time", tip=AGAIN)
