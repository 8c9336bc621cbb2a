"""Read variant documents of 2025 and of other producers into today's form.

Known forms: format 0.0.2 and 0.0.3 (``default-priorities.feature`` and ``.property``, ``install-time``,
``enable-if``, ``plugin-use``, ``static-properties`` at the top) and wheels of kernel splitters whose
``variants`` has an entry for each target instead of the label. What is left out is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocm_wheels.variants.document import (
    NAME_PATTERN,
    NULL_LABEL,
    SCHEMAS,
    Properties,
    Provider,
    make_properties,
    raise_fault,
    read_json,
    read_properties,
    read_provider,
    require_known_keys,
    require_object,
    require_words,
)
from rocm_wheels.variants.providers import is_unregistered

_PROVIDER_KEYS = ("requires", "plugin-api", "optional", "static-properties", "feature-order", "builtin")
_OLD_PROVIDER_KEYS = ("enable-if", "install-time", "plugin-use", "build-requires")


@dataclass(frozen=True)
class OldDocument:
    """What an old document says: ``notes`` are what it had that today's form has no place for.

    ``providers`` has only those that can be kept; a namespace without one needs a new one.
    """

    namespaces: tuple[str, ...]
    variants: Mapping[str, Properties]
    providers: Mapping[str, Provider]
    notes: tuple[str, ...]


def read_any_format(content: bytes, *, name: str, label: str | None = None) -> OldDocument:
    """Read a document of any known form; ``label`` is the one in the wheel's name (None: an index document).

    DataError with file and key for what no form allows.
    """
    top = require_object(read_json(content, name), name, "")
    require_known_keys(
        top, ("$schema", "default-priorities", "providers", "static-properties", "variants"), name, ""
    )
    notes = [] if top.get("$schema") in SCHEMAS else [f"$schema was {top.get('$schema', 'not stated')}"]
    priorities = require_object(top.get("default-priorities"), name, "default-priorities")
    require_known_keys(priorities, ("namespace", "feature", "property"), name, "default-priorities")
    notes += [f"default-priorities.{key} is left out" for key in ("feature", "property") if key in priorities]
    namespaces = require_words(
        priorities.get("namespace"), NAME_PATTERN, name, "default-priorities.namespace"
    )
    variants = {
        variant_label: read_properties(properties, name, f"variants.{variant_label}", ordered=False)
        for variant_label, properties in require_object(top.get("variants"), name, "variants").items()
    }
    if label is not None and tuple(variants) != (label,):
        notes.append(f"variants had {', '.join(variants) or 'nothing'} instead of {label}")
        variants = {label: variants.get(label, _join_properties(variants) if label != NULL_LABEL else {})}
    static = require_object(top.get("static-properties", {}), name, "static-properties")
    providers = {}
    for namespace, value in require_object(top.get("providers", {}), name, "providers").items():
        fields = require_object(value, name, f"providers.{namespace}")
        provider = _read_kept_provider(fields, static.get(namespace), name, f"providers.{namespace}", notes)
        if provider:
            providers[namespace] = provider
    for unused in sorted(providers.keys() - set(namespaces)):
        notes.append(f"providers.{unused} is left out: no namespace of that name is ranked")
        del providers[unused]
    return OldDocument(namespaces, variants, providers, tuple(notes))


def _join_properties(variants: Mapping[str, Properties]) -> Properties:
    """Return the properties of several entries as one: values of a feature are alternatives (PEP 825)."""
    values: dict[tuple[str, str], set[str]] = {}
    for properties in variants.values():
        for namespace, features in properties.items():
            for feature, feature_values in features.items():
                values.setdefault((namespace, feature), set()).update(feature_values)
    return make_properties((ns, feature, feature_values) for (ns, feature), feature_values in values.items())


def _read_kept_provider(
    fields: Mapping[str, object], static: object, name: str, key: str, notes: list[str]
) -> Provider | None:
    """Return the provider as it can be kept; None when it must be named anew."""
    require_known_keys(fields, (*_PROVIDER_KEYS, *_OLD_PROVIDER_KEYS), name, key)
    notes += [f"{key}.{field_name} is left out" for field_name in _OLD_PROVIDER_KEYS if field_name in fields]
    kept_fields = {
        field_name: value
        for field_name, value in fields.items()
        if field_name in _PROVIDER_KEYS and value not in (None, [])
    }
    ahead = fields.get("install-time") is False or fields.get("plugin-use") in ("none", "build")
    if static is not None and (ahead or "requires" not in kept_fields):
        order = list(require_object(static, name, "static-properties"))
        kept_fields = {"static-properties": static, **({"feature-order": order} if len(order) > 1 else {})}
        notes.append(f"{key}: static-properties stood at the top of the document")
    if (
        "requires" not in kept_fields
        and "static-properties" not in kept_fields
        and "builtin" not in kept_fields
    ):
        return None
    if "requires" in kept_fields and "static-properties" in kept_fields:
        raise_fault(name, key, "has a plugin and static-properties: which of the two decides?")
    provider = read_provider(kept_fields, name, key)
    if is_unregistered(provider.requires):
        notes.append(f"{key}.requires named {', '.join(provider.requires)}, which is not registered")
        return None
    return provider
