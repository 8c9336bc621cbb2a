"""Indexes of wheels: the known ones, and their pages of files.

Three kinds of index are read: one page a project (PEP 503, PEP 691), an index for each GPU family
(``https://…/{family}/``, or folders of families below one), and a folder or page (``…/links.html``) that
just lists wheels.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from urllib.parse import urlsplit

from packaging.version import Version

from rocm_wheels.core import errors, parallel, shell
from rocm_wheels.gpus import variables
from rocm_wheels.gpus.gpu import OLDER_TARGETS, Gpu
from rocm_wheels.index import folder, reader
from rocm_wheels.models import gfx, package_indexes
from rocm_wheels.user import install_options
from rocm_wheels.user.host import TargetHost, find_pose

_GONE_STATUSES = (404, 410)
_ABSENT_STATUSES = (403, *_GONE_STATUSES)  # S3, and so download.pytorch.org, says 403 of what is not there


def is_page_url(index: str) -> bool:
    """Tell whether this is the URL of one page that lists wheels (``…/links.html``)."""
    try:
        parts = urlsplit(index)
    except ValueError:  # no URL: who opens the index says so
        return False
    return parts.scheme in ("http", "https", "file") and parts.path.endswith((".html", ".htm"))


def read_project_links(
    base: str, project: str, reach: reader.IndexReader
) -> tuple[reader.IndexLink, ...] | None:
    """Return the files on a project's page; None when the index has no such page."""
    return None if is_page_url(base) else _read_links(base, f"{base}{project}/", reach, project=project)


def list_links(base: str, reach: reader.IndexReader) -> tuple[reader.IndexLink, ...]:
    """Return what a page or folder itself lists: wheels, or the folders of families; () when it is not there.

    An index that refuses this as well refuses everything: UnreachableError.
    """
    root = reader.path_of_url(base)
    if root is None or root.is_file() or reach.page_check is not None:  # what just lies there is not signed
        return _read_links(base, base, reach, absent=_GONE_STATUSES) or ()
    return tuple(
        reader.IndexLink(
            path.name, path.name, path.as_uri(), size=path.stat().st_size if path.is_file() else None
        )
        for path in (sorted(root.iterdir()) if root.is_dir() else ())
    )


def read_wheel_metadata(link: reader.IndexLink, reach: reader.IndexReader) -> bytes:
    """Return METADATA of a wheel: the file beside it (PEP 658) where there is one, else out of the wheel.

    UnreachableError when it cannot be had, DataError when it is not what the page says.
    """
    name = reader.file_name_of_link(link)
    if link.metadata is not None:
        answer = reach.get(link.url + folder.METADATA_SUFFIX)
        if answer.status == 200:
            require_stated_digest(f"{name}{folder.METADATA_SUFFIX}", answer.content, link.metadata)
            return answer.content
    return reach.fetch_metadata_and_variant(link.url, name, link.size, variant=False)[0]


def require_stated_digest(name: str, content: bytes, stated: str | None) -> None:
    """Raise DataError for a file whose sha256 (hex) is not the one that its page states, if it states any."""
    if stated and sha256(content).hexdigest() != stated.lower():
        raise errors.DataError(
            f"{name} is not what its page says (sha256 {stated})",
            tip="it was being changed, or is damaged: try again, or `rocm-wheels index verify`",
        )


def _read_links(
    base: str,
    url: str,
    reach: reader.IndexReader,
    *,
    project: str = "",
    absent: tuple[int, ...] = _ABSENT_STATUSES,
) -> tuple[reader.IndexLink, ...] | None:
    links = reach.read_page(base, url, project=project, absent=absent)
    if links is None or reader.path_of_url(url) is not None:
        return links
    # a server has no say about the files of this machine
    return tuple(link for link in links if urlsplit(link.url).scheme in ("http", "https"))


FAMILY_PLACEHOLDER = package_indexes.FAMILY_PLACEHOLDER
_JOBS = 8


@dataclass(frozen=True)
class LocatedProject:
    """The files that an index has of a project. ``family`` is that of the index, "" for one for everybody."""

    index: str
    links: tuple[reader.IndexLink, ...]
    family: str = ""


def locate_project(index: str, project: str, host: TargetHost, reach: reader.IndexReader) -> LocatedProject:
    """Find a project in an index. HostError when it is not there or cannot be reached."""
    # the families to look in: those of all GPUs first, then of each
    chips, new_chips = host.hardware.targets, _list_new_chips(host)
    groups = [chips, *((chip,) for chip in chips)]
    known = dict.fromkeys(family for group in groups for family in gfx.find_families(group))

    def select_families(names: Collection[str]) -> list[str]:
        """Return of the families that an index has those to look in, also for GPUs that the tables lack."""
        named = [name for chip in new_chips for name in sorted(names) if is_named_by_family(name, chip)]
        return [*(family for family in known if family in names), *named]

    def list_folder_names(links: Sequence[reader.IndexLink] | None) -> set[str]:
        return {urlsplit(link.url).path.rstrip("/").rpartition("/")[2] for link in links or ()}

    if FAMILY_PLACEHOLDER in index:
        families = dict(known)
        if new_chips:
            above = reader.resolve_index_url(index.partition(FAMILY_PLACEHOLDER)[0])
            is_folder = reader.path_of_url(above) is not None
            # not every server lists the folder above those of families
            listed = list_links(above, reach) if is_folder else _read_links(above, above, reach)
            families |= dict.fromkeys([*select_families(list_folder_names(listed)), *new_chips])
        if not families:
            raise errors.HostError(
                f"{index} is for one GPU family each, and there is no AMD GPU here",
                tip="name an index for this machine: --index URL",
            )
        return _locate_in_families(index, list(families), project, reach)
    if is_page_url(index):
        if files := list_links(index, reach):
            return LocatedProject(index, files)
        raise _make_absent_error(project, index)
    base = reader.resolve_index_url(index)
    of_family = f"{base}{FAMILY_PLACEHOLDER}/"
    root = reader.path_of_url(base)
    if matching := select_families(folder.list_families(root) if root else ()):
        return _locate_in_families(of_family, matching, project, reach)
    last = urlsplit(base).path.rstrip("/").rpartition("/")[2]
    family = last if last.startswith("gfx") and list_family_targets(last, host) else ""
    links = read_project_links(base, project, reach)
    if links is not None:
        return LocatedProject(base, links, family)
    files = list_links(base, reach)
    if any(reader.file_name_of_link(link).endswith(".whl") for link in files):
        return LocatedProject(base, files, family)
    if matching := select_families(list_folder_names(files)):
        return _locate_in_families(of_family, matching, project, reach)
    raise _make_absent_error(project, base)


def _list_new_chips(host: TargetHost) -> list[str]:
    """Return the targets of a machine that are of no family in the tables."""
    return [chip for chip in host.hardware.targets if not gfx.find_families([chip])]


def list_family_targets(family: str, host: TargetHost) -> tuple[str, ...]:
    """Return the targets of a family: by the tables, else those of a machine that its name stands for."""
    return gfx.get_gfx_families().get(family) or tuple(
        chip for chip in _list_new_chips(host) if is_named_by_family(family, chip)
    )


def is_named_by_family(family: str, chip: str) -> bool:
    """Tell whether a family's name stands for a chip: ``gfx1399``, or ``gfx139X-all`` with any last digit."""
    digits = family.lower().partition("-")[0]
    return len(digits) == len(chip) and all(
        digit in ("x", chip_digit) for digit, chip_digit in zip(digits, chip, strict=True)
    )


def _locate_in_families(
    index: str, families: Sequence[str], project: str, reach: reader.IndexReader
) -> LocatedProject:
    """Return the first family that has wheels of the project; all are asked side by side."""
    bases = [index.replace(FAMILY_PLACEHOLDER, family) for family in families]

    def read(base: str) -> tuple[reader.IndexLink, ...] | None:
        try:
            return read_project_links(reader.resolve_index_url(base), project, reach)
        except errors.UsageError:  # a folder that is not there
            return None

    pages = parallel.run_in_parallel(read, bases, jobs=_JOBS)
    for base, family, links in zip(bases, families, pages, strict=True):
        if links:
            return LocatedProject(reader.resolve_index_url(base), links, family)
    if all(links is None for links in pages) and urlsplit(bases[0]).scheme in ("http", "https"):
        list_links(reader.resolve_index_url(bases[0]), reach)  # is it that the server refuses everything
    raise _make_absent_error(project, " or ".join(bases))


def _make_absent_error(project: str, where: str) -> errors.HostError:
    from rocm_wheels.core import tables
    from rocm_wheels.models import libraries
    from rocm_wheels.models.project import list_projects

    names = (*(built.normalized_name for built in list_projects()), *libraries.get_domain_libraries())
    hint = "" if project in names else tables.suggest_name(project, names)
    return errors.HostError(
        f"{shell.hide_credentials(where)} has no project {project}{hint}",
        tip="is the name right, and the index?",
    )


@dataclass(frozen=True)
class IndexRound:
    """The known indexes to ask for one GPU of a machine, best first; ``gpu`` is None for its CPU.

    ``host`` is the machine, of which a GPU may pass for another. ``is_listed``: an index serves the GPU by
    the tables, for this Python. ``notes`` are on the GPUs that came before.
    """

    host: TargetHost
    gpu: Gpu | None
    indexes: tuple[package_indexes.PackageIndex, ...]
    is_listed: bool
    notes: tuple[str, ...]


def list_rounds(host: TargetHost, channel: str) -> Iterator[IndexRound]:
    """Yield what to ask for a machine: for each GPU, the best first, at last for the CPU.

    The best GPU that an index has code for counts: as what it is, else as one whose kernels it runs.
    """
    posed = _pose_host(host, channel)
    for asked_host in [host] if posed is host else [host, posed]:
        missed: list[Gpu] = []
        for gpu in asked_host.usable_gpus:
            notes = (_describe_missed(missed, host, channel),) if missed else ()
            is_listed = bool(query_indexes(gpu, asked_host, channel))
            yield IndexRound(asked_host, gpu, _list_asked(gpu, asked_host, channel), is_listed, notes)
            missed.append(gpu)
    missed = list(host.usable_gpus)
    reasons = [f"{_describe_missed(missed, host, channel)}: for the CPU"] if missed else []
    for target in dict.fromkeys(gpu.gfx for gpu in missed if gpu.vendor == "amd" and gpu.gfx):
        ways = install_options.describe_host_options(target, host)
        ways = ways or list(install_options.explain_no_torch(target)[:1])
        reasons += [f"kernels for {target}: {way}" for way in ways]
    if host.platform == "windows" and "rocm" in host.build_kinds:
        reasons.append(install_options.DIRECTML_NOTE)
    yield IndexRound(host, None, query_indexes(None, host, channel), True, tuple(reasons))


def make_unknown_error(host: TargetHost, channel: str) -> errors.HostError:
    """Return the error for a machine that no index is known for, of a GPU or its CPU."""
    return errors.HostError(
        f"no {channel} index is known for Python {host.python} on {host.platform} {host.machine}",
        tip="name one: --index URL",
    )


def _pose_host(host: TargetHost, channel: str) -> TargetHost:
    """Return a machine whose best GPU, which no index serves, passes for one whose kernels it runs.

    Only where no GPU is served as what it is, on Linux, and by an override that nothing is known against.
    """
    gpus = host.usable_gpus
    if (
        host.platform != "linux"
        or any(query_indexes(gpu, host, channel) for gpu in gpus)
        or len({gpu.gfx for gpu in gpus if gpu.vendor == "amd"}) != 1
    ):
        return host
    best = next(gpu for gpu in gpus if gpu.vendor == "amd")

    def is_served(option: gfx.TargetOverride) -> bool:
        posing = replace(best, gfx=option.target)
        return not option.risky and not option.care and bool(query_indexes(posing, host, channel))

    posed = find_pose([best.gfx], is_served)
    if posed is None:
        return host
    posing_gpus = tuple(
        replace(gpu, gfx=posed.option.target, native=posed.native) if gpu.gfx == posed.native else gpu
        for gpu in gpus
    )
    hardware = replace(host.hardware, gpus=posing_gpus)
    supported = {**host.supported, "amd": variables.list_supported_features(hardware)}
    return replace(host, hardware=hardware, supported=supported, posed=posed)


@dataclass(frozen=True)
class RecommendedTorch:
    """The kind of torch for a machine (``rocm``, ``cu128``, ``xpu``, ``mps``, ``cpu``), and the reasons."""

    kind: str
    index: package_indexes.PackageIndex
    reasons: tuple[str, ...]


def recommend_torch(host: TargetHost, channel: str = "stable") -> RecommendedTorch:
    """Return what the tables recommend for a machine; no index is asked. HostError where nothing is known."""
    for asked in list_rounds(host, channel):
        if indexes := query_indexes(asked.gpu, asked.host, channel):
            best = indexes[0]
            kinds = {"amd": "rocm", "intel": "xpu", "none": "mps" if host.platform == "macos" else "cpu"}
            kind = kinds.get(best.vendor) or best.url.rstrip("/").rpartition("/")[2]
            posed = str(asked.host.posed or "")
            return RecommendedTorch(kind, best, (*filter(None, [best.reason, posed]), *asked.notes))
    raise make_unknown_error(host, channel)


def _list_asked(gpu: Gpu, host: TargetHost, channel: str) -> tuple[package_indexes.PackageIndex, ...]:
    """Return the indexes to ask for a GPU, best first.

    Tables are older than indexes: AMD's that say themselves what they have code for are asked in any case,
    and the Pythons of the table do not count, as names of files tell theirs. Not asked are any for an old
    chip of which no table tells, and those of families for a GPU whose family is known and not there.
    """
    indexes = query_indexes(gpu, host, channel, any_python=True)
    if gpu.vendor != "amd" or gpu.gfx is None or (gpu.gfx in OLDER_TARGETS and not indexes):
        return indexes
    listed = {index.name: index for index in indexes}
    layouts = {"multi-arch", "variants"} | ({"per-family"} if not gfx.find_families([gpu.gfx]) else set())
    every = query_indexes(replace(gpu, gfx=None), host, channel, any_python=True)
    asked = [index for index in every if index.name in listed or index.layout in layouts]
    return tuple(listed.get(index.name, index) for index in asked)


def _describe_missed(gpus: Sequence[Gpu], host: TargetHost, channel: str) -> str:
    """Say that no index serves GPUs."""
    names = dict[str, None]()
    for gpu in gpus:
        name = gpu.gfx or gpu.name or gpu.vendor
        driver = host.hardware.cuda if gpu.vendor == "nvidia" else None
        names[f"{name} (whose driver has CUDA {driver})" if driver else name] = None
    serves = f"serves {' and '.join(names)} with Python {host.python}"
    return f"no {channel} index that is known here {serves}"


def query_indexes(
    gpu: Gpu | None, host: TargetHost, channel: str, *, any_python: bool = False
) -> tuple[package_indexes.PackageIndex, ...]:
    """Return the indexes that serve a GPU by the tables; None: that have wheels for the CPU.

    CUDA is no newer than NVIDIA's driver: a driver serves all minor versions of its own.
    """
    indexes = package_indexes.find_indexes(
        None if gpu is None else gpu.gfx if gpu.vendor == "amd" else gpu.capability,
        vendor=gpu.vendor if gpu else "none",
        platform=host.platform,
        channel=channel,
        python=None if any_python else host.python,
        machine=host.machine,
    )
    if gpu is None or gpu.vendor != "nvidia" or host.hardware.cuda is None:
        return indexes
    newest = Version(host.hardware.cuda).major
    majors = [re.search(r"/cu(\d+)\d/?$", index.url) for index in indexes]
    return tuple(
        index for index, major in zip(indexes, majors, strict=True) if not major or int(major[1]) <= newest
    )
