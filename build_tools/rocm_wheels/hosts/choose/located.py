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
from rocm_wheels.hosts.choose.host import TargetHost
from rocm_wheels.hosts.choose.pages import is_page_url, list_links, read_project_links
from rocm_wheels.index.reach import IndexReader, resolve_index_url, path_of_url
from rocm_wheels.index.reading import IndexLink, file_name_of_link
from rocm_wheels.index.views import list_families
from rocm_wheels.shell import hide_credentials

FAMILY_PLACEHOLDER = "{family}"
_JOBS = 8


@dataclass(frozen=True)
class LocatedProject:
    """The files that an index has of a project. ``family`` is that of the index, "" for one for everybody."""

    index: str
    links: tuple[IndexLink, ...]
    family: str = ""


def locate_project(index: str, project: str, host: TargetHost, reach: IndexReader) -> LocatedProject:
    """Find a project in an index. HostError when it is not there or cannot be reached."""
    if FAMILY_PLACEHOLDER in index:
        return _locate_in_families(
            [
                (index.replace(FAMILY_PLACEHOLDER, family), family)
                for family in _require_families(index, host)
            ],
            project,
            reach,
        )
    if is_page_url(index):
        if files := list_links(index, reach):
            return LocatedProject(index, files)
        raise _make_absent_error(project, index)
    base = resolve_index_url(index)
    root = path_of_url(base)
    local_families = list_families(root) if root else []
    if found_families := [
        family for family in (list_host_families(host) if local_families else ()) if family in local_families
    ]:
        return _locate_in_families(
            [(f"{base}{family}/", family) for family in found_families], project, reach
        )
    links = read_project_links(base, project, reach)
    if links is not None:
        return LocatedProject(base, links)
    files = list_links(base, reach)
    if any(file_name_of_link(link).endswith(".whl") for link in files):
        return LocatedProject(base, files)
    folder_names = {urlsplit(link.url).path.rstrip("/").rpartition("/")[2] for link in files}
    if found_families := [
        family for family in (list_host_families(host) if folder_names else ()) if family in folder_names
    ]:
        return _locate_in_families(
            [(f"{base}{family}/", family) for family in found_families], project, reach
        )
    raise _make_absent_error(project, base)


def list_host_families(host: TargetHost) -> tuple[str, ...]:
    """Return the families to look in for a machine: those of all its GPUs first, then of each."""
    from rocm_wheels.model.gfx import find_families

    chips = [gpu.gfx for gpu in host.hardware.usable if gpu.gfx]
    groups = [chips, *([chip] for chip in chips)] if chips else []
    return tuple(dict.fromkeys(family for group in groups for family in find_families(group)))


def find_family(base: str) -> str:
    """Return the family whose name is the last part of an index's address; "" when it is none."""
    last = urlsplit(base).path.rstrip("/").rpartition("/")[2]
    if not last.startswith("gfx"):
        return ""
    from rocm_wheels.model.gfx import get_gfx_families

    return last if last in get_gfx_families() else ""


def _require_families(index: str, host: TargetHost) -> Sequence[str]:
    family_list = list_host_families(host)
    if not family_list:
        chips: Sequence[Gpu] = host.hardware.usable
        reason = (
            f"{', '.join(str(gpu.gfx) for gpu in chips)} is of none" if chips else "there is no AMD GPU here"
        )
        raise HostError(
            f"{index} is for one GPU family each, and {reason}",
            tip="name an index for this machine: --index URL",
        )
    return family_list


def _locate_in_families(bases: Sequence[tuple[str, str]], project: str, reach: IndexReader) -> LocatedProject:
    """Return the first that has wheels of the project; all are asked side by side."""

    def read(pair: tuple[str, str]) -> tuple[IndexLink, ...] | None:
        try:
            return read_project_links(resolve_index_url(pair[0]), project, reach)
        except UsageError:  # a folder that is not there
            return None

    pages = parallel.run_in_parallel(read, bases, jobs=_JOBS)
    for (base, family), links in zip(bases, pages, strict=True):
        if links:
            return LocatedProject(resolve_index_url(base), links, family)
    if all(links is None for links in pages) and path_of_url(bases[0][0]) is None and "://" in bases[0][0]:
        list_links(resolve_index_url(bases[0][0]), reach)  # is it that the server refuses everything
    raise _make_absent_error(project, " or ".join(base for base, _ in bases))


def _make_absent_error(project: str, where: str) -> HostError:
    from rocm_wheels.model.compat.domains import get_domain_libraries
    from rocm_wheels.records import suggest_name

    names = ("torch", "triton", *get_domain_libraries())
    hint = "" if project in names else suggest_name(project, names)
    return HostError(
        f"{hide_credentials(where)} has no project {project}{hint}", tip="is the name right, and the index?"
    )
