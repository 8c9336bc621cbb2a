"""Describe a file of an index, a wheel or a source distribution, as one line of JSON."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from packaging.utils import InvalidSdistFilename, NormalizedName, parse_sdist_filename
from packaging.version import Version

from rocm_wheels.core import DataError
from rocm_wheels.wheels import parse_wheel_name

METADATA_SUFFIX = ".metadata"  # PEP 658
SDIST_SUFFIX = ".tar.gz"  # PEP 625
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._+!-]+")  # what all names of wheels are made of


@dataclass(frozen=True)
class IndexEntry:
    """A file. ``size`` and ``changed`` (nanoseconds) are of the file that ``sha256`` (hex) was taken of.

    ``place`` is the folder or URL that it lies in, relative to its project page ("" is beside it);
    ``metadata`` the digest of a wheel's METADATA, "" of a source distribution: installers do not ask for
    it; ``yanked`` the reason, None when it is not;
    ``variant`` its ``variant.json``, None without a label; ``uploaded`` when it was added (ISO 8601, UTC).
    """

    name: str
    size: int
    changed: int
    sha256: str
    uploaded: str
    metadata: str
    requires_python: str = ""
    yanked: str | None = None
    variant: str | None = None
    place: str = ""

    @property
    def href(self) -> str:
        """Where it lies, as a link of its project page: ``+`` and ``!`` are escaped."""
        return self.place + escape_file_name(self.name)

    @property
    def is_remote(self) -> bool:
        """Tell whether it lies somewhere else (``--files-url``), not in its project's folder or beside."""
        return self.place not in ("", "../")

    @property
    def version(self) -> Version:
        """Its version."""
        return parse_file_name(self.name)[1]

    @property
    def label(self) -> str | None:
        """Its variant label."""
        return parse_file_name(self.name)[2]

    def move_to(self, place: str) -> IndexEntry:
        """Return it as it is seen from a page for which everything is ``place`` further away."""
        if "://" in self.place or self.place.startswith("/"):
            return self
        return replace(self, place=posixpath.normpath(place + self.place) + "/")


@lru_cache(maxsize=4096)
def _parse_name_and_version(distribution: str, version: str) -> tuple[NormalizedName, Version]:
    wheel_name = parse_wheel_name(f"{distribution}-{version}-py3-none-any.whl")
    return wheel_name.name, wheel_name.version


@lru_cache(maxsize=4096)
def _parse_label(fields: str) -> str | None:
    return parse_wheel_name(f"x-1-{fields}").label


@lru_cache(maxsize=4096)
def parse_file_name(file_name: str) -> tuple[NormalizedName, Version, str | None]:
    """Return normalized project, version and label of a file's name; DataError when it is none of ours.

    Wheels of an index have few versions and few tags between them: each is read once.
    """
    if file_name.endswith(SDIST_SUFFIX):
        try:
            return *parse_sdist_filename(file_name), None
        except InvalidSdistFilename as cause:
            raise DataError(f"{file_name} is not the name of a source distribution") from cause
    parts = file_name.split("-", 2)
    if len(parts) != 3:
        parse_wheel_name(file_name)  # says what is wrong
        raise DataError(f"{file_name} is not the name of a wheel")
    try:
        return *_parse_name_and_version(parts[0], parts[1]), _parse_label(parts[2])
    except DataError:
        wheel_name = parse_wheel_name(file_name)  # an error that names the file
        return wheel_name.name, wheel_name.version, wheel_name.label


def escape_file_name(name: str) -> str:
    """Return a file name as it is written in a link."""
    if _PLAIN_NAME.fullmatch(name):
        return name.replace("+", "%2B").replace("!", "%21")
    return quote(name)


def sort_entries(entries: Mapping[str, IndexEntry]) -> list[IndexEntry]:
    """Return wheels in the order of pages and files: by version, then by name."""
    spelled = {entry.name.split("-", 2)[1]: entry.version for entry in entries.values()}
    rank = {
        text: number for number, text in enumerate(sorted(spelled, key=lambda text: (spelled[text], text)))
    }
    return sorted(entries.values(), key=lambda entry: (rank[entry.name.split("-", 2)[1]], entry.name))


_encode = json.JSONEncoder(separators=(",", ":")).encode
_FIELD_NAMES = tuple(field.name for field in fields(IndexEntry))
_REQUIRED_FIELDS = ("name", "size", "changed", "sha256", "uploaded", "metadata")


def entry_to_line(entry: IndexEntry) -> str:
    """Return an entry as a line of JSON, without what it has not."""
    values: dict[str, Any] = {}
    for name in _FIELD_NAMES:
        value = getattr(entry, name)
        if name in _REQUIRED_FIELDS or value or (name == "yanked" and value is not None):
            values[name] = value
    return _encode(values)


def entry_from_line(line: str, *, where: str) -> IndexEntry:
    """Read a line; DataError with ``where`` when it was not written by ``entry_to_line``."""
    try:
        entry = IndexEntry(**json.loads(line))
        if not _is_plain(entry):
            raise ValueError("values of other kinds")
    except (ValueError, TypeError, RecursionError) as cause:
        raise DataError(
            f"{where} is damaged", tip="take it from a copy, or remove the file and run `index build`"
        ) from cause
    return entry


def _is_plain(entry: IndexEntry) -> bool:
    """Tell whether values are of their kinds, and the name that of a file in a folder."""
    texts = entry.name, entry.sha256, entry.uploaded, entry.metadata, entry.requires_python, entry.place
    all_texts = *texts, entry.yanked or "", entry.variant or ""
    numbers = entry.size, entry.changed
    right_types = all(isinstance(text, str) for text in all_texts) and all(
        isinstance(number, int) for number in numbers
    )
    return right_types and "/" not in entry.name and "\\" not in entry.name
