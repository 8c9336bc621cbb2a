"""Match the wheels of an index with a machine's GPUs: variants, builds by version, device extras.

Versions come first (newest first), then variants within one, by PEP 825, then ``null``, then plain wheels.
The ``-variants.json`` of an index is a cache of the wheels' own documents: labels that it does not list
are read from the wheels, as the PEP allows (uv leaves such wheels out). Where one is damaged, or is not what
the page says that it is, no variant of that version is taken: its plain wheel is, with a warning, and without
a plain wheel it is an error.

A host wheel can have its kernels in wheels of their own, which its extras (``device-gfx942``) require.
METADATA of the host wheel lists the extras (``Provides-Extra``, ``Requires-Dist``); whether what an extra
requires is in the index for this version and platform is looked up.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, parallel, shell
from rocm_wheels.gpus import vendors
from rocm_wheels.gpus.gpu import Gpu, find_generic_target
from rocm_wheels.index import reader
from rocm_wheels.user import index_pages
from rocm_wheels.user.candidates import (
    ChoiceCandidate,
    OfferedWheel,
    RejectionStage,
    SiftedFiles,
    get_build_kind,
    rank_build_tag,
    sift_files,
)
from rocm_wheels.user.host import TargetHost, list_build_kinds
from rocm_wheels.variants.document import (
    ABI_NAMESPACE,
    NULL_LABEL,
    VARIANT_FILE_NAME,
    Properties,
    VariantMetadata,
    merge_documents,
    parse_document,
    read_any_format,
)
from rocm_wheels.variants.order import (
    NamespaceSupport,
    explain_order,
    find_support,
    list_unsupported,
    order_labels,
    rank_properties,
)
from rocm_wheels.wheels import dist_info

_READ_JOBS = 8


@dataclass(frozen=True)
class VariantsDocument:
    """``metadata`` of all variants of a version; ``missing`` says of labels why nothing is known of them."""

    metadata: VariantMetadata
    missing: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_variants(
    link: reader.IndexLink | None, offers: Sequence[OfferedWheel], reach: reader.IndexReader
) -> VariantsDocument:
    """Read what is known of the variants among ``offers``; ``link`` is the index's document, if it has one.

    HostError for a document that cannot be had, or a wheel where there is none; DataError for a document that
    is not what it must be.
    """
    metadata, notes = (VariantMetadata((), {}), ()) if link is None else _read_index_document(link, reach)
    unlisted_offers: dict[str, OfferedWheel] = {}
    for offer in offers:
        if offer.name.label is not None and offer.name.label not in metadata.variants:
            unlisted_offers.setdefault(offer.name.label, offer)
    wheel_documents = list(
        parallel.try_in_parallel(
            lambda offer: _read_wheel_document(offer, reach), unlisted_offers.values(), jobs=_READ_JOBS
        )
    )
    missing = {}
    for (label, offer), wheel_document in zip(unlisted_offers.items(), wheel_documents, strict=True):
        if isinstance(wheel_document, reader.UnreachableError) and link is None:
            raise wheel_document  # the wheel for this machine may be the one
        if isinstance(wheel_document, (errors.DataError, reader.UnreachableError)):
            missing[label] = f"its requirements are unknown: {wheel_document}"
        elif isinstance(wheel_document, Exception):
            raise wheel_document
        else:
            try:
                metadata = (
                    merge_documents([("the document", metadata), (offer.file, wheel_document)])
                    if metadata.variants
                    else wheel_document
                )
            except errors.DataError as cause:
                missing[label] = str(cause)
    if link is not None and unlisted_offers:
        labels = ", ".join(sorted(unlisted_offers))
        notes += (
            f"{reader.file_name_of_link(link)} does not list {labels}: read from the wheels; uv "
            "leaves them out",
        )
    elif unlisted_offers:
        notes += ("the index has no -variants.json for these wheels: read from them; uv leaves them out",)
    return VariantsDocument(metadata, missing, notes)


def _describe_unreadable(
    link: reader.IndexLink, offers: Sequence[OfferedWheel], fault: errors.RocmWheelsError
) -> VariantsDocument:
    """Return what is known of a version whose document cannot be read: of no variant anything."""
    url = shell.hide_credentials(link.url)
    reason = f"{url} cannot be read"
    missing = {offer.name.label: reason for offer in offers if offer.name.label is not None}
    note = (
        f"WARNING: {url} cannot be read, and no variant is chosen without it: {errors.explain_error(fault)}"
    )
    return VariantsDocument(VariantMetadata((), {}), missing, (note,))


def list_missing_labels(document: VariantsDocument, files: Sequence[OfferedWheel]) -> list[str]:
    """Return the labels of a document that no file of the version has."""
    labels = {offer.name.label for offer in files}
    return sorted(document.metadata.variants.keys() - labels)


def _read_index_document(
    link: reader.IndexLink, reach: reader.IndexReader
) -> tuple[VariantMetadata, tuple[str, ...]]:
    name = reader.file_name_of_link(link)
    answer = reach.get(link.url)
    if answer.status in (403, 404, 410):
        raise errors.DataError(
            f"{shell.hide_credentials(link.url)} answers {answer.status}",
            tip="the page lists it: the index is damaged",
        )
    if answer.status != 200:
        raise reader.make_status_error(link.url, answer.status)
    if reader.require_link_digest(link) not in (None, sha256(answer.content).hexdigest()):
        raise errors.DataError(
            f"{name} is not what its page says (sha256 {link.sha256})",
            tip="it was being changed, or is damaged: try again, or `rocm-wheels index verify`",
        )
    return _parse_any_document(answer.content, name)


def _parse_any_document(content: bytes, name: str) -> tuple[VariantMetadata, tuple[str, ...]]:
    """Read a document of today's form, else one of 2025."""
    try:
        return parse_document(content, name=name), ()
    except errors.DataError as fault:
        try:
            old = read_any_format(content, name=name)
        except errors.DataError:
            raise fault from None
    used = {namespace for properties in old.variants.values() for namespace in properties}
    namespaces = (*old.namespaces, *sorted(used - set(old.namespaces)))
    note = f"{name} is of the format of 2025; installers of today do not read it"
    return VariantMetadata(namespaces, old.variants, old.providers), (note,)


def _read_wheel_document(offer: OfferedWheel, reach: reader.IndexReader) -> VariantMetadata:
    _, text = reach.fetch_metadata_and_variant(offer.link.url, offer.file, offer.link.size)
    if text is None:
        raise errors.DataError(f"{offer.file} has no {VARIANT_FILE_NAME}")
    return parse_document(text.encode(), name=f"{offer.file}: {VARIANT_FILE_NAME}")


_MAX_VALUES = 12
_GPU_FEATURE, _HOST_ROCM_FEATURE = ("amd", "gfx_arch"), ("amd", "rocm_version")


@dataclass(frozen=True)
class RankedWheel:
    """A wheel with its place among those of its version, and the reason for it."""

    offer: OfferedWheel
    properties: Properties
    reason: str


@dataclass(frozen=True)
class VersionRanking:
    """``ranked`` best first, ``rejected`` what the machine cannot use; ``support`` who says what it
    supports.
    """

    ranked: tuple[RankedWheel, ...]
    rejected: tuple[RankedWheel, ...]
    support: Mapping[str, NamespaceSupport]


def list_abi_features(versions: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for each project the versions that its ABI goes by (PEP 850), longest first: 2.9.1, 2.9, 2.

    A version that none is, of a project that was not made to be published, says nothing.
    """
    features = {}
    for name, text in versions.items():
        with contextlib.suppress(InvalidVersion):
            release = Version(text).release
            features[canonicalize_name(name).replace("-", "_")] = tuple(
                ".".join(map(str, release[:length])) for length in range(len(release), 0, -1)
            )
    return features


def rank_wheels(
    offers: Sequence[OfferedWheel], document: VariantsDocument, host: TargetHost
) -> VersionRanking:
    """Rank the wheels of one version, which all fit the Python and the platform."""
    metadata = document.metadata
    machine = {**host.supported, ABI_NAMESPACE: list_abi_features(host.versions)}
    support = find_support(metadata, machine, host.enabled)
    supported = {namespace: answer.features for namespace, answer in support.items()}
    order = {label: number for number, label in enumerate(order_labels(metadata, supported))}
    ranked: list[OfferedWheel] = []
    rejected: list[RankedWheel] = []
    for offer in offers:
        label = offer.name.label
        properties = metadata.variants.get(label or "", {})
        if label is not None and label not in order:
            reason = document.missing.get(label) or _explain_unsupported(properties, support, host)
            rejected.append(RankedWheel(offer.reject(RejectionStage.PROPERTIES, reason), properties, reason))
        else:
            ranked.append(offer)
    ranked.sort(
        key=lambda offer: (
            order.get(offer.name.label or "", len(order)),
            offer.tag_rank,
            rank_build_tag(offer.name),
        )
    )
    ranked_wheels: list[RankedWheel] = []
    for number, offer in enumerate(ranked):
        properties = metadata.variants.get(offer.name.label or "", {})
        if number:
            reason = _explain_lower(ranked[number - 1], offer, document, supported)
        else:
            reason = _explain_first(offer, document, supported)
        ranked_wheels.append(RankedWheel(offer, properties, reason))
    return VersionRanking(tuple(ranked_wheels), tuple(rejected), support)


def _explain_first(
    offer: OfferedWheel, document: VariantsDocument, supported: Mapping[str, Mapping[str, Sequence[str]]]
) -> str:
    label = offer.name.label
    if label is None:
        return "no variant fits" if document.metadata.variants else "the newest version that fits"
    if label == NULL_LABEL:
        only = not any(document.metadata.variants.values())
        return (
            f"{'the only variant' if only else 'no variant with properties fits'}: null is for every machine"
        )
    best = rank_properties(document.metadata.variants[label], document.metadata.namespaces, supported)
    return f"best for this machine: {', '.join(map(str, best))}"


def _explain_lower(
    above: OfferedWheel,
    offer: OfferedWheel,
    document: VariantsDocument,
    supported: Mapping[str, Mapping[str, Sequence[str]]],
) -> str:
    if above.name.label != offer.name.label:
        if above.name.label is None or offer.name.label is None:
            return "no variant: after all variants that fit"
        return explain_order(above.name.label, offer.name.label, document.metadata, supported)
    if above.tag_rank != offer.tag_rank:
        tag = next(iter(sorted(map(str, offer.name.tags))))
        return f"its tag {tag} is less special than that of the one above"
    return "its build tag is lower"


def _explain_unsupported(
    properties: Properties, support: Mapping[str, NamespaceSupport], host: TargetHost
) -> str:
    """Say which properties the machine does not support."""
    reasons = []
    for namespace, feature in list_unsupported(
        properties, {ns: answer.features for ns, answer in support.items()}
    ):
        values = ", ".join(properties[namespace][feature])
        reasons.append(
            f"{namespace} :: {feature} is {values}; "
            f"{_describe_machine(namespace, feature, support[namespace], host)}"
        )
    return "; ".join(reasons)


def _describe_machine(namespace: str, feature: str, answer: NamespaceSupport, host: TargetHost) -> str:
    by_machine = answer.source.startswith("this machine")
    machine_values = host.supported.get(namespace, {}).get(feature, ()) if by_machine else ()
    values = list(machine_values or answer.features.get(feature, ()))
    if values:
        return (
            "this machine has "
            f"{', '.join(values) if len(values) <= _MAX_VALUES else f'{values[0]} … {values[-1]}'}"
        )
    if by_machine and (namespace, feature) == _GPU_FEATURE:
        return "this machine has no AMD GPU whose target is known"
    if by_machine and (namespace, feature) == _HOST_ROCM_FEATURE:
        return "no ROCm was found on this machine"
    return answer.source if not answer.features else "nothing here supports that feature"


_RANK_JOBS = 8
_KIND_NAMES = {vendor.build_kind: f"{vendor.title} GPUs" for vendor in vendors.GPU_VENDORS.values()}
_KIND_NAMES |= {"cpu": "the CPU"}


@dataclass(frozen=True)
class PickedVersion:
    """``version`` is None when no wheel fits. ``document`` and ``ranking`` are those of that version;
    ``second_best`` is True for a build that is not for this machine's GPU, taken for want of one that is.
    ``older`` is the best variant for this machine's GPU of an older version, where the newest has none."""

    version: Version | None
    document: VariantsDocument
    ranking: VersionRanking
    candidates: tuple[ChoiceCandidate, ...]
    rejected: tuple[RankedWheel, ...]
    second_best: bool = False
    older: RankedWheel | None = None


def pick_version(
    sifted: SiftedFiles, requirement: Requirement, host: TargetHost, reach: reader.IndexReader
) -> PickedVersion:
    """Pick the newest version of which a wheel fits, builds for this machine's GPU before others."""
    tiers, unsuitable = _split_tiers(sifted, requirement, host)
    rejected: list[RankedWheel] = []
    for number, tier in enumerate(tiers):
        ranked_versions = _rank_versions(tier, sifted, host, reach)
        for version, document, ranking in ranked_versions:
            rejected += ranking.rejected
            if ranking.ranked:
                unvisited = _list_unvisited(tiers, version, rejected, ranking)
                candidates = _make_candidates(ranking, [*unsuitable, *rejected, *unvisited])
                is_last = number + 1 == len(tiers)
                is_null = _is_without_gpu(ranking, document) and host.hardware.amd
                older = _find_older_variant(ranked_versions) if is_null else None
                return PickedVersion(
                    version, document, ranking, candidates, (*unsuitable, *rejected), is_last, older
                )
    nothing = VersionRanking((), (), {})
    return PickedVersion(
        None,
        VariantsDocument(VariantMetadata((), {})),
        nothing,
        _make_candidates(nothing, [*unsuitable, *rejected]),
        (*unsuitable, *rejected),
    )


def _is_without_gpu(ranking: VersionRanking, document: VariantsDocument) -> bool:
    """Tell whether the best wheel of a version with variants is none of these: null, or a plain one."""
    return not ranking.ranked[0].properties and any(document.metadata.variants.values())


def _find_older_variant(
    versions: Iterator[tuple[Version, VariantsDocument, VersionRanking]],
) -> RankedWheel | None:
    """Return the best variant of the next version that has one; None where it cannot be read."""
    try:
        for _, _, ranking in versions:
            if ranking.ranked and "gfx_arch" in ranking.ranked[0].properties.get("amd", {}):
                return ranking.ranked[0]
    except (errors.DataError, errors.HostError):
        return None  # what an older version has is worth a note, and no failure
    return None


_WheelTier = dict[Version, list[OfferedWheel]]


def _split_tiers(
    sifted: SiftedFiles, requirement: Requirement, host: TargetHost
) -> tuple[list[_WheelTier], list[RankedWheel]]:
    """Part the wheels that fit into builds for this machine's GPUs, the best first, and those that will do.

    ``+rocm7.2``, ``+cu128``, ``+xpu`` and ``+cpu`` tell what a build is for. A build for the GPU of a vendor
    that is not here is out, and never taken in place of one for the CPU. One that is asked for by its local
    version is.
    """
    rejected = [RankedWheel(offer, {}, offer.reason) for offer in sifted.rejected]
    local = any("+" in item.version for item in requirement.specifier)
    kinds = list_build_kinds(host)
    first = kinds or ("cpu",)
    tiers: list[_WheelTier] = [{} for _ in (*first, "the rest")]
    for version, offers in sifted.usable.items():
        kind = get_build_kind(version)
        if local or not kind or kind in first:
            tiers[first.index(kind) if kind in first and not local else 0][version] = list(offers)
        elif kind == "cpu" or not kinds:
            tiers[-1][version] = list(offers)
        else:
            machine_kinds = " and ".join(_KIND_NAMES[item] for item in kinds)
            reason = f"a build for {_KIND_NAMES[kind]} (+{version.local}); this machine has {machine_kinds}"
            rejected += [
                RankedWheel(offer.reject(RejectionStage.BUILD, reason), {}, reason) for offer in offers
            ]
    return tiers, rejected


def _rank_versions(
    tier: _WheelTier, sifted: SiftedFiles, host: TargetHost, reach: reader.IndexReader
) -> Iterator[tuple[Version, VariantsDocument, VersionRanking]]:
    """Rank version after version; the document of the newest is read alone, then several side by side.

    One that cannot be read is an error when its turn comes, and not before.
    """

    def read(version: Version) -> VariantsDocument:
        offers = tier[version]
        if all(offer.name.label is None for offer in offers):
            return VariantsDocument(VariantMetadata((), {}))
        link = sifted.documents.get(version)
        try:
            return read_variants(link, offers, reach)
        except errors.DataError as fault:
            plain = any(offer.name.label is None for offer in offers)
            if link is None or not plain:
                raise
            return _describe_unreadable(link, offers, fault)

    versions = list(tier)
    for batch in (
        versions[:1],
        *(versions[at : at + _RANK_JOBS] for at in range(1, len(versions), _RANK_JOBS)),
    ):
        for version, document in zip(
            batch, parallel.try_in_parallel(read, batch, jobs=_RANK_JOBS), strict=True
        ):
            if isinstance(document, Exception):
                raise document
            yield version, document, rank_wheels(tier[version], document, host)


def _list_unvisited(
    tiers: Sequence[_WheelTier], version: Version, rejected: Sequence[RankedWheel], ranking: VersionRanking
) -> list[RankedWheel]:
    """Return the wheels that were not looked at, because another one comes first."""
    visited = {wheel.offer.file for wheel in (*rejected, *ranking.ranked)}
    unvisited = []
    for tier in tiers:
        for offers in tier.values():
            for offer in offers:
                if offer.file not in visited:
                    unvisited.append(RankedWheel(offer, {}, _explain_unvisited(offer.version, version)))
    return unvisited


def _explain_unvisited(version: Version, picked: Version) -> str:
    """Say why a version was not looked at; the local parts of two builds of one version are no order."""
    kind = get_build_kind(version)
    if Version(version.public) >= Version(picked.public):
        return f"a build for {_KIND_NAMES.get(kind, 'other hardware')}: one for the GPU here comes first"
    return f"older than {picked}"


def _make_candidates(ranking: VersionRanking, rejected: Sequence[RankedWheel]) -> tuple[ChoiceCandidate, ...]:
    """Return the wheels that are ranked, then the others: the newest first."""
    ranked = [_make_candidate(wheel, number) for number, wheel in enumerate(ranking.ranked, start=1)]
    last = sorted(rejected, key=lambda wheel: wheel.offer.file)
    last.sort(key=lambda wheel: (wheel.offer.stage, wheel.offer.version), reverse=True)
    last.sort(key=lambda wheel: wheel.offer.version, reverse=True)
    return (*ranked, *(_make_candidate(wheel, None) for wheel in last))


def _make_candidate(wheel: RankedWheel, rank: int | None) -> ChoiceCandidate:
    offer, link = wheel.offer, wheel.offer.link
    properties: Properties = wheel.properties
    return ChoiceCandidate(
        name=offer.file,
        url=link.url,
        sha256=reader.require_link_digest(link),
        size=link.size,
        version=str(offer.version),
        label=offer.name.label,
        properties=properties,
        rank=rank,
        reason=wheel.reason,
        requires_python=link.requires_python,
        yanked=link.yanked,
        metadata=link.metadata,
    )


_LOOKUP_JOBS = 8
_DEVICE_PREFIX = "device-"
_ROCM_PROJECT = re.compile(r"rocm|rocm-sdk-.*|(pytorch-)?triton-rocm")
ALL_DEVICES = "device-all"


@dataclass(frozen=True)
class DeviceSource:
    """The machine, the URL of the index that wheels come from, and the way to it.

    ``links`` are those of the page that the host wheel is on: a folder of wheels has no other.
    """

    host: TargetHost
    base: str
    reach: reader.IndexReader
    links: Sequence[reader.IndexLink] = ()


@dataclass(frozen=True)
class DeviceExtras:
    """The extras to install a host wheel with, and the GPUs that get kernels by them."""

    extras: tuple[str, ...]
    served: tuple[tuple[Gpu, bool], ...]
    notes: tuple[str, ...]


def read_offer_metadata(offer: OfferedWheel, reach: reader.IndexReader) -> dist_info.WheelMetadata:
    """Read METADATA of a wheel. HostError when it cannot be had, DataError when it is not what it must be."""
    content = index_pages.read_wheel_metadata(offer.link, reach)
    return dist_info.parse_metadata(content, name=f"METADATA of {offer.file}")


def find_rocm_requirement(metadata: dist_info.WheelMetadata) -> str:
    """Return the requirement by which a wheel says that it is built for ROCm, "" when none does.

    Those are ROCm's own packages (``rocm[libraries]``, ``rocm-sdk-core``) and the builds of triton for it.
    """
    for text in metadata.requires_dist:
        requirement = Requirement(text)
        extra = requirement.marker is not None and "extra" in str(requirement.marker)
        if not extra and _ROCM_PROJECT.fullmatch(canonicalize_name(requirement.name)):
            return text
    return ""


def choose_device_extras(
    offer: OfferedWheel, metadata: dist_info.WheelMetadata, requested: Sequence[str], source: DeviceSource
) -> DeviceExtras | None:
    """Choose the device extras for a machine; None for a wheel that has none.

    ``requested`` are the extras that the requirement names: when device extras are among them, they are kept
    as they are. Else each GPU gets its own; beside a card graphics inside a processor get none. HostError for
    one that the wheel does not have, or whose wheels the index does not have.
    """
    offered = [
        extra for extra in map(canonicalize_name, metadata.provides_extra) if extra.startswith(_DEVICE_PREFIX)
    ]
    named_extras = [
        str(canonicalize_name(extra))
        for extra in requested
        if canonicalize_name(extra).startswith(_DEVICE_PREFIX)
    ]
    if not offered and not named_extras:
        return None
    for extra in named_extras:
        if extra not in offered:
            from rocm_wheels.core import tables

            raise errors.HostError(
                f"{offer.file} has no extra {extra}{tables.suggest_name(extra, offered)}",
                tip=f"it has {', '.join(sorted(offered))}"
                if offered
                else "it has none of that kind: ask without",
            )
    extra_by_gpu = {gpu: _find_extra(gpu, offered) for gpu in source.host.hardware.amd}
    extras = named_extras or list(dict.fromkeys(extra for extra in extra_by_gpu.values() if extra))
    lacking = dict(zip(extras, _find_lacking(extras, metadata, source), strict=True))
    if unmet := [extra for extra in named_extras if lacking[extra]]:
        raise errors.HostError(
            f"{offer.file}[{unmet[0]}] needs {lacking[unmet[0]]}, which the index does not have",
            tip="take another version, or index",
        )
    available = [extra for extra in extras if not lacking[extra]]
    left_out = [] if named_extras else _list_needless(extra_by_gpu, available)
    available = [extra for extra in available if extra not in left_out]
    served = tuple(
        (gpu, extra in available or bool(extra and ALL_DEVICES in available))
        for gpu, extra in extra_by_gpu.items()
    )
    gaps = _describe_gaps(extra_by_gpu, lacking, offer)
    gaps += [
        f"{extra} is left out: a card comes before graphics inside a processor; torch[{extra}] asks for it"
        for extra in left_out
    ]
    return DeviceExtras(tuple(available), served, tuple(gaps))


def _list_needless(extra_by_gpu: Mapping[Gpu, str | None], available: Sequence[str]) -> list[str]:
    """Return the extras of graphics inside processors alone, where a card has one."""
    for_cards = {
        extra for gpu, extra in extra_by_gpu.items() if gpu.integrated is not True and extra in available
    }
    return [extra for extra in available if for_cards and extra not in for_cards]


def _find_extra(gpu: Gpu, offered: Sequence[str]) -> str | None:
    """Return the extra of a GPU: its own, its generic target's, else a family's; None without one.

    Of a GPU that is of no family in the tables, a family's name that stands for it will do.
    """
    if gpu.gfx is None:
        return None
    from rocm_wheels.models import gfx

    families = gfx.find_families([gpu.gfx]) or [
        family
        for extra in offered
        if index_pages.is_named_by_family(family := extra.removeprefix(_DEVICE_PREFIX), gpu.gfx)
    ]
    names = [gpu.gfx, find_generic_target(gpu.gfx) or gpu.gfx, *families]
    matching = [extra for name in names if (extra := canonicalize_name(_DEVICE_PREFIX + name)) in offered]
    return matching[0] if matching else None


def _find_lacking(
    extras: Sequence[str], metadata: dist_info.WheelMetadata, source: DeviceSource
) -> list[str]:
    """Return for each extra the first requirement that the index cannot meet; "" when it meets all."""
    requirements = {extra: _list_required(metadata, extra, source.host) for extra in extras}
    every = list(dict.fromkeys(str(required) for several in requirements.values() for required in several))

    def is_available(text: str) -> bool:
        requirement = Requirement(text)
        links = index_pages.read_project_links(source.base, canonicalize_name(requirement.name), source.reach)
        return bool(sift_files(links or source.links, requirement, source.host, pre=True).usable)

    availability = dict(
        zip(every, parallel.run_in_parallel(is_available, every, jobs=_LOOKUP_JOBS), strict=True)
    )
    return [
        next((str(required) for required in requirements[extra] if not availability[str(required)]), "")
        for extra in extras
    ]


def _list_required(metadata: dist_info.WheelMetadata, extra: str, host: TargetHost) -> list[Requirement]:
    """Return what an extra adds to what a wheel requires on a machine, without its marker."""
    requirements = []
    for text in metadata.requires_dist:
        requirement = Requirement(text)
        marker, requirement.marker = requirement.marker, None
        if marker is None:
            continue
        environment = make_markers(host)
        if marker.evaluate({**environment, "extra": extra}) and not marker.evaluate(
            {**environment, "extra": ""}
        ):
            requirements.append(requirement)
    return requirements


def make_markers(host: TargetHost) -> Mapping[str, str]:
    """Return the markers of a machine (PEP 508) that say what it is."""
    system, os_name, platform = {
        "linux": ("Linux", "posix", "linux"),
        "windows": ("Windows", "nt", "win32"),
        "macos": ("Darwin", "posix", "darwin"),
    }[host.platform]
    python = host.python.removesuffix("t")
    return {
        "os_name": os_name,
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": host.machine.upper() if host.platform == "windows" else host.machine,
        "python_version": python,
        "python_full_version": host.full_python if host.full_python.count(".") > 1 else f"{python}.0",
    }


def _describe_gaps(
    extra_by_gpu: Mapping[Gpu, str | None], lacking: Mapping[str, str], offer: OfferedWheel
) -> list[str]:
    notes = []
    for gpu, extra in extra_by_gpu.items():
        if extra is None:
            notes.append(f"{offer.file} has no kernels for {gpu.gfx or gpu.name or 'an unknown GPU'}")
        elif lacking.get(extra):
            notes.append(
                f"no kernels for {gpu.gfx}: {extra} needs {lacking[extra]}, which the index does not have"
            )
    return list(dict.fromkeys(notes))
