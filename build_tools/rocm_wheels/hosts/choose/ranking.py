"""The wheels of one version in the order of preference: variants by PEP 825, ``null``, then plain ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocm_wheels.hosts.choose.documents import VariantsDocument
from rocm_wheels.hosts.choose.host import TargetHost
from rocm_wheels.hosts.choose.sift import OfferedWheel, RejectionStage, rank_build_tag
from rocm_wheels.variants.document import NULL_LABEL, Properties
from rocm_wheels.variants.order import (
    NamespaceSupport,
    find_support,
    order_labels,
    rank_properties,
    list_unsupported,
    explain_order,
)

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
    """``ranked`` best first, ``rejected`` what the machine cannot use; ``support`` who says what it supports."""

    ranked: tuple[RankedWheel, ...]
    rejected: tuple[RankedWheel, ...]
    support: Mapping[str, NamespaceSupport]


def rank_wheels(
    offers: Sequence[OfferedWheel], document: VariantsDocument, host: TargetHost
) -> VersionRanking:
    """Rank the wheels of one version, which all fit the Python and the platform."""
    metadata = document.metadata
    support = find_support(metadata, host.supported, host.enabled)
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
            f"{namespace} :: {feature} is {values}; {_describe_machine(namespace, feature, support[namespace], host)}"
        )
    return "; ".join(reasons)


def _describe_machine(namespace: str, feature: str, answer: NamespaceSupport, host: TargetHost) -> str:
    by_machine = answer.source.startswith("this machine")
    machine_values = host.supported.get(namespace, {}).get(feature, ()) if by_machine else ()
    values = list(machine_values or answer.features.get(feature, ()))
    if values:
        return f"this machine has {', '.join(values) if len(values) <= _MAX_VALUES else f'{values[0]} … {values[-1]}'}"
    if by_machine and (namespace, feature) == _GPU_FEATURE:
        return "this machine has no AMD GPU whose target is known"
    if by_machine and (namespace, feature) == _HOST_ROCM_FEATURE:
        return "no ROCm was found on this machine"
    return answer.source if not answer.features else "nothing here supports that feature"
