"""Read and join variant documents: ``variant.json`` of a wheel, ``…-variants.json`` of an index.

Only documents that follow PEP 825 and PEP 850 are read here; ``legacy`` reads what was written before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rocm_wheels.errors import DataError
from rocm_wheels.variants.document import Properties, Provider, VariantMetadata, describe_properties
from rocm_wheels.variants.reading import validate_document, read_json

__all__ = [
    "VARIANT_FILE_NAME",
    "VariantMetadata",
    "find_wheel_document_faults",
    "merge_documents",
    "parse_document",
    "parse_wheel_document",
]

VARIANT_FILE_NAME = "variant.json"  # in the .dist-info folder of a wheel
NamedDocuments = Sequence[tuple[str, VariantMetadata]]


def parse_document(content: bytes, *, name: str) -> VariantMetadata:
    """Read a document; DataError with ``name`` (the file) and the key when it breaks a rule of the PEPs."""
    return validate_document(read_json(content, name), name)


def parse_wheel_document(content: bytes, *, name: str, label: str) -> VariantMetadata:
    """Read the ``variant.json`` of a wheel with ``label`` in its file name: that variant and no other."""
    document = parse_document(content, name=name)
    if tuple(document.variants) != (label,):
        labels = ", ".join(sorted(document.variants)) or "none"
        raise DataError(
            f"{name}: variants: the file name says {label}, here is {labels}",
            tip="a wheel states exactly its own variant; rocm-wheels restamp repairs it",
        )
    return document


def find_wheel_document_faults(content: bytes | None, *, name: str, label: str) -> list[str]:
    """Return what is wrong with the ``variant.json`` of a wheel with a label; None means that it has none."""
    if content is None:
        return [f"{name} is missing, the file name has the label {label}"]
    try:
        parse_wheel_document(content, name=name, label=label)
    except DataError as fault:
        return [str(fault)]
    return []


def merge_documents(documents: NamedDocuments) -> VariantMetadata:
    """Join the documents of all wheels of a release, given as (file name of the wheel, its document).

    Rules (PEP 825; for providers PEP 850): of two lists of namespaces one begins with the other, and the
    longer is taken; a label stands for the same properties everywhere, a namespace has the same
    provider everywhere. The order of ``documents`` does not matter. DataError that names both wheels.
    """
    if not documents:
        raise DataError("there is no variant to join: no documents were given")
    ordered = sorted(documents, key=lambda pair: (-len(pair[1].namespaces), pair[0]))
    longest, first = ordered[0]
    for wheel, document in ordered:
        if first.namespaces[: len(document.namespaces)] != document.namespaces:
            raise DataError(
                f"{longest} and {wheel} rank the namespaces differently: "
                f"{', '.join(first.namespaces)} and {', '.join(document.namespaces)}",
                tip="one list must begin with the other: stamp or restamp the second with --join the first",
            )
    providers = _merge_providers(ordered)
    if providers and providers.keys() != set(first.namespaces):
        silent = ", ".join(sorted(set(first.namespaces) - providers.keys()))
        speaks = next(wheel for wheel, document in ordered if document.providers)
        raise DataError(
            f"{longest} names no provider of {silent}, {speaks} names its own",
            tip="in a release all wheels name their providers, or none does",
        )
    return VariantMetadata(first.namespaces, _merge_properties(ordered), providers)


def _merge_properties(documents: Iterable[tuple[str, VariantMetadata]]) -> dict[str, Properties]:
    merged: dict[str, tuple[str, Properties]] = {}
    for wheel, document in documents:
        for label, properties in document.variants.items():
            first_wheel, existing = merged.setdefault(label, (wheel, properties))
            if existing != properties:
                raise DataError(
                    f"{first_wheel} and {wheel} have the label {label} with different properties: "
                    f"{describe_properties(existing)} and {describe_properties(properties)}",
                    tip="a label stands for one set of properties in a release: choose another --label",
                )
    return {label: properties for label, (_, properties) in sorted(merged.items())}


def _merge_providers(documents: Iterable[tuple[str, VariantMetadata]]) -> dict[str, Provider]:
    merged: dict[str, tuple[str, Provider]] = {}
    for wheel, document in documents:
        for namespace, provider in document.providers.items():
            first_wheel, existing = merged.setdefault(namespace, (wheel, provider))
            if existing != provider:
                raise DataError(
                    f"{first_wheel} and {wheel} name different providers of {namespace}: "
                    f"{json.dumps(existing.as_json())} and {json.dumps(provider.as_json())}",
                    tip="a namespace has one provider in a release: restamp the second with --join the first",
                )
    return {namespace: provider for namespace, (_, provider) in sorted(merged.items())}
