"""Variant metadata as typed records: what ``variant.json`` holds, and how it is written.

Sources: PEP 825 (format 0.1.1) for everything but ``providers``, PEP 850 (format 0.2.0) for those.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SCHEMA = (
    "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"  # what we write; final: packaging.python.org
)
SCHEMA_WITHOUT_PROVIDERS = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
_VARIANTLIB_SCHEMA = "https://variants-schema.wheelnext.dev/v0.2.0.json"  # variantlib 0.2 means format 0.2.0
SCHEMAS = (SCHEMA, SCHEMA_WITHOUT_PROVIDERS, _VARIANTLIB_SCHEMA)
NULL_LABEL = "null"
AMD_NAMESPACE, ROCM_NAMESPACE = "amd", "rocm"  # the namespaces of ours, and their features
GFX_ARCH, ROCM_VERSION, HOST_ROCM_VERSION = "gfx_arch", "version", "rocm_version"

Properties = Mapping[str, Mapping[str, tuple[str, ...]]]  # namespace: feature: values, sorted


@dataclass(frozen=True)
class Provider:
    """Who decides what of a namespace a machine supports (PEP 850): exactly one of the first three.

    ``requires`` names a plugin, ``plugin_api`` the object in it (None: the module of the first
    requirement's name); ``static_properties`` are always supported, most preferred value first, and
    ``feature_order`` ranks the features; ``builtin`` is part of the installer.
    """

    requires: tuple[str, ...] = ()
    static_properties: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    builtin: str | None = None
    plugin_api: str | None = None
    feature_order: tuple[str, ...] = ()
    optional: bool = False

    def as_json(self) -> dict[str, object]:
        """Return the value of ``providers.<namespace>``, with the keys that say something."""
        fields: dict[str, object] = {
            "requires": list(self.requires),
            "static-properties": {name: list(values) for name, values in self.static_properties.items()},
            "builtin": self.builtin,
            "plugin-api": self.plugin_api,
            "feature-order": list(self.feature_order),
            "optional": self.optional,
        }
        return {key: value for key, value in fields.items() if value}


@dataclass(frozen=True)
class VariantMetadata:
    """A document: namespaces by preference, their providers (none: format 0.1.1), the variants by label."""

    namespaces: tuple[str, ...]
    variants: Mapping[str, Properties]
    providers: Mapping[str, Provider] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the document as bytes: keys sorted, so that the same content is the same bytes."""
        document: dict[str, object] = {
            "$schema": SCHEMA if self.providers else SCHEMA_WITHOUT_PROVIDERS,
            "default-priorities": {"namespace": list(self.namespaces)},
            "variants": {
                label: {ns: {f: list(v) for f, v in features.items()} for ns, features in properties.items()}
                for label, properties in self.variants.items()
            },
        }
        if self.providers:
            document["providers"] = {name: provider.as_json() for name, provider in self.providers.items()}
        return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def describe_properties(properties: Properties) -> str:
    """Write properties for people: ``amd :: gfx_arch :: gfx90a, gfx942; rocm :: version :: 7.2``."""
    parts = [
        f"{namespace} :: {feature} :: {', '.join(values)}"
        for namespace, features in sorted(properties.items())
        for feature, values in sorted(features.items())
    ]
    return "; ".join(parts) or "no properties"


def make_properties(values: Iterable[tuple[str, str, Iterable[str]]]) -> Properties:
    """Return properties from (namespace, feature, values): sorted as the PEP wants, empty ones left out."""
    properties: dict[str, dict[str, tuple[str, ...]]] = {}
    for namespace, feature, feature_values in values:
        if several := tuple(sorted(set(feature_values))):
            properties.setdefault(namespace, {})[feature] = several
    return {ns: dict(sorted(features.items())) for ns, features in sorted(properties.items())}
