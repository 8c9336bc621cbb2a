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

_METADATA_ATTRIBUTES = ("data-core-metadata", "data-dist-info-metadata")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_LINK_ATTRIBUTES = (*_METADATA_ATTRIBUTES, "data-requires-python", "data-yanked", "data-gpg-sig")


@dataclass(frozen=True)
class IndexLink:
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
class IndexPage:
    """The links of a page, and what is wrong with it as a whole."""

    links: tuple[IndexLink, ...]
    faults: tuple[str, ...] = ()


@dataclass
class _Anchor:
    attributes: Mapping[str, str]
    text: str = ""


class _AnchorParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: list[_Anchor] = []
        self.metas: dict[str, str] = {}
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.anchors.append(_Anchor(values))
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
            self.anchors[-1].text += data


def parse_page(content: bytes, kind: str, url: str) -> IndexPage:
    """Read a page of projects or of files, given its content type and URL; DataError when it is none."""
    return _parse_json(content, url) if kind.startswith(JSON_TYPE) else _parse_html(content, url)


def _parse_html(content: bytes, url: str) -> IndexPage:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise DataError(f"{url} is not UTF-8") from cause
    parser = _AnchorParser()
    parser.feed(text)
    faults = _find_version_faults(parser.metas.get("pypi:repository-version", "1.0"))
    try:
        base = urljoin(url, parser.metas.get("base", ""))
        links = [_parse_anchor(anchor, base) for anchor in parser.anchors if anchor.attributes.get("href")]
    except ValueError as cause:
        raise DataError(f"{url} has a link that is no URL") from cause
    return IndexPage(tuple(links), tuple(faults))


def _parse_anchor(anchor: _Anchor, base: str) -> IndexLink:
    attributes = anchor.attributes
    href = attributes["href"]
    url, fragment = urldefrag(urljoin(base, href))
    url = keep_credentials(url, base)
    metadata = next((attributes[key] for key in _METADATA_ATTRIBUTES if key in attributes), None)
    return IndexLink(
        name=anchor.text.strip(),
        href=href,
        url=url,
        sha256=_find_sha256(fragment),
        metadata=None if metadata in (None, "false") else _strip_sha256_prefix(metadata or ""),
        requires_python=attributes.get("data-requires-python", ""),
        yanked=attributes.get("data-yanked"),
        keys=frozenset(key for key in attributes if key in _LINK_ATTRIBUTES),
    )


def _find_sha256(fragment: str) -> str | None:
    """Return the digest of ``sha256=…``, which other words may stand beside (``&egg=torch``)."""
    digests = [word for word in fragment.split("&") if word.startswith("sha256=")]
    return digests[0][7:] if digests else None


def _strip_sha256_prefix(text: str) -> str:
    return text[7:] if text.startswith("sha256=") else ""


def _parse_json(content: bytes, url: str) -> IndexPage:
    try:
        top = json.loads(content)
        faults = _find_version_faults(str(top["meta"]["api-version"]))
        if "projects" in top:
            return IndexPage(
                tuple(_make_project_link(project["name"], url) for project in top["projects"]), tuple(faults)
            )
        links = tuple(_parse_json_file(file, url) for file in top["files"])
        if not all(map(_is_plain, links)):
            raise TypeError("values of other kinds")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise DataError(f"{url} is not a page of an index") from cause
    stated = top.get("versions")
    if not isinstance(stated, list):
        faults.append("has no versions (PEP 700)")
    return IndexPage(links, tuple(faults))


def _is_plain(link: IndexLink) -> bool:
    """Tell whether the values of a page are of the kinds that PEP 691 says."""
    texts = link.name, link.sha256 or "", link.metadata or "", link.requires_python
    return all(isinstance(text, str) for text in texts) and isinstance(link.size, int | None)


def _make_project_link(name: str, url: str) -> IndexLink:
    if not isinstance(name, str):
        raise TypeError("a name is text")
    return IndexLink(name, f"{name}/", urljoin(url, f"{name}/"))


def _parse_json_file(file: Mapping[str, Any], base: str) -> IndexLink:
    url = keep_credentials(urldefrag(urljoin(base, file["url"]))[0], base)
    metadata = file.get("core-metadata", file.get("dist-info-metadata"))
    digest = metadata.get("sha256", "") if isinstance(metadata, dict) else ("" if metadata else None)
    yanked = file.get("yanked", False)
    return IndexLink(
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


def _find_version_faults(version: str) -> list[str]:
    if version.partition(".")[0] != "1":
        return [f"is of version {version} of the API; installers of today read 1.x"]
    return []


def require_link_digest(link: IndexLink) -> str | None:
    """Return the sha256 of a link in lower case, None when it has none; DataError for what is no digest.

    Folders are called by digests: one that a page made up would lead out of them.
    """
    if link.sha256 is None:
        return None
    if not _SHA256.fullmatch(link.sha256):
        raise DataError(
            f"{file_name_of_link(link)}: its page says sha256={link.sha256}, which is none",
            tip="`rocm-wheels index verify` tells what else is wrong with the index",
        )
    return link.sha256.lower()


def keep_credentials(url: str, origin: str) -> str:
    """Return a URL with user and password of the one that led to it, if it is of the same server.

    As pip does: whole addresses on the pages of a server that wants them would otherwise not be let in.
    """
    target_parts, origin_parts = urlsplit(url), urlsplit(origin)
    user, separator, server = origin_parts.netloc.rpartition("@")
    if not separator or (target_parts.scheme, target_parts.netloc) != (origin_parts.scheme, server):
        return url
    return urlunsplit(target_parts._replace(netloc=f"{user}@{server}"))


def file_name_of_link(link: IndexLink) -> str:
    """Return the name of the file that a link leads to: what installers go by."""
    return unquote(urlsplit(link.url).path).rpartition("/")[2]
