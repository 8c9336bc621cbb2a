"""What is known of the sets of a channel, and which of them its views show: ``by-gfx/<channel>.json``.

It can be made again from sets and evidence at any time, but for ``was``: the sets that pages of a view may
still show while they are being exchanged. The document is replaced by tag alone, and whoever writes it has
read it before he looked at evidence: what is in it never goes back to less knowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels import log
from rocm_wheels.model.lock import Sha256
from rocm_wheels.model.project import Platform
from rocm_wheels.records import Record
from rocm_wheels.release.gate.verdict import Tested
from rocm_wheels.release.layout import Places
from rocm_wheels.release.newest import Rank, rank
from rocm_wheels.release.promotion.channel import State
from rocm_wheels.release.sets import Kind, SetId
from rocm_wheels.stores.store import Missing, Store

WHOLE = frozenset({"verify", "hashes", "evidence"})  # rules without which no pass counts


class Target(Record):
    """What is known of a set on a GPU target, as the gate says it. ``when`` is "2026-11-21", or ""."""

    gfx: str
    state: Tested
    by: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    when: str = ""


class Wheel(Record):
    """A wheel of torch. No ``pythons``: it is for every one. ``gfx`` are the targets that it is for.

    ``rocm`` is its own, also where the set has variants for several.
    """

    file: str
    sha256: Sha256
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    gfx: tuple[str, ...]
    label: str = ""
    rocm: str | None = None


class Known(Record):
    """A set on a channel. ``wheels`` are those of ``project``: torch, where the set has it.

    ``failed_checks`` are rules about files that failed since (``verify``, ``resolver``), or say that what is
    known cannot be believed (``hashes``, ``evidence``: the document was changed, results are gone). ``of`` is
    the digest of all that this was found from, "" when it must be looked at again.
    """

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
    failed_checks: tuple[str, ...]
    targets: tuple[Target, ...]
    wheels: tuple[Wheel, ...]
    of: str

    @property
    def is_failing(self) -> bool:
        """Whether something failed since it was released."""
        return self.state in {"tests failed", "checks failed"}

    def rank(self, channel: str) -> Rank:
        """Return what the newest set of a channel is found by."""
        return rank((self.project,), self.version, self.created, self.set, channel=channel)

    def passed_on(self, gfx: str) -> bool:
        """Tell whether it passed on a target, its files are whole, and no result is gone."""
        tested = any(one.gfx == gfx and one.state == "tested" for one in self.targets)
        return tested and not WHOLE.intersection(self.failed_checks)


class View(Record):
    """The view of a target. ``set`` is what it shows, or is about to; while it is not ``settled``, pages may
    show the sets that it ``was`` at, too. ``None``: there is to be no view.

    Where it shows a set of each of several platforms, ``sets`` are all of them, and ``set`` is the first."""

    gfx: str
    set: SetId | None
    sets: tuple[SetId, ...] = ()
    was: tuple[SetId, ...] = ()
    settled: bool = True

    @classmethod
    def at(cls, gfx: str, shown: Sequence[str], was: Sequence[str] = (), *, settled: bool = True) -> View:
        """Return the view that shows these sets; of none there is to be no view."""
        several = tuple(shown) if len(shown) > 1 else ()
        return cls(gfx=gfx, set=next(iter(shown), None), sets=several, was=tuple(was), settled=settled)

    @property
    def shown(self) -> tuple[str, ...]:
        """All sets that it shows, or is about to: one of each platform."""
        return self.sets or ((self.set,) if self.set is not None else ())


class KnownSets(Record):
    """The document. ``policy`` is the digest of the policy by which it was found."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    family: str
    channel: str
    policy: str = ""
    sets: tuple[Known, ...] = ()
    views: tuple[View, ...] = ()

    def settled(self) -> KnownSets:
        """Return it as it is when the pages of all views are what it says."""
        views = tuple(View.at(one.gfx, one.shown) for one in self.views if one.shown)
        return self.model_copy(update={"views": views})

    def to_json(self) -> bytes:
        """Return its file: the same knowledge is the same bytes."""
        return (self.model_dump_json(by_alias=True, indent=1) + "\n").encode()


@dataclass(frozen=True)
class Kept:
    """The document as it was read, with its tag (``None``: there is none)."""

    document: KnownSets
    tag: str | None


def read_known(store: Store, places: Places, channel: str) -> Kept:
    """Return the document of a channel; one that is not there, or damaged, is made again from nothing."""
    path, empty = places.known(channel), KnownSets(family=places.family, channel=channel)
    try:
        found = store.read(path)
    except Missing:
        return Kept(empty, None)
    try:
        document = KnownSets.model_validate_json(found.content)
    except ValidationError:
        log.warn(f"{store.url_of(path)} is damaged, and is made again")
        return Kept(empty, found.tag)
    if (document.family, document.channel) != (places.family, channel):
        log.warn(f"{store.url_of(path)} is of {document.channel} of {document.family}, and is made again")
        return Kept(empty, found.tag)
    return Kept(document, found.tag)
