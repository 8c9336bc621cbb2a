"""``support.json``: which wheels are for which machines, how they were tested, how they are installed.

For installers and people, in one form for a family (``FAMILY/support.json``) and for all (``support.json``)::

    {"schema": 2,
     "public_url": "https://wheels.example.org/",    "" when nobody said where the store is seen from
     "other_indexes": ["https://…/"],                where wheels find what is not in their set
     "channels": [{"family", "channel", "current": set id, "index", "url", "install",
                   "sets": [{"os", "set", "version", "install"}]}],        the newest of each platform
     "releases": [{"family", "channel", "set", "created", "promoted",          newest first
                   "project": "torch", "version": "2.9.1+rocm7.1.0", "rocm": "7.1.0" or null,
                   "os": "linux|windows", "kind": "per-family|multi-arch|variants",
                   "state": "tested|partly tested|reported, unsigned|untested|tests failed|checks failed",
                   "told": [lines: targets, named exceptions, waivers],
                   "targets": [{"gfx", "state": "tested|reported, unsigned|failed|untested",
                                "by": ["smoke tests", "full tests"],
                                "pythons": ["3.12"], "when": "2026-11-21" or ""}],
                   "wheels": [{"file", "sha256", "pythons", "platforms", "gfx", "label", "rocm"}],
                   "index", "url", "install"}],
     "views": [{"family", "channel", "gfx": "gfx942", or what the policy calls a list of targets,
                "targets": ["gfx942"], "set", "version", "index", "url", "install",
                "sets": [{"os", "set", "version", "install"}],             what it shows, by platform
                "beside": [set ids]}]}                                     and of companions alone

``index`` is relative to the URL of the document itself, ``url`` absolute or null. ``install`` has a
command for ``uv``, one for ``pip`` (null for variants, which it does not know, and for versions that PyPI
may have, too: without ``+rocm…``), and our own as ``rocm_wheels``, which alone asks which GPU there is;
where the URL is not known ``{index}`` stands for it. The index of a release never changes; that of a view
is always at the newest sets of a channel that passed on its targets, one of each platform, and its commands
bring device code for these; a channel has all of its sets. The newest is that of the newest torch,
``current`` the set that came last. In ``sets`` Linux is first, and ``set``, ``version`` and ``install``
beside it are those of the first.

pip has no first index: it takes what it finds of exactly that version, wherever that is. So it is asked for
the torch of a companion alone, too, where that takes several; where no set has one it is null. uv does not
look further for what the first index has.

All of it follows from channels, sets, evidence and the policy (``other_indexes``), but for ``public_url`` of
the document of all families, which is kept where it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels.core import records
from rocm_wheels.core.log import log_warning
from rocm_wheels.models import lock, project_names
from rocm_wheels.release import pages, policy, verdict, wheel_set
from rocm_wheels.release.store_paths import SUPPORT_FILE, FamilyPaths
from rocm_wheels.stores.store import Store, read_or_none

PYPI_URL = "https://pypi.org/simple/"
_INDEX_PLACEHOLDER = "{index}"
_LISTS = ("channels", "releases", "views")  # of the document, by channel
ShownTestState = Literal[
    "tested", "partly tested", "reported, unsigned", "untested", "tests failed", "checks failed"
]


class WheelStatus(records.Record):
    """A wheel of torch. No ``pythons``: it is for every one. ``gfx`` are the targets that it is for.

    ``rocm`` is its own, also where the set has variants for several.
    """

    file: str
    sha256: lock.Sha256Digest
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    gfx: tuple[str, ...]
    label: str = ""
    rocm: str | None = None


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
    channel: policy.ChannelName
    index: str
    url: str | None
    install: InstallCommands


class ChannelIndex(_SupportIndex):
    """A channel: all its sets, with the newest of each platform."""

    current: wheel_set.SetId
    sets: tuple[PlatformSet, ...]


class ViewIndex(_SupportIndex):
    """A view: one set of each platform, which others follow, and those ``beside``. ``set`` is the first.

    ``gfx`` is its folder's name: that of its target, or of the policy's list of ``targets``.
    """

    gfx: wheel_set.TargetName | policy.ListName
    targets: tuple[wheel_set.TargetName, ...]
    set: wheel_set.SetId
    version: str
    sets: tuple[PlatformSet, ...]
    beside: tuple[wheel_set.SetId, ...] = ()


class PublishedSet(records.Record):
    """A set on a channel, as people may read it. ``wheels`` are those of ``project``: torch, where it is."""

    set: wheel_set.SetId
    created: str
    promoted: str
    project: str
    version: str
    rocm: str | None
    os: project_names.Platform
    kind: wheel_set.SetLayout
    state: ShownTestState
    told: tuple[str, ...]
    targets: tuple[verdict.TargetState, ...]
    wheels: tuple[WheelStatus, ...]


@dataclass(frozen=True)
class ShownView:
    """What a view shows: the newest set of each platform that passed on its targets; none: it is gone.

    ``beside``: the newest sets of companions alone that passed there, and take that torch.
    """

    name: str
    targets: tuple[str, ...]
    sets: tuple[PublishedSet, ...] = ()
    beside: tuple[PublishedSet, ...] = ()


class SupportRelease(PublishedSet, _SupportIndex):
    """A set on a channel, with the index that is its own."""


class SupportDocument(records.Record):
    """The document."""

    schema_version: Literal[2] = Field(default=2, alias="schema")
    public_url: str = ""
    other_indexes: tuple[str, ...] = ()
    channels: tuple[ChannelIndex, ...] = ()
    releases: tuple[SupportRelease, ...] = ()
    views: tuple[ViewIndex, ...] = ()

    def to_json(self) -> bytes:
        """Return its file: the same knowledge is the same bytes."""
        return (self.model_dump_json(by_alias=True, indent=1) + "\n").encode()

    def address_of(self, store: Store, path: str) -> str:
        """Return where a file or folder of the store is seen from outside, as far as anybody said."""
        return f"{self.public_url}{path}" if self.public_url else store.url_of(path)

    def with_channel(self, name: str, part: SupportDocument) -> SupportDocument:
        """Return it with what another document says of a channel in place of what it says itself."""
        joined = {}
        for field in _LISTS:
            items = [item for item in getattr(self, field) if item.channel != name]
            items += getattr(part, field)
            joined[field] = tuple(sorted(items, key=lambda item: policy.CHANNEL_NAMES.index(item.channel)))
        return self.model_copy(update=joined)


def read_document(store: Store, path: str) -> tuple[SupportDocument, str | None]:
    """Return a document and its tag; an empty one where there is none (no tag), or none is read."""
    stored = read_or_none(store, path)
    if stored is None:
        return SupportDocument(), None
    try:
        return SupportDocument.model_validate_json(stored.content), stored.tag
    except ValidationError:
        log_warning(f"{store.url_of(path)} is damaged, or of an earlier version, and is made again")
        return SupportDocument(), stored.tag


def read_public(store: Store) -> SupportDocument:
    """Return the document of all families, which knows where the store is seen from."""
    return read_document(store, SUPPORT_FILE)[0]


def read_notes(store: Store, paths: FamilyPaths, channel: str) -> dict[str, pages.SetNote]:
    """Return what is known of the sets that a channel showed when it was last looked at, by their ids."""
    document = read_document(store, paths.support_document)[0]
    return {
        release.set: pages.SetNote(release.state, release.told)
        for release in document.releases
        if release.channel == channel
    }


def make_channel_part(  # noqa: PLR0917 - what is said of a channel
    paths: FamilyPaths,
    channel: str,
    releases: Sequence[PublishedSet],
    newest: Sequence[PublishedSet],
    views: Iterable[ShownView],
    public: SupportDocument,
    beside: Mapping[str, Sequence[str] | None] = MappingProxyType({}),
) -> SupportDocument:
    """Return what the document of a family says of one channel.

    ``releases`` are the sets that it shows, the last one last; ``newest`` the newest of each platform;
    ``views`` those that show sets. ``beside`` is what pip is asked for beside a set, by its id; None: pip
    cannot be told to take what it needs.
    """

    def describe(folder: str, shown: Sequence[PublishedSet], **details: object) -> dict[str, object]:
        url = f"{public.public_url}{folder}/" if public.public_url else None
        install = [
            _make_commands(url or _INDEX_PLACEHOLDER, item, public.other_indexes, beside.get(item.set, ()))
            for item in shown
        ]
        return {
            "family": paths.family,
            "channel": channel,
            "index": f"{folder.removeprefix(f'{paths.family}/')}/",
            "url": url,
            "install": install[0],
            "sets": tuple(
                PlatformSet(os=item.os, set=item.set, version=item.version, install=commands)
                for item, commands in zip(shown, install, strict=True)
            ),
            **details,
        }

    released = []
    for item in sorted(releases, key=lambda item: (item.created, item.set), reverse=True):
        details = {name: getattr(item, name) for name in PublishedSet.model_fields}
        description = describe(paths.set_index(item.set), [item], **details)
        del description["sets"]
        if item.project != wheel_set.TORCH_PROJECT:  # what it needs is on the channel, and not in its index
            description["install"] = describe(paths.channel_pages(channel), [item])["install"]
        released.append(SupportRelease.model_validate(description))
    folder = paths.channel_pages(channel)
    channels = [describe(folder, newest, current=releases[-1].set)] if newest else []
    view_indexes = [
        describe(
            paths.view_pages(view.name, channel),
            view.sets,
            gfx=view.name,
            targets=view.targets,
            set=view.sets[0].set,
            version=view.sets[0].version,
            beside=tuple(item.set for item in view.beside),
        )
        for view in views
    ]
    return SupportDocument(
        channels=tuple(map(ChannelIndex.model_validate, channels)),
        releases=tuple(released),
        views=tuple(map(ViewIndex.model_validate, view_indexes)),
    )


def merge_documents(documents: Sequence[SupportDocument], public: SupportDocument) -> SupportDocument:
    """Return the document of all families. ``index`` is relative to where it lies, a folder above theirs."""
    joined = {
        field: tuple(
            item.model_copy(update={"index": f"{item.family}/{item.index}"})
            for document in documents
            for item in getattr(document, field)
        )
        for field in _LISTS
    }
    known = {"public_url": public.public_url, "other_indexes": public.other_indexes}
    return SupportDocument().model_copy(update={**known, **joined})


def _make_commands(
    index: str, newest: PublishedSet, other_indexes: Sequence[str], beside: Sequence[str] | None
) -> InstallCommands:
    variants = newest.kind == "variants"
    requirement = f"{newest.project}=={newest.version}"
    uv = ["uv", "pip", "install", *(["--preview-features", "wheel-variants"] if variants else [])]
    uv += [word for address in (index, *other_indexes) for word in ("--index", address)]
    rocm_wheels = ["rocm-wheels", "install", "--index", index]
    rocm_wheels += [word for address in other_indexes[:1] for word in ("--rocm-index", address)]
    extra = [*other_indexes, *([] if PYPI_URL in other_indexes else [PYPI_URL])]
    pip = ["pip", "install", "--index-url", index]
    pip += [word for address in extra for word in ("--extra-index-url", address)]
    return InstallCommands(
        uv=_join_words([*uv, requirement]),
        pip=None
        if variants or beside is None or "+" not in newest.version
        else _join_words([*pip, requirement, *beside]),
        rocm_wheels=_join_words([*rocm_wheels, requirement]),
    )


def _join_words(words: Sequence[str]) -> str:
    return " ".join(word if word == _INDEX_PLACEHOLDER else shlex.quote(word) for word in words)
