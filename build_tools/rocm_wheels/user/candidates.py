"""Wheels to choose from: what a page has of a project, and why a Python, platform or version is not served.

The rules are pip's: specifiers and pre-releases as ``packaging`` reads them, yanked files (PEP 592) only
for a version that is pinned, ``Requires-Python`` of the page, tags of the file name. A ``ChoiceCandidate``
goes from the page to the answer: its rank, or the reason why it is out, is written where that is decided.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.gpus import gpu, variables, vendors
from rocm_wheels.index import reader
from rocm_wheels.user import installed_packages
from rocm_wheels.user.host import TargetHost
from rocm_wheels.variants import document
from rocm_wheels.wheels import dist_info


class RejectionStage(enum.IntEnum):
    """How far a wheel came before it was out: the further, the nearer a miss."""

    VERSION = 1
    TAGS = 2
    PYTHON = 3
    YANKED = 4
    BUILD = 5
    PROPERTIES = 6
    USABLE = 7


@dataclass(frozen=True)
class ChoiceCandidate:
    """A wheel of an index: ``rank`` is 1 for the best, None for one that this machine cannot use.

    ``tag_rank`` is the place of its best tag among the machine's. ``properties`` are those of a variant.
    ``reason`` says why it stands where it does, or why it is out, "" while that is open; ``stage`` how far it
    came.
    """

    link: reader.IndexLink
    wheel: dist_info.WheelName
    tag_rank: int = 0
    properties: document.Properties = field(default_factory=dict, hash=False)
    rank: int | None = None
    reason: str = ""
    stage: RejectionStage = RejectionStage.USABLE

    @property
    def name(self) -> str:
        """The name of its file."""
        return reader.file_name_of_link(self.link)

    @property
    def url(self) -> str:
        """Where the file is."""
        return self.link.url

    @property
    def sha256(self) -> str | None:
        """The digest (hex), None where the index does not say. DataError for what is none."""
        return reader.require_link_digest(self.link)

    @property
    def size(self) -> int | None:
        """Bytes, None where the index does not say."""
        return self.link.size

    @property
    def version(self) -> str:
        """Its version, as text."""
        return str(self.wheel.version)

    @property
    def label(self) -> str | None:
        """The label of a variant; None for a wheel that is none."""
        return self.wheel.label

    @property
    def requires_python(self) -> str:
        """The Pythons that the page says, "" without."""
        return self.link.requires_python

    @property
    def metadata(self) -> str | None:
        """The digest of the METADATA beside it, as on ``IndexLink``."""
        return self.link.metadata

    @property
    def has_compiled_code(self) -> bool:
        """Tell whether it is for one platform: others have no compiled code, and none for GPUs."""
        return any(tag.platform != "any" for tag in self.wheel.tags)

    def get_install_key(self) -> tuple[int, tuple[int, str]]:
        """Return by what installers order wheels of a version: the best tag, then the highest build tag."""
        number, letters = self.wheel.build or (-1, "")  # a wheel without one comes last
        return self.tag_rank, (-number, "".join(chr(0x10FFFF - ord(letter)) for letter in letters))

    def reject(self, stage: RejectionStage, reason: str) -> ChoiceCandidate:
        """Return it with the reason why it is out."""
        return replace(self, stage=stage, reason=reason)

    def as_json(self) -> dict[str, object]:
        """Return what ``--json`` prints of it."""
        names = "name url sha256 size version label properties rank reason requires_python metadata"
        return {name: getattr(self, name) for name in names.split()} | {"yanked": self.link.yanked}


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

    ``picked`` is the first of them. ``index`` is the URL of the index, ``layout`` how it serves GPUs:
    ``variants``, ``multi-arch`` (kernels in wheels of their own), ``per-family`` or ``plain``.
    ``requires`` are the requirements to install with it (``torch[device-gfx942]==2.9.1+rocm7.2``).
    ``served`` tells of every GPU of the machine whether the picked wheel has kernels for it (empty: nothing
    says); when some have none ``visible_line`` hides these (``HIP_VISIBLE_DEVICES=0``). ``override_line``
    makes a GPU pass for the one that was chosen for (``HSA_OVERRIDE_GFX_VERSION=10.3.0``). ``known`` is what
    the variants were compared with; ``devices`` are the wheels with kernels that its extras bring.
    """

    requirement: str
    project: str
    extras: tuple[str, ...]
    index: str
    layout: str
    picked: ChoiceCandidate
    candidates: tuple[ChoiceCandidate, ...]
    requires: tuple[str, ...]
    notes: tuple[str, ...]
    served: tuple[tuple[gpu.Gpu, bool], ...]
    visible_line: str | None
    override_line: str | None = None
    known: tuple[KnownFeature, ...] = ()
    devices: tuple[ChoiceCandidate, ...] = ()

    @property
    def is_served(self) -> bool:
        """Tell whether the index says that any GPU of the machine is served."""
        return any(is_served for _, is_served in self.served)


_DOCUMENT_SUFFIX = "-variants.json"


@dataclass(frozen=True)
class ProjectFiles:
    """``wheels`` of a project, each with the reason why it is out; ``documents`` of variants by version.

    Names that no installer reads are left out, and source distributions.
    """

    wheels: tuple[ChoiceCandidate, ...]
    documents: Mapping[Version, reader.IndexLink]

    def list_usable(self) -> dict[Version, list[ChoiceCandidate]]:
        """Return the wheels that are not out, by version, the newest first."""
        versions: dict[Version, list[ChoiceCandidate]] = {}
        for wheel in sorted(self.wheels, key=lambda wheel: wheel.wheel.version, reverse=True):
            if not wheel.reason:
                versions.setdefault(wheel.wheel.version, []).append(wheel)
        return versions

    def reject_version(self, version: Version, reason: str) -> ProjectFiles:
        """Return them with the wheels of a version out that fit but for their GPUs."""
        wheels = [
            wheel.reject(RejectionStage.PROPERTIES, reason)
            if not wheel.reason and wheel.wheel.version == version
            else wheel
            for wheel in self.wheels
        ]
        return replace(self, wheels=tuple(wheels))


def read_project_files(
    links: Iterable[reader.IndexLink], requirement: Requirement, host: TargetHost, *, pre: bool = False
) -> ProjectFiles:
    """Sort the links of a page by what they are, and say of each wheel why it is out, if it is."""
    project = canonicalize_name(requirement.name)
    tag_ranks = {tag: tag_rank for tag_rank, tag in reversed(list(enumerate(host.tags)))}
    wheels: list[ChoiceCandidate] = []
    documents: dict[Version, reader.IndexLink] = {}
    for link in links:
        file = reader.file_name_of_link(link)
        if file.endswith(_DOCUMENT_SUFFIX):
            distribution, _, version = file.removesuffix(_DOCUMENT_SUFFIX).partition("-")
            try:
                if canonicalize_name(distribution) == project:
                    documents[Version(version)] = link
            except ValueError:  # no version, or a number of more digits than Python reads
                continue
        elif file.endswith(".whl"):
            try:
                name = dist_info.parse_wheel_name(file)
            except errors.DataError:
                continue
            if name.name == project:
                # a page that makes digests up is an error, whatever is taken
                reader.require_link_digest(link)
                tag_rank = min((tag_ranks[tag] for tag in name.tags if tag in tag_ranks), default=-1)
                wheels.append(_check_machine(ChoiceCandidate(link, name, tag_rank), host))
    return ProjectFiles(tuple(_check_versions(wheels, requirement.specifier, pre=pre)), documents)


def _check_machine(wheel: ChoiceCandidate, host: TargetHost) -> ChoiceCandidate:
    if wheel.tag_rank < 0:
        platforms = {tag.platform for tag in host.tags}
        tags = sorted(wheel.wheel.tags, key=str)
        if matching := [tag for tag in tags if tag.platform in platforms]:
            names = ", ".join(dict.fromkeys(f"{tag.interpreter}-{tag.abi}" for tag in matching))
            return wheel.reject(RejectionStage.TAGS, f"for {names}, this is Python {host.python}")
        names = ", ".join(dict.fromkeys(tag.platform for tag in tags))
        return wheel.reject(RejectionStage.TAGS, f"for {names}, this is {host.platform} on {host.machine}")
    python = host.full_python or host.python.removesuffix("t")
    try:
        fits = SpecifierSet(wheel.requires_python).contains(python, prereleases=True)
    except ValueError:  # no specifier, or a number of more digits than Python reads
        return wheel  # as pip does: what cannot be read asks for nothing
    reason = f"wants Python {wheel.requires_python}, this is {python}"
    return wheel if fits else wheel.reject(RejectionStage.PYTHON, reason)


def _check_versions(
    wheels: list[ChoiceCandidate], specifier: SpecifierSet, *, pre: bool
) -> list[ChoiceCandidate]:
    """Mark the wheels whose version is not asked for, and those that were yanked."""
    fitting = [wheel for wheel in wheels if not wheel.reason]
    versions = {wheel.wheel.version for wheel in fitting}
    inside = set(specifier.filter(versions, prereleases=True if pre else None))
    pinned = any(
        clause.operator == "===" or (clause.operator == "==" and not clause.version.endswith(".*"))
        for clause in specifier
    )
    forgiven = pinned and all(
        wheel.link.yanked is not None for wheel in fitting if wheel.wheel.version in inside
    )
    marked = []
    for wheel in wheels:
        checked = wheel
        if wheel.reason:
            pass
        elif wheel.wheel.version not in inside:
            is_prerelease = specifier.contains(wheel.wheel.version, prereleases=True)
            reason = (
                "a pre-release, and there is a release"
                if is_prerelease
                else f"{wheel.version} is not {specifier}"
            )
            checked = wheel.reject(RejectionStage.VERSION, reason)
        elif wheel.link.yanked is not None and not forgiven:
            reason = f"yanked: {wheel.link.yanked}" if wheel.link.yanked else "yanked"
            checked = wheel.reject(RejectionStage.YANKED, reason)
        marked.append(checked)
    return marked


# --- what a build is for, by its local version ---

UNASKED_ASAN = (
    f"has AddressSanitizer: taken where {variables.SANITIZER_VARIABLE}=address says that its runtime is"
    " preloaded, or by its whole version"
)
KIND_TITLES = {
    vendor.build_kind: f"{vendor.title} GPUs" for vendor in vendors.GPU_VENDORS.values() if vendor.build_kind
} | {"cpu": "the CPU"}


def get_build_kind(version: Version) -> str:
    """Return what a build is for by its local version: ``rocm``, ``cuda``, ``xpu``, ``cpu``; "" unknown."""
    kind, _ = installed_packages.parse_label(version.local or "")
    return "" if kind == "unknown" else kind
