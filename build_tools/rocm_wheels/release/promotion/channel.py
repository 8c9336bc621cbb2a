"""The document of a channel: which sets it shows, and the one change that is being made.

It is replaced by tag alone, so that of two who begin a change one is told. Its pages follow from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from rocm_wheels.errors import DataError
from rocm_wheels.records import Record, say
from rocm_wheels.release.layout import Places
from rocm_wheels.release.sets import SetId
from rocm_wheels.stores.store import Missing, Store

Action = Literal["promote", "demote", "abandon", "refresh"]
State = Literal["tested", "partly tested", "untested", "tests failed", "checks failed"]
_DONE = {"promote": "promoted", "demote": "demoted", "abandon": "put back", "refresh": "told anew"}


class Shown(Record):
    """A set on a channel: since when, by whom, and what was known of tests when it was last looked at.

    That is a word, and plain lines."""

    set: SetId
    when: str
    by: str
    state: State
    told: tuple[str, ...] = ()


class Pending(Record):
    """A change that was begun. ``goal`` is what the channel shows when it is done, oldest first.

    ``adds`` says whether ``sets`` come or go: that decides which pages change first.
    """

    action: Action
    sets: tuple[SetId, ...] = Field(min_length=1)
    by: str
    began: str
    goal: tuple[Shown, ...]
    adds: bool

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.action} of {', '.join(self.sets)} by {self.by}, begun {self.began}"


class Event(Record):
    """A change that was made."""

    action: Action
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
    sets: tuple[Shown, ...] = ()
    pending: Pending | None = None
    history: tuple[Event, ...] = ()

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Channel:
        for named in (self.sets, self.pending.goal if self.pending else ()):
            if len({one.set for one in named}) < len(named):
                raise ValueError("a set is there twice")
        if self.current != (self.sets[-1].set if self.sets else None):
            raise ValueError("current is not the last of sets")
        return self

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids of the sets that it shows."""
        return tuple(one.set for one in self.sets)

    @property
    def demoted(self) -> frozenset[str]:
        """The ids of the sets that it showed once."""
        gone = {one for event in self.history if event.action == "demote" for one in event.sets}
        return frozenset(gone - set(self.shown))

    def with_pending(self, pending: Pending) -> Channel:
        """Return it as it is while a change is being made."""
        return self.model_copy(update={"pending": pending, "revision": self.revision + 1})

    def settled(self) -> Channel:
        """Return it as it is when the pending change is made."""
        change, revision = self.pending, self.revision + 1
        assert change is not None
        event = Event(
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
class Held:
    """A channel as it was read or written, with the tag of its document (``None``: there is none yet)."""

    channel: Channel
    tag: str | None


def read_channel(store: Store, places: Places, name: str) -> Held:
    """Return a channel; one that nothing was promoted to is empty. DataError for a damaged document."""
    path = places.channel(name)
    try:
        found = store.read(path)
    except Missing:
        return Held(Channel(family=places.family, channel=name), None)
    try:
        channel = Channel.model_validate_json(found.content)
    except ValidationError as cause:
        tip = "put it back from a copy of the store: it says what people get"
        said = f"{store.url_of(path)} is not the document of a channel: {say(cause, Channel)}"
        raise DataError(said, tip=tip) from None
    if (channel.family, channel.channel) != (places.family, name):
        raise DataError(f"{store.url_of(path)} is of {channel.channel} of {channel.family}")
    return Held(channel, found.tag)


def write_channel(store: Store, places: Places, channel: Channel, tag: str | None) -> Held:
    """Replace the document of a channel. Raises Changed when somebody else was faster."""
    return Held(channel, store.replace(places.channel(channel.channel), channel.to_json(), tag))


def done_word(action: Action) -> str:
    """Return what became of sets: ``promoted``."""
    return _DONE[action]
