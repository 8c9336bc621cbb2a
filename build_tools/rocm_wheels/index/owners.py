"""Who may publish which name: the file that an index over several stores is made of.

It states sources, which are indexes, and one owner for every name::

    sources:
      rocm: https://repo.amd.com/rocm/whl-multi-arch/
      ours:
        index: s3://wheels/multi-arch/simple/stable     a folder, s3://bucket/path, or a URL
        url: https://wheels.example/simple/stable/      where people see it, if it is not read there
        signed_by: [release.pub]                        its manifest is signed by one of these keys
      pypi: https://pypi.org/simple/
    owners:
      rocm: rocm
      rocm-*: rocm
      torch: ours
      numpy: pypi

Anybody can register ``rocm-sdk-core`` on PyPI, or a torch of a higher version: with several indexes pip takes
the highest version that any of them has. Here a name comes from its owner, or not at all. The most exact
pattern decides: a name before a pattern, then the one with more letters. A ``default`` owns what no pattern
is of, but for names that hold code for GPUs (``models.closed_projects``), which need an owner of their own.

Folders and keys are relative to the file. ``{gfx}`` in ``index`` and ``url`` stands for each of ``targets``,
of which each gets an index of its own: ``…/by-gfx/{gfx}/stable/``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name
from pydantic import AfterValidator, Field, field_validator, model_validator

from rocm_wheels.core import errors, records
from rocm_wheels.models import closed_projects

GFX_PLACEHOLDER = "{gfx}"
_PATTERN = re.compile(r"[a-z0-9*](?:[a-z0-9*-]*[a-z0-9*])?")
_SCHEME = re.compile(r"[A-Za-z0-9]+:[/\\]*")
_TARGET = records.require_pattern(r"gfx[0-9A-Za-z-]+", "a gfx target, such as gfx942")


def _refuse_credentials(address: str) -> str:
    scheme = _SCHEME.match(address)  # https:me:secret@host is one for some clients
    server, _, rest = address[scheme.end() if scheme is not None else len(address) :].partition("/")
    if "@" in server or "?" in server + rest:
        # not a ValueError, which is told with the value
        raise records.make_record_error("credentials do not belong into it: put them into ~/.netrc")
    return address


def _take_seen_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.netloc:
        raise ValueError("it is no URL, which begins with https://")
    return url if url.endswith("/") else url + "/"


Address = Annotated[str, Field(min_length=1), AfterValidator(_refuse_credentials)]
SeenUrl = Annotated[Address, AfterValidator(_take_seen_url)]


class Source(records.Record):
    """An index that names come from; a text alone is its ``index``.

    ``url`` is where people see it, "" where it is read. ``signed_by`` are files of public keys. Without
    ``allow_no_hash`` a file of which its pages state no sha256 is an error.
    """

    index: Address
    url: SeenUrl = ""
    signed_by: tuple[str, ...] = ()
    allow_no_hash: bool = False


class Owners(records.Record):
    """The file. ``owners`` are names of sources by patterns of projects (normalized names, ``*`` in them).

    ``signed_for``: how long a signature of the index holds; a refresh after half of it signs anew.
    """

    sources: dict[str, Source]
    owners: dict[str, str] = Field(default_factory=dict)
    default: str = ""
    targets: tuple[Annotated[str, _TARGET], ...] = ()
    signed_for: records.Age = timedelta(days=14)

    @field_validator("sources", mode="before")
    @classmethod
    def _take_addresses(cls, sources: Any) -> Any:
        if not isinstance(sources, Mapping):
            return sources
        return {name: {"index": item} if isinstance(item, str) else item for name, item in sources.items()}

    @field_validator("owners")
    @classmethod
    def _normalize_patterns(cls, owners: dict[str, str]) -> dict[str, str]:
        normalized: dict[str, str] = {}
        for pattern, source in owners.items():
            name = canonicalize_name(pattern)
            if _PATTERN.fullmatch(name) is None:
                raise records.make_record_error("it is neither a project nor a pattern, as rocm-*", pattern)
            if name in normalized:
                message = f"{name} has two owners: {normalized[name]} and {source}"
                raise records.make_record_error(message, pattern)
            normalized[name] = source
        return normalized

    @model_validator(mode="after")
    def _require_sources(self) -> Owners:
        if not self.owners and not self.default:
            raise ValueError("it names no owner: nothing would be listed")
        for pattern, source in self.owners.items():
            if source not in self.sources:
                message = f"{source} is none of the sources: {', '.join(self.sources)}"
                raise records.make_record_error(message, "owners", pattern)
        if self.default and self.default not in self.sources:
            raise records.make_record_error(f"{self.default} is none of the sources", "default")
        if any(GFX_PLACEHOLDER in source.index for source in self.sources.values()) != bool(self.targets):
            raise ValueError("`targets` and {gfx} in the address of a source belong together")
        for name, stated in self.sources.items():
            if stated.url and (GFX_PLACEHOLDER in stated.url) != (GFX_PLACEHOLDER in stated.index):
                message = "{gfx} is in both of `index` and `url`, or in none"
                raise records.make_record_error(message, "sources", name)
        return self

    @cached_property
    def patterns(self) -> dict[str, str]:
        """The owners of patterns that are no names."""
        return {pattern: source for pattern, source in self.owners.items() if "*" in pattern}

    @property
    def names(self) -> dict[str, str]:
        """The owners of names that are stated one by one."""
        return {name: source for name, source in self.owners.items() if "*" not in name}

    def find_claims(self, project: str) -> dict[str, str]:
        """Return the sources of the most exact patterns of a name (normalized), by pattern, {} without."""
        if project in self.owners:
            return {project: self.owners[project]}
        matching = [pattern for pattern in self.patterns if fnmatchcase(project, pattern)]
        if not matching:
            is_open = self.default and not closed_projects.is_closed_project(project)
            return {"default": self.default} if is_open else {}
        exactness = {pattern: len(pattern.replace("*", "")) for pattern in matching}
        best = max(exactness.values())
        return {pattern: self.patterns[pattern] for pattern in matching if exactness[pattern] == best}

    def find_owner(self, project: str) -> str:
        """Return the source that owns a name (normalized), "" for none.

        DataError where two patterns are as exact as each other, and not of one mind.
        """
        claims = self.find_claims(project)
        if len({*claims.values()}) > 1:
            stated = " and ".join(f"{pattern}: {source}" for pattern, source in claims.items())
            raise errors.DataError(
                f"{project} has two owners that are as exact as each other: {stated}",
                tip=f"name its owner: `{project}: …`",
            )
        return next(iter(claims.values()), "")

    def at_target(self, target: str) -> Owners:
        """Return what the index of one target is made of."""
        sources = {
            name: source.model_copy(
                update={
                    key: getattr(source, key).replace(GFX_PLACEHOLDER, target) for key in ("index", "url")
                }
            )
            for name, source in self.sources.items()
        }
        return self.model_copy(update={"sources": sources, "targets": ()})


def load_owners(path: Path) -> Owners:
    """Read the file; folders and keys come as whole paths. DataError with file, line and column."""
    owners = records.load_record(path, Owners)
    here = path.absolute().parent
    sources = {
        name: source.model_copy(
            update={
                "index": source.index if "://" in source.index else str(here / source.index),
                "signed_by": tuple(str(here / key) for key in source.signed_by),
            }
        )
        for name, source in owners.sources.items()
    }
    return owners.model_copy(update={"sources": sources})
