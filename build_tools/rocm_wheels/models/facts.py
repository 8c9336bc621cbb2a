"""Define facts of the tables and where each comes from, and their fields for versions and Pythons.

``7.2 < 7.14 < 10.1``: a version is text in YAML, never a float, and never compared as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, PlainSerializer, PlainValidator, model_validator

from rocm_wheels.core import records, tables

_PYTHON = re.compile(r"3\.(0|[1-9]\d*)(t?)\Z")


def parse_version(text: Any) -> Version:
    """Return ``text`` as a version (PEP 440). Raises ValueError, also for a float or a whole number."""
    if isinstance(text, Version):
        return text
    if not isinstance(text, str):
        raise ValueError("a version is text: 2.10 and 2.1 are the same number")
    try:
        return Version(text)
    except InvalidVersion:
        raise ValueError(f"{text!r} is not a version (PEP 440)") from None


def parse_specifier(text: Any) -> SpecifierSet:
    """Return ``text`` as version specifiers (PEP 440); "" takes every version. Raises ValueError."""
    try:
        return SpecifierSet(text)
    except (InvalidSpecifier, TypeError, AttributeError):
        raise ValueError(f"{text!r} is not a version specifier, such as >=2.9,<2.12") from None


def _check_python(text: str) -> str:
    if not _PYTHON.match(text):
        raise ValueError(f"{text!r} is not a Python, such as 3.13 or 3.14t")
    return text


def get_python_key(text: str) -> tuple[int, bool]:
    """Return what Pythons are put in order by: ``3.9`` before ``3.14`` before ``3.14t``."""
    match = _PYTHON.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a Python, such as 3.13 or 3.14t")
    return int(match[1]), bool(match[2])


def is_in_series(version: Version, series: Version) -> bool:
    """Say whether a version is of a series: 2.13.1 is of 2.13, and 2.13 of 2.13, but 2.1 is not of 2.13.

    Local parts and pre-releases do not count.
    """
    width = len(series.release)
    return (*version.release, *(0,) * width)[:width] == series.release


VersionField = Annotated[Version, PlainValidator(parse_version), PlainSerializer(str)]
PythonField = Annotated[str, AfterValidator(_check_python)]
SpecifierField = Annotated[SpecifierSet, PlainValidator(parse_specifier), PlainSerializer(str)]


FactKind = Literal["documented", "packaged", "tested", "believed"]


class FactSource(records.Record):
    """Where facts were read: a page, or a file of a repository at a commit; ``retrieved`` is the day of the
    reading.

    ``at`` says which state of it was read (a commit, a version, the date of a page), as far as it says.
    """

    url: str
    retrieved: date
    at: str = ""


class Fact(records.Record):
    """What every entry of a compatibility table has: ``source`` is a key of the table's ``sources``.

    ``documented``: somebody states it; ``packaged``: read out of what is published; ``tested``: somebody
    ran it; ``believed``: nobody states it, ``note`` says why it is held to be so.
    """

    source: str
    kind: FactKind
    note: str = ""


class FactTable(records.Record):
    """A table of facts: its sources by key. Subclasses add the facts."""

    sources: Mapping[str, FactSource]

    @model_validator(mode="after")
    def _known_sources(self) -> FactTable:
        for place, source in _list_sources(self):
            if source not in self.sources:
                hint = tables.suggest_name(source, self.sources)
                raise records.make_record_error(
                    f"source {source!r} is not among the table's sources{hint}", *place, "source"
                )
        return self


def list_facts(value: object) -> list[Fact]:
    """Return all facts inside a table, however deep."""
    if isinstance(value, Mapping):
        return [fact for inner in value.values() for fact in list_facts(inner)]
    if isinstance(value, (list, tuple)):
        return [fact for inner in value for fact in list_facts(inner)]
    if isinstance(value, records.Record):
        inside = [fact for name in type(value).model_fields for fact in list_facts(getattr(value, name))]
        return [value, *inside] if isinstance(value, Fact) else inside
    return []


def _list_sources(value: object, *place: str | int) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the source of every fact inside a table, and the place of the fact in the file."""
    if isinstance(value, Fact):
        yield place, value.source
    if isinstance(value, records.Record):
        fields = type(value).model_fields
        value = {field.alias or name: getattr(value, name) for name, field in fields.items()}
    if isinstance(value, (list, tuple)):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _list_sources(inner, *place, key)
