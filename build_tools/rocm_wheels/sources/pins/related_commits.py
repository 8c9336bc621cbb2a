"""``related_commits``: the file in which a torch checkout pins the projects that belong to it.

One row a line, six fields: ``os|source|project|branch|commit|origin``. A release stands on
these pins, so that a row which cannot be understood is an error, never a default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rocm_wheels.errors import DataError
from rocm_wheels.sources.pins.files import shorten_line

RELATED_COMMITS_FILE = "related_commits"
_ROW_TIP = "put the row right; a row that nobody can read pins nothing"
_ROW_FIELDS = ("os", "source", "project", "branch", "commit", "origin")
_ROW_COMMIT = re.compile(r"[0-9a-fA-F]{40}\Z")
_ROW_ORIGIN = re.compile(r"[\w.+-]+://|[\w.@+-]+:|/")  # a URL, host:path as for ssh, an absolute path
_UNSAFE_ORIGIN = re.compile(r"[\s\x00-\x1f\x7f]|\A-")


@dataclass(frozen=True)
class RelatedCommit:
    """One pinned project; ``commit`` is 40 lower-case hex digits, ``line`` counts from 1."""

    project: str
    branch: str
    commit: str
    origin: str
    line: int


def parse_related_commits(text: str, *, name: str) -> dict[str, RelatedCommit]:
    """Return project → pin; ``name`` stands for the file in messages.

    Blank lines, ``#`` comments, CRLF and blanks around fields are fine; so are rows of any
    operating system and project. Raises DataError with ``file:line`` for a row that is not
    six fields, a commit that is not 40 hex digits, and rows of a project that disagree.
    """
    pins: dict[str, RelatedCommit] = {}
    for row in _parse_rows(text, name):
        first = pins.setdefault(row.project, row)
        if (row.commit, _normalize_origin(row.origin)) != (first.commit, _normalize_origin(first.origin)):
            raise DataError(
                f"{name}:{row.line}: {row.project} is {row.commit} of {row.origin} here, "
                f"but {first.commit} of {first.origin} in line {first.line}",
                tip="make the rows of a project agree; one commit is built for every system",
            )
    return pins


def _parse_rows(text: str, name: str) -> Iterator[RelatedCommit]:
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != len(_ROW_FIELDS):
            raise DataError(
                f"{name}:{number}: a row has {len(_ROW_FIELDS)} fields ({'|'.join(_ROW_FIELDS)}), "
                f"this one has {len(fields)}: {shorten_line(line)!r}",
                tip=_ROW_TIP,
            )
        _, _, project, branch, commit, origin = fields
        if not project:
            raise DataError(f"{name}:{number}: no project is named: {shorten_line(line)!r}", tip=_ROW_TIP)
        if not _ROW_COMMIT.match(commit):
            raise DataError(
                f"{name}:{number}: the commit of {project} must be 40 hex digits, not {shorten_line(commit)!r}",
                tip="a pin names one commit; a branch or a shortened commit is none",
            )
        if not _ROW_ORIGIN.match(origin) or _UNSAFE_ORIGIN.search(origin):
            raise DataError(
                f"{name}:{number}: the origin of {project} is not a repository: {shorten_line(origin)!r}",
                tip="give a URL, or a whole path",
            )
        yield RelatedCommit(project, branch, commit.lower(), origin, number)


def _normalize_origin(origin: str) -> str:
    """Return an origin without what makes no difference to git hosts: a last slash, ``.git``."""
    return origin.rstrip("/").removesuffix(".git")
