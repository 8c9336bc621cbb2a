"""The pages of an index, as bytes: the same wheels are the same bytes.

Sources: PEP 503 (HTML), PEP 691 (JSON), PEP 658 and 714 (METADATA; JSON has the new key alone, as 714
recommends: an old pip stumbled over the other), PEP 592 (yanked), PEP 629 and 700 (version 1.1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any
from urllib.parse import quote

from rocm_wheels.index.entries import Entry, escaped

API = "1.1"
_escape = lru_cache(maxsize=512)(escape)  # few different values in many links
HTML_TYPE = "application/vnd.pypi.simple.v1+html"
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
REPOSITORY_VERSION = b"pypi:repository-version"  # PEP 629
_HEAD = (
    '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
    f'<meta name="{REPOSITORY_VERSION.decode()}" content="{API}">\n<title>%s</title>\n</head>\n<body>\n'
)
TAIL = b"</body>\n</html>\n"
_BODY = b"<body>\n"
LINK = b'<a href="'
_ELSEWHERE = re.compile(
    LINK + rb"(?:[A-Za-z][A-Za-z0-9+.-]*:|\.\./|/)"
)  # a link that is no file of the folder


@dataclass(frozen=True)
class VariantsFile:
    """``<name>-<version>-variants.json`` of a release, and where the pages find it."""

    name: str
    content: bytes
    sha256: str

    @property
    def folder(self) -> str:
        """The folder for these bytes, relative to the project's."""
        return f"variants/{self.sha256[:16]}"

    @property
    def href(self) -> str:
        """Its link on the project page."""
        return f"{self.folder}/{quote(self.name)}"


def head(title: str) -> bytes:
    """Return how a page begins; what follows is a link a line, then ``TAIL``."""
    return (_HEAD % escape(title)).encode()


def project_html(project: str, entries: Iterable[Entry], variants: Sequence[VariantsFile] = ()) -> bytes:
    """Return the page of a project (PEP 503)."""
    lines = [
        f'<a href="{escape(file.href)}#sha256={file.sha256}">{escape(file.name)}</a><br>' for file in variants
    ]
    lines += [_anchor(entry) for entry in entries]
    return head(f"Links for {project}") + "".join(line + "\n" for line in lines).encode() + TAIL


def _anchor(entry: Entry) -> str:
    said = f'<a href="{_escape(entry.place)}{escaped(entry.name)}#sha256={entry.sha256}"'
    if entry.requires_python:
        said += f' data-requires-python="{_escape(entry.requires_python)}"'
    if entry.metadata:
        digest = f"sha256={entry.metadata}"
        said += f' data-core-metadata="{digest}" data-dist-info-metadata="{digest}"'
    if entry.yanked is not None:
        said += f' data-yanked="{escape(entry.yanked)}"'
    return f"{said}>{entry.name}</a><br>"  # no name of a wheel has anything to escape


def project_json(project: str, entries: Sequence[Entry], variants: Sequence[VariantsFile] = ()) -> bytes:
    """Return the page of a project (PEP 691 with PEP 700)."""
    files: list[dict[str, Any]] = [
        {
            "filename": file.name,
            "url": file.href,
            "hashes": {"sha256": file.sha256},
            "size": len(file.content),
        }
        for file in variants
    ]
    files += [_file(entry) for entry in entries]
    distinct = {
        id(entry.version): entry.version for entry in entries
    }  # versions are kept, so that one is one
    versions = list(dict.fromkeys(map(str, distinct.values())))
    return _json({"meta": {"api-version": API}, "name": project, "versions": versions}, files)


def _file(entry: Entry) -> dict[str, Any]:
    said: dict[str, Any] = {
        "filename": entry.name,
        "url": entry.href,
        "hashes": {"sha256": entry.sha256},
        "size": entry.size,
        "upload-time": entry.uploaded,
    }
    if entry.metadata:
        said["core-metadata"] = {"sha256": entry.metadata}
    if entry.requires_python:
        said["requires-python"] = entry.requires_python
    if entry.yanked is not None:
        said["yanked"] = entry.yanked or True
    return said


def _json(top: dict[str, Any], files: list[dict[str, Any]]) -> bytes:
    """Write a file a line: a page of 500 wheels can be compared by people."""
    lines = ",\n".join(json.dumps(file) for file in files)
    opened = json.dumps(top)[:-1]
    return f'{opened}, "files": [\n{lines}\n]}}\n'.encode()


def root_html(projects: Iterable[str], families: Iterable[str] = ()) -> bytes:
    """Return the root page. Families follow the projects under a heading, as text: they are no projects."""
    lines = [f'<a href="{name}/">{name}</a><br>\n' for name in projects]
    listed = list(families)
    if listed:
        said = ", ".join(escape(name) for name in listed)
        lines.append(f"<p>indexes of GPU families, in the folders of their names: {said}</p>\n")
    return head("Simple index") + "".join(lines).encode() + TAIL


def root_json(projects: Iterable[str]) -> bytes:
    """Return the root page (PEP 691)."""
    listed = [{"name": name} for name in projects]
    return (json.dumps({"meta": {"api-version": API}, "projects": listed}, indent=1) + "\n").encode()


def as_links(project: str, page: bytes) -> bytes:
    """Return the links of a project page as they are written on a page one folder above."""
    lines = page[page.find(_BODY) + len(_BODY) : page.rfind(TAIL)]  # a page of ours: links and nothing else
    if _ELSEWHERE.search(lines):
        return b"".join(_further(project, line) for line in lines.splitlines(keepends=True))
    return lines.replace(LINK, LINK + project.encode() + b"/")


def _further(project: str, line: bytes) -> bytes:
    if not line.startswith(LINK):  # the reason of a yank has several lines
        return line
    target = line[len(LINK) :]
    if b"://" in target.partition(b'"')[0] or target.startswith(b"/"):
        return line
    if target.startswith(b"../"):
        return LINK + target[3:]
    return LINK + project.encode() + b"/" + target
