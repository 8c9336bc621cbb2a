"""Describe and read the document of a channel: which sets it shows, and the one change that is being made.

It is replaced by tag alone, so that of two who begin a change one is told (``index.DocumentJournal``). Its
pages follow from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from rocm_wheels.core import DataError, NotInStoreError, Record, Store, summarize_faults
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.wheel_set import SetId

ChannelAction = Literal["promote", "demote", "abandon", "refresh"]
ShownTestState = Literal["tested", "partly tested", "untested", "tests failed", "checks failed"]
_DONE_WORDS = {
    "promote": "promoted",
    "demote": "demoted",
    "abandon": "put back",
    "refresh": "updated entry of",
}


class ChannelSet(Record):
    """A set on a channel: since when, by whom, and what was known of tests when it was last looked at.

    That is a word, and plain lines."""

    set: SetId
    when: str
    by: str
    state: ShownTestState
    told: tuple[str, ...] = ()


class PendingChange(Record):
    """A change that was begun. ``goal`` is what the channel shows when it is done, oldest first.

    ``adds`` says whether ``sets`` come or go: that decides which pages change first.
    """

    action: ChannelAction
    sets: tuple[SetId, ...] = Field(min_length=1)
    by: str
    began: str
    goal: tuple[ChannelSet, ...]
    adds: bool

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.action} of {', '.join(self.sets)} by {self.by}, begun {self.began}"


class ChannelEvent(Record):
    """A change that was made."""

    action: ChannelAction
    sets: tuple[SetId, ...]
    by: str
    when: str
    revision: int

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.action} of {', '.join(self.sets)} by {self.by}, {self.when}"


class Channel(Record):
    """A channel of a family. ``sets`` are those that it shows, in the order in which they came."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    family: str
    channel: str
    revision: int = 0
    current: SetId | None = None
    sets: tuple[ChannelSet, ...] = ()
    pending: PendingChange | None = None
    history: tuple[ChannelEvent, ...] = ()

    @model_validator(mode="after")
    def _check_consistency(self) -> Channel:
        for channel_sets in (self.sets, self.pending.goal if self.pending else ()):
            if len({channel_set.set for channel_set in channel_sets}) < len(channel_sets):
                raise ValueError("a set is there twice")
        if self.current != (self.sets[-1].set if self.sets else None):
            raise ValueError("current is not the last of sets")
        return self

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids of the sets that it shows."""
        return tuple(channel_set.set for channel_set in self.sets)

    @property
    def demoted(self) -> frozenset[str]:
        """The ids of the sets that it showed once."""
        demoted_ids = {set_id for event in self.history if event.action == "demote" for set_id in event.sets}
        return frozenset(demoted_ids - set(self.shown))

    def with_pending(self, pending: PendingChange) -> Channel:
        """Return it as it is while a change is being made."""
        return self.model_copy(update={"pending": pending, "revision": self.revision + 1})

    def finish_pending(self) -> Channel:
        """Return it as it is when the pending change is made."""
        change, revision = self.pending, self.revision + 1
        assert change is not None
        event = ChannelEvent(
            action=change.action, sets=change.sets, by=change.by, when=change.began, revision=revision
        )
        return self.model_copy(
            update={
                "revision": revision,
                "current": change.goal[-1].set if change.goal else None,
                "sets": change.goal,
                "pending": None,
                "history": (*self.history, event),
            }
        )

    def to_json(self) -> bytes:
        """Return its file."""
        return (json.dumps(self.model_dump(mode="json", by_alias=True), indent=1) + "\n").encode()


@dataclass(frozen=True)
class ChannelRecord:
    """A channel as it was read or written, with the tag of its document (``None``: there is none yet)."""

    channel: Channel
    tag: str | None


def read_channel(store: Store, paths: FamilyPaths, name: str) -> ChannelRecord:
    """Return a channel; one that nothing was promoted to is empty. DataError for a damaged document."""
    path = paths.channel_document(name)
    try:
        stored = store.read(path)
    except NotInStoreError:
        return ChannelRecord(Channel(family=paths.family, channel=name), None)
    try:
        channel = Channel.model_validate_json(stored.content)
    except ValidationError as cause:
        tip = "put it back from a copy of the store: it says what people get"
        message = f"{store.url_of(path)} is not the document of a channel: {summarize_faults(cause, Channel)}"
        raise DataError(message, tip=tip) from None
    if (channel.family, channel.channel) != (paths.family, name):
        raise DataError(f"{store.url_of(path)} is of {channel.channel} of {channel.family}")
    return ChannelRecord(channel, stored.tag)


def describe_action(action: ChannelAction) -> str:
    """Return what became of sets: ``promoted``."""
    return _DONE_WORDS[action]
