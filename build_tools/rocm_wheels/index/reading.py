"""Reading the pages of any index, as installers do: HTML (PEP 503) and JSON (PEP 691)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from rocm_wheels.errors import DataError
from rocm_wheels.index.pages import JSON_TYPE

_METADATA = ("data-core-metadata", "data-dist-info-metadata")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_ATTRIBUTES = (*_METADATA, "data-requires-python", "data-yanked", "data-gpg-sig")


@dataclass(frozen=True)
class Link:
    """A link of a page: ``href`` as it is written, ``url`` where it leads, without its fragment.

    ``sha256`` is None when there is none; ``metadata`` the digest of the METADATA that is offered, "" for one
    without a digest, None for none; ``size`` None where the page does not say; ``keys`` what else is said.
    """

    name: str
    href: str
    url: str
    sha256: str | None = None
    metadata: str | None = None
    requires_python: str = ""
    yanked: str | None = None
    size: int | None = None
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Page:
    """The links of a page, and what is wrong with it as a whole."""

    links: tuple[Link, ...]
    faults: tuple[str, ...] = ()


@dataclass
class _Anchor:
    attributes: Mapping[str, str]
    text: str = ""


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[_Anchor] = []
        self.metas: dict[str, str] = {}
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.found.append(_Anchor(values))
            self._open = True
        if tag == "meta":
            self.metas[values.get("name", "")] = values.get("content", "")
        if tag == "base" and "href" in values:
            self.metas["base"] = values["href"]

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.found[-1].text += data


def read_page(content: bytes, kind: str, url: str) -> Page:
    """Read a page of projects or of files, given its content type and URL; DataError when it is none."""
    return _read_json(content, url) if kind.startswith(JSON_TYPE) else _read_html(content, url)


def _read_html(content: bytes, url: str) -> Page:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise DataError(f"{url} is not UTF-8") from cause
    parser = _Anchors()
    parser.feed(text)
    faults = _version_faults(parser.metas.get("pypi:repository-version", "1.0"))
    try:
        base = urljoin(url, parser.metas.get("base", ""))
        links = [_html_link(anchor, base) for anchor in parser.found if anchor.attributes.get("href")]
    except ValueError as cause:
        raise DataError(f"{url} has a link that is no URL") from cause
    return Page(tuple(links), tuple(faults))


def _html_link(anchor: _Anchor, base: str) -> Link:
    said = anchor.attributes
    href = said["href"]
    url, fragment = urldefrag(urljoin(base, href))
    url = with_credentials(url, base)
    metadata = next((said[key] for key in _METADATA if key in said), None)
    return Link(
        name=anchor.text.strip(),
        href=href,
        url=url,
        sha256=_in_fragment(fragment),
        metadata=None if metadata in (None, "false") else _after(metadata or ""),
        requires_python=said.get("data-requires-python", ""),
        yanked=said.get("data-yanked"),
        keys=frozenset(key for key in said if key in _ATTRIBUTES),
    )


def _in_fragment(fragment: str) -> str | None:
    """Return the digest of ``sha256=…``, which other words may stand beside (``&egg=torch``)."""
    said = [word for word in fragment.split("&") if word.startswith("sha256=")]
    return said[0][7:] if said else None


def _after(text: str) -> str:
    return text[7:] if text.startswith("sha256=") else ""


def _read_json(content: bytes, url: str) -> Page:
    try:
        top = json.loads(content)
        faults = _version_faults(str(top["meta"]["api-version"]))
        if "projects" in top:
            return Page(
                tuple(_project_link(project["name"], url) for project in top["projects"]), tuple(faults)
            )
        links = tuple(_json_link(file, url) for file in top["files"])
        if not all(map(_is_plain, links)):
            raise TypeError("values of other kinds")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise DataError(f"{url} is not a page of an index") from cause
    stated = top.get("versions")
    if not isinstance(stated, list):
        faults.append("has no versions (PEP 700)")
    return Page(links, tuple(faults))


def _is_plain(link: Link) -> bool:
    """Tell whether the values of a page are of the kinds that PEP 691 says."""
    texts = link.name, link.sha256 or "", link.metadata or "", link.requires_python
    return all(isinstance(text, str) for text in texts) and isinstance(link.size, int | None)


def _project_link(name: str, url: str) -> Link:
    if not isinstance(name, str):
        raise TypeError("a name is text")
    return Link(name, f"{name}/", urljoin(url, f"{name}/"))


def _json_link(file: Mapping[str, Any], base: str) -> Link:
    url = with_credentials(urldefrag(urljoin(base, file["url"]))[0], base)
    metadata = file.get("core-metadata", file.get("dist-info-metadata"))
    digest = metadata.get("sha256", "") if isinstance(metadata, dict) else ("" if metadata else None)
    yanked = file.get("yanked", False)
    return Link(
        name=file["filename"],
        href=file["url"],
        url=url,
        sha256=file["hashes"].get("sha256"),
        metadata=digest,
        requires_python=file.get("requires-python") or "",
        yanked=None if yanked is False else yanked if isinstance(yanked, str) else "",
        size=file.get("size"),
        keys=frozenset(file),
    )


def _version_faults(version: str) -> list[str]:
    if version.partition(".")[0] != "1":
        return [f"is of version {version} of the API; installers of today read 1.x"]
    return []


def stated_digest(link: Link) -> str | None:
    """Return the sha256 of a link in lower case, None when it has none; DataError for what is no digest.

    Folders are called by digests: one that a page made up would lead out of them.
    """
    if link.sha256 is None:
        return None
    if not _DIGEST.fullmatch(link.sha256):
        raise DataError(
            f"{file_name(link)}: its page says sha256={link.sha256}, which is none",
            tip="`rocm-wheels index verify` tells what else is wrong with the index",
        )
    return link.sha256.lower()


def with_credentials(url: str, asked: str) -> str:
    """Return a URL with user and password of the one that led to it, if it is of the same server.

    As pip does: whole addresses on the pages of a server that wants them would otherwise not be let in.
    """
    to, came = urlsplit(url), urlsplit(asked)
    user, at, server = came.netloc.rpartition("@")
    if not at or (to.scheme, to.netloc) != (came.scheme, server):
        return url
    return urlunsplit(to._replace(netloc=f"{user}@{server}"))


def file_name(link: Link) -> str:
    """Return the name of the file that a link leads to: what installers go by."""
    return unquote(urlsplit(link.url).path).rpartition("/")[2]
