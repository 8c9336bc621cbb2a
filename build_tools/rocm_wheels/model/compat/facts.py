"""Facts of the compatibility tables, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Literal

from pydantic import model_validator

from rocm_wheels.records import Record

FactKind = Literal["documented", "packaged", "tested", "believed"]


class Source(Record):
    """Where facts were read: a page, or a file of a repository at a commit; ``retrieved`` is the day of the
    reading.

    ``at`` says which state of it was read (a commit, a version, the date of a page), as far as it says.
    """

    url: str
    retrieved: date
    at: str = ""


class Fact(Record):
    """What every entry of a compatibility table has: ``source`` is a key of the table's ``sources``.

    ``documented``: somebody states it; ``packaged``: read out of what is published; ``tested``: somebody
    ran it; ``believed``: nobody states it, ``note`` says why it is held to be so.
    """

    source: str
    kind: FactKind
    note: str = ""


class FactTable(Record):
    """A table of facts: its sources by key. Subclasses add the facts."""

    sources: Mapping[str, Source]

    @model_validator(mode="after")
    def _known_sources(self) -> FactTable:
        for fact in every_fact(self):
            if fact.source not in self.sources:
                raise ValueError(f"source {fact.source!r} is not among the table's sources")
        return self


def every_fact(value: object) -> list[Fact]:
    """Return all facts inside a table, however deep."""
    if isinstance(value, Mapping):
        return [fact for inner in value.values() for fact in every_fact(inner)]
    if isinstance(value, (list, tuple)):
        return [fact for inner in value for fact in every_fact(inner)]
    if isinstance(value, Record):
        inside = [fact for name in type(value).model_fields for fact in every_fact(getattr(value, name))]
        return [value, *inside] if isinstance(value, Fact) else inside
    return []
