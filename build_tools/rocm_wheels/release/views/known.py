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
from rocm_wheels.model.lock import Sha256Digest
from rocm_wheels.model.project import Platform
from rocm_wheels.records import Record
from rocm_wheels.release.gate.verdict import TargetTestState
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.newest import SetRank, rank_set
from rocm_wheels.release.promotion.channel import ShownTestState
from rocm_wheels.release.sets import SetLayout, SetId
from rocm_wheels.stores.store import NotInStoreError, Store

WHOLENESS_RULES = frozenset({"verify", "hashes", "evidence"})  # rules without which no pass counts


class TargetStatus(Record):
    """What is known of a set on a GPU target, as the gate says it. ``when`` is "2026-11-21", or ""."""

    gfx: str
    state: TargetTestState
    by: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    when: str = ""


class WheelStatus(Record):
    """A wheel of torch. No ``pythons``: it is for every one. ``gfx`` are the targets that it is for.

    ``rocm`` is its own, also where the set has variants for several.
    """

    file: str
    sha256: Sha256Digest
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    gfx: tuple[str, ...]
    label: str = ""
    rocm: str | None = None


class SetStatus(Record):
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
    kind: SetLayout
    origin: SetId | None
    state: ShownTestState
    told: tuple[str, ...]
    failed_checks: tuple[str, ...]
    targets: tuple[TargetStatus, ...]
    wheels: tuple[WheelStatus, ...]
    of: str

    @property
    def is_failing(self) -> bool:
        """Whether something failed since it was released."""
        return self.state in {"tests failed", "checks failed"}

    def rank_for(self, channel: str) -> SetRank:
        """Return what the newest set of a channel is found by."""
        return rank_set((self.project,), self.version, self.created, self.set, channel=channel)

    def passed_on(self, gfx: str) -> bool:
        """Tell whether it passed on a target, its files are whole, and no result is gone."""
        tested = any(target.gfx == gfx and target.state == "tested" for target in self.targets)
        return tested and not WHOLENESS_RULES.intersection(self.failed_checks)


class ChannelView(Record):
    """The view of a target. ``set`` is what it shows, or is about to; while it is not ``settled``, pages may
    show the sets that it ``was`` at, too. ``None``: there is to be no view.

    Where it shows a set of each of several platforms, ``sets`` are all of them, and ``set`` is the first."""

    gfx: str
    set: SetId | None
    sets: tuple[SetId, ...] = ()
    was: tuple[SetId, ...] = ()
    settled: bool = True

    @classmethod
    def make(
        cls, gfx: str, set_ids: Sequence[str], was: Sequence[str] = (), *, settled: bool = True
    ) -> ChannelView:
        """Return the view that shows these sets; of none there is to be no view."""
        several = tuple(set_ids) if len(set_ids) > 1 else ()
        return cls(gfx=gfx, set=next(iter(set_ids), None), sets=several, was=tuple(was), settled=settled)

    @property
    def shown(self) -> tuple[str, ...]:
        """All sets that it shows, or is about to: one of each platform."""
        return self.sets or ((self.set,) if self.set is not None else ())


class ChannelStatus(Record):
    """The document. ``policy`` is the digest of the policy by which it was found."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    family: str
    channel: str
    policy: str = ""
    sets: tuple[SetStatus, ...] = ()
    views: tuple[ChannelView, ...] = ()

    def settle_views(self) -> ChannelStatus:
        """Return it as it is when the pages of all views are what it says."""
        views = tuple(ChannelView.make(view.gfx, view.shown) for view in self.views if view.shown)
        return self.model_copy(update={"views": views})

    def to_json(self) -> bytes:
        """Return its file: the same knowledge is the same bytes."""
        return (self.model_dump_json(by_alias=True, indent=1) + "\n").encode()


@dataclass(frozen=True)
class StoredStatus:
    """The document as it was read, with its tag (``None``: there is none)."""

    document: ChannelStatus
    tag: str | None


def read_channel_status(store: Store, paths: FamilyPaths, channel: str) -> StoredStatus:
    """Return the document of a channel; one that is not there, or damaged, is made again from nothing."""
    path, empty = paths.channel_status(channel), ChannelStatus(family=paths.family, channel=channel)
    try:
        stored = store.read(path)
    except NotInStoreError:
        return StoredStatus(empty, None)
    try:
        document = ChannelStatus.model_validate_json(stored.content)
    except ValidationError:
        log.log_warning(f"{store.url_of(path)} is damaged, and is made again")
        return StoredStatus(empty, stored.tag)
    if (document.family, document.channel) != (paths.family, channel):
        log.log_warning(
            f"{store.url_of(path)} is of {document.channel} of {document.family}, and is made again"
        )
        return StoredStatus(empty, stored.tag)
    return StoredStatus(document, stored.tag)
