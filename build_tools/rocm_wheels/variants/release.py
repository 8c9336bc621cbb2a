"""What all variants of a release share: the ranking of namespaces, and the provider of each.

Joining the documents of a release demands that both are the same everywhere (PEP 825, PEP 850). So
a stamp settles them for all wheels of one version together, and takes over what a wheel or index document
that is named with ``--join`` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from rocm_wheels.errors import DataError
from rocm_wheels.variants.document import (
    AMD_NAMESPACE,
    GFX_ARCH,
    ROCM_NAMESPACE,
    ROCM_VERSION,
    Properties,
    Provider,
    VariantMetadata,
)
from rocm_wheels.variants.metadata import VARIANT_FILE_NAME, merge_documents, parse_document
from rocm_wheels.variants.providers import ProviderChoice
from rocm_wheels.wheels.archive.rewrite import read_dist_info_files

JoinedDocuments = Sequence[tuple[str, VariantMetadata]]


@dataclass(frozen=True)
class VariantRelease:
    """What the documents of a release have in common."""

    namespaces: tuple[str, ...]
    providers: Mapping[str, Provider]

    def make_document(self, label: str, properties: Properties) -> VariantMetadata:
        """Return the document of one variant, checked by the rules of the PEPs."""
        metadata = VariantMetadata(self.namespaces, {label: properties}, self.providers)
        return parse_document(metadata.to_json(), name=f"the stamp {label}")


def read_joined_document(path: Path) -> VariantMetadata:
    """Read the document of a stamped wheel or of a ``-variants.json``. DataError when there is none."""
    if path.suffix == ".whl":
        content = read_dist_info_files(path).get(VARIANT_FILE_NAME)
        if content is None:
            raise DataError(
                f"{path} has no {VARIANT_FILE_NAME}", tip="--join names a wheel that is stamped already"
            )
    else:
        try:
            content = path.read_bytes()
        except OSError as cause:
            raise DataError(f"cannot read {path}: {cause.strerror}") from None
    document = parse_document(content, name=str(path))
    if not document.providers:
        raise DataError(
            f"{path} names no providers, and a stamp names one for each namespace (PEP 850)",
            tip="restamp that release with --provider first",
        )
    return document


def settle_release(
    choice: ProviderChoice, variants: Iterable[Properties], joined: JoinedDocuments
) -> VariantRelease:
    """Return what the stamps of a release share: the properties given, and the documents it joins.

    ``amd`` is ranked before ``rocm``: code for the very GPU is worth more than a newer ROCm. DataError when
    what was asked for differs from what the release says already.
    """
    property_sets = list(variants)
    targets = chain.from_iterable(
        properties.get(AMD_NAMESPACE, {}).get(GFX_ARCH, ()) for properties in property_sets
    )
    existing = merge_documents(joined) if joined else VariantMetadata((), {})
    ours: dict[str, Provider] = {}
    if choice.provider == "static" and not choice.static_targets and _is_static(existing, AMD_NAMESPACE):
        ours[AMD_NAMESPACE] = existing.providers[AMD_NAMESPACE]
    else:
        ours[AMD_NAMESPACE] = choice.make_amd_provider(targets)
    if choice.rocm_versions or any(
        ROCM_VERSION in properties.get(ROCM_NAMESPACE, {}) for properties in property_sets
    ):
        is_listed = _is_static(existing, ROCM_NAMESPACE) and not choice.rocm_versions
        ours[ROCM_NAMESPACE] = (
            existing.providers[ROCM_NAMESPACE] if is_listed else choice.make_rocm_provider()
        )
    providers = dict(existing.providers)
    for namespace, provider in ours.items():
        providers[namespace] = _require_same_provider(
            namespace, existing.providers.get(namespace, provider), provider, joined
        )
    namespaces = tuple(dict.fromkeys((*existing.namespaces, *ours)))
    release = VariantRelease(namespaces, {namespace: providers[namespace] for namespace in namespaces})
    _require_listed(release, property_sets)
    return release


def _is_static(document: VariantMetadata, namespace: str) -> bool:
    return namespace in document.providers and bool(document.providers[namespace].static_properties)


def _require_same_provider(
    namespace: str, existing: Provider, ours: Provider, joined: JoinedDocuments
) -> Provider:
    """Return the provider that the release has; a static list that is there may be longer than ours."""
    longer = replace(ours, static_properties=existing.static_properties) == existing and all(
        set(values) <= set(existing.static_properties.get(feature, ()))
        for feature, values in ours.static_properties.items()
    )
    if existing != ours and not longer:
        raise DataError(
            f"{joined[0][0]} has {json.dumps(existing.as_json())} as the provider of {namespace}, this stamp "
            f"{json.dumps(ours.as_json())}",
            tip="a namespace has one provider in a release: choose the same, or restamp what is there",
        )
    return existing


def _require_listed(release: VariantRelease, variants: Iterable[Properties]) -> None:
    """Raise DataError for a value that a static provider does not list: nobody could install that wheel."""
    for properties in variants:
        for namespace, features in properties.items():
            provider = release.providers.get(namespace)  # a repair asks about its own namespaces only
            static = provider.static_properties if provider else {}
            for feature, values in features.items() if static else ():
                if unlisted := sorted(set(values) - set(static.get(feature, ()))):
                    raise DataError(
                        f"the release lists {_shorten_list(static.get(feature, ()))} as {namespace} :: {feature}, "
                        f"and not {', '.join(unlisted)}",
                        tip="restamp its wheels with a list that has it: --rocm-versions, --static-targets",
                    )


def _shorten_list(values: Sequence[str]) -> str:
    return ", ".join(values if len(values) < 10 else (values[0], "…", values[-1])) or "nothing"
