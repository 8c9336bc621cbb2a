"""What an index says: links of its pages, what it lists, METADATA beside a wheel; or that it says nothing."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import urlsplit

from rocm_wheels.errors import DataError, HostError
from rocm_wheels.index.entries import METADATA_SUFFIX
from rocm_wheels.index.reach import ACCEPT_PAGES, IndexReader, UnreachableError, path_of_url
from rocm_wheels.index.reading import IndexLink, file_name_of_link, parse_page
from rocm_wheels.shell import hide_credentials

_GONE_STATUSES = (404, 410)
_ABSENT_STATUSES = (403, *_GONE_STATUSES)  # S3, and so download.pytorch.org, says 403 of what is not there
_INNER_CAUSE = re.compile(r"Caused by \w+\(.*?\): (.+?)[\"']?\)+$")  # as urllib3 says it


class UnreachableIndexError(HostError):
    """A server did not answer, or not with what was asked for: no reason to take another index."""


def make_unreachable_error(url: str, cause: Exception) -> UnreachableIndexError:
    """Return the error for a server that does not answer, with the innermost reason only."""
    inner = _INNER_CAUSE.search(str(cause))
    return UnreachableIndexError(
        f"{hide_credentials(url)} cannot be reached: {inner[1] if inner else cause}",
        tip="is the address right, and the network there? --index takes a folder too",
    )


def is_page_url(index: str) -> bool:
    """Tell whether this is the URL of one page that lists wheels (``…/links.html``)."""
    parts = urlsplit(index)
    return parts.scheme in ("http", "https", "file") and parts.path.endswith((".html", ".htm"))


def read_project_links(base: str, project: str, reach: IndexReader) -> tuple[IndexLink, ...] | None:
    """Return the files on a project's page; None when the index has no such page."""
    return None if is_page_url(base) else _read_links(f"{base}{project}/", reach, _ABSENT_STATUSES)


def list_links(base: str, reach: IndexReader) -> tuple[IndexLink, ...]:
    """Return what a page or folder itself lists: wheels, or the folders of families; () when it is not there.

    An index that refuses this as well refuses everything: UnreachableIndexError.
    """
    root = path_of_url(base)
    if root is None or root.is_file():
        return _read_links(base, reach, _GONE_STATUSES) or ()
    return tuple(
        IndexLink(path.name, path.name, path.as_uri(), size=path.stat().st_size if path.is_file() else None)
        for path in (sorted(root.iterdir()) if root.is_dir() else ())
    )


def read_wheel_metadata(link: IndexLink, reach: IndexReader) -> bytes:
    """Return METADATA of a wheel: the file beside it (PEP 658) where there is one, else out of the wheel.

    UnreachableError when it cannot be had, DataError when it is not what the page says.
    """
    if link.metadata is not None:
        answer = reach.get(link.url + METADATA_SUFFIX)
        if answer.status == 200:
            if link.metadata and sha256(answer.content).hexdigest() != link.metadata.lower():
                raise DataError(
                    f"{file_name_of_link(link)}{METADATA_SUFFIX} is not what the page says (sha256 {link.metadata})",
                    tip="it was being changed, or is damaged: try again, or `rocm-wheels index verify`",
                )
            return answer.content
    return reach.fetch_metadata_and_variant(link.url, file_name_of_link(link), link.size, variant=False)[0]


def _tip_for(status: int) -> str:
    if status in (401, 403, 407):
        return "does it want a password? in the URL (https://NAME:TOKEN@host/), or in ~/.netrc"
    return "the server fails: try again later" if status >= 500 else "is it the URL of an index?"


def _read_links(url: str, reach: IndexReader, not_there: tuple[int, ...]) -> tuple[IndexLink, ...] | None:
    try:
        answer = reach.get(url, accept=ACCEPT_PAGES)
    except UnreachableError as cause:
        raise make_unreachable_error(url, cause) from None
    if answer.status in not_there:
        return None
    if answer.status != 200:
        raise UnreachableIndexError(
            f"{hide_credentials(url)} answers {answer.status}", tip=_tip_for(answer.status)
        )
    links = parse_page(answer.content, answer.kind, answer.url).links
    if path_of_url(url) is not None:
        return links
    # a server has no say about the files of this machine
    return tuple(link for link in links if urlsplit(link.url).scheme in ("http", "https"))
