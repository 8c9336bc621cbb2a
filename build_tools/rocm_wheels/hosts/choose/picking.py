"""The version that is taken, and its best wheel: versions first (newest first), then variants within one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.version import Version

from rocm_wheels import parallel
from rocm_wheels.hosts.choose.candidate import ChoiceCandidate
from rocm_wheels.hosts.choose.documents import VariantsDocument, read_variants
from rocm_wheels.hosts.choose.host import TargetHost
from rocm_wheels.hosts.choose.ranking import RankedWheel, VersionRanking, rank_wheels
from rocm_wheels.hosts.choose.sift import OfferedWheel, SiftedFiles, RejectionStage, get_build_kind
from rocm_wheels.hosts.choose.vendors import list_build_kinds
from rocm_wheels.index.reach import IndexReader
from rocm_wheels.index.reading import require_link_digest
from rocm_wheels.variants.document import Properties, VariantMetadata

_RANK_JOBS = 8
_KIND_NAMES = {"rocm": "AMD GPUs", "cuda": "NVIDIA GPUs", "xpu": "Intel GPUs", "cpu": "the CPU"}


@dataclass(frozen=True)
class PickedVersion:
    """``version`` is None when no wheel fits. ``document`` and ``ranking`` are those of that version;
    ``second_best`` is True for a build that is not for this machine's GPU, taken for want of one that is."""

    version: Version | None
    document: VariantsDocument
    ranking: VersionRanking
    candidates: tuple[ChoiceCandidate, ...]
    rejected: tuple[RankedWheel, ...]
    second_best: bool = False


def pick_version(
    sifted: SiftedFiles, requirement: Requirement, host: TargetHost, reach: IndexReader
) -> PickedVersion:
    """Pick the newest version of which a wheel fits, builds for this machine's GPU before others."""
    tiers, unsuitable = _split_tiers(sifted, requirement, host)
    rejected: list[RankedWheel] = []
    for number, tier in enumerate(tiers):
        for version, document, ranking in _rank_versions(tier, sifted, host, reach):
            rejected += ranking.rejected
            if ranking.ranked:
                unvisited = _list_unvisited(tiers, version, rejected, ranking)
                candidates = _make_candidates(ranking, [*unsuitable, *rejected, *unvisited])
                return PickedVersion(
                    version, document, ranking, candidates, (*unsuitable, *rejected), number + 1 == len(tiers)
                )
    nothing = VersionRanking((), (), {})
    return PickedVersion(
        None,
        VariantsDocument(VariantMetadata((), {})),
        nothing,
        _make_candidates(nothing, [*unsuitable, *rejected]),
        (*unsuitable, *rejected),
    )


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
    tier: _WheelTier, sifted: SiftedFiles, host: TargetHost, reach: IndexReader
) -> Iterator[tuple[Version, VariantsDocument, VersionRanking]]:
    """Rank version after version; the document of the newest is read alone, then several side by side.

    One that cannot be read is an error when its turn comes, and not before.
    """

    def read(version: Version) -> VariantsDocument:
        offers = tier[version]
        if all(offer.name.label is None for offer in offers):
            return VariantsDocument(VariantMetadata((), {}))
        return read_variants(sifted.documents.get(version), offers, reach)

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
                    older = offer.version < version
                    reason = f"older than {version}" if older else "not a build for this machine's hardware"
                    unvisited.append(RankedWheel(offer, {}, reason))
    return unvisited


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
        sha256=require_link_digest(link),
        size=link.size,
        version=str(offer.version),
        label=offer.name.label,
        properties=properties,
        rank=rank,
        reason=wheel.reason,
        requires_python=link.requires_python,
        yanked=link.yanked,
    )
