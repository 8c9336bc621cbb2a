"""Order variants for a machine (PEP 850), and make and check their labels.

``supported`` says what the machine supports: namespace → feature → values, all in the provider's
order, most preferred first. An installer puts wheels without a variant after all of these.

A label is made from the properties alone, so the same properties always get the same one:
the ROCm version, then the targets: as the family or generic target that stands for exactly these, else
their names, else (when those are too many to read) how many they are and a digest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest

from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects
from rocm_wheels.models import gfx
from rocm_wheels.variants import document
from rocm_wheels.variants.targets import COMPILER_GENERICS, expand_generics

SupportedFeatures = Mapping[str, Mapping[str, Sequence[str]]]
_END = (float("inf"),) * 3  # of two lists with a common beginning the longer one is better

AMD_PLUGINS = frozenset(
    ("rocm-bootstrap", "rocm-variant-provider", "amd-variant-provider")
)  # answered for here

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


def find_support(
    metadata: document.VariantMetadata, plugins: SupportedFeatures
) -> dict[str, NamespaceSupport]:
    """Return what a machine supports of each namespace of a document (PEP 850).

    ``plugins`` is what it supports of ``amd`` and of what builtin providers are for; a namespace that a
    document names no provider for (format 0.1.1) is looked up there. What another plugin would say is not
    known, so nothing of it is supported; so it is of optional providers, which somebody has to enable. GPU
    targets that a document lists for every machine are narrowed to those of ``plugins`` and ranked as there,
    as the PEP allows: a wheel for another GPU is of no use, whoever lists it.
    """
    support = {}
    for namespace in metadata.namespaces:
        provider = metadata.providers.get(namespace)
        features: dict[str, Sequence[str]] = {}
        if provider is None and namespace in plugins:
            features, source = dict(plugins[namespace]), "this machine"
        elif provider is None:
            source = "the document names no provider, and this machine knows of none"
        elif provider.optional:
            source = "its provider is optional, and not enabled"
        elif static := provider.static_properties:
            features = {feature: static[feature] for feature in provider.feature_order or static}
            source = "listed in the document, the same for every machine"
            if namespace == document.AMD_NAMESPACE in plugins and document.GFX_ARCH in features:
                targets = plugins[namespace].get(document.GFX_ARCH, ())
                features[document.GFX_ARCH] = [
                    target for target in targets if target in features[document.GFX_ARCH]
                ]
                source = NARROWED_SOURCE
        elif provider.builtin:
            features = dict(plugins.get(provider.builtin, {}))
            source = (
                "the versions of other projects here" if features else "no other project is here to go with"
            )
        elif provider.plugin in AMD_PLUGINS:
            features = dict(plugins.get(document.AMD_NAMESPACE, {}))
            source = f"this machine, for {provider.plugin}"
        else:
            source = f"its provider {provider.plugin} is not known here, and is not run"
        support[namespace] = NamespaceSupport(features, source)
    return support


def list_unsupported(properties: document.Properties, supported: SupportedFeatures) -> list[tuple[str, str]]:
    """Return the (namespace, feature) of which a machine supports none of a variant's values."""
    return [
        (namespace, feature)
        for namespace, feature, values in document.list_values(properties)
        if set(values).isdisjoint(supported.get(namespace, {}).get(feature, ()))
    ]


def order_labels(metadata: document.VariantMetadata, supported: SupportedFeatures) -> list[str]:
    """Return the labels that the machine can use, best first; ``null`` is the last of them."""
    keys = {}
    for label, properties in metadata.variants.items():
        if not list_unsupported(properties, supported):
            ranks = rank_properties(properties, metadata.namespaces, supported)
            keys[label] = (*(rank.ranks for rank in ranks), _END), label
    return sorted(keys, key=lambda label: keys[label])


def rank_properties(
    properties: document.Properties, namespaces: Sequence[str], supported: SupportedFeatures
) -> tuple[PropertyRank, ...]:
    """Return the best value of every feature of a variant that the machine can use, as they are compared."""
    property_ranks = []
    for namespace, feature, values in document.list_values(properties):
        features = supported[namespace]
        order = list(features[feature])
        place = min(order.index(value) for value in values if value in order)
        ranks = namespaces.index(namespace), list(features).index(feature), place
        property_ranks.append(PropertyRank(namespace, feature, order[place], ranks))
    return tuple(sorted(property_ranks, key=lambda property_rank: property_rank.ranks))


def explain_order(
    better: str, worse: str, metadata: document.VariantMetadata, supported: SupportedFeatures
) -> str:
    """Say why of two labels that the machine can use ``worse`` comes after ``better``."""
    if worse == document.NULL_LABEL:
        return "null comes after all variants that fit"
    first, second = (
        rank_properties(metadata.variants[label], metadata.namespaces, supported) for label in (better, worse)
    )
    for first_rank, second_rank in zip_longest(first, second):
        if second_rank and first_rank.ranks[:2] == second_rank.ranks[:2]:
            if first_rank.value != second_rank.value:
                return f"{second_rank} is ranked after {first_rank.value}"
        elif first_rank != second_rank:
            return f"it says nothing of {first_rank.namespace} :: {first_rank.feature}, as {better} does"
    return f"the same for this machine as {better}, whose label comes first"


_ROCM_VERSION = re.compile(r"rocm([0-9]+(?:\.[0-9]+)?)")
_CHIP_NAME = re.compile(r"gfx[0-9]{1,2}[0-9a-f]{2}(?![0-9a-z])")
_LONGEST_LIST = 40  # characters: about five targets
_DIGEST_DIGITS = 8


def make_label(properties: document.Properties) -> str:
    """Return the label of a set of properties; UsageError when they are not of the kind that we stamp."""
    if not properties:
        return document.NULL_LABEL
    values = {(ns, feature): several for ns, feature, several in document.list_values(properties)}
    rocm = values.pop((document.ROCM_NAMESPACE, document.ROCM_VERSION), ())
    host = values.pop((document.AMD_NAMESPACE, document.HOST_ROCM_VERSION), ())
    targets = values.pop((document.AMD_NAMESPACE, document.GFX_ARCH), ())
    sanitizer = values.pop((document.AMD_NAMESPACE, document.SANITIZER), ())
    if values:
        raise errors.UsageError(
            f"no rule makes a label for {document.describe_properties(properties)}",
            tip="name one: --label rocm7.2_custom",
        )
    parts = (
        f"rocm{'_'.join(rocm)}" if rocm else "",
        f"hostrocm{'_'.join(host)}" if host else "",
        _shorten_targets(targets) if targets else "",
        "asan" if sanitizer else "",
    )
    return "_".join(filter(None, parts))


def check_label(label: str, properties: document.Properties) -> str:
    """Return a label that somebody chose; UsageError when the PEP does not allow it for these properties."""
    if not document.LABEL_PATTERN.fullmatch(label):
        raise errors.UsageError(f"--label {label}: a-z, 0-9, _ and . are allowed (PEP 825)")
    if (label == document.NULL_LABEL) != (not properties):
        message = f"stands for no properties, not for {document.describe_properties(properties)}: say --null"
        raise errors.UsageError(
            f"--label {label} {message if properties else 'has no properties: it must be null'}"
        )
    if contradictions := find_label_contradictions(label, properties):
        raise errors.UsageError(
            f"--label {label} {contradictions[0]}", tip="people read labels: choose one that is true"
        )
    return label


def find_label_contradictions(label: str, properties: document.Properties) -> list[str]:
    """Return what a label says in words that the properties do not: another ROCm version, another GPU.

    A label of the 2025 indexes was ``rocm71`` for ROCm 7.0; nobody who reads it would notice.
    """
    contradictions = []
    versions = properties.get(document.ROCM_NAMESPACE, {}).get(document.ROCM_VERSION, ()) + properties.get(
        document.AMD_NAMESPACE, {}
    ).get(document.HOST_ROCM_VERSION, ())
    for named_version in _ROCM_VERSION.findall(label) if versions else ():
        if not any(
            version == named_version or version.replace(".", "").startswith(named_version)
            for version in versions
        ):
            contradictions.append(f"names ROCm {named_version}, the properties {', '.join(versions)}")
    targets = properties.get(document.AMD_NAMESPACE, {}).get(document.GFX_ARCH, ())
    named_chips = {word for word in _CHIP_NAME.findall(label) if word in gfx.get_gfx_targets()}
    if targets and (missing := sorted(named_chips - expand_generics(targets))):
        contradictions.append(f"names {', '.join(missing)}, the properties {', '.join(targets)}")
    return contradictions


def _shorten_targets(values: tuple[str, ...]) -> str:
    """Return the short form of targets (``gfx110x_all``); different targets never have the same one."""
    targets = sorted(values, key=lambda value: code_objects.TargetId(value.replace("_", "-")).get_sort_key())
    joined = "_".join(targets)
    if len(targets) == 1:
        return joined
    exact = [name for name in gfx.find_families(targets) if set(gfx.get_gfx_families()[name]) == set(targets)]
    if exact:
        return min(exact, key=lambda name: (len(name), name)).lower().replace("-", "_")
    generic = [name for name, chips in COMPILER_GENERICS.items() if set(chips) == set(targets)]
    if generic:  # gfx11: what gfx11-generic covers, and not the value gfx11_generic
        return generic[0].removesuffix("-generic").replace("-", "_")
    if len(joined) <= _LONGEST_LIST:
        return joined
    digest = sha256(joined.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"gfx_{len(targets)}_targets_{digest}"
