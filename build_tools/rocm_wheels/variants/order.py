"""Which variants a machine can use, best first: the ordering of PEP 825, and the words for it.

``supported`` says what the machine supports: namespace → feature → values, all in the provider's
order, most preferred first. An installer puts wheels without a variant after all of these.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.variants.document import NULL_LABEL, Properties, Provider, VariantMetadata

Supported = Mapping[str, Mapping[str, Sequence[str]]]
_Key = tuple[tuple[float, float, float], ...]
_END = (float("inf"),) * 3  # of two lists with a common beginning the longer one is better

PLUGINS = {  # the providers that are answered for here, with the namespace that they were written for
    "rocm-bootstrap": "amd",
    "rocm-variant-provider": "amd",
    "amd-variant-provider": "amd",
}


_OF_MACHINES = {("amd", "gfx_arch")}  # never the same for every machine, whatever a document says

NARROWED = "this machine, of what the document lists for every machine"


@dataclass(frozen=True)
class Answer:
    """What a machine supports of one namespace, best first, and who says so; or why that is nothing."""

    features: Mapping[str, Sequence[str]]
    source: str


@dataclass(frozen=True)
class Place:
    """The best value of a feature that a variant has for a machine, and how it is ranked there."""

    namespace: str
    feature: str
    value: str
    ranks: tuple[int, int, int]

    def __str__(self) -> str:
        """Return the property: ``amd :: gfx_arch :: gfx942``."""
        return f"{self.namespace} :: {self.feature} :: {self.value}"


def static_support(metadata: VariantMetadata) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return what every machine supports by the document's own word (``static-properties``)."""
    return {
        namespace: _static(provider)
        for namespace, provider in metadata.providers.items()
        if provider.static_properties and not provider.optional
    }


def answers(
    metadata: VariantMetadata, plugins: Supported, enabled: Collection[str] = ()
) -> dict[str, Answer]:
    """Return what a machine supports of each namespace of a document (PEP 850).

    ``plugins`` is what it supports of the namespaces in ``PLUGINS``; a namespace that a document names no
    provider for (format 0.1.1) is looked up there. What another plugin would say is not known, so nothing of
    it is supported. Optional providers count when their namespace is ``enabled``. GPU targets that a document
    lists for every machine are narrowed to those of ``plugins`` and ranked as there, as the PEP allows: a
    wheel for another GPU is of no use, whoever lists it.
    """
    return {
        namespace: _answer(namespace, metadata.providers.get(namespace), plugins, enabled)
        for namespace in metadata.namespaces
    }


def _answer(
    namespace: str, provider: Provider | None, plugins: Supported, enabled: Collection[str]
) -> Answer:
    if provider is None:
        if namespace in plugins:
            return Answer(plugins[namespace], "this machine")
        return Answer({}, "the document names no provider, and this machine knows of none")
    if provider.optional and namespace not in enabled:
        return Answer({}, "its provider is optional, and not enabled")
    if provider.static_properties:
        return _listed(namespace, provider, plugins.get(namespace))
    if provider.builtin:
        return Answer({}, f"{provider.builtin} is a matter of the installer, and not answered here")
    plugin = canonicalize_name(Requirement(provider.requires[0]).name)
    if plugin not in PLUGINS:
        return Answer({}, f"its provider {plugin} is not known here, and is not run")
    return Answer(plugins.get(PLUGINS[plugin], {}), f"this machine, for {plugin}")


def _listed(namespace: str, provider: Provider, machine: Mapping[str, Sequence[str]] | None) -> Answer:
    features: dict[str, Sequence[str]] = dict(_static(provider))
    source = "listed in the document, the same for every machine"
    for feature, values in features.items():
        if machine is not None and (namespace, feature) in _OF_MACHINES:
            features[feature] = [one for one in machine.get(feature, ()) if one in values]
            source = NARROWED
    return Answer(features, source)


def _static(provider: Provider) -> dict[str, tuple[str, ...]]:
    order = provider.feature_order or tuple(provider.static_properties)
    return {feature: provider.static_properties[feature] for feature in order}


def unsupported(properties: Properties, supported: Supported) -> list[tuple[str, str]]:
    """Return the (namespace, feature) of which a machine supports none of a variant's values."""
    return [
        (namespace, feature)
        for namespace, features in properties.items()
        for feature, values in features.items()
        if set(values).isdisjoint(supported.get(namespace, {}).get(feature, ()))
    ]


def is_supported(properties: Properties, supported: Supported) -> bool:
    """Tell whether each feature has a value that the machine supports."""
    return not unsupported(properties, supported)


def order_labels(metadata: VariantMetadata, supported: Supported) -> list[str]:
    """Return the labels that the machine can use, best first; ``null`` is the last of them."""
    usable = {
        label: properties
        for label, properties in metadata.variants.items()
        if is_supported(properties, supported)
    }
    return sorted(usable, key=lambda label: (_key(usable[label], metadata.namespaces, supported), label))


def places(properties: Properties, namespaces: Sequence[str], supported: Supported) -> tuple[Place, ...]:
    """Return the best value of every feature of a variant that the machine can use, as they are compared."""
    found = []
    for namespace, features in properties.items():
        ranked = list(supported[namespace])
        for feature, values in features.items():
            order = list(supported[namespace][feature])
            value = min((one for one in values if one in order), key=order.index)
            ranks = namespaces.index(namespace), ranked.index(feature), order.index(value)
            found.append(Place(namespace, feature, value, ranks))
    return tuple(sorted(found, key=lambda place: place.ranks))


def why_after(better: str, worse: str, metadata: VariantMetadata, supported: Supported) -> str:
    """Say why of two labels that the machine can use ``worse`` comes after ``better``."""
    if worse == NULL_LABEL:
        return "null comes after all variants that fit"
    first, second = (
        places(metadata.variants[label], metadata.namespaces, supported) for label in (better, worse)
    )
    for one, other in zip(first, second, strict=False):
        if one.ranks[:2] == other.ranks[:2] and one.value != other.value:
            return f"{other} is ranked after {one.value}"
        if one.ranks != other.ranks:
            return f"it says nothing of {one.namespace} :: {one.feature}, as {better} does"
    if len(first) > len(second):
        more = first[len(second)]
        return f"it says nothing of {more.namespace} :: {more.feature}, as {better} does"
    return f"the same for this machine as {better}, whose label comes first"


def _key(properties: Properties, namespaces: Sequence[str], supported: Supported) -> _Key:
    return (*(place.ranks for place in places(properties, namespaces, supported)), _END)
