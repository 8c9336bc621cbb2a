"""From the files of a project to the wheels that a Python and platform can use, and why others are out.

The rules are pip's: specifiers and pre-releases as ``packaging`` reads them, yanked files (PEP 592) only for
a version that is pinned, ``Requires-Python`` of the page, tags of the file name.
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

from rocm_wheels.errors import DataError
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.index.reading import Link, file_name
from rocm_wheels.wheels.names import WheelName, parse_wheel_name

_DOCUMENT = "-variants.json"
_SOURCES = (".tar.gz", ".zip", ".tar.bz2")


class Stage(enum.IntEnum):
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
class Offer:
    """A wheel that a page offers. ``place`` is that of its best tag among the machine's; ``reason`` says why
    it is out, "" while it is not, and ``stage`` how far it came."""

    link: Link
    file: str
    name: WheelName
    place: int
    reason: str = ""
    stage: Stage = Stage.USABLE

    @property
    def version(self) -> Version:
        """Its version."""
        return self.name.version

    def out(self, stage: Stage, reason: str) -> Offer:
        """Return it with the reason why it is out."""
        return replace(self, stage=stage, reason=reason)


@dataclass(frozen=True)
class Sifted:
    """``usable`` by version, newest first; ``out`` what is not; ``documents`` variant documents by version;
    ``unread`` names that no installer reads; ``sources`` how many source distributions there are."""

    usable: Mapping[Version, Sequence[Offer]]
    out: tuple[Offer, ...]
    documents: Mapping[Version, Link]
    unread: tuple[str, ...] = ()
    sources: int = 0


@dataclass
class _Read:
    offers: list[Offer] = field(default_factory=list)
    documents: dict[Version, Link] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    sources: int = 0


def sift(links: Iterable[Link], requirement: Requirement, host: Host, *, pre: bool = False) -> Sifted:
    """Sort the files of a project by what this requirement and machine can use."""
    read = _read(links, canonicalize_name(requirement.name), host)
    marked = [_for_machine(offer, host) for offer in read.offers]
    fitting = [offer for offer in marked if not offer.reason]
    marked = _versions(fitting, requirement, pre=pre) + [offer for offer in marked if offer.reason]
    usable: dict[Version, list[Offer]] = {}
    for offer in sorted(marked, key=lambda one: one.version, reverse=True):
        if not offer.reason:
            usable.setdefault(offer.version, []).append(offer)
    out = tuple(offer for offer in marked if offer.reason)
    return Sifted(usable, out, read.documents, tuple(read.unread), read.sources)


def _read(links: Iterable[Link], project: str, host: Host) -> _Read:
    places = {tag: place for place, tag in reversed(list(enumerate(host.tags)))}
    read = _Read()
    for link in links:
        file = file_name(link)
        if file.endswith(_DOCUMENT):
            if version := _document_version(file, project):
                read.documents[version] = link
        elif file.endswith(_SOURCES):
            read.sources += canonicalize_name(file.rpartition("-")[0]) == project
        elif file.endswith(".whl"):
            try:
                name = parse_wheel_name(file)
            except DataError:
                read.unread.append(file)
                continue
            if name.name == project:
                place = min((places[tag] for tag in name.tags if tag in places), default=-1)
                read.offers.append(Offer(link, file, name, place))
    return read


def _document_version(file: str, project: str) -> Version | None:
    distribution, _, version = file.removesuffix(_DOCUMENT).partition("-")
    try:
        return Version(version) if canonicalize_name(distribution) == project else None
    except InvalidVersion:
        return None


def _for_machine(offer: Offer, host: Host) -> Offer:
    if offer.place < 0:
        return offer.out(Stage.TAGS, _other_tags(offer.name.tags, host))
    wanted = offer.link.requires_python
    if not wanted:
        return offer
    python = host.full_python or host.python.removesuffix("t")
    try:
        fits = SpecifierSet(wanted).contains(python, prereleases=True)
    except InvalidSpecifier:
        return offer  # as pip does: what cannot be read asks for nothing
    return offer if fits else offer.out(Stage.PYTHON, f"wants Python {wanted}, this is {python}")


def _other_tags(tags: Iterable[Tag], host: Host) -> str:
    """Say which part of a wheel's tags is for another machine."""
    platforms = {tag.platform for tag in host.tags}
    given = sorted(tags, key=str)
    there = [tag for tag in given if tag.platform in platforms]
    if not there:
        names = ", ".join(dict.fromkeys(tag.platform for tag in given))
        return f"for {names}, this is {host.platform} on {host.machine}"
    names = ", ".join(dict.fromkeys(f"{tag.interpreter}-{tag.abi}" for tag in there))
    return f"for {names}, this is Python {host.python}"


def _versions(offers: Sequence[Offer], requirement: Requirement, *, pre: bool) -> list[Offer]:
    """Mark the wheels whose version is not asked for, and those that were yanked."""
    specifier = requirement.specifier
    inside = set(specifier.filter({offer.version for offer in offers}, prereleases=True if pre else None))
    chosen = [offer for offer in offers if offer.version in inside]
    pinned = any(
        one.operator == "===" or (one.operator == "==" and not one.version.endswith(".*"))
        for one in specifier
    )
    forgiven = pinned and all(offer.link.yanked is not None for offer in chosen)
    marked = []
    for offer in offers:
        if offer.version not in inside:
            wanted = specifier.contains(offer.version, prereleases=True)
            said = (
                "a pre-release, and there is a release" if wanted else f"{offer.version} is not {specifier}"
            )
            marked.append(offer.out(Stage.VERSION, said))
        elif offer.link.yanked is not None and not forgiven:
            said = f"yanked: {offer.link.yanked}" if offer.link.yanked else "yanked"
            marked.append(offer.out(Stage.YANKED, said))
        else:
            marked.append(offer)
    return marked


def build_rank(name: WheelName) -> tuple[int, str]:
    """Order build tags: the highest first, wheels without one last."""
    number, letters = name.build or (-1, "")
    return -number, "".join(chr(0x10FFFF - ord(letter)) for letter in letters)


# --- what a build is for, by its local version ---

_KINDS = (
    ("rocm", re.compile(r"(?:^|[._])(?:dev)?rocm")),
    ("cuda", re.compile(r"^cu(?:da)?[0-9]")),
    ("xpu", re.compile(r"^xpu")),
    ("cpu", re.compile(r"^cpu")),
)


def kind_of(version: Version) -> str:
    """Return what a build is for by its local version: ``rocm``, ``cuda``, ``xpu``, ``cpu``; "" unknown."""
    local = version.local or ""
    return next((kind for kind, pattern in _KINDS if pattern.search(local)), "")
