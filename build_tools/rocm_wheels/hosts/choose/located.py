"""Where an index has the wheels of a project: its page, the page of a GPU family, or a folder of files.

Three kinds of index are read: one page a project (PEP 503, PEP 691), an index for each GPU family
(``https://…/{family}/``, or folders of families below one), and a folder or page (``…/links.html``) that just
lists wheels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from rocm_wheels import parallel
from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.index.reach import ACCEPT, Reach, UnreachableError, base_url, local_path
from rocm_wheels.index.reading import Link, file_name, read_page
from rocm_wheels.index.views import families
from rocm_wheels.shell import hide_credentials

FAMILY = "{family}"
_JOBS = 8
_CAUSED = re.compile(r"Caused by \w+\(.*?\): (.+?)[\"']?\)+$")  # as urllib3 says it


class UnreachableIndexError(HostError):
    """A server did not answer, or not with what was asked for: no reason to take another index."""


@dataclass(frozen=True)
class Located:
    """The files that an index has of a project. ``family`` is that of the index, "" for one for everybody."""

    index: str
    links: tuple[Link, ...]
    family: str = ""


def locate(index: str, project: str, host: Host, reach: Reach) -> Located:
    """Find a project in an index. HostError when it is not there or cannot be reached."""
    if FAMILY in index:
        return _of_a_family(
            [(index.replace(FAMILY, one), one) for one in _wanted(index, host)], project, reach
        )
    if is_page(index):
        if (listed := _links(index, reach)) is None:
            raise _absent(project, index)
        return Located(index, listed)
    base = base_url(index)
    root = local_path(base)
    here = families(root) if root else []
    if below := [one for one in (family_names(host) if here else ()) if one in here]:
        return _of_a_family([(f"{base}{one}/", one) for one in below], project, reach)
    links = read_links(base, project, reach)
    if links is not None:
        return Located(base, links)
    listed = _listed(base, reach)
    if any(file_name(link).endswith(".whl") for link in listed):
        return Located(base, listed)
    there = {urlsplit(link.url).path.rstrip("/").rpartition("/")[2] for link in listed}
    if below := [one for one in (family_names(host) if there else ()) if one in there]:
        return _of_a_family([(f"{base}{one}/", one) for one in below], project, reach)
    raise _absent(project, base)


def is_page(index: str) -> bool:
    """Tell whether this is the URL of one page that lists wheels (``…/links.html``)."""
    parts = urlsplit(index)
    return parts.scheme in ("http", "https", "file") and parts.path.endswith((".html", ".htm"))


def family_names(host: Host) -> tuple[str, ...]:
    """Return the families to look in for a machine: those of all its GPUs first, then of each."""
    from rocm_wheels.model.gfx import families_of

    chips = [gpu.gfx for gpu in host.hardware.usable if gpu.gfx]
    groups = [chips, *([chip] for chip in chips)] if chips else []
    return tuple(dict.fromkeys(family for group in groups for family in families_of(group)))


def family_in(base: str) -> str:
    """Return the family whose name is the last part of an index's address; "" when it is none."""
    last = urlsplit(base).path.rstrip("/").rpartition("/")[2]
    if not last.startswith("gfx"):
        return ""
    from rocm_wheels.model.gfx import gfx_families

    return last if last in gfx_families() else ""


def read_links(base: str, project: str, reach: Reach) -> tuple[Link, ...] | None:
    """Return the files on a project's page; None when the index has no such page."""
    return _links(f"{base}{project}/", reach)


def _wanted(index: str, host: Host) -> Sequence[str]:
    found = family_names(host)
    if not found:
        chips: Sequence[Gpu] = host.hardware.usable
        said = (
            f"{', '.join(str(gpu.gfx) for gpu in chips)} is of none" if chips else "there is no AMD GPU here"
        )
        raise HostError(
            f"{index} is for one GPU family each, and {said}",
            tip="name an index for this machine: --index URL",
        )
    return found


def _of_a_family(bases: Sequence[tuple[str, str]], project: str, reach: Reach) -> Located:
    """Return the first that has wheels of the project; all are asked side by side."""

    def read(one: tuple[str, str]) -> tuple[Link, ...] | None:
        try:
            return read_links(base_url(one[0]), project, reach)
        except UsageError:  # a folder that is not there
            return None

    pages = parallel.each(read, bases, jobs=_JOBS)
    for (base, family), links in zip(bases, pages, strict=True):
        if links:
            return Located(base_url(base), links, family)
    raise _absent(project, " or ".join(base for base, _ in bases))


def unreachable(url: str, cause: Exception) -> UnreachableIndexError:
    """Return the error for a server that does not answer, with the innermost reason only."""
    inner = _CAUSED.search(str(cause))
    return UnreachableIndexError(
        f"{hide_credentials(url)} cannot be reached: {inner[1] if inner else cause}",
        tip="is the address right, and the network there? --index takes a folder too",
    )


def _links(url: str, reach: Reach) -> tuple[Link, ...] | None:
    try:
        answer = reach.get(url, accept=ACCEPT)
    except UnreachableError as cause:
        raise unreachable(url, cause) from None
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise UnreachableIndexError(
            f"{hide_credentials(url)} answers {answer.status}", tip="is it the URL of an index?"
        )
    return read_page(answer.content, answer.kind, answer.url).links


def _listed(base: str, reach: Reach) -> tuple[Link, ...]:
    """Return what the folder or page itself lists: wheels, or the folders of families."""
    root = local_path(base)
    if root is None:
        return _links(base, reach) or ()
    return tuple(
        Link(one.name, one.name, one.as_uri(), size=one.stat().st_size if one.is_file() else None)
        for one in sorted(root.iterdir())
    )


def _absent(project: str, where: str) -> HostError:
    return HostError(
        f"{hide_credentials(where)} has no project {project}", tip="is the name right, and the index?"
    )
