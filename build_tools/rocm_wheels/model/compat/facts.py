"""Facts of the compatibility tables, and where each comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Literal

from pydantic import model_validator

from rocm_wheels.records import Record, suggest_name, make_record_error

FactKind = Literal["documented", "packaged", "tested", "believed"]


class FactSource(Record):
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

    sources: Mapping[str, FactSource]

    @model_validator(mode="after")
    def _known_sources(self) -> FactTable:
        for place, source in _list_sources(self):
            if source not in self.sources:
                hint = suggest_name(source, self.sources)
                raise make_record_error(
                    f"source {source!r} is not among the table's sources{hint}", *place, "source"
                )
        return self


def list_facts(value: object) -> list[Fact]:
    """Return all facts inside a table, however deep."""
    if isinstance(value, Mapping):
        return [fact for inner in value.values() for fact in list_facts(inner)]
    if isinstance(value, (list, tuple)):
        return [fact for inner in value for fact in list_facts(inner)]
    if isinstance(value, Record):
        inside = [fact for name in type(value).model_fields for fact in list_facts(getattr(value, name))]
        return [value, *inside] if isinstance(value, Fact) else inside
    return []


def _list_sources(value: object, *place: str | int) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the source of every fact inside a table, and the place of the fact in the file."""
    if isinstance(value, Fact):
        yield place, value.source
    if isinstance(value, Record):
        fields = type(value).model_fields
        value = {field.alias or name: getattr(value, name) for name, field in fields.items()}
    if isinstance(value, (list, tuple)):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _list_sources(inner, *place, key)
