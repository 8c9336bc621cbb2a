"""Order the variants that a machine can use, best first, by the rules of PEP 825, and explain the order.

``supported`` says what the machine supports: namespace → feature → values, all in the provider's
order, most preferred first. An installer puts wheels without a variant after all of these.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.variants.document import NULL_LABEL, Properties, Provider, VariantMetadata

SupportedFeatures = Mapping[str, Mapping[str, Sequence[str]]]
_SortKey = tuple[tuple[float, float, float], ...]
_END = (float("inf"),) * 3  # of two lists with a common beginning the longer one is better

KNOWN_PLUGINS = {  # the providers that are answered for here, with the namespace that they were written for
    "rocm-bootstrap": "amd",
    "rocm-variant-provider": "amd",
    "amd-variant-provider": "amd",
}


_MACHINE_FEATURES = {("amd", "gfx_arch")}  # never the same for every machine, whatever a document says

NARROWED_SOURCE = "this machine, of what the document lists for every machine"


@dataclass(frozen=True)
class NamespaceSupport:
    """What a machine supports of one namespace, best first, and who says so; or why that is nothing."""

    features: Mapping[str, Sequence[str]]
    source: str


@dataclass(frozen=True)
class PropertyRank:
    """The best value of a feature that a variant has for a machine, and how it is ranked there."""

    namespace: str
    feature: str
    value: str
    ranks: tuple[int, int, int]

    def __str__(self) -> str:
        """Return the property: ``amd :: gfx_arch :: gfx942``."""
        return f"{self.namespace} :: {self.feature} :: {self.value}"


def list_static_support(metadata: VariantMetadata) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return what every machine supports by the document's own word (``static-properties``)."""
    return {
        namespace: _order_static_properties(provider)
        for namespace, provider in metadata.providers.items()
        if provider.static_properties and not provider.optional
    }


def find_support(
    metadata: VariantMetadata, plugins: SupportedFeatures, enabled: Collection[str] = ()
) -> dict[str, NamespaceSupport]:
    """Return what a machine supports of each namespace of a document (PEP 850).

    ``plugins`` is what it supports of the namespaces in ``KNOWN_PLUGINS``; a namespace that a document names
    no provider for (format 0.1.1) is looked up there. What another plugin would say is not known, so nothing
    of it is supported. Optional providers count when their namespace is ``enabled``. GPU targets that a
    document lists for every machine are narrowed to those of ``plugins`` and ranked as there, as the PEP
    allows: a wheel for another GPU is of no use, whoever lists it.
    """
    return {
        namespace: _find_namespace_support(namespace, metadata.providers.get(namespace), plugins, enabled)
        for namespace in metadata.namespaces
    }


def _find_namespace_support(
    namespace: str, provider: Provider | None, plugins: SupportedFeatures, enabled: Collection[str]
) -> NamespaceSupport:
    if provider is None:
        if namespace in plugins:
            return NamespaceSupport(plugins[namespace], "this machine")
        return NamespaceSupport({}, "the document names no provider, and this machine knows of none")
    if provider.optional and namespace not in enabled:
        return NamespaceSupport({}, "its provider is optional, and not enabled")
    if provider.static_properties:
        return _narrow_listed(namespace, provider, plugins.get(namespace))
    if provider.builtin:
        return NamespaceSupport({}, f"{provider.builtin} is a matter of the installer, and not answered here")
    plugin = canonicalize_name(Requirement(provider.requires[0]).name)
    if plugin not in KNOWN_PLUGINS:
        return NamespaceSupport({}, f"its provider {plugin} is not known here, and is not run")
    return NamespaceSupport(plugins.get(KNOWN_PLUGINS[plugin], {}), f"this machine, for {plugin}")


def _narrow_listed(
    namespace: str, provider: Provider, machine: Mapping[str, Sequence[str]] | None
) -> NamespaceSupport:
    features: dict[str, Sequence[str]] = dict(_order_static_properties(provider))
    source = "listed in the document, the same for every machine"
    for feature, values in features.items():
        if machine is not None and (namespace, feature) in _MACHINE_FEATURES:
            features[feature] = [value for value in machine.get(feature, ()) if value in values]
            source = NARROWED_SOURCE
    return NamespaceSupport(features, source)


def _order_static_properties(provider: Provider) -> dict[str, tuple[str, ...]]:
    order = provider.feature_order or tuple(provider.static_properties)
    return {feature: provider.static_properties[feature] for feature in order}


def list_unsupported(properties: Properties, supported: SupportedFeatures) -> list[tuple[str, str]]:
    """Return the (namespace, feature) of which a machine supports none of a variant's values."""
    return [
        (namespace, feature)
        for namespace, features in properties.items()
        for feature, values in features.items()
        if set(values).isdisjoint(supported.get(namespace, {}).get(feature, ()))
    ]


def is_supported(properties: Properties, supported: SupportedFeatures) -> bool:
    """Tell whether each feature has a value that the machine supports."""
    return not list_unsupported(properties, supported)


def order_labels(metadata: VariantMetadata, supported: SupportedFeatures) -> list[str]:
    """Return the labels that the machine can use, best first; ``null`` is the last of them."""
    usable = {
        label: properties
        for label, properties in metadata.variants.items()
        if is_supported(properties, supported)
    }
    return sorted(
        usable, key=lambda label: (_make_sort_key(usable[label], metadata.namespaces, supported), label)
    )


def rank_properties(
    properties: Properties, namespaces: Sequence[str], supported: SupportedFeatures
) -> tuple[PropertyRank, ...]:
    """Return the best value of every feature of a variant that the machine can use, as they are compared."""
    property_ranks = []
    for namespace, features in properties.items():
        ranked = list(supported[namespace])
        for feature, values in features.items():
            order = list(supported[namespace][feature])
            value = min((candidate for candidate in values if candidate in order), key=order.index)
            ranks = namespaces.index(namespace), ranked.index(feature), order.index(value)
            property_ranks.append(PropertyRank(namespace, feature, value, ranks))
    return tuple(sorted(property_ranks, key=lambda property_rank: property_rank.ranks))


def explain_order(better: str, worse: str, metadata: VariantMetadata, supported: SupportedFeatures) -> str:
    """Say why of two labels that the machine can use ``worse`` comes after ``better``."""
    if worse == NULL_LABEL:
        return "null comes after all variants that fit"
    first, second = (
        rank_properties(metadata.variants[label], metadata.namespaces, supported) for label in (better, worse)
    )
    for first_rank, second_rank in zip(first, second, strict=False):
        if first_rank.ranks[:2] == second_rank.ranks[:2] and first_rank.value != second_rank.value:
            return f"{second_rank} is ranked after {first_rank.value}"
        if first_rank.ranks != second_rank.ranks:
            return f"it says nothing of {first_rank.namespace} :: {first_rank.feature}, as {better} does"
    if len(first) > len(second):
        extra_rank = first[len(second)]
        return f"it says nothing of {extra_rank.namespace} :: {extra_rank.feature}, as {better} does"
    return f"the same for this machine as {better}, whose label comes first"


def _make_sort_key(
    properties: Properties, namespaces: Sequence[str], supported: SupportedFeatures
) -> _SortKey:
    return (
        *(property_rank.ranks for property_rank in rank_properties(properties, namespaces, supported)),
        _END,
    )
