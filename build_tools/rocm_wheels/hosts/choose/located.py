"""Where an index has the wheels of a project: its page, the page of a GPU family, or a folder of files.

Three kinds of index are read: one page a project (PEP 503, PEP 691), an index for each GPU family
(``https://…/{family}/``, or folders of families below one), and a folder or page (``…/links.html``) that just
lists wheels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from rocm_wheels import parallel
from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.hosts.choose.pages import is_page, listed, project_links
from rocm_wheels.index.reach import Reach, base_url, local_path
from rocm_wheels.index.reading import Link, file_name
from rocm_wheels.index.views import families
from rocm_wheels.shell import hide_credentials

FAMILY = "{family}"
_JOBS = 8


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
        if files := listed(index, reach):
            return Located(index, files)
        raise _absent(project, index)
    base = base_url(index)
    root = local_path(base)
    here = families(root) if root else []
    if below := [one for one in (family_names(host) if here else ()) if one in here]:
        return _of_a_family([(f"{base}{one}/", one) for one in below], project, reach)
    links = project_links(base, project, reach)
    if links is not None:
        return Located(base, links)
    files = listed(base, reach)
    if any(file_name(link).endswith(".whl") for link in files):
        return Located(base, files)
    there = {urlsplit(link.url).path.rstrip("/").rpartition("/")[2] for link in files}
    if below := [one for one in (family_names(host) if there else ()) if one in there]:
        return _of_a_family([(f"{base}{one}/", one) for one in below], project, reach)
    raise _absent(project, base)


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
            return project_links(base_url(one[0]), project, reach)
        except UsageError:  # a folder that is not there
            return None

    pages = parallel.each(read, bases, jobs=_JOBS)
    for (base, family), links in zip(bases, pages, strict=True):
        if links:
            return Located(base_url(base), links, family)
    if all(links is None for links in pages) and local_path(bases[0][0]) is None and "://" in bases[0][0]:
        listed(base_url(bases[0][0]), reach)  # is it that the server refuses everything
    raise _absent(project, " or ".join(base for base, _ in bases))


def _absent(project: str, where: str) -> HostError:
    from rocm_wheels.model.compat.domains import domain_libraries
    from rocm_wheels.records import did_you_mean

    names = ("torch", "triton", *domain_libraries())
    hint = "" if project in names else did_you_mean(project, names)
    return HostError(
        f"{hide_credentials(where)} has no project {project}{hint}", tip="is the name right, and the index?"
    )
