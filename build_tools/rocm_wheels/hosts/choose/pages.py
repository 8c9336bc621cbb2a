"""What an index says: links of its pages, what it lists, METADATA beside a wheel; or that it says nothing."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import urlsplit

from rocm_wheels.errors import DataError, HostError
from rocm_wheels.index.entries import METADATA_SUFFIX
from rocm_wheels.index.reach import ACCEPT, Reach, UnreachableError, local_path
from rocm_wheels.index.reading import Link, file_name, read_page
from rocm_wheels.shell import hide_credentials

_GONE = (404, 410)
_NOT_THERE = (403, *_GONE)  # S3, and so download.pytorch.org, says 403 of what is not there
_CAUSED = re.compile(r"Caused by \w+\(.*?\): (.+?)[\"']?\)+$")  # as urllib3 says it


class UnreachableIndexError(HostError):
    """A server did not answer, or not with what was asked for: no reason to take another index."""


def unreachable(url: str, cause: Exception) -> UnreachableIndexError:
    """Return the error for a server that does not answer, with the innermost reason only."""
    inner = _CAUSED.search(str(cause))
    return UnreachableIndexError(
        f"{hide_credentials(url)} cannot be reached: {inner[1] if inner else cause}",
        tip="is the address right, and the network there? --index takes a folder too",
    )


def is_page(index: str) -> bool:
    """Tell whether this is the URL of one page that lists wheels (``…/links.html``)."""
    parts = urlsplit(index)
    return parts.scheme in ("http", "https", "file") and parts.path.endswith((".html", ".htm"))


def project_links(base: str, project: str, reach: Reach) -> tuple[Link, ...] | None:
    """Return the files on a project's page; None when the index has no such page."""
    return None if is_page(base) else _links(f"{base}{project}/", reach, _NOT_THERE)


def listed(base: str, reach: Reach) -> tuple[Link, ...]:
    """Return what a page or folder itself lists: wheels, or the folders of families; () when it is not there.

    An index that refuses this as well refuses everything: UnreachableIndexError.
    """
    root = local_path(base)
    if root is None or root.is_file():
        return _links(base, reach, _GONE) or ()
    return tuple(
        Link(one.name, one.name, one.as_uri(), size=one.stat().st_size if one.is_file() else None)
        for one in (sorted(root.iterdir()) if root.is_dir() else ())
    )


def metadata_of(link: Link, reach: Reach) -> bytes:
    """Return METADATA of a wheel: the file beside it (PEP 658) where there is one, else out of the wheel.

    UnreachableError when it cannot be had, DataError when it is not what the page says.
    """
    if link.metadata is not None:
        answer = reach.get(link.url + METADATA_SUFFIX)
        if answer.status == 200:
            if link.metadata and sha256(answer.content).hexdigest() != link.metadata.lower():
                raise DataError(
                    f"{file_name(link)}{METADATA_SUFFIX} is not what the page says (sha256 {link.metadata})",
                    tip="it was being changed, or is damaged: try again, or `rocm-wheels index verify`",
                )
            return answer.content
    return reach.texts(link.url, file_name(link), link.size, variant=False)[0]


def _tip_for(status: int) -> str:
    if status in (401, 403, 407):
        return "does it want a password? in the URL (https://NAME:TOKEN@host/), or in ~/.netrc"
    return "the server fails: try again later" if status >= 500 else "is it the URL of an index?"


def _links(url: str, reach: Reach, not_there: tuple[int, ...]) -> tuple[Link, ...] | None:
    try:
        answer = reach.get(url, accept=ACCEPT)
    except UnreachableError as cause:
        raise unreachable(url, cause) from None
    if answer.status in not_there:
        return None
    if answer.status != 200:
        raise UnreachableIndexError(
            f"{hide_credentials(url)} answers {answer.status}", tip=_tip_for(answer.status)
        )
    links = read_page(answer.content, answer.kind, answer.url).links
    if local_path(url) is not None:
        return links
    # a server has no say about the files of this machine
    return tuple(link for link in links if urlsplit(link.url).scheme in ("http", "https"))
