"""The version that is taken, and its best wheel: versions first (newest first), then variants within one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.version import Version

from rocm_wheels import parallel
from rocm_wheels.hosts.choose.candidate import Candidate
from rocm_wheels.hosts.choose.documents import Document, read_document
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.hosts.choose.ranking import Ranked, Ranking, rank
from rocm_wheels.hosts.choose.sift import Offer, Sifted, Stage, kind_of
from rocm_wheels.hosts.choose.vendors import kinds_of
from rocm_wheels.index.reach import Reach
from rocm_wheels.index.reading import stated_digest
from rocm_wheels.variants.document import Properties, VariantMetadata

_JOBS = 8
_NAMES = {"rocm": "AMD GPUs", "cuda": "NVIDIA GPUs", "xpu": "Intel GPUs", "cpu": "the CPU"}


@dataclass(frozen=True)
class Picked:
    """``version`` is None when no wheel fits. ``document`` and ``ranking`` are those of that version;
    ``second_best`` is True for a build that is not for this machine's GPU, taken for want of one that is."""

    version: Version | None
    document: Document
    ranking: Ranking
    candidates: tuple[Candidate, ...]
    out: tuple[Ranked, ...]
    second_best: bool = False


def pick(sifted: Sifted, requirement: Requirement, host: Host, reach: Reach) -> Picked:
    """Pick the newest version of which a wheel fits, builds for this machine's GPU before others."""
    tiers, out = _tiers(sifted, requirement, host)
    seen: list[Ranked] = []
    for number, tier in enumerate(tiers):
        for version, document, ranking in _ranked(tier, sifted, host, reach):
            seen += ranking.out
            if ranking.ranked:
                rest = _rest(tiers, version, seen, ranking)
                candidates = _candidates(ranking, [*out, *seen, *rest])
                return Picked(version, document, ranking, candidates, (*out, *seen), number + 1 == len(tiers))
    nothing = Ranking((), (), {})
    return Picked(
        None, Document(VariantMetadata((), {})), nothing, _candidates(nothing, [*out, *seen]), (*out, *seen)
    )


_Tier = dict[Version, list[Offer]]


def _tiers(sifted: Sifted, requirement: Requirement, host: Host) -> tuple[list[_Tier], list[Ranked]]:
    """Part the wheels that fit into builds for this machine's GPUs, the best first, and those that will do.

    ``+rocm7.2``, ``+cu128``, ``+xpu`` and ``+cpu`` tell what a build is for. A build for the GPU of a vendor
    that is not here is out, and never taken in place of one for the CPU. One that is asked for by its local
    version is.
    """
    out = [Ranked(offer, {}, offer.reason) for offer in sifted.out]
    local = any("+" in one.version for one in requirement.specifier)
    kinds = kinds_of(host)
    first = kinds or ("cpu",)
    tiers: list[_Tier] = [{} for _ in (*first, "the rest")]
    for version, offers in sifted.usable.items():
        kind = kind_of(version)
        if local or not kind or kind in first:
            tiers[first.index(kind) if kind in first and not local else 0][version] = list(offers)
        elif kind == "cpu" or not kinds:
            tiers[-1][version] = list(offers)
        else:
            theirs = " and ".join(_NAMES[one] for one in kinds)
            reason = f"a build for {_NAMES[kind]} (+{version.local}); this machine has {theirs}"
            out += [Ranked(offer.out(Stage.BUILD, reason), {}, reason) for offer in offers]
    return tiers, out


def _ranked(
    tier: _Tier, sifted: Sifted, host: Host, reach: Reach
) -> Iterator[tuple[Version, Document, Ranking]]:
    """Rank version after version; the document of the newest is read alone, then several side by side.

    One that cannot be read is an error when its turn comes, and not before.
    """

    def read(version: Version) -> Document:
        offers = tier[version]
        if all(offer.name.label is None for offer in offers):
            return Document(VariantMetadata((), {}))
        return read_document(sifted.documents.get(version), offers, reach)

    versions = list(tier)
    for some in (versions[:1], *(versions[at : at + _JOBS] for at in range(1, len(versions), _JOBS))):
        for version, document in zip(some, parallel.results_of(read, some, jobs=_JOBS), strict=True):
            if isinstance(document, Exception):
                raise document
            yield version, document, rank(tier[version], document, host)


def _rest(tiers: Sequence[_Tier], version: Version, seen: Sequence[Ranked], ranking: Ranking) -> list[Ranked]:
    """Return the wheels that were not looked at, because another one comes first."""
    known = {one.offer.file for one in (*seen, *ranking.ranked)}
    found = []
    for tier in tiers:
        for offers in tier.values():
            for offer in offers:
                if offer.file not in known:
                    older = offer.version < version
                    reason = f"older than {version}" if older else "not a build for this machine's hardware"
                    found.append(Ranked(offer, {}, reason))
    return found


def _candidates(ranking: Ranking, out: Sequence[Ranked]) -> tuple[Candidate, ...]:
    """Return the wheels that are ranked, then the others: the newest first."""
    ranked = [_candidate(one, number) for number, one in enumerate(ranking.ranked, start=1)]
    last = sorted(out, key=lambda one: one.offer.file)
    last.sort(key=lambda one: (one.offer.stage, one.offer.version), reverse=True)
    last.sort(key=lambda one: one.offer.version, reverse=True)
    return (*ranked, *(_candidate(one, None) for one in last))


def _candidate(one: Ranked, rank: int | None) -> Candidate:
    offer, link = one.offer, one.offer.link
    properties: Properties = one.properties
    return Candidate(
        name=offer.file,
        url=link.url,
        sha256=stated_digest(link),
        size=link.size,
        version=str(offer.version),
        label=offer.name.label,
        properties=properties,
        rank=rank,
        reason=one.reason,
        requires_python=link.requires_python,
        yanked=link.yanked,
    )
