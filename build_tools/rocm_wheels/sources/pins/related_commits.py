"""``related_commits``: the file in which a torch checkout pins the projects that belong to it.

One row a line, six fields: ``os|source|project|branch|commit|origin``. A release stands on
these pins, so that a row which cannot be understood is an error, never a default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rocm_wheels.errors import DataError
from rocm_wheels.sources.pins.files import shortened

FILE_NAME = "related_commits"
_TIP = "put the row right; a row that nobody can read pins nothing"
_FIELDS = ("os", "source", "project", "branch", "commit", "origin")
_COMMIT = re.compile(r"[0-9a-fA-F]{40}\Z")
_ORIGIN = re.compile(r"[\w.+-]+://|[\w.@+-]+:|/")  # a URL, host:path as for ssh, an absolute path
_UNSAFE = re.compile(r"[\s\x00-\x1f\x7f]|\A-")


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
    for row in _rows(text, name):
        first = pins.setdefault(row.project, row)
        if (row.commit, _plain(row.origin)) != (first.commit, _plain(first.origin)):
            raise DataError(
                f"{name}:{row.line}: {row.project} is {row.commit} of {row.origin} here, "
                f"but {first.commit} of {first.origin} in line {first.line}",
                tip="make the rows of a project agree; one commit is built for every system",
            )
    return pins


def _rows(text: str, name: str) -> Iterator[RelatedCommit]:
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != len(_FIELDS):
            raise DataError(
                f"{name}:{number}: a row has {len(_FIELDS)} fields ({'|'.join(_FIELDS)}), "
                f"this one has {len(fields)}: {shortened(line)!r}",
                tip=_TIP,
            )
        _, _, project, branch, commit, origin = fields
        if not project:
            raise DataError(f"{name}:{number}: no project is named: {shortened(line)!r}", tip=_TIP)
        if not _COMMIT.match(commit):
            raise DataError(
                f"{name}:{number}: the commit of {project} must be 40 hex digits, not {shortened(commit)!r}",
                tip="a pin names one commit; a branch or a shortened commit is none",
            )
        if not _ORIGIN.match(origin) or _UNSAFE.search(origin):
            raise DataError(
                f"{name}:{number}: the origin of {project} is not a repository: {shortened(origin)!r}",
                tip="give a URL, or a whole path",
            )
        yield RelatedCommit(project, branch, commit.lower(), origin, number)


def _plain(origin: str) -> str:
    """Return an origin without what makes no difference to git hosts: a last slash, ``.git``."""
    return origin.rstrip("/").removesuffix(".git")
