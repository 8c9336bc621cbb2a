"""What an installer is offered of each project: from one place each (``rule``), one file of each version."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packaging.tags import Tag
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from rocm_wheels import parallel
from rocm_wheels.errors import DataError
from rocm_wheels.hosts.choose.candidate import Candidate
from rocm_wheels.hosts.choose.pages import UnreachableIndexError, listed, metadata_of, project_links
from rocm_wheels.hosts.choose.sift import build_rank, kind_of
from rocm_wheels.hosts.install.rule import is_closed, is_pure, is_rocm, only_pure
from rocm_wheels.hosts.installed.distributions import Distribution
from rocm_wheels.index.reach import Reach, UnreachableError
from rocm_wheels.index.reading import Link, file_name, stated_digest
from rocm_wheels.variants.document import Properties
from rocm_wheels.wheels.metadata import parse_metadata
from rocm_wheels.wheels.names import parse_wheel_name, split_wheel_name

_JOBS = 8


@dataclass(frozen=True)
class Offer:
    """One file of one version: ``shown`` is its name for installers, which know no variant labels.

    ``source`` is ``index``, ``dependencies`` or ``installed`` (it is there already, and fits).
    ``properties`` are those that a variant was chosen by, None of a wheel that was not.
    """

    project: str
    version: Version
    shown: str
    name: str
    url: str
    source: str
    sha256: str | None = None
    size: int | None = None
    label: str | None = None
    requires_python: str = ""
    yanked: str | None = None
    metadata: str | None = None
    properties: Properties | None = field(default=None, hash=False)

    @property
    def is_sdist(self) -> bool:
        """Tell whether it has to be built first."""
        return not self.shown.endswith(".whl")


@dataclass(frozen=True)
class Places:
    """Where offers come from.

    ``torch`` is the wheel that was chosen, None where torch is not part of it. ``choose`` returns the best
    file of a version of a project that has variants, None when this machine can use none. ``steady`` are the
    projects of which pre-releases are left out, where there are releases. ``rocm`` is an index that ROCm's
    own packages come from where ``index`` has none.
    """

    index: str
    dependencies: str
    tags: Sequence[Tag]
    installed: Mapping[str, Distribution]
    choose: Callable[[str, Version], Candidate | None]
    torch: Candidate | None = None
    steady: frozenset[str] = frozenset()
    rocm: str | None = None


class Offers:
    """Looks each project up once. ``faults`` are indexes that could not be read, as (project, what);
    ``left_out`` the projects of which files with compiled code are not offered."""

    def __init__(self, places: Places, reach: Reach) -> None:
        self._places = places
        self._reach = reach
        self._known: dict[str, tuple[Offer, ...]] = {}
        self._texts: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._busy: dict[
            str, threading.Lock
        ] = {}  # by project, or the URL of a wheel: each is asked for once
        self._ranks = {tag: number for number, tag in reversed(list(enumerate(places.tags)))}
        self._flat: dict[str, tuple[Link, ...]] = {}
        self._failed: dict[str, UnreachableIndexError] = {}
        self.faults: list[tuple[str, str]] = []
        self.left_out: list[str] = []

    def of(self, project: str) -> tuple[Offer, ...]:
        """Return what is offered of a project, () when nothing is; HostError when an index fails."""
        with self._alone(project):
            if project in self._failed:  # resolvers ask again and again; the network was asked often enough
                raise self._failed[project]
            if project not in self._known:
                try:
                    self._known[project] = self._look(project)
                except UnreachableIndexError as cause:
                    self.faults.append((project, str(cause)))
                    self._failed[project] = cause
                    raise
            return self._known[project]

    def preferred(self) -> list[tuple[str, str]]:
        """Return the versions that are installed of what may come from the index of dependencies."""
        there = self._places.installed
        return [
            (name, one.version) for name, one in there.items() if self._installed(name) and _is_open(name)
        ]

    def not_offered(self) -> list[str]:
        """Return the projects that were looked up in vain."""
        return [name for name, found in list(self._known.items()) if not found]

    def find(self, project: str, version: str) -> Offer | None:
        """Return the offer of a version."""
        wanted = Version(version)
        return next((one for one in self.of(project) if one.version == wanted), None)

    def named(self, project: str, shown: str) -> Offer | None:
        """Return the offer that is shown under a name."""
        return next((one for one in self.of(project) if one.shown == shown), None)

    def metadata(self, offer: Offer) -> bytes:
        """Return METADATA of a wheel: from the page's own file, by ranges, or from the whole wheel."""
        with self._alone(offer.url):
            if offer.url not in self._texts:
                self._texts[offer.url] = self._read(offer)
            return self._texts[offer.url]

    def requires(self, offer: Offer) -> tuple[str, ...]:
        """Return what a wheel requires; () of a source distribution, which says it when it is built."""
        if offer.is_sdist:
            return ()
        return parse_metadata(self.metadata(offer), name=offer.name).requires_dist

    def extras(self, offer: Offer) -> tuple[str, ...]:
        """Return the extras that a wheel has, by normalized name."""
        said = parse_metadata(self.metadata(offer), name=offer.name).provides_extra
        return tuple(canonicalize_name(one) for one in said)

    def content(self, offer: Offer) -> bytes:
        """Return a whole (small) file."""
        answer = self._reach.get(offer.url)
        if answer.status != 200:
            raise UnreachableError(f"{offer.url} answers {answer.status}")
        return answer.content

    def _read(self, offer: Offer) -> bytes:
        if offer.source == "installed":
            return (self._places.installed[offer.project].info / "METADATA").read_bytes()
        link = Link(offer.name, offer.name, offer.url, metadata=offer.metadata, size=offer.size)
        return metadata_of(link, self._reach)

    def _alone(self, key: str) -> threading.Lock:
        with self._lock:
            return self._busy.setdefault(key, threading.Lock())

    def _look(self, project: str) -> tuple[Offer, ...]:
        found = self._page(self._places.index, project, "index")
        torch = self._places.torch
        if torch is not None and project == "torch":
            picked = _of_candidate(project, torch)
            found = (picked, *(one for one in found if one.version != picked.version))
        if torch is not None and is_closed(project):
            found = same_build(found, Version(torch.version))
        if not found and self._places.rocm is not None and is_rocm(project):
            return self._page(self._places.rocm, project, "index")
        if found or is_closed(project):
            return found
        rest = self._page(self._places.dependencies, project, "dependencies")
        there = None if only_pure(project) else self._installed(project)
        return (*(one for one in rest if there is None or one.version != there.version), *_some(there))

    def _page(self, index: str, project: str, source: str) -> tuple[Offer, ...]:
        links = project_links(index, project, self._reach)
        if links is None and source == "index":
            with self._alone(index):
                if index not in self._flat:  # an index need not have a page a project
                    self._flat[index] = listed(index, self._reach)
                links = self._flat[index]
        offers = [offer for link in links or () if (offer := _of_link(project, link, source))]
        if source == "dependencies" and only_pure(project):
            pure = [one for one in offers if is_pure(one.shown)]
            if len(pure) < len(offers):
                self.left_out.append(project)
            offers = pure
        if source == "dependencies":  # no installer but ours knows labels, and ours chooses from one index
            offers = [one for one in offers if one.label is None]
        finals = [one for one in offers if not one.version.is_prerelease]
        if finals and (project in self._places.steady or not is_closed(project)):
            offers = finals
        varied = {one.version for one in offers if one.label is not None}
        found = self._best(one for one in offers if one.version not in varied)
        best = parallel.each(lambda one: self._places.choose(project, one), sorted(varied), jobs=_JOBS)
        return (*found, *(_of_candidate(project, one) for one in best if one is not None))

    def _best(self, offers: Iterable[Offer]) -> list[Offer]:
        """Keep one file of each version that this Python can use: the best wheel, else the sources."""
        best: dict[Version, tuple[tuple[object, ...], Offer]] = {}
        for one in offers:
            rank: tuple[object, ...] = (float("inf"),)
            if not one.is_sdist:
                name = parse_wheel_name(one.shown)
                ranks = [self._ranks[tag] for tag in name.tags if tag in self._ranks]
                if not ranks:
                    continue
                rank = (one.yanked is not None, min(ranks), build_rank(name))
            if one.version not in best or rank < best[one.version][0]:
                best[one.version] = (rank, one)
        found = [one for _, one in best.values()]
        wheels = [one for one in found if not one.is_sdist]
        return found if not wheels or (found and is_closed(found[0].project)) else wheels

    def _installed(self, project: str) -> Offer | None:
        there = self._places.installed.get(project)
        if there is None or there.editable or not (there.info / "METADATA").is_file():
            return None
        try:
            version = Version(there.version)
        except InvalidVersion:
            return None
        shown = f"{project.replace('-', '_')}-{version}-py3-none-any.whl"
        return Offer(project, version, shown, shown, there.info.as_uri(), "installed", metadata="")


def same_build(offers: Sequence[Offer], torch: Version) -> tuple[Offer, ...]:
    """Leave out builds that are for another torch, by the local part of their versions.

    Of one public version those with torch's own local part (``+rocm7.2``) come before all others; ``+cu128``
    is never beside ``+rocm7.2``. Where torch says nothing, builds that say nothing come first.
    """
    kind = kind_of(torch)
    same = {one.version.public for one in offers if one.version.local == torch.local}

    def goes_with_it(one: Offer) -> bool:
        if one.version.local == torch.local:
            return True
        has_better = one.project != "torch" and one.version.public in same
        return not has_better and (not kind or kind_of(one.version) in ("", kind))

    return tuple(one for one in offers if goes_with_it(one))


def _is_open(project: str) -> bool:
    return not is_closed(project) and not only_pure(project)


def _some(offer: Offer | None) -> tuple[Offer, ...]:
    return () if offer is None else (offer,)


def _of_candidate(project: str, one: Candidate) -> Offer:
    fields = split_wheel_name(one.name)
    return Offer(
        project, Version(one.version), replace(fields, label="").file_name, one.name, one.url, "index",
        one.sha256, one.size, one.label, one.requires_python, one.yanked,
        properties=one.properties if one.label else None,
    )  # fmt: skip


def _of_link(project: str, link: Link, source: str) -> Offer | None:
    """Return what a link of a page offers; None for what no installer takes: other files, other names."""
    name, label = file_name(link), None
    try:
        if name.endswith(".whl"):
            parsed = parse_wheel_name(name)
            found, version = parsed.name, parsed.version
            label = parsed.label
        elif name.endswith(".tar.gz"):
            found, version = parse_sdist_filename(name)
        else:
            return None
    except (DataError, InvalidSdistFilename, InvalidVersion):
        return None
    if canonicalize_name(found) != project:
        return None
    return Offer(
        project, version, name, name, link.url, source, stated_digest(link), link.size, label,
        link.requires_python, link.yanked, link.metadata,
    )  # fmt: skip
