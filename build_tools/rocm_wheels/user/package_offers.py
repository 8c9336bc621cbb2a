"""Offer an installer the files of each project: from one place each, one file of each version.

No version number decides between two places. The rule, in this order:

1. **The chosen index first.** What it has a usable file of comes from there and from nowhere else, as with
   ``--index-url``: PyPI's torch is a CUDA build with the same public version, and with
   ``--extra-index-url`` the higher version number wins, not the right build.
2. **What holds compiled code for GPUs never comes from anywhere else** (``is_closed_project``): what there is
   a recipe of (torch, torchvision, …), every triton, ROCm's own packages, and all of ``amd-*``. Where the
   chosen index has none that is an error, never a look at PyPI: anybody can register
   ``amd-torch-device-gfx942`` there.
   ROCm's own packages alone (``is_rocm_project``) may then come from one other index, which somebody named
   for them; rocm-bootstrap, which a split torch requires and AMD has on PyPI, has no code and is like the
   rest.
3. **The other torch projects** (torchao, torchtune, …) may come from the index of dependencies, but only
   as wheels without compiled code (``py3-none-any``): such a wheel is for every build of torch.
4. **What is left** (sympy, numpy, …) comes from the index of dependencies: PyPI, or the mirror that
   ``PIP_INDEX_URL``, ``UV_DEFAULT_INDEX`` or ``--dependency-index`` name. What is installed already and
   fits stays. A wheel from there with compiled code that requires torch is refused
   (``explain_refusal``): it was compiled against PyPI's torch.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, parallel
from rocm_wheels.index import reader
from rocm_wheels.models.project import is_closed_project
from rocm_wheels.user import candidates, index_pages, installed_packages
from rocm_wheels.variants import document
from rocm_wheels.wheels import dist_info

PYPI_URL = "https://pypi.org/simple/"
_ROCM_PROJECT = re.compile(r"rocm|rocm-.+")
_OTHER_PROJECTS = ("torchcodec",)
_FEWEST_LETTERS = 5  # a shorter name has too many neighbours that are meant
_TORCH_PROJECT = re.compile(r"torch.+|tensordict")
_NOT_REQUIRED = re.compile(r"\bextra\b")


def is_rocm_project(project: str) -> bool:
    """Tell whether a project (normalized name) is one of ROCm's own packages."""
    return _ROCM_PROJECT.fullmatch(project) is not None


def requires_pure_wheel(project: str) -> bool:
    """Tell whether wheels of a project with compiled code may come from the chosen index alone."""
    return _TORCH_PROJECT.fullmatch(project) is not None


def is_pure_wheel(file_name: str) -> bool:
    """Tell whether a wheel has no compiled code, by its name."""
    return file_name.endswith("-none-any.whl")


def explain_refusal(file_name: str, requires: Sequence[str]) -> str | None:
    """Say why a file of the index of dependencies is refused, None when it is not."""
    if is_pure_wheel(file_name):
        return None
    for text in requires:
        if _NOT_REQUIRED.search(text.partition(";")[2]):
            continue
        name = canonicalize_name(Requirement(text).name)
        if is_closed_project(name):
            return f"it has compiled code and requires {name}: it was built for another build of {name}"
    return None


def find_dependency_index(option: str | None, env: Mapping[str, str]) -> str:
    """Return the URL of the index of dependencies. UsageError names the option or variable that has none."""
    variables = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    for name, url in (("--dependency-index", option), *((name, env.get(name)) for name in variables)):
        if url:
            try:
                return reader.resolve_index_url(url)
            except errors.UsageError as error:
                raise errors.UsageError(f"{name}: {error.message}", tip=error.tip) from None
    return PYPI_URL


def find_intended_project(project: str) -> str | None:
    """Return which project of torch's a name is a slip of; None for a name that is none.

    Strangers register such names on PyPI: a letter too few or twice, two letters changed about, a hyphen.
    """
    from rocm_wheels.models import libraries
    from rocm_wheels.models.project import list_projects

    built = [built.normalized_name for built in list_projects()]
    projects = (*built, *_OTHER_PROJECTS, *libraries.get_domain_libraries())
    if project in projects:
        return None
    slips = (
        candidate
        for candidate in projects
        if len(candidate) >= _FEWEST_LETTERS
        for slip in _generate_typos(candidate)
        if slip == project.replace("-", "")
    )
    return next(slips, "torch" if project == "pytorch" else None)


def _generate_typos(name: str) -> Iterator[str]:
    yield name
    for at in range(len(name)):
        yield name[:at] + name[at + 1 :]
        yield name[: at + 1] + name[at:]
        yield name[:at] + name[at : at + 2][::-1] + name[at + 2 :]


_JOBS = 8


@dataclass(frozen=True)
class PackageOffer:
    """One file of one version: ``installer_name`` is its name for installers, which know no variant labels.

    ``source`` is ``index``, ``dependencies`` or ``installed`` (it is there already, and fits).
    ``properties`` are those that a variant was chosen by, None of a wheel that was not.
    """

    project: str
    version: Version
    installer_name: str
    name: str
    url: str
    source: str
    sha256: str | None = None
    size: int | None = None
    label: str | None = None
    requires_python: str = ""
    yanked: str | None = None
    metadata: str | None = None
    properties: document.Properties | None = field(default=None, hash=False)

    @property
    def is_sdist(self) -> bool:
        """Tell whether it has to be built first."""
        return not self.installer_name.endswith(".whl")


@dataclass(frozen=True)
class OfferSources:
    """Where offers come from.

    ``torch`` is the wheel that was chosen, None where torch is not part of it. ``choose`` returns the best
    file of a version of a project that has variants, None when this machine can use none.
    ``stable_projects`` are the projects of which pre-releases are left out, where there are releases.
    ``rocm`` is an index that ROCm's own packages come from where ``index`` has none.
    """

    index: str
    dependencies: str
    tags: Sequence[Tag]
    installed: Mapping[str, installed_packages.InstalledDistribution]
    choose: Callable[[str, Version], candidates.ChoiceCandidate | None]
    torch: candidates.ChoiceCandidate | None = None
    stable_projects: frozenset[str] = frozenset()
    rocm: str | None = None


class PackageOffers:
    """Looks each project up once. ``faults`` are indexes that could not be read, as (project, what);
    ``left_out`` the projects of which files with compiled code are not offered."""

    def __init__(self, sources: OfferSources, reach: reader.IndexReader) -> None:
        self._sources = sources
        self.reach = reach
        self._offers: dict[str, tuple[PackageOffer, ...]] = {}
        self._texts: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._busy: dict[
            str, threading.Lock
        ] = {}  # by project, or the URL of a wheel: each is asked for once
        self._ranks = {tag: number for number, tag in reversed(list(enumerate(sources.tags)))}
        self._flat: dict[str, tuple[reader.IndexLink, ...]] = {}
        self._failed: dict[str, reader.UnreachableError] = {}
        self.faults: list[tuple[str, Exception]] = []
        self.left_out: list[str] = []

    def list_offers(self, project: str) -> tuple[PackageOffer, ...]:
        """Return what is offered of a project, () when nothing is; HostError when an index fails."""
        with self._get_lock(project):
            if project in self._failed:  # resolvers ask again and again; the network was asked often enough
                raise self._failed[project]
            if project not in self._offers:
                try:
                    self._offers[project] = self._collect_offers(project)
                except reader.UnreachableError as cause:
                    self.faults.append((project, cause))
                    self._failed[project] = cause
                    raise
            return self._offers[project]

    def list_preferred(self) -> list[tuple[str, str]]:
        """Return the versions that are installed of what may come from the index of dependencies."""
        present = self._sources.installed
        return [
            (name, distribution.version)
            for name, distribution in present.items()
            if self._make_installed_offer(name) and _is_open_project(name)
        ]

    def list_missing_projects(self) -> list[str]:
        """Return the projects that were looked up in vain."""
        return [name for name, offers in list(self._offers.items()) if not offers]

    def find_version(self, project: str, version: str) -> PackageOffer | None:
        """Return the offer of a version."""
        parsed = Version(version)
        return next((offer for offer in self.list_offers(project) if offer.version == parsed), None)

    def find_by_installer_name(self, project: str, installer_name: str) -> PackageOffer | None:
        """Return the offer that is shown under a name."""
        return next(
            (offer for offer in self.list_offers(project) if offer.installer_name == installer_name), None
        )

    def read_metadata(self, offer: PackageOffer) -> bytes:
        """Return METADATA of a wheel: from the page's own file, by ranges, or from the whole wheel."""
        with self._get_lock(offer.url):
            if offer.url not in self._texts:
                content = self._load_metadata(offer)
                if b"variant_" in content:  # in a marker it is refused here: uv would only call it invalid
                    dist_info.parse_metadata(content, name=f"METADATA of {offer.name}")
                self._texts[offer.url] = content
            return self._texts[offer.url]

    def list_requirements(self, offer: PackageOffer) -> tuple[str, ...]:
        """Return what a wheel requires; () of a source distribution, which says it when it is built."""
        if offer.is_sdist:
            return ()
        return dist_info.parse_metadata(self.read_metadata(offer), name=offer.name).requires_dist

    def list_extras(self, offer: PackageOffer) -> tuple[str, ...]:
        """Return the extras that a wheel has, by normalized name."""
        extras = dist_info.parse_metadata(self.read_metadata(offer), name=offer.name).provides_extra
        return tuple(canonicalize_name(extra) for extra in extras)

    def read_content(self, offer: PackageOffer) -> bytes:
        """Return a whole (small) file."""
        answer = self.reach.get(offer.url)
        if answer.status != 200:
            raise reader.make_status_error(offer.url, answer.status)
        return answer.content

    def _load_metadata(self, offer: PackageOffer) -> bytes:
        if offer.source == "installed":
            return (self._sources.installed[offer.project].info / "METADATA").read_bytes()
        link = reader.IndexLink(offer.name, offer.name, offer.url, metadata=offer.metadata, size=offer.size)
        return index_pages.read_wheel_metadata(link, self.reach)

    def _get_lock(self, key: str) -> threading.Lock:
        with self._lock:
            return self._busy.setdefault(key, threading.Lock())

    def _collect_offers(self, project: str) -> tuple[PackageOffer, ...]:
        offers = self._list_page_offers(self._sources.index, project, "index")
        torch = self._sources.torch
        if torch is not None and project == "torch":
            picked = _make_candidate_offer(project, torch)
            offers = (picked, *(offer for offer in offers if offer.version != picked.version))
        if torch is not None and is_closed_project(project):
            offers = select_same_build(offers, Version(torch.version))
        if not offers and self._sources.rocm is not None and is_rocm_project(project):
            offers = self._list_page_offers(self._sources.rocm, project, "index")
        if offers or is_closed_project(project):
            return offers
        dependency_offers = self._list_page_offers(self._sources.dependencies, project, "dependencies")
        present = None if requires_pure_wheel(project) else self._make_installed_offer(project)
        return (
            *(offer for offer in dependency_offers if present is None or offer.version != present.version),
            *_wrap_optional(present),
        )

    def _list_page_offers(self, index: str, project: str, source: str) -> tuple[PackageOffer, ...]:
        links = index_pages.read_project_links(index, project, self.reach)
        if links is None and source == "index":
            with self._get_lock(index):
                if index not in self._flat:  # an index need not have a page a project
                    self._flat[index] = index_pages.list_links(index, self.reach)
                links = self._flat[index]
        offers = [offer for link in links or () if (offer := _make_link_offer(project, link, source))]
        if source == "dependencies" and requires_pure_wheel(project):
            pure = [item for item in offers if is_pure_wheel(item.installer_name)]
            if len(pure) < len(offers):
                self.left_out.append(project)
            offers = pure
        if source == "dependencies":  # no installer but ours knows labels, and ours chooses from one index
            offers = [item for item in offers if item.label is None]
        finals = [item for item in offers if not item.version.is_prerelease]
        if finals and (project in self._sources.stable_projects or not is_closed_project(project)):
            offers = finals
        varied = {item.version for item in offers if item.label is not None}
        kept_offers = self._select_best(item for item in offers if item.version not in varied)
        best = parallel.run_in_parallel(
            lambda item: self._sources.choose(project, item), sorted(varied), jobs=_JOBS
        )
        return (*kept_offers, *(_make_candidate_offer(project, item) for item in best if item is not None))

    def _select_best(self, offers: Iterable[PackageOffer]) -> list[PackageOffer]:
        """Keep one file of each version that this Python can use: the best wheel, else the sources."""
        best: dict[Version, tuple[tuple[object, ...], PackageOffer]] = {}
        for offer in offers:
            rank: tuple[object, ...] = (float("inf"),)
            if not offer.is_sdist:
                name = dist_info.parse_wheel_name(offer.installer_name)
                ranks = [self._ranks[tag] for tag in name.tags if tag in self._ranks]
                if not ranks:
                    continue
                rank = (offer.yanked is not None, min(ranks), candidates.rank_build_tag(name))
            if offer.version not in best or rank < best[offer.version][0]:
                best[offer.version] = (rank, offer)
        best_offers = [offer for _, offer in best.values()]
        wheels = [offer for offer in best_offers if not offer.is_sdist]
        return (
            best_offers
            if not wheels or (best_offers and is_closed_project(best_offers[0].project))
            else wheels
        )

    def _make_installed_offer(self, project: str) -> PackageOffer | None:
        distribution = self._sources.installed.get(project)
        if distribution is None or distribution.editable or not (distribution.info / "METADATA").is_file():
            return None
        try:
            version = Version(distribution.version)
        except InvalidVersion:
            return None
        wheel_name = f"{project.replace('-', '_')}-{version}-py3-none-any.whl"
        return PackageOffer(
            project, version, wheel_name, wheel_name, distribution.info.as_uri(), "installed", metadata=""
        )


def select_same_build(offers: Sequence[PackageOffer], torch: Version) -> tuple[PackageOffer, ...]:
    """Leave out builds that are for another torch, by the local part of their versions.

    Of one public version those with torch's own local part (``+rocm7.2``) come before all others; ``+cu128``
    is never beside ``+rocm7.2``. Where torch says nothing, builds that say nothing come first.
    """
    kind = candidates.get_build_kind(torch)
    same_versions = {offer.version.public for offer in offers if offer.version.local == torch.local}

    def is_compatible(offer: PackageOffer) -> bool:
        if offer.version.local == torch.local:
            return True
        has_better = offer.project != "torch" and offer.version.public in same_versions
        return not has_better and (not kind or candidates.get_build_kind(offer.version) in ("", kind))

    return tuple(offer for offer in offers if is_compatible(offer))


def _is_open_project(project: str) -> bool:
    return not is_closed_project(project) and not requires_pure_wheel(project)


def _wrap_optional(offer: PackageOffer | None) -> tuple[PackageOffer, ...]:
    return () if offer is None else (offer,)


def _make_candidate_offer(project: str, candidate: candidates.ChoiceCandidate) -> PackageOffer:
    fields = dist_info.split_wheel_name(candidate.name)
    return PackageOffer(
        project, Version(candidate.version), replace(fields, label="").file_name,
        candidate.name, candidate.url, "index",
        candidate.sha256, candidate.size, candidate.label, candidate.requires_python, candidate.yanked,
        properties=candidate.properties if candidate.label else None,
        metadata=candidate.metadata,
    )  # fmt: skip


def _make_link_offer(project: str, link: reader.IndexLink, source: str) -> PackageOffer | None:
    """Return what a link of a page offers; None for what no installer takes: other files, other names."""
    name, label = reader.file_name_of_link(link), None
    try:
        if name.endswith(".whl"):
            parsed = dist_info.parse_wheel_name(name)
            named_project, version = parsed.name, parsed.version
            label = parsed.label
        elif name.endswith(".tar.gz"):
            named_project, version = parse_sdist_filename(name)
        else:
            return None
    except (errors.DataError, InvalidSdistFilename, InvalidVersion):
        return None
    if canonicalize_name(named_project) != project:
        return None
    return PackageOffer(
        project, version, name, name, link.url, source, reader.require_link_digest(link), link.size, label,
        link.requires_python, link.yanked, link.metadata,
    )  # fmt: skip
