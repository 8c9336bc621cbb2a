"""Sort the files of a project: the wheels that a Python and platform can use, and why others are rejected.

The rules are pip's: specifiers and pre-releases as ``packaging`` reads them, yanked files (PEP 592) only
for a version that is pinned, ``Requires-Python`` of the page, tags of the file name. ``WheelChoice`` and
``ChoiceCandidate`` are what choosing results in: every wheel with its rank or the reason against it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors
from rocm_wheels.gpus import gpu
from rocm_wheels.index import reader
from rocm_wheels.user.host import TargetHost
from rocm_wheels.variants import document
from rocm_wheels.wheels import dist_info


@dataclass(frozen=True)
class ChoiceCandidate:
    """A wheel of an index: ``rank`` is 1 for the best, None for one that this machine cannot use.

    ``sha256`` (hex) and ``size`` (bytes) are None where the index does not say. ``label`` is None for a
    wheel that is no variant. ``reason`` says why it stands where it does, or why it is out. ``yanked`` is
    the reason why it was withdrawn ("" when none is given), None when it was not. ``metadata`` is as on
    ``IndexLink``.
    """

    name: str
    url: str
    sha256: str | None
    size: int | None
    version: str
    label: str | None
    properties: document.Properties
    rank: int | None
    reason: str
    requires_python: str
    yanked: str | None
    metadata: str | None = None


@dataclass(frozen=True)
class KnownFeature:
    """What the machine supports of a feature, best first, and who says so; no values: why there are none."""

    namespace: str
    feature: str
    values: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class WheelChoice:
    """What a requirement gets. ``candidates`` are in the order of their ranks, then those that are out.

    ``index`` is the URL of the index, ``layout`` how it serves GPUs: ``variants``, ``multi-arch`` (kernels
    in wheels of their own), ``per-family`` or ``plain``. ``requires`` are the requirements to install with it
    (``torch[device-gfx942]==2.9.1+rocm7.2``). ``served`` tells of every GPU of the machine whether the picked
    wheel has kernels for it (empty: nothing says); when some have none ``make_visible_line`` hides these
    (``HIP_VISIBLE_DEVICES=0``). ``override_line`` makes a GPU pass for the one that was chosen for
    (``HSA_OVERRIDE_GFX_VERSION=10.3.0``). ``known`` is what the variants were compared with.
    """

    requirement: str
    project: str
    extras: tuple[str, ...]
    index: str
    layout: str
    picked: ChoiceCandidate | None
    candidates: tuple[ChoiceCandidate, ...]
    requires: tuple[str, ...]
    notes: tuple[str, ...]
    served: tuple[tuple[gpu.Gpu, bool], ...]
    visible_line: str | None
    override_line: str | None = None
    known: tuple[KnownFeature, ...] = ()


TARGETS_TIP = "`rocm-wheels targets FILE` reads it out of the file"  # ends the note that nothing says it

_DOCUMENT_SUFFIX = "-variants.json"
_SOURCE_SUFFIXES = (".tar.gz", ".zip", ".tar.bz2")


class RejectionStage(enum.IntEnum):
    """How far a wheel came before it was out: the further, the nearer a miss."""

    NAME = 0
    VERSION = 1
    TAGS = 2
    PYTHON = 3
    YANKED = 4
    BUILD = 5
    PROPERTIES = 6
    USABLE = 7


@dataclass(frozen=True)
class OfferedWheel:
    """A wheel that a page offers. ``tag_rank`` is that of its best tag among the machine's; ``reason`` says
    why it is out, "" while it is not, and ``stage`` how far it came.
    """

    link: reader.IndexLink
    file: str
    name: dist_info.WheelName
    tag_rank: int
    reason: str = ""
    stage: RejectionStage = RejectionStage.USABLE

    @property
    def version(self) -> Version:
        """Its version."""
        return self.name.version

    def reject(self, stage: RejectionStage, reason: str) -> OfferedWheel:
        """Return it with the reason why it is out."""
        return replace(self, stage=stage, reason=reason)


@dataclass(frozen=True)
class SiftedFiles:
    """``usable`` by version, newest first; ``rejected`` what is not; ``documents`` variant documents by
    version; ``unread`` names that no installer reads; ``sources`` how many source distributions there are.
    """

    usable: Mapping[Version, Sequence[OfferedWheel]]
    rejected: tuple[OfferedWheel, ...]
    documents: Mapping[Version, reader.IndexLink]
    unread: tuple[str, ...] = ()
    sources: int = 0


@dataclass
class _ProjectFiles:
    offers: list[OfferedWheel] = field(default_factory=list)
    documents: dict[Version, reader.IndexLink] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    sources: int = 0


def sift_files(
    links: Iterable[reader.IndexLink], requirement: Requirement, host: TargetHost, *, pre: bool = False
) -> SiftedFiles:
    """Sort the files of a project by what this requirement and machine can use."""
    read = _read_project_files(links, canonicalize_name(requirement.name), host)
    marked = [_check_machine(offer, host) for offer in read.offers]
    fitting = [offer for offer in marked if not offer.reason]
    marked = _check_versions(fitting, requirement, pre=pre) + [offer for offer in marked if offer.reason]
    usable: dict[Version, list[OfferedWheel]] = {}
    for offer in sorted(marked, key=lambda offer: offer.version, reverse=True):
        if not offer.reason:
            usable.setdefault(offer.version, []).append(offer)
    rejected = tuple(offer for offer in marked if offer.reason)
    return SiftedFiles(usable, rejected, read.documents, tuple(read.unread), read.sources)


def _read_project_files(links: Iterable[reader.IndexLink], project: str, host: TargetHost) -> _ProjectFiles:
    tag_ranks = {tag: tag_rank for tag_rank, tag in reversed(list(enumerate(host.tags)))}
    read = _ProjectFiles()
    for link in links:
        file = reader.file_name_of_link(link)
        if file.endswith(_DOCUMENT_SUFFIX):
            if version := _document_version(file, project):
                read.documents[version] = link
        elif file.endswith(_SOURCE_SUFFIXES):
            read.sources += canonicalize_name(file.rpartition("-")[0]) == project
        elif file.endswith(".whl"):
            try:
                name = dist_info.parse_wheel_name(file)
            except errors.DataError:
                read.unread.append(file)
                continue
            if name.name == project:
                tag_rank = min((tag_ranks[tag] for tag in name.tags if tag in tag_ranks), default=-1)
                read.offers.append(OfferedWheel(link, file, name, tag_rank))
    return read


def _document_version(file: str, project: str) -> Version | None:
    distribution, _, version = file.removesuffix(_DOCUMENT_SUFFIX).partition("-")
    try:
        return Version(version) if canonicalize_name(distribution) == project else None
    except InvalidVersion:
        return None


def _check_machine(offer: OfferedWheel, host: TargetHost) -> OfferedWheel:
    if offer.tag_rank < 0:
        return offer.reject(RejectionStage.TAGS, _explain_tags(offer.name.tags, host))
    required = offer.link.requires_python
    if not required:
        return offer
    python = host.full_python or host.python.removesuffix("t")
    try:
        fits = SpecifierSet(required).contains(python, prereleases=True)
    except InvalidSpecifier:
        return offer  # as pip does: what cannot be read asks for nothing
    return (
        offer if fits else offer.reject(RejectionStage.PYTHON, f"wants Python {required}, this is {python}")
    )


def _explain_tags(tags: Iterable[Tag], host: TargetHost) -> str:
    """Say which part of a wheel's tags is for another machine."""
    platforms = {tag.platform for tag in host.tags}
    sorted_tags = sorted(tags, key=str)
    matching = [tag for tag in sorted_tags if tag.platform in platforms]
    if not matching:
        names = ", ".join(dict.fromkeys(tag.platform for tag in sorted_tags))
        return f"for {names}, this is {host.platform} on {host.machine}"
    names = ", ".join(dict.fromkeys(f"{tag.interpreter}-{tag.abi}" for tag in matching))
    return f"for {names}, this is Python {host.python}"


def _check_versions(
    offers: Sequence[OfferedWheel], requirement: Requirement, *, pre: bool
) -> list[OfferedWheel]:
    """Mark the wheels whose version is not asked for, and those that were yanked."""
    specifier = requirement.specifier
    inside = set(specifier.filter({offer.version for offer in offers}, prereleases=True if pre else None))
    chosen = [offer for offer in offers if offer.version in inside]
    pinned = any(
        clause.operator == "===" or (clause.operator == "==" and not clause.version.endswith(".*"))
        for clause in specifier
    )
    forgiven = pinned and all(offer.link.yanked is not None for offer in chosen)
    marked = []
    for offer in offers:
        if offer.version not in inside:
            is_prerelease = specifier.contains(offer.version, prereleases=True)
            reason = (
                "a pre-release, and there is a release"
                if is_prerelease
                else f"{offer.version} is not {specifier}"
            )
            marked.append(offer.reject(RejectionStage.VERSION, reason))
        elif offer.link.yanked is not None and not forgiven:
            reason = f"yanked: {offer.link.yanked}" if offer.link.yanked else "yanked"
            marked.append(offer.reject(RejectionStage.YANKED, reason))
        else:
            marked.append(offer)
    return marked


def rank_build_tag(name: dist_info.WheelName) -> tuple[int, str]:
    """Order build tags: the highest first, wheels without one last."""
    number, letters = name.build or (-1, "")
    return -number, "".join(chr(0x10FFFF - ord(letter)) for letter in letters)


# --- what a build is for, by its local version ---

_KIND_PATTERNS = (
    ("rocm", re.compile(r"(?:^|[._])(?:dev)?rocm")),
    ("cuda", re.compile(r"^cu(?:da)?[0-9]")),
    ("xpu", re.compile(r"^xpu")),
    ("cpu", re.compile(r"^cpu")),
)


def get_build_kind(version: Version) -> str:
    """Return what a build is for by its local version: ``rocm``, ``cuda``, ``xpu``, ``cpu``; "" unknown."""
    local = version.local or ""
    return next((kind for kind, pattern in _KIND_PATTERNS if pattern.search(local)), "")
