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

NAME = re.compile(r"[a-z0-9_]+", re.ASCII)
VALUE = re.compile(r"[a-z0-9_.]+", re.ASCII)
LABEL = VALUE
_PLUGIN_API = re.compile(r"[\w.]+(?::[\w.]+)?", re.ASCII)
_BUILTINS = ("abi_dependency",)
_KINDS = ("requires", "static-properties", "builtin")
_REPAIR = "rocm-wheels restamp repairs what was written for earlier formats"


def fault(name: str, key: str, said: str, *, tip: str | None = None) -> NoReturn:
    """Raise the error for a key of a file."""
    raise DataError(f"{name}: {key}: {said}" if key else f"{name}: {said}", tip=tip)


def read_json(content: bytes, name: str) -> object:
    """Read JSON; DataError when it is none, or gives a key twice."""

    def once(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                fault(name, key, "is given twice")
            found[key] = value
        return found

    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as cause:
        raise DataError(f"{name} is not JSON") from cause


def read_document(value: object, name: str) -> VariantMetadata:
    """Read what JSON held: the whole of PEP 825's and PEP 850's rules."""
    top = table(value, name, "")
    known = ("$schema", "default-priorities", "providers", "variants")
    only(top, known, name, "")
    for key in ("$schema", "default-priorities", "variants"):
        if key not in top:
            fault(name, key, "is missing")
    schema = top["$schema"]
    if schema not in SCHEMAS:
        fault(name, "$schema", f"{schema!r} is not a format that we know", tip=_REPAIR)
    priorities = table(top["default-priorities"], name, "default-priorities")
    only(priorities, ("namespace",), name, "default-priorities")
    namespaces = words(priorities.get("namespace"), NAME, name, "default-priorities.namespace")
    variants = {
        label: read_properties(properties, name, f"variants.{label}")
        for label, properties in table(top["variants"], name, "variants").items()
    }
    for label, properties in variants.items():
        _check_variant(label, properties, namespaces, name)
    if schema == SCHEMA_WITHOUT_PROVIDERS and "providers" in top:
        fault(name, "providers", "is not a key of the format that $schema names", tip=_REPAIR)
    if schema != SCHEMA_WITHOUT_PROVIDERS and "providers" not in top:
        fault(name, "providers", "is missing")
    providers = {
        namespace: read_provider(provider, name, f"providers.{namespace}")
        for namespace, provider in table(top.get("providers", {}), name, "providers").items()
    }
    if "providers" in top and providers.keys() != set(namespaces):
        said = ", ".join(sorted(providers)) or "none"
        fault(name, "providers", f"is for {said}; default-priorities.namespace has {', '.join(namespaces)}")
    return VariantMetadata(namespaces, dict(sorted(variants.items())), dict(sorted(providers.items())))


def read_properties(value: object, name: str, key: str, *, ordered: bool = True) -> Properties:
    """Read the properties of a variant; with ``ordered`` values must stand sorted, as the PEP wants them."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for namespace, features in table(value, name, key).items():
        _word(namespace, NAME, name, key)
        place = f"{key}.{namespace}"
        for feature, given in table(features, name, place).items():
            _word(feature, NAME, name, place)
            values = words(given, VALUE, name, f"{place}.{feature}")
            if ordered and list(values) != sorted(values):
                said = f"{', '.join(values)} are not sorted"
                fault(name, f"{place}.{feature}", said, tip=_REPAIR)
            found.setdefault(namespace, {})[feature] = tuple(sorted(values))
    return {ns: dict(sorted(features.items())) for ns, features in sorted(found.items())}


def _check_variant(label: str, properties: Properties, namespaces: Sequence[str], name: str) -> None:
    key = f"variants.{label}"
    if not LABEL.fullmatch(label):
        fault(name, key, f"{label!r} is not a variant label: a-z, 0-9, _ and . are allowed")
    if (label == NULL_LABEL) != (not properties):
        said = (
            "stands for no properties" if properties else f"has no properties: its label must be {NULL_LABEL}"
        )
        fault(name, key, said)
    if unknown := sorted(properties.keys() - set(namespaces)):
        fault(name, key, f"{', '.join(unknown)} is not in default-priorities.namespace")


def read_provider(value: object, name: str, key: str) -> Provider:
    """Read ``providers.<namespace>`` (PEP 850)."""
    _word(key.removeprefix("providers."), NAME, name, "providers")
    given = table(value, name, key)
    only(given, (*_KINDS, "plugin-api", "feature-order", "optional"), name, key)
    kinds = [kind for kind in _KINDS if kind in given]
    if len(kinds) != 1:
        fault(name, key, f"must have exactly one of {', '.join(_KINDS)}, has {' and '.join(kinds) or 'none'}")
    requires = texts(given["requires"], name, f"{key}.requires") if "requires" in given else ()
    for requirement in requires:
        try:
            Requirement(requirement)
        except (InvalidRequirement, RecursionError):
            fault(name, f"{key}.requires", f"{requirement!r} is not a requirement")
    builtin = given.get("builtin")
    if "builtin" in given and builtin not in _BUILTINS:
        fault(name, f"{key}.builtin", f"{builtin!r} is not one of {', '.join(_BUILTINS)}")
    static = _static_properties(given, name, key) if "static-properties" in given else {}
    optional = given.get("optional", False)
    if not isinstance(optional, bool):
        fault(name, f"{key}.optional", f"{optional!r} is neither true nor false")
    plugin_api = given.get("plugin-api")
    if "plugin-api" in given:
        if not isinstance(plugin_api, str) or not _PLUGIN_API.fullmatch(plugin_api):
            fault(name, f"{key}.plugin-api", f"{plugin_api!r} is not written like module:object")
        if not requires:
            fault(name, f"{key}.plugin-api", "goes with requires only")
    return Provider(
        requires=requires,
        static_properties=static,
        builtin=str(builtin) if builtin else None,
        plugin_api=plugin_api if isinstance(plugin_api, str) else None,
        feature_order=_feature_order(given, static, name, key),
        optional=optional,
    )


def _static_properties(given: Mapping[str, object], name: str, key: str) -> dict[str, tuple[str, ...]]:
    key = f"{key}.static-properties"
    found: dict[str, tuple[str, ...]] = {}
    for feature, values in table(given["static-properties"], name, key).items():
        _word(feature, NAME, name, key)
        found[feature] = words(values, VALUE, name, f"{key}.{feature}")
    if not found:
        fault(name, key, "lists no feature")
    return found


def _feature_order(
    given: Mapping[str, object], static: Mapping[str, Sequence[str]], name: str, key: str
) -> tuple[str, ...]:
    key = f"{key}.feature-order"
    if "feature-order" not in given:
        if len(static) > 1:
            fault(name, key, f"is missing: it ranks {', '.join(sorted(static))}")
        return ()
    if not static:
        fault(name, key, "goes with static-properties only")
    order = words(given["feature-order"], NAME, name, key)
    if set(order) != static.keys():
        said = f"ranks {', '.join(order)}; static-properties has {', '.join(sorted(static))}"
        fault(name, key, said)
    return order


def table(value: object, name: str, key: str) -> dict[str, object]:
    """Return an object of JSON; DataError when it is something else."""
    if not isinstance(value, dict):
        fault(name, key, "is not an object of JSON")
    return value


def texts(value: object, name: str, key: str) -> tuple[str, ...]:
    """Return a list of texts that are not empty; DataError for an empty list."""
    if value is None:
        fault(name, key, "is missing")
    if not isinstance(value, list) or not value:
        fault(name, key, "is not a list with something in it")
    for place, one in enumerate(value):
        if not isinstance(one, str) or not one.strip():
            fault(name, f"{key}[{place}]", f"{one!r} is not a text")
    return tuple(value)


def words(value: object, pattern: re.Pattern[str], name: str, key: str) -> tuple[str, ...]:
    """Return a list of words of a form, each once."""
    found = texts(value, name, key)
    for place, one in enumerate(found):
        _word(one, pattern, name, f"{key}[{place}]")
    if twice := sorted({one for one in found if found.count(one) > 1}):
        fault(name, key, f"{', '.join(twice)} is given twice")
    return found


def only(given: Mapping[str, object], known: Sequence[str], name: str, key: str) -> None:
    """Refuse keys that a format does not have."""
    for one in given:
        if one not in known:
            from rocm_wheels.records import did_you_mean

            place = f"{key}.{one}" if key else one
            fault(name, place, f"is not a known key{did_you_mean(one, known)}", tip=_REPAIR)


def _word(word: str, pattern: re.Pattern[str], name: str, key: str) -> None:
    if not pattern.fullmatch(word):
        dot = " and ." if pattern is VALUE else ""
        fault(name, key, f"{word!r} has other characters than a-z, 0-9, _{dot}")
