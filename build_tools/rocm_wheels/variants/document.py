"""Variant metadata: ``variant.json`` and ``…-variants.json``, of today and of 2025; providers they may name.

Sources: PEP 825 (format 0.1.1) for everything but ``providers``, PEP 850 (format 0.2.0) for those. Each
rule has an error that names the file and the key. Only documents that follow the two PEPs are read as they
are; ``read_any_format`` reads what was written before.

Of the providers that a stamp can name, the one that everybody can have is AMD's rocm-bootstrap: it is on
PyPI and theirs. A name that nobody has registered is never written by default: whoever registers it runs
code on every user's machine.

Older forms that are read: format 0.0.2 and 0.0.3 (``default-priorities.feature`` and ``.property``,
``install-time``, ``enable-if``, ``plugin-use``, ``static-properties`` at the top) and wheels of kernel
splitters whose ``variants`` has an entry for each target instead of the label. What is left out is named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors
from rocm_wheels.gpus import variables

SCHEMA = (
    "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"  # what we write; final: packaging.python.org
)
SCHEMA_WITHOUT_PROVIDERS = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
_VARIANTLIB_SCHEMA = "https://variants-schema.wheelnext.dev/v0.2.0.json"  # variantlib 0.2 means format 0.2.0
SCHEMAS = (SCHEMA, SCHEMA_WITHOUT_PROVIDERS, _VARIANTLIB_SCHEMA)
NULL_LABEL = "null"
AMD_NAMESPACE, ROCM_NAMESPACE = "amd", "rocm"  # the namespaces of ours, and their features
ABI_NAMESPACE = "abi_dependency"  # answered by who installs: which versions of other projects there are
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


NAME_PATTERN = re.compile(r"[a-z0-9_]+", re.ASCII)
VALUE_PATTERN = re.compile(r"[a-z0-9_.]+", re.ASCII)
LABEL_PATTERN = VALUE_PATTERN
_PLUGIN_API_PATTERN = re.compile(r"[\w.]+(?::[\w.]+)?", re.ASCII)
_BUILTINS = (ABI_NAMESPACE,)
_PROVIDER_KINDS = ("requires", "static-properties", "builtin")
_SCHEMA_VERSION = re.compile(r"/v?([0-9]+)\.([0-9]+)(?:\.[0-9]+)?\.json$")
_NEWEST_MAJOR = 1  # 0 are drafts, 1 will be the first that is final
_REPAIR_TIP = "what was written for earlier formats is stamped once more: rocm-wheels wheel stamp --replace"


def raise_fault(name: str, key: str, message: str, *, tip: str | None = None) -> NoReturn:
    """Raise the error for a key of a file."""
    raise errors.DataError(f"{name}: {key}: {message}" if key else f"{name}: {message}", tip=tip)


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
        raise errors.DataError(f"{name} is not JSON") from cause


def validate_document(value: object, name: str) -> VariantMetadata:
    """Read what JSON held: the whole of PEP 825's and PEP 850's rules."""
    top = require_object(value, name, "")
    known_keys = ("$schema", "default-priorities", "providers", "variants")
    require_known_keys(top, known_keys, name, "")
    for key in ("$schema", "default-priorities", "variants"):
        if key not in top:
            raise_fault(name, key, "is missing")
    schema = top["$schema"]
    _require_readable_format(schema, name)
    if schema not in SCHEMAS:
        raise_fault(name, "$schema", f"{schema!r} is an unknown format", tip=_REPAIR_TIP)
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


def _require_readable_format(schema: object, name: str) -> None:
    """Refuse a format of another major version: what it means is not known (PEP 825)."""
    match = _SCHEMA_VERSION.search(schema) if isinstance(schema, str) else None
    if match and int(match[1]) > _NEWEST_MAJOR:
        raise errors.DataError(
            f"{name}: $schema: format {match[1]}.{match[2]} is newer than what this reads",
            tip="a newer rocm-wheels may read it",
        )


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
            from rocm_wheels.core import tables

            full_key = f"{key}.{field_name}" if key else field_name
            raise_fault(
                name,
                full_key,
                f"is not a known key{tables.suggest_name(field_name, known_keys)}",
                tip=_REPAIR_TIP,
            )


def _require_word(word: str, pattern: re.Pattern[str], name: str, key: str) -> None:
    if not pattern.fullmatch(word):
        dot = " and ." if pattern is VALUE_PATTERN else ""
        raise_fault(name, key, f"{word!r} has other characters than a-z, 0-9, _{dot}")


VARIANT_FILE_NAME = "variant.json"  # in the .dist-info folder of a wheel
NamedDocuments = Sequence[tuple[str, VariantMetadata]]


def parse_document(content: bytes, *, name: str) -> VariantMetadata:
    """Read a document; DataError with ``name`` (the file) and the key when it breaks a rule of the PEPs."""
    return validate_document(read_json(content, name), name)


def parse_wheel_document(content: bytes, *, name: str, label: str) -> VariantMetadata:
    """Read the ``variant.json`` of a wheel with ``label`` in its file name: that variant and no other."""
    document = parse_document(content, name=name)
    if tuple(document.variants) != (label,):
        labels = ", ".join(sorted(document.variants)) or "none"
        raise errors.DataError(
            f"{name}: variants: the file name says {label}, here is {labels}",
            tip="a wheel states exactly its own variant: rocm-wheels wheel stamp --replace",
        )
    return document


def read_wheel_document(content: bytes, *, name: str, label: str) -> tuple[VariantMetadata, tuple[str, ...]]:
    """Read the ``variant.json`` of a wheel in any form that was ever written; returns it in today's.

    With it comes what an older form had that is left out; nothing for a document of today. A provider of
    ``amd`` that nobody owns is replaced by AMD's. DataError with file and key for what no form allows.
    """
    try:
        return parse_wheel_document(content, name=name, label=label), ()
    except errors.DataError as fault:
        try:
            old = read_any_format(content, name=name, label=label)
            providers = dict(old.providers)
            if providers or AMD_NAMESPACE in old.namespaces:
                providers.setdefault(AMD_NAMESPACE, ROCM_BOOTSTRAP_PROVIDER)
            providers = {namespace: providers[namespace] for namespace in old.namespaces if providers}
            document = VariantMetadata(old.namespaces, old.variants, providers)
            return parse_wheel_document(document.to_json(), name=name, label=label), old.notes
        except (errors.DataError, KeyError):
            raise fault from None


def merge_documents(documents: NamedDocuments) -> VariantMetadata:
    """Join the documents of all wheels of a release, given as (file name of the wheel, its document).

    Rules (PEP 825; for providers PEP 850): of two lists of namespaces one begins with the other, and the
    longer is taken; a label stands for the same properties everywhere, a namespace has the same
    provider everywhere. The order of ``documents`` does not matter. DataError that names both wheels.
    """
    if not documents:
        raise errors.DataError("there is no variant to join: no documents were given")
    ordered = sorted(documents, key=lambda pair: (-len(pair[1].namespaces), pair[0]))
    longest, first = ordered[0]
    for wheel, document in ordered:
        if first.namespaces[: len(document.namespaces)] != document.namespaces:
            raise errors.DataError(
                f"{longest} and {wheel} rank the namespaces differently: "
                f"{', '.join(first.namespaces)} and {', '.join(document.namespaces)}",
                tip="one list must begin with the other: stamp the second with --join the first",
            )
    providers = _merge_providers(ordered)
    if providers and providers.keys() != set(first.namespaces):
        silent = ", ".join(sorted(set(first.namespaces) - providers.keys()))
        speaks = next(wheel for wheel, document in ordered if document.providers)
        raise errors.DataError(
            f"{longest} names no provider of {silent}, {speaks} names its own",
            tip="in a release all wheels name their providers, or none does",
        )
    return VariantMetadata(first.namespaces, _merge_properties(ordered), providers)


def _merge_properties(documents: Iterable[tuple[str, VariantMetadata]]) -> dict[str, Properties]:
    merged: dict[str, tuple[str, Properties]] = {}
    for wheel, document in documents:
        for label, properties in document.variants.items():
            first_wheel, existing = merged.setdefault(label, (wheel, properties))
            if existing != properties:
                raise errors.DataError(
                    f"{first_wheel} and {wheel} have the label {label} with different properties: "
                    f"{describe_properties(existing)} and {describe_properties(properties)}",
                    tip="a label is for one set of properties in a release: stamp one with another --label",
                )
    return {label: properties for label, (_, properties) in sorted(merged.items())}


def _merge_providers(documents: Iterable[tuple[str, VariantMetadata]]) -> dict[str, Provider]:
    merged: dict[str, tuple[str, Provider]] = {}
    for wheel, document in documents:
        for namespace, provider in document.providers.items():
            first_wheel, existing = merged.setdefault(namespace, (wheel, provider))
            if existing != provider:
                raise errors.DataError(
                    f"{first_wheel} and {wheel} name different providers of {namespace}: "
                    f"{json.dumps(existing.as_json())} and {json.dumps(provider.as_json())}",
                    tip="a namespace has one provider in a release: stamp the second with --join the first",
                )
    return {namespace: provider for namespace, (_, provider) in sorted(merged.items())}


PROVIDER_NAMES = ("rocm-bootstrap", "own", "static")
ROCM_PROPERTIES = ("bundled", "host")
OWN_PROVIDER_NAME = "rocm-variant-provider"
ROCM_BOOTSTRAP_PROVIDER = Provider(
    requires=("rocm-bootstrap>=0.3,<1",), plugin_api="rocm_bootstrap.variant_provider:AMDVariantPlugin"
)
OWN_PROVIDER = Provider(requires=(f"{OWN_PROVIDER_NAME}>=0.1,<1",), plugin_api="rocm_variant_provider")
UNREGISTERED_PROVIDERS = ("amd-variant-provider",)  # never registered on PyPI (looked up in November 2026)


@dataclass(frozen=True)
class ProviderChoice:
    """What was asked for: ``--provider``, ``--rocm-property`` and the lists that static providers need.

    ``static_targets`` and ``rocm_versions`` are best first, for the whole release; without the latter
    every version that may come is ranked.
    """

    provider: str = "rocm-bootstrap"
    rocm_property: str = "bundled"
    owns_the_name: bool = False
    static_targets: tuple[str, ...] = ()
    rocm_versions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rocm_property == "host" and self.provider != "own":
            raise errors.UsageError(
                f"--rocm-property host: {self.provider} does not report the ROCm version of a machine",
                tip="--provider own does; a wheel that brings its ROCm wants --rocm-property bundled",
            )
        if self.provider == "own" and not self.owns_the_name:
            raise errors.UsageError(
                f"--provider own names {OWN_PROVIDER_NAME}, which users' installers will download and run",
                tip="publish build_tools/rocm_variant_provider to your index, see to it that nobody else can "
                f"register {OWN_PROVIDER_NAME} where your users look, then say --i-own-the-name",
            )
        if self.provider != "static" and self.static_targets:
            raise errors.UsageError("--static-targets goes with --provider static only")

    @property
    def reports_generics(self) -> bool:
        """Whether ``gfx11_generic`` is a value that this provider knows."""
        return self.provider != "rocm-bootstrap"

    def make_amd_provider(self, targets: Iterable[str]) -> Provider:
        """Return the provider of namespace ``amd``; ``targets`` are those of the wheels of this call."""
        if self.provider == "static":
            values = self.static_targets or tuple(dict.fromkeys(targets))
            if not values:
                raise errors.UsageError(
                    "--provider static lists the targets of the release, and none is known here",
                    tip="say --static-targets gfx942,gfx1100, or --join a wheel that is stamped already",
                )
            return Provider(static_properties={GFX_ARCH: values})
        return OWN_PROVIDER if self.provider == "own" else ROCM_BOOTSTRAP_PROVIDER

    def make_rocm_provider(self) -> Provider:
        """Return the provider of namespace ``rocm``: versions, newest first."""
        # All wheels of a release must list the same versions, and published wheels never change: a list of
        # those there are would shut out next month's wheel. So the default ranks those that may come, too.
        return Provider(static_properties={ROCM_VERSION: self.rocm_versions or variables.ROCM_VERSIONS})


def sort_newest_first(versions: Iterable[str]) -> tuple[str, ...]:
    """Return versions (``7.2``) once each, newest first."""
    return tuple(sorted(set(versions), key=Version, reverse=True))


def parse_minor_version(text: str, *, input_name: str) -> str:
    """Return major.minor of a version; UsageError (``input_name`` names the input) when it has none."""
    try:
        release = Version(text).release
    except InvalidVersion:
        release = ()
    if len(release) < 2:
        raise errors.UsageError(f"{input_name}: {text!r} is not a version like 7.2")
    return f"{release[0]}.{release[1]}"


def parse_versions(text: str, *, input_name: str) -> tuple[str, ...]:
    """Read a list of ROCm versions, newest first; UsageError when one is wrong or there is none."""
    versions = [
        parse_minor_version(word, input_name=input_name) for word in re.split(r"[,;\s]+", text) if word
    ]
    if not versions:
        raise errors.UsageError(f"{input_name} names no version", tip=f"for example: {input_name} 7.2,7.1")
    return sort_newest_first(versions)


def is_unregistered(requirements: Sequence[str]) -> bool:
    """Tell whether a provider's requirements name a project that nobody owns."""
    return any(canonicalize_name(Requirement(text).name) in UNREGISTERED_PROVIDERS for text in requirements)


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
    _require_readable_format(top.get("$schema"), name)
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
