"""Write the pages and variants files of an index as bytes: the same wheels are the same bytes.

Sources: PEP 503 (HTML), PEP 691 (JSON), PEP 658 and 714 (METADATA; JSON has the new key alone, as 714
recommends: an old pip stumbled over the other), PEP 592 (yanked), PEP 629 and 700 (version 1.1), PEP 825
(variants), PEP 740 (provenance; pages that have it are of version 1.3), PEP 708 (whose name it is: 1.2).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rocm_wheels.core import errors
from rocm_wheels.index.folder import IndexEntry, escape_file_name

if TYPE_CHECKING:
    from rocm_wheels.variants import document

API_VERSION = "1.1"
_SIZELESS_API_VERSION, _TRACKING_API_VERSION, _PROVENANCE_API_VERSION = "1.0", "1.2", "1.3"
_escape_cached = lru_cache(maxsize=512)(escape)  # few different values in many links
HTML_TYPE = "application/vnd.pypi.simple.v1+html"
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
REPOSITORY_VERSION = b"pypi:repository-version"  # PEP 629
TRACKS = "pypi:tracks"  # PEP 708
_PAGE_HEAD = (
    '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
    f'<meta name="{REPOSITORY_VERSION.decode()}" content="%s">\n<title>%s</title>\n'
    "</head>\n<body>\n"
)
PAGE_TAIL = b"</body>\n</html>\n"
_BODY_TAG = b"<body>\n"
LINK_START = b'<a href="'


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

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return len(self.content)


@dataclass(frozen=True)
class VariantsLink:
    """A ``-variants.json`` that lies elsewhere, as the page of its index links it; ``size`` -1: not said."""

    name: str
    href: str
    sha256: str
    size: int


def make_page_head(title: str, version: str = API_VERSION) -> bytes:
    """Return how a page begins; what follows is a link a line, then ``PAGE_TAIL``."""
    return (_PAGE_HEAD % (version, escape(title))).encode()


def _find_api_version(entries: Iterable[IndexEntry], tracks: Sequence[str]) -> str:
    if any(entry.provenance for entry in entries):
        return _PROVENANCE_API_VERSION
    return _TRACKING_API_VERSION if tracks else API_VERSION


def make_project_html(
    project: str,
    entries: Sequence[IndexEntry],
    variants: Sequence[VariantsFile | VariantsLink] = (),
    tracks: Sequence[str] = (),
) -> bytes:
    """Return the page of a project (PEP 503); ``tracks`` are the pages of those who own its name."""
    lines = [
        f'<a href="{escape(file.href)}{_make_fragment(file.sha256)}">{escape(file.name)}</a><br>'
        for file in variants
    ]
    lines += [_make_anchor(entry) for entry in entries]
    head = make_page_head(f"Links for {project}", _find_api_version(entries, tracks))
    metas = "".join(f'<meta name="{TRACKS}" content="{escape(url)}">\n' for url in tracks).encode()
    head = head.replace(b"<title>", metas + b"<title>", 1)
    return head + "".join(line + "\n" for line in lines).encode() + PAGE_TAIL


def _make_fragment(sha256: str) -> str:
    return f"#sha256={sha256}" if sha256 else ""


def _make_anchor(entry: IndexEntry) -> str:
    place, name = _escape_cached(entry.place), escape_file_name(entry.name)
    anchor = f'<a href="{place}{name}{_make_fragment(entry.sha256)}"'
    if entry.requires_python:
        anchor += f' data-requires-python="{_escape_cached(entry.requires_python)}"'
    if entry.metadata:
        # never by its first name, data-dist-info-metadata: pip 22.3 to 23.0 then compare the name in METADATA
        # as it is written with the one that they ask for
        digest = entry.metadata if entry.metadata == "true" else f"sha256={entry.metadata}"
        anchor += f' data-core-metadata="{digest}"'
    if entry.yanked is not None:
        anchor += f' data-yanked="{escape(entry.yanked)}"'
    if entry.provenance:
        anchor += f' data-provenance="{escape(entry.provenance)}"'
    return f"{anchor}>{entry.name}</a><br>"  # no name of a wheel has anything to escape


def make_project_json(
    project: str,
    entries: Sequence[IndexEntry],
    variants: Sequence[VariantsFile | VariantsLink] = (),
    extra: Mapping[str, Any] | None = None,
    tracks: Sequence[str] = (),
) -> bytes:
    """Return the page of a project (PEP 691 with PEP 700); ``extra`` keys begin with ``_``.

    ``tracks`` are the pages of those who own its name. Where a size is not known it is a page of version 1.0:
    later ones ask for every size.
    """
    files: list[dict[str, Any]] = [_describe_content(file) for file in variants]
    files += [_describe_file(entry) for entry in entries]
    distinct = {
        id(entry.version): entry.version for entry in entries
    }  # versions are kept, so that one is one
    versions = list(dict.fromkeys(map(str, distinct.values())))
    sized = all(file.size >= 0 for file in (*variants, *entries))
    version = _find_api_version(entries, tracks) if sized else _SIZELESS_API_VERSION
    meta = {"api-version": version, **({"tracks": list(tracks)} if tracks else {})}
    top = {"meta": meta, "name": project, "versions": versions, **(extra or {})}
    # a file a line: a page of 500 wheels can be compared by people
    lines = ",\n".join(json.dumps(file) for file in files)
    return f'{json.dumps(top)[:-1]}, "files": [\n{lines}\n]}}\n'.encode()


def _describe_content(file: IndexEntry | VariantsFile | VariantsLink) -> dict[str, Any]:
    hashes = {"sha256": file.sha256} if file.sha256 else {}
    description: dict[str, Any] = {"filename": file.name, "url": file.href, "hashes": hashes}
    if file.size >= 0:
        description["size"] = file.size
    return description


def _describe_file(entry: IndexEntry) -> dict[str, Any]:
    description = _describe_content(entry)
    if entry.uploaded:
        description["upload-time"] = entry.uploaded
    if entry.metadata:
        description["core-metadata"] = entry.metadata == "true" or {"sha256": entry.metadata}
    if entry.requires_python:
        description["requires-python"] = entry.requires_python
    if entry.yanked is not None:
        description["yanked"] = entry.yanked or True
    if entry.provenance:
        description["provenance"] = entry.provenance
    return description


def make_root_html(projects: Iterable[str], families: Iterable[str] = ()) -> bytes:
    """Return the root page. Families follow the projects under a heading, as text: they are no projects."""
    lines = [f'<a href="{name}/">{name}</a><br>\n' for name in projects]
    listed = list(families)
    if listed:
        family_names = ", ".join(escape(name) for name in listed)
        lines.append(f"<p>indexes of GPU families, in the folders of their names: {family_names}</p>\n")
    return make_page_head("Simple index") + "".join(lines).encode() + PAGE_TAIL


def make_root_json(projects: Iterable[str], families: Iterable[str] = ()) -> bytes:
    """Return the root page (PEP 691), which knows the families of an index in a folder."""
    page: dict[str, Any] = {"meta": {"api-version": API_VERSION}}
    page["projects"] = [{"name": name} for name in projects]
    if family_names := list(families):
        page["_families"] = family_names
    return (json.dumps(page, indent=1) + "\n").encode()


def make_links(project: str, page: bytes) -> bytes:
    """Return the links of a project page as they are written on a page one folder above."""
    links = page[
        page.find(_BODY_TAG) + len(_BODY_TAG) : page.rfind(PAGE_TAIL)
    ]  # a page of ours: nothing else
    below = LINK_START + project.encode() + b"/"
    return links.replace(LINK_START, below).replace(below + b"../", LINK_START)


@lru_cache(maxsize=512)
def _parse_variant(text: str) -> document.VariantMetadata:
    from rocm_wheels.variants import document

    return document.parse_document(text.encode(), name="variant.json")


def join_variants(wheels: Mapping[str, str]) -> document.VariantMetadata:
    """Join the ``variant.json`` of the wheels of a release, by file name; DataError names two of them."""
    from rocm_wheels.variants import document

    return document.merge_documents([(name, _parse_variant(text)) for name, text in wheels.items()])


def make_variants_name(project: str, version: object) -> str:
    """Return the name of a release's variants file: spelled as in the names of wheels (PEP 825)."""
    return f"{project.replace('-', '_')}-{version}-variants.json"


def make_variants_files(project: str, entries: Iterable[IndexEntry]) -> list[VariantsFile]:
    """Return the variants file of every release that has variant wheels, oldest release first.

    DataError that names both wheels when two of them cannot be in one release.
    """
    releases: dict[str, list[IndexEntry]] = {}
    for entry in entries:
        if entry.variant is not None:
            releases.setdefault(str(entry.version), []).append(entry)
    files = []
    for version, wheels in releases.items():
        try:
            content = join_variants({wheel.name: wheel.variant or "" for wheel in wheels}).to_json()
        except errors.DataError as cause:
            raise errors.DataError(f"the variants of {project} {version} do not fit together") from cause
        name = make_variants_name(project, version)
        files.append(VariantsFile(name, content, hashlib.sha256(content).hexdigest()))
    return files
