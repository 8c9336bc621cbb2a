"""The wheels of one version in the order of preference: variants by PEP 825, ``null``, then plain ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocm_wheels.hosts.choose.documents import Document
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.hosts.choose.sift import Offer, Stage, build_rank
from rocm_wheels.variants.document import NULL_LABEL, Properties
from rocm_wheels.variants.order import Answer, answers, order_labels, places, unsupported, why_after

_MOST = 12
_GPU, _HOST_ROCM = ("amd", "gfx_arch"), ("amd", "rocm_version")


@dataclass(frozen=True)
class Ranked:
    """A wheel with its place among those of its version, and the reason for it."""

    offer: Offer
    properties: Properties
    reason: str


@dataclass(frozen=True)
class Ranking:
    """``ranked`` best first, ``out`` what the machine cannot use; ``answers`` who says what it supports."""

    ranked: tuple[Ranked, ...]
    out: tuple[Ranked, ...]
    answers: Mapping[str, Answer]


def rank(offers: Sequence[Offer], document: Document, host: Host) -> Ranking:
    """Rank the wheels of one version, which all fit the Python and the platform."""
    metadata = document.metadata
    said = answers(metadata, host.supported, host.enabled)
    supported = {namespace: answer.features for namespace, answer in said.items()}
    order = {label: number for number, label in enumerate(order_labels(metadata, supported))}
    ranked: list[Offer] = []
    out: list[Ranked] = []
    for offer in offers:
        label = offer.name.label
        properties = metadata.variants.get(label or "", {})
        if label is not None and label not in order:
            reason = document.missing.get(label) or _why_not(properties, said, host)
            out.append(Ranked(offer.out(Stage.PROPERTIES, reason), properties, reason))
        else:
            ranked.append(offer)
    ranked.sort(
        key=lambda one: (order.get(one.name.label or "", len(order)), one.place, build_rank(one.name))
    )
    found: list[Ranked] = []
    for number, offer in enumerate(ranked):
        properties = metadata.variants.get(offer.name.label or "", {})
        if number:
            reason = _why_below(ranked[number - 1], offer, document, supported)
        else:
            reason = _why_first(offer, document, supported)
        found.append(Ranked(offer, properties, reason))
    return Ranking(tuple(found), tuple(out), said)


def _why_first(offer: Offer, document: Document, supported: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    label = offer.name.label
    if label is None:
        return "no variant fits" if document.metadata.variants else "the newest version that fits"
    if label == NULL_LABEL:
        only = not any(document.metadata.variants.values())
        return (
            f"{'the only variant' if only else 'no variant with properties fits'}: null is for every machine"
        )
    best = places(document.metadata.variants[label], document.metadata.namespaces, supported)
    return f"best for this machine: {', '.join(map(str, best))}"


def _why_below(
    above: Offer, offer: Offer, document: Document, supported: Mapping[str, Mapping[str, Sequence[str]]]
) -> str:
    if above.name.label != offer.name.label:
        if above.name.label is None or offer.name.label is None:
            return "no variant: after all variants that fit"
        return why_after(above.name.label, offer.name.label, document.metadata, supported)
    if above.place != offer.place:
        tag = next(iter(sorted(map(str, offer.name.tags))))
        return f"its tag {tag} is less special than that of the one above"
    return "its build tag is lower"


def _why_not(properties: Properties, said: Mapping[str, Answer], host: Host) -> str:
    """Say which properties the machine does not support."""
    found = []
    for namespace, feature in unsupported(properties, {ns: one.features for ns, one in said.items()}):
        wanted = ", ".join(properties[namespace][feature])
        found.append(
            f"{namespace} :: {feature} is {wanted}; {_had(namespace, feature, said[namespace], host)}"
        )
    return "; ".join(found)


def _had(namespace: str, feature: str, answer: Answer, host: Host) -> str:
    by_machine = answer.source.startswith("this machine")
    own = host.supported.get(namespace, {}).get(feature, ()) if by_machine else ()
    values = list(own or answer.features.get(feature, ()))
    if values:
        return (
            f"this machine has {', '.join(values) if len(values) <= _MOST else f'{values[0]} … {values[-1]}'}"
        )
    if by_machine and (namespace, feature) == _GPU:
        return "this machine has no AMD GPU whose target is known"
    if by_machine and (namespace, feature) == _HOST_ROCM:
        return "no ROCm was found on this machine"
    return answer.source if not answer.features else "nothing here supports that feature"
