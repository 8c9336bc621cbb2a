"""Variant documents of 2025 and of other producers, read into today's form.

Known forms: format 0.0.2 and 0.0.3 (``default-priorities.feature`` and ``.property``, ``install-time``,
``enable-if``, ``plugin-use``, ``static-properties`` at the top) and wheels of kernel splitters whose
``variants`` has an entry for each target instead of the label. What is left out is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocm_wheels.variants.document import (
    NULL_LABEL,
    SCHEMAS,
    Properties,
    Provider,
    properties_of,
)
from rocm_wheels.variants.providers import is_dead
from rocm_wheels.variants.reading import (
    NAME,
    fault,
    only,
    read_json,
    read_properties,
    read_provider,
    table,
    words,
)

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
    top = table(read_json(content, name), name, "")
    only(top, ("$schema", "default-priorities", "providers", "static-properties", "variants"), name, "")
    notes = [] if top.get("$schema") in SCHEMAS else [f"$schema was {top.get('$schema', 'not stated')}"]
    priorities = table(top.get("default-priorities"), name, "default-priorities")
    only(priorities, ("namespace", "feature", "property"), name, "default-priorities")
    notes += [f"default-priorities.{key} is left out" for key in ("feature", "property") if key in priorities]
    namespaces = words(priorities.get("namespace"), NAME, name, "default-priorities.namespace")
    variants = {
        one: read_properties(properties, name, f"variants.{one}", ordered=False)
        for one, properties in table(top.get("variants"), name, "variants").items()
    }
    if label is not None and tuple(variants) != (label,):
        notes.append(f"variants had {', '.join(variants) or 'nothing'} instead of {label}")
        variants = {label: variants.get(label, _joined(variants) if label != NULL_LABEL else {})}
    static = table(top.get("static-properties", {}), name, "static-properties")
    providers = {}
    for namespace, value in table(top.get("providers", {}), name, "providers").items():
        given = table(value, name, f"providers.{namespace}")
        provider = _provider(given, static.get(namespace), name, f"providers.{namespace}", notes)
        if provider:
            providers[namespace] = provider
    for unused in sorted(providers.keys() - set(namespaces)):
        notes.append(f"providers.{unused} is left out: no namespace of that name is ranked")
        del providers[unused]
    return OldDocument(namespaces, variants, providers, tuple(notes))


def _joined(variants: Mapping[str, Properties]) -> Properties:
    """Return the properties of several entries as one: values of a feature are alternatives (PEP 825)."""
    values: dict[tuple[str, str], set[str]] = {}
    for properties in variants.values():
        for namespace, features in properties.items():
            for feature, given in features.items():
                values.setdefault((namespace, feature), set()).update(given)
    return properties_of((ns, feature, given) for (ns, feature), given in values.items())


def _provider(
    given: Mapping[str, object], static: object, name: str, key: str, notes: list[str]
) -> Provider | None:
    """Return the provider as it can be kept; None when it must be named anew."""
    only(given, (*_PROVIDER_KEYS, *_OLD_PROVIDER_KEYS), name, key)
    notes += [f"{key}.{one} is left out" for one in _OLD_PROVIDER_KEYS if one in given]
    kept = {one: value for one, value in given.items() if one in _PROVIDER_KEYS and value not in (None, [])}
    ahead = given.get("install-time") is False or given.get("plugin-use") in ("none", "build")
    if static is not None and (ahead or "requires" not in kept):
        order = list(table(static, name, "static-properties"))
        kept = {"static-properties": static, **({"feature-order": order} if len(order) > 1 else {})}
        notes.append(f"{key}: static-properties stood at the top of the document")
    if "requires" not in kept and "static-properties" not in kept and "builtin" not in kept:
        return None
    if "requires" in kept and "static-properties" in kept:
        fault(name, key, "has a plugin and static-properties: which of the two decides?")
    provider = read_provider(kept, name, key)
    if is_dead(provider.requires):
        notes.append(f"{key}.requires named {', '.join(provider.requires)}, which nobody has registered")
        return None
    return provider
