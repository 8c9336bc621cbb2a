"""Define facts of the tables and where each comes from, and their fields for versions and Pythons.

``7.2 < 7.14 < 10.1``: a version is text in YAML, never a float, and never compared as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, ConfigDict, PlainSerializer, PlainValidator

from rocm_wheels.core import records

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


class ReadRow(records.Record):
    """A row of which code reads these columns; others are for people, who see them by ``compat show``."""

    model_config = ConfigDict(extra="ignore")


class TableHead(records.Record):
    """What a table says of itself: its ``name`` in ``compat show``, who reads it, and when it ends."""

    name: str
    about: str
    read_by: str
    ends: str


class FactTable(records.Record):
    """A table of facts: its head, its sources by key. Subclasses add the sections.

    That each fact has a source of the table, and that tables fit together, is held by one test of all tables.
    """

    table: TableHead | None = None
    sources: Mapping[str, FactSource]
