"""Which variants a machine can use, best first: the ordering of PEP 825.

``supported`` says what the machine supports: namespace → feature → values, all in the provider's
order, most preferred first. An installer puts wheels without a variant after all of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocm_wheels.variants.document import Properties, VariantMetadata

Supported = Mapping[str, Mapping[str, Sequence[str]]]
_Key = tuple[tuple[float, float, float], ...]
_END = (float("inf"),) * 3  # of two lists with a common beginning the longer one is better


def static_support(metadata: VariantMetadata) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return what every machine supports by the document's own word (``static-properties``)."""
    found = {}
    for namespace, provider in metadata.providers.items():
        if provider.static_properties and not provider.optional:
            order = provider.feature_order or tuple(provider.static_properties)
            found[namespace] = {feature: provider.static_properties[feature] for feature in order}
    return found


def is_supported(properties: Properties, supported: Supported) -> bool:
    """Tell whether each feature has a value that the machine supports."""
    return all(
        not set(values).isdisjoint(supported.get(namespace, {}).get(feature, ()))
        for namespace, features in properties.items()
        for feature, values in features.items()
    )


def order_labels(metadata: VariantMetadata, supported: Supported) -> list[str]:
    """Return the labels that the machine can use, best first; ``null`` is the last of them."""
    usable = {
        label: properties
        for label, properties in metadata.variants.items()
        if is_supported(properties, supported)
    }
    return sorted(usable, key=lambda label: (_key(usable[label], metadata.namespaces, supported), label))


def _key(properties: Properties, namespaces: Sequence[str], supported: Supported) -> _Key:
    places: list[tuple[float, float, float]] = []
    for namespace, features in properties.items():
        ranked = list(supported[namespace])
        for feature, values in features.items():
            order = list(supported[namespace][feature])
            best = min(order.index(value) for value in values if value in order)
            places.append((namespaces.index(namespace), ranked.index(feature), best))
    return (*sorted(places), _END)
