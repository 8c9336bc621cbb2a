"""Rank the wheels of one version for a machine: variants by PEP 825, then ``null``, then plain wheels.

What variants are for is in the ``-variants.json`` of the index; in a folder without one, in the wheels' own
documents. A label that the document does not list is not taken, as uv has it. Where a document is damaged, or
is not what the page says that it is, no variant of that version is taken: its plain wheel is, with a warning,
and without a plain wheel it is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, parallel, shell
from rocm_wheels.index import reader
from rocm_wheels.user import index_pages
from rocm_wheels.user.candidates import ChoiceCandidate, KnownFeature, RejectionStage
from rocm_wheels.user.host import TargetHost
from rocm_wheels.variants import document, order

_READ_JOBS = 8
_MAX_VALUES = 12


@dataclass(frozen=True)
class RankedRelease:
    """The wheels of a version that fit Python and platform: ``ranked`` best first, ``out`` with the reasons.

    ``variants`` are the properties by label, () without any; ``known`` is what the machine supports of the
    features in them; ``notes`` are about the documents.
    """

    version: Version
    ranked: tuple[ChoiceCandidate, ...]
    out: tuple[ChoiceCandidate, ...]
    variants: Mapping[str, document.Properties]
    known: tuple[KnownFeature, ...]
    notes: tuple[str, ...]

    @property
    def has_variants(self) -> bool:
        """Tell whether any variant is for some machines alone."""
        return any(self.variants.values())


def rank_release(
    version: Version,
    wheels: Sequence[ChoiceCandidate],
    link: reader.IndexLink | None,
    host: TargetHost,
    reach: reader.IndexReader,
) -> RankedRelease:
    """Rank the wheels of a version; ``link`` is the index's document of its variants, if it has one.

    HostError for a document that cannot be had, or a wheel where there is none; DataError for a document that
    is not what it must be, where there is no plain wheel.
    """
    metadata = document.VariantMetadata((), {})
    unread, notes = "", []
    labelled = [wheel for wheel in wheels if wheel.label is not None]
    if labelled:
        try:
            metadata = _read_index_document(link, reach) if link else _read_wheel_documents(labelled, reach)
        except errors.DataError as fault:
            if link is None or len(labelled) == len(wheels):
                raise
            unread = f"{shell.hide_credentials(link.url)} cannot be read"
            why = errors.explain_error(fault)
            notes.append(f"WARNING: {unread}, and no variant is chosen without it: {why}")

    # by PEP 850 the versions that a project's ABI goes by are 2.9.1, 2.9, 2; what is no version says nothing
    abis = {}
    for name, text in host.versions.items():
        with contextlib.suppress(InvalidVersion):
            release = Version(text).release
            abis[canonicalize_name(name).replace("-", "_")] = tuple(
                ".".join(map(str, release[:length])) for length in range(len(release), 0, -1)
            )
    machine = {**host.supported, document.ABI_NAMESPACE: abis}
    support = order.find_support(metadata, machine)
    supported = {namespace: answer.features for namespace, answer in support.items()}
    places = {label: place for place, label in enumerate(order.order_labels(metadata, supported))}
    wheels = [replace(wheel, properties=metadata.variants.get(wheel.label or "", {})) for wheel in wheels]
    usable = [wheel for wheel in wheels if wheel.label is None or wheel.label in places]
    usable.sort(key=lambda wheel: (places.get(wheel.label or "", len(places)), wheel.get_install_key()))
    ranked: list[ChoiceCandidate] = []
    for wheel in usable:
        above = ranked[-1] if ranked else None
        if above is not None and above.label != wheel.label:
            if above.label is None or wheel.label is None:
                reason = "no variant: after all variants that fit"
            else:
                reason = order.explain_order(above.label, wheel.label, metadata, supported)
        elif above is not None and above.tag_rank != wheel.tag_rank:
            tag = min(map(str, wheel.wheel.tags))
            reason = f"its tag {tag} is less special than that of the one above"
        elif above is not None:
            reason = "its build tag is lower"
        elif wheel.label is None:
            reason = "no variant fits" if metadata.variants else "the newest version that fits"
        elif wheel.label == document.NULL_LABEL:
            has_others = any(metadata.variants.values())
            which = "no variant with properties fits" if has_others else "the only variant"
            reason = f"{which}: null is for every machine"
        else:
            best = order.rank_properties(wheel.properties, metadata.namespaces, supported)
            reason = f"best for this machine: {', '.join(map(str, best))}"
        ranked.append(replace(wheel, rank=len(ranked) + 1, reason=reason))
    out = []
    for wheel in wheels:
        if wheel.label is not None and wheel.label not in places:
            reason = unread or _explain_unsupported(wheel.properties, support, host)
            if not unread and wheel.label not in metadata.variants:
                reason = "the document of the variants does not list its label"
            out.append(wheel.reject(RejectionStage.PROPERTIES, reason))
    known = [
        KnownFeature(namespace, feature, tuple(answer.features.get(feature, ())), answer.source)
        for namespace, answer in support.items()
        for feature in sorted(
            {name for variant in metadata.variants.values() for name in variant.get(namespace, ())}
        )
    ]
    return RankedRelease(version, tuple(ranked), tuple(out), metadata.variants, tuple(known), tuple(notes))


def _read_wheel_documents(
    labelled: Sequence[ChoiceCandidate], reach: reader.IndexReader
) -> document.VariantMetadata:
    """Return what the wheels of a folder say themselves: of each label one wheel."""

    def read(wheel: ChoiceCandidate) -> document.VariantMetadata:
        _, text = reach.fetch_metadata_and_variant(wheel.url, wheel.name, wheel.size)
        if text is None:
            raise errors.DataError(f"{wheel.name} has no {document.VARIANT_FILE_NAME}")
        return document.parse_document(text.encode(), name=f"{wheel.name}: {document.VARIANT_FILE_NAME}")

    wheels = list({wheel.label: wheel for wheel in labelled}.values())
    documents = parallel.run_in_parallel(read, wheels, jobs=_READ_JOBS)
    return document.merge_documents(
        [(wheel.name, content) for wheel, content in zip(wheels, documents, strict=True)]
    )


def _read_index_document(link: reader.IndexLink, reach: reader.IndexReader) -> document.VariantMetadata:
    """Read a document of today's form, else one of 2025."""
    name = reader.file_name_of_link(link)
    answer = reach.get(link.url)
    if answer.status in (403, 404, 410):
        raise errors.DataError(
            f"{shell.hide_credentials(link.url)} answers {answer.status}",
            tip="the page lists it: the index is damaged",
        )
    if answer.status != 200:
        raise reader.make_status_error(link.url, answer.status)
    index_pages.require_stated_digest(name, answer.content, reader.require_link_digest(link))
    return document.read_any_format(answer.content, name=name)


def _explain_unsupported(
    properties: document.Properties, support: Mapping[str, order.NamespaceSupport], host: TargetHost
) -> str:
    """Say which properties the machine does not support, and what it has instead."""
    reasons = []
    supported = {namespace: answer.features for namespace, answer in support.items()}
    for namespace, feature in order.list_unsupported(properties, supported):
        answer = support[namespace]
        by_machine = answer.source.startswith("this machine")
        own_values = host.supported.get(namespace, {}).get(feature, ()) if by_machine else ()
        values = list(own_values or answer.features.get(feature, ()))
        lacks = "nothing here supports that feature" if answer.features else answer.source
        if values:
            listed = ", ".join(values) if len(values) <= _MAX_VALUES else f"{values[0]} … {values[-1]}"
            lacks = f"this machine has {listed}"
        elif by_machine and namespace == document.AMD_NAMESPACE:
            lacks = {
                document.GFX_ARCH: "this machine has no AMD GPU whose target is known",
                document.HOST_ROCM_VERSION: "no ROCm was found on this machine",
            }.get(feature, lacks)
        reasons.append(f"{namespace} :: {feature} is {', '.join(properties[namespace][feature])}; {lacks}")
    return "; ".join(reasons)
