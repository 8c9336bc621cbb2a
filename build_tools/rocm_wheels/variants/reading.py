"""The rules that a variant document keeps, each with an error that names the file and the key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from packaging.requirements import InvalidRequirement, Requirement

from rocm_wheels.errors import DataError
from rocm_wheels.variants.document import (
    NULL_LABEL,
    SCHEMA_WITHOUT_PROVIDERS,
    SCHEMAS,
    Properties,
    Provider,
    VariantMetadata,
)

NAME_PATTERN = re.compile(r"[a-z0-9_]+", re.ASCII)
VALUE_PATTERN = re.compile(r"[a-z0-9_.]+", re.ASCII)
LABEL_PATTERN = VALUE_PATTERN
_PLUGIN_API_PATTERN = re.compile(r"[\w.]+(?::[\w.]+)?", re.ASCII)
_BUILTINS = ("abi_dependency",)
_PROVIDER_KINDS = ("requires", "static-properties", "builtin")
_REPAIR_TIP = "rocm-wheels restamp repairs what was written for earlier formats"


def raise_fault(name: str, key: str, message: str, *, tip: str | None = None) -> NoReturn:
    """Raise the error for a key of a file."""
    raise DataError(f"{name}: {key}: {message}" if key else f"{name}: {message}", tip=tip)


def read_json(content: bytes, name: str) -> object:
    """Read JSON; DataError when it is none, or gives a key twice."""

    def reject_duplicates(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
        fields: dict[str, object] = {}
        for key, value in pairs:
            if key in fields:
                raise_fault(name, key, "is given twice")
            fields[key] = value
        return fields

    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=reject_duplicates)
    except (ValueError, RecursionError) as cause:
        raise DataError(f"{name} is not JSON") from cause


def validate_document(value: object, name: str) -> VariantMetadata:
    """Read what JSON held: the whole of PEP 825's and PEP 850's rules."""
    top = require_object(value, name, "")
    known_keys = ("$schema", "default-priorities", "providers", "variants")
    require_known_keys(top, known_keys, name, "")
    for key in ("$schema", "default-priorities", "variants"):
        if key not in top:
            raise_fault(name, key, "is missing")
    schema = top["$schema"]
    if schema not in SCHEMAS:
        raise_fault(name, "$schema", f"{schema!r} is not a format that we know", tip=_REPAIR_TIP)
    priorities = require_object(top["default-priorities"], name, "default-priorities")
    require_known_keys(priorities, ("namespace",), name, "default-priorities")
    namespaces = require_words(
        priorities.get("namespace"), NAME_PATTERN, name, "default-priorities.namespace"
    )
    variants = {
        label: read_properties(properties, name, f"variants.{label}")
        for label, properties in require_object(top["variants"], name, "variants").items()
    }
    for label, properties in variants.items():
        _check_variant(label, properties, namespaces, name)
    if schema == SCHEMA_WITHOUT_PROVIDERS and "providers" in top:
        raise_fault(name, "providers", "is not a key of the format that $schema names", tip=_REPAIR_TIP)
    if schema != SCHEMA_WITHOUT_PROVIDERS and "providers" not in top:
        raise_fault(name, "providers", "is missing")
    providers = {
        namespace: read_provider(provider, name, f"providers.{namespace}")
        for namespace, provider in require_object(top.get("providers", {}), name, "providers").items()
    }
    if "providers" in top and providers.keys() != set(namespaces):
        provided = ", ".join(sorted(providers)) or "none"
        raise_fault(
            name, "providers", f"is for {provided}; default-priorities.namespace has {', '.join(namespaces)}"
        )
    return VariantMetadata(namespaces, dict(sorted(variants.items())), dict(sorted(providers.items())))


def read_properties(value: object, name: str, key: str, *, ordered: bool = True) -> Properties:
    """Read the properties of a variant; with ``ordered`` values must stand sorted, as the PEP wants them."""
    properties: dict[str, dict[str, tuple[str, ...]]] = {}
    for namespace, features in require_object(value, name, key).items():
        _require_word(namespace, NAME_PATTERN, name, key)
        namespace_key = f"{key}.{namespace}"
        for feature, value_list in require_object(features, name, namespace_key).items():
            _require_word(feature, NAME_PATTERN, name, namespace_key)
            values = require_words(value_list, VALUE_PATTERN, name, f"{namespace_key}.{feature}")
            if ordered and list(values) != sorted(values):
                message = f"{', '.join(values)} are not sorted"
                raise_fault(name, f"{namespace_key}.{feature}", message, tip=_REPAIR_TIP)
            properties.setdefault(namespace, {})[feature] = tuple(sorted(values))
    return {ns: dict(sorted(features.items())) for ns, features in sorted(properties.items())}


def _check_variant(label: str, properties: Properties, namespaces: Sequence[str], name: str) -> None:
    key = f"variants.{label}"
    if not LABEL_PATTERN.fullmatch(label):
        raise_fault(name, key, f"{label!r} is not a variant label: a-z, 0-9, _ and . are allowed")
    if (label == NULL_LABEL) != (not properties):
        message = (
            "stands for no properties" if properties else f"has no properties: its label must be {NULL_LABEL}"
        )
        raise_fault(name, key, message)
    if unknown := sorted(properties.keys() - set(namespaces)):
        raise_fault(name, key, f"{', '.join(unknown)} is not in default-priorities.namespace")


def read_provider(value: object, name: str, key: str) -> Provider:
    """Read ``providers.<namespace>`` (PEP 850)."""
    _require_word(key.removeprefix("providers."), NAME_PATTERN, name, "providers")
    fields = require_object(value, name, key)
    require_known_keys(fields, (*_PROVIDER_KINDS, "plugin-api", "feature-order", "optional"), name, key)
    kinds = [kind for kind in _PROVIDER_KINDS if kind in fields]
    if len(kinds) != 1:
        raise_fault(
            name,
            key,
            f"must have exactly one of {', '.join(_PROVIDER_KINDS)}, has {' and '.join(kinds) or 'none'}",
        )
    requires = require_texts(fields["requires"], name, f"{key}.requires") if "requires" in fields else ()
    for requirement in requires:
        try:
            Requirement(requirement)
        except (InvalidRequirement, RecursionError):
            raise_fault(name, f"{key}.requires", f"{requirement!r} is not a requirement")
    builtin = fields.get("builtin")
    if "builtin" in fields and builtin not in _BUILTINS:
        raise_fault(name, f"{key}.builtin", f"{builtin!r} is not one of {', '.join(_BUILTINS)}")
    static = _read_static_properties(fields, name, key) if "static-properties" in fields else {}
    optional = fields.get("optional", False)
    if not isinstance(optional, bool):
        raise_fault(name, f"{key}.optional", f"{optional!r} is neither true nor false")
    plugin_api = fields.get("plugin-api")
    if "plugin-api" in fields:
        if not isinstance(plugin_api, str) or not _PLUGIN_API_PATTERN.fullmatch(plugin_api):
            raise_fault(name, f"{key}.plugin-api", f"{plugin_api!r} is not written like module:object")
        if not requires:
            raise_fault(name, f"{key}.plugin-api", "goes with requires only")
    return Provider(
        requires=requires,
        static_properties=static,
        builtin=str(builtin) if builtin else None,
        plugin_api=plugin_api if isinstance(plugin_api, str) else None,
        feature_order=_read_feature_order(fields, static, name, key),
        optional=optional,
    )


def _read_static_properties(fields: Mapping[str, object], name: str, key: str) -> dict[str, tuple[str, ...]]:
    key = f"{key}.static-properties"
    properties: dict[str, tuple[str, ...]] = {}
    for feature, values in require_object(fields["static-properties"], name, key).items():
        _require_word(feature, NAME_PATTERN, name, key)
        properties[feature] = require_words(values, VALUE_PATTERN, name, f"{key}.{feature}")
    if not properties:
        raise_fault(name, key, "lists no feature")
    return properties


def _read_feature_order(
    fields: Mapping[str, object], static: Mapping[str, Sequence[str]], name: str, key: str
) -> tuple[str, ...]:
    key = f"{key}.feature-order"
    if "feature-order" not in fields:
        if len(static) > 1:
            raise_fault(name, key, f"is missing: it ranks {', '.join(sorted(static))}")
        return ()
    if not static:
        raise_fault(name, key, "goes with static-properties only")
    order = require_words(fields["feature-order"], NAME_PATTERN, name, key)
    if set(order) != static.keys():
        message = f"ranks {', '.join(order)}; static-properties has {', '.join(sorted(static))}"
        raise_fault(name, key, message)
    return order


def require_object(value: object, name: str, key: str) -> dict[str, object]:
    """Return an object of JSON; DataError when it is something else."""
    if not isinstance(value, dict):
        raise_fault(name, key, "is not an object of JSON")
    return value


def require_texts(value: object, name: str, key: str) -> tuple[str, ...]:
    """Return a list of texts that are not empty; DataError for an empty list."""
    if value is None:
        raise_fault(name, key, "is missing")
    if not isinstance(value, list) or not value:
        raise_fault(name, key, "is not a list with something in it")
    for index, item in enumerate(value):
        if not isinstance(item, str) or not item.strip():
            raise_fault(name, f"{key}[{index}]", f"{item!r} is not a text")
    return tuple(value)


def require_words(value: object, pattern: re.Pattern[str], name: str, key: str) -> tuple[str, ...]:
    """Return a list of words of a form, each once."""
    items = require_texts(value, name, key)
    for index, item in enumerate(items):
        _require_word(item, pattern, name, f"{key}[{index}]")
    if twice := sorted({item for item in items if items.count(item) > 1}):
        raise_fault(name, key, f"{', '.join(twice)} is given twice")
    return items


def require_known_keys(fields: Mapping[str, object], known_keys: Sequence[str], name: str, key: str) -> None:
    """Refuse keys that a format does not have."""
    for field_name in fields:
        if field_name not in known_keys:
            from rocm_wheels.records import suggest_name

            full_key = f"{key}.{field_name}" if key else field_name
            raise_fault(
                name, full_key, f"is not a known key{suggest_name(field_name, known_keys)}", tip=_REPAIR_TIP
            )


def _require_word(word: str, pattern: re.Pattern[str], name: str, key: str) -> None:
    if not pattern.fullmatch(word):
        dot = " and ." if pattern is VALUE_PATTERN else ""
        raise_fault(name, key, f"{word!r} has other characters than a-z, 0-9, _{dot}")
