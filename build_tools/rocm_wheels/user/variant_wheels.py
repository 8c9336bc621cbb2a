"""Rank the wheels of one version for a machine: variants by PEP 825, then ``null``, then plain wheels.

The ``-variants.json`` of an index is a cache of the wheels' own documents: labels that it does not list
are read from the wheels, as the PEP allows (uv leaves such wheels out). Where one is damaged, or is not what
the page says that it is, no variant of that version is taken: its plain wheel is, with a warning, and without
a plain wheel it is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, parallel, shell
from rocm_wheels.index import reader
from rocm_wheels.user.candidates import ChoiceCandidate, KnownFeature, RejectionStage
from rocm_wheels.user.host import TargetHost
from rocm_wheels.variants import document, order

_READ_JOBS = 8
_MAX_VALUES = 12
_NOTHING = document.VariantMetadata((), {})


@dataclass(frozen=True)
class RankedRelease:
    """The wheels of a version that fit Python and platform: ``ranked`` best first, ``out`` with the reasons.

    ``metadata`` is what is known of all its variants, ``support`` who says what the machine supports of them;
    ``notes`` are about the documents.
    """

    version: Version
    ranked: tuple[ChoiceCandidate, ...]
    out: tuple[ChoiceCandidate, ...]
    metadata: document.VariantMetadata
    support: Mapping[str, order.NamespaceSupport]
    notes: tuple[str, ...]

    @property
    def has_variants(self) -> bool:
        """Tell whether any variant is for some machines alone."""
        return any(self.metadata.variants.values())

    def list_known_features(self) -> tuple[KnownFeature, ...]:
        """Return of every feature that a variant has what the machine supports."""
        used = {
            (namespace, feature)
            for properties in self.metadata.variants.values()
            for namespace, features in properties.items()
            for feature in features
        }
        return tuple(
            KnownFeature(namespace, feature, tuple(answer.features.get(feature, ())), answer.source)
            for namespace, answer in self.support.items()
            for feature in sorted(feature for user, feature in used if user == namespace)
        )


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
    metadata, missing, notes = _NOTHING, dict[str, str](), list[str]()
    if any(wheel.label is not None for wheel in wheels):
        try:
            metadata, missing = _read_variants(link, wheels, reach)
        except errors.DataError as fault:
            if link is None or all(wheel.label is not None for wheel in wheels):
                raise
            url = shell.hide_credentials(link.url)
            missing = {wheel.label: f"{url} cannot be read" for wheel in wheels if wheel.label is not None}
            notes = [
                f"WARNING: {url} cannot be read, and no variant is chosen without it: "
                f"{errors.explain_error(fault)}"
            ]

    # by PEP 850 the versions that a project's ABI goes by are 2.9.1, 2.9, 2; what is no version says nothing
    abis = {}
    for name, text in host.versions.items():
        with contextlib.suppress(InvalidVersion):
            release = Version(text).release
            abis[canonicalize_name(name).replace("-", "_")] = tuple(
                ".".join(map(str, release[:length])) for length in range(len(release), 0, -1)
            )
    machine = {**host.supported, document.ABI_NAMESPACE: abis}
    support = order.find_support(metadata, machine, host.enabled)
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
    out = [
        wheel.reject(
            RejectionStage.PROPERTIES,
            missing.get(wheel.label or "") or _explain_unsupported(wheel.properties, support, host),
        )
        for wheel in wheels
        if wheel.label is not None and wheel.label not in places
    ]
    return RankedRelease(version, tuple(ranked), tuple(out), metadata, support, tuple(notes))


def _read_variants(
    link: reader.IndexLink | None, wheels: Sequence[ChoiceCandidate], reach: reader.IndexReader
) -> tuple[document.VariantMetadata, dict[str, str]]:
    """Return what is known of the variants, and of labels why nothing is known of them."""
    metadata = _NOTHING if link is None else _read_index_document(link, reach)
    missing: dict[str, str] = {}
    unlisted: dict[str, ChoiceCandidate] = {}
    for wheel in wheels:
        if wheel.label is not None and wheel.label not in metadata.variants:
            unlisted.setdefault(wheel.label, wheel)

    def read_wheel_document(wheel: ChoiceCandidate) -> document.VariantMetadata:
        _, text = reach.fetch_metadata_and_variant(wheel.url, wheel.name, wheel.size)
        if text is None:
            raise errors.DataError(f"{wheel.name} has no {document.VARIANT_FILE_NAME}")
        return document.parse_document(text.encode(), name=f"{wheel.name}: {document.VARIANT_FILE_NAME}")

    documents = parallel.try_in_parallel(read_wheel_document, unlisted.values(), jobs=_READ_JOBS)
    for (label, wheel), wheel_document in zip(unlisted.items(), documents, strict=True):
        if isinstance(wheel_document, reader.UnreachableError) and link is None:
            raise wheel_document  # the wheel for this machine may be the one
        if isinstance(wheel_document, (errors.DataError, reader.UnreachableError)):
            missing[label] = f"its requirements are unknown: {wheel_document}"
        elif isinstance(wheel_document, Exception):
            raise wheel_document
        elif not metadata.variants:
            metadata = wheel_document
        else:
            try:
                metadata = document.merge_documents(
                    [("the document", metadata), (wheel.name, wheel_document)]
                )
            except errors.DataError as cause:
                missing[label] = str(cause)
    return metadata, missing


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
    if reader.require_link_digest(link) not in (None, sha256(answer.content).hexdigest()):
        raise errors.DataError(
            f"{name} is not what its page says (sha256 {link.sha256})",
            tip="it was being changed, or is damaged: try again, or `rocm-wheels index verify`",
        )
    try:
        return document.parse_document(answer.content, name=name)
    except errors.DataError as fault:
        try:
            old = document.read_any_format(answer.content, name=name)
        except errors.DataError:
            raise fault from None
    used = {namespace for properties in old.variants.values() for namespace in properties}
    namespaces = (*old.namespaces, *sorted(used - set(old.namespaces)))
    return document.VariantMetadata(namespaces, old.variants, old.providers)


def _explain_unsupported(
    properties: document.Properties, support: Mapping[str, order.NamespaceSupport], host: TargetHost
) -> str:
    """Say which properties the machine does not support, and what it has instead."""
    reasons = []
    supported = {namespace: answer.features for namespace, answer in support.items()}
    for namespace, feature in order.list_unsupported(properties, supported):
        answer = support[namespace]
        by_machine = answer.source.startswith("this machine")
        machine_values = host.supported.get(namespace, {}).get(feature, ()) if by_machine else ()
        if values := list(machine_values or answer.features.get(feature, ())):
            listed = ", ".join(values) if len(values) <= _MAX_VALUES else f"{values[0]} … {values[-1]}"
            instead = f"this machine has {listed}"
        elif by_machine and (namespace, feature) == (document.AMD_NAMESPACE, document.GFX_ARCH):
            instead = "this machine has no AMD GPU whose target is known"
        elif by_machine and (namespace, feature) == (document.AMD_NAMESPACE, document.HOST_ROCM_VERSION):
            instead = "no ROCm was found on this machine"
        else:
            instead = answer.source if not answer.features else "nothing here supports that feature"
        reasons.append(f"{namespace} :: {feature} is {', '.join(properties[namespace][feature])}; {instead}")
    return "; ".join(reasons)
