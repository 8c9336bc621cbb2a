"""Variant metadata: ``variant.json`` and ``…-variants.json``, of today and of 2025; providers they may name.

Sources: PEP 825 (format 0.1.1) for everything but ``providers``, PEP 850 (format 0.2.0) for those. Each
rule has an error that names the file and the key. Only documents that follow the two PEPs are read as they
are; ``read_any_format`` makes today's of what was written before.

Of the providers that a stamp can name, the one that everybody can have is AMD's rocm-bootstrap: it is on
PyPI and theirs. A name that nobody has registered is never written by default: whoever registers it runs
code on every user's machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, ConfigDict, Field, StrictBool, ValidationError, model_validator

from rocm_wheels.core import errors, records

SCHEMA = (
    "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"  # what we write; final: packaging.python.org
)
SCHEMA_WITHOUT_PROVIDERS = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
_VARIANTLIB_SCHEMA = "https://variants-schema.wheelnext.dev/v0.2.0.json"  # variantlib 0.2 means format 0.2.0
SCHEMAS = (SCHEMA, SCHEMA_WITHOUT_PROVIDERS, _VARIANTLIB_SCHEMA)
VARIANT_FILE_NAME = "variant.json"  # in the .dist-info folder of a wheel
NULL_LABEL = "null"
AMD_NAMESPACE, ROCM_NAMESPACE = "amd", "rocm"  # the namespaces of ours, and their features
ABI_NAMESPACE = "abi_dependency"  # answered by who installs: which versions of other projects there are
GFX_ARCH, ROCM_VERSION, HOST_ROCM_VERSION = "gfx_arch", "version", "rocm_version"
SANITIZER = "sanitizer"  # of namespace amd, by our provider alone: where a user says so

VALUE_PATTERN = LABEL_PATTERN = re.compile(r"[a-z0-9_.]+")
_SCHEMA_VERSION = re.compile(r"/v?([0-9]+)\.([0-9]+)(?:\.[0-9]+)?\.json$")
_NEWEST_MAJOR = 1  # 0 are drafts, 1 will be the first that is final
_REPAIR_TIP = "stamp its wheels once more: rocm-wheels wheel retag --label '', then wheel stamp"

Properties = Mapping[str, Mapping[str, tuple[str, ...]]]  # namespace: feature: values, sorted


_ItemsT = TypeVar("_ItemsT", bound=Collection[Any])


def _require_items(items: _ItemsT) -> _ItemsT:
    if not items:
        raise ValueError("it must not be empty")
    return items


def _require_distinct(words: tuple[str, ...]) -> tuple[str, ...]:
    if twice := sorted({word for word in words if words.count(word) > 1}):
        raise ValueError(f"{', '.join(twice)} is given twice")
    return words


def _require_requirement(text: str) -> str:
    try:
        Requirement(text)
    except (InvalidRequirement, RecursionError):
        raise ValueError(f"{text!r} is not a requirement") from None
    return text


_Name = Annotated[str, records.require_pattern(r"[a-z0-9_]+", "of the characters a-z, 0-9 and _")]
_Value = Annotated[str, records.require_pattern(VALUE_PATTERN.pattern, "of the characters a-z, 0-9, _ and .")]
_Names = Annotated[tuple[_Name, ...], AfterValidator(_require_items), AfterValidator(_require_distinct)]
_Values = Annotated[tuple[_Value, ...], AfterValidator(_require_items), AfterValidator(_require_distinct)]
_Requirements = Annotated[
    tuple[Annotated[str, AfterValidator(_require_requirement)], ...], AfterValidator(_require_items)
]
_Features = dict[_Name, _Values]


class Provider(records.Record):
    """Who decides what of a namespace a machine supports (PEP 850): exactly one of the first three.

    ``requires`` names a plugin, ``plugin_api`` the object in it (empty: the module of the first
    requirement's name); ``static_properties`` are always supported, most preferred value first, and
    ``feature_order`` ranks the features; ``builtin`` is part of the installer.
    """

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True)

    requires: _Requirements = ()
    static_properties: Annotated[_Features, AfterValidator(_require_items)] = Field(default_factory=dict)
    builtin: Annotated[str, records.require_pattern(ABI_NAMESPACE, ABI_NAMESPACE)] = ""
    plugin_api: Annotated[
        str, records.require_pattern(r"[A-Za-z0-9_.]+(:[A-Za-z0-9_.]+)?", "written like module:object")
    ] = ""
    feature_order: _Names = ()
    optional: StrictBool = False

    @model_validator(mode="after")
    def _check_kind(self) -> Provider:
        stated = [key for key in ("requires", "static_properties", "builtin") if getattr(self, key)]
        if len(stated) != 1:
            keys = " and ".join(key.replace("_", "-") for key in stated) or "none"
            raise ValueError(
                f"it must have exactly one of requires, static-properties and builtin, has {keys}"
            )
        if self.plugin_api and not self.requires:
            raise records.make_record_error("it goes with requires only", "plugin-api")
        static = self.static_properties
        if set(self.feature_order) != (static.keys() if self.feature_order or len(static) > 1 else set()):
            features = ", ".join(sorted(static)) or "no feature"
            message = f"it must rank the features of static-properties, which has {features}"
            raise records.make_record_error(message, "feature-order")
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the value of ``providers.<namespace>``, with the keys that say something."""
        fields = self.model_dump(mode="json", by_alias=True)
        return {key: value for key, value in fields.items() if value}

    @property
    def plugin(self) -> str:
        """The normalized name of the project that the plugin is in; empty where there is none."""
        return canonicalize_name(Requirement(self.requires[0]).name) if self.requires else ""


@dataclass(frozen=True)
class VariantMetadata:
    """A document: namespaces by preference, their providers (none: format 0.1.1), the variants by label.

    ``notes`` are what a document of an older form had that today's has no place for.
    """

    namespaces: tuple[str, ...]
    variants: Mapping[str, Properties]
    providers: Mapping[str, Provider] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=(), compare=False)

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


def list_values(properties: Properties) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield namespace, feature and values of each feature."""
    for namespace, features in properties.items():
        for feature, values in features.items():
            yield namespace, feature, values


def describe_properties(properties: Properties) -> str:
    """Write properties for people: ``amd :: gfx_arch :: gfx90a, gfx942; rocm :: version :: 7.2``."""
    rows = sorted(list_values(properties))
    parts = [f"{namespace} :: {feature} :: {', '.join(values)}" for namespace, feature, values in rows]
    return "; ".join(parts) or "no properties"


def make_properties(values: Iterable[tuple[str, str, Iterable[str]]]) -> Properties:
    """Return properties from (namespace, feature, values): sorted as the PEP wants, empty ones left out.

    Values of a feature that comes several times are alternatives, and are joined.
    """
    properties: dict[str, dict[str, tuple[str, ...]]] = {}
    for namespace, feature, feature_values in values:
        if several := tuple(feature_values):
            features = properties.setdefault(namespace, {})
            features[feature] = tuple(sorted({*features.get(feature, ()), *several}))
    return {ns: dict(sorted(features.items())) for ns, features in sorted(properties.items())}


def _sort_properties(properties: Properties) -> Properties:
    return make_properties(list_values(properties))


def _require_sorted(properties: Properties) -> Properties:
    for namespace, feature, values in list_values(properties):
        if list(values) != sorted(values):
            raise records.make_record_error(f"{', '.join(values)} are not sorted", namespace, feature)
    return _sort_properties(properties)


class _Priorities(records.Record):
    namespace: _Names


class _Document(records.Record):
    """What JSON of today holds: PEP 825's and PEP 850's rules."""

    schema_url: str = Field(alias="$schema")
    priorities: _Priorities = Field(alias="default-priorities")
    providers: dict[_Name, Provider] = Field(default_factory=dict)
    variants: dict[_Value, Annotated[dict[_Name, _Features], AfterValidator(_require_sorted)]]

    @model_validator(mode="after")
    def _check_names(self) -> _Document:
        if self.schema_url not in SCHEMAS:
            raise records.make_record_error(f"{self.schema_url!r} is an unknown format", "$schema")
        namespaces = self.priorities.namespace
        for label, properties in self.variants.items():
            unknown = ", ".join(sorted(properties.keys() - set(namespaces)))
            message = f"{unknown} is not in default-priorities.namespace" if unknown else ""
            if properties and label == NULL_LABEL:
                message = "it stands for no properties"
            elif not properties and label != NULL_LABEL:
                message = "it has no properties: its label must be null"
            if message:
                raise records.make_record_error(message, "variants", label)
        expected = set() if self.schema_url == SCHEMA_WITHOUT_PROVIDERS else set(namespaces)
        if self.providers.keys() != expected or bool(expected) != ("providers" in self.model_fields_set):
            message = (
                f"they are for {', '.join(sorted(self.providers)) or 'nothing'}; by $schema and "
                f"default-priorities.namespace they must be for {', '.join(sorted(expected)) or 'nothing'}"
            )
            raise records.make_record_error(message, "providers")
        return self


def _read_json(content: bytes, name: str) -> dict[str, Any]:
    """Read the object that a document is, of a format whose meaning is known."""

    def reject_duplicates(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
        fields: dict[str, object] = {}
        for key, value in pairs:
            if key in fields:
                raise errors.DataError(f"{name}: {key}: is given twice")
            fields[key] = value
        return fields

    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=reject_duplicates)
    except (ValueError, RecursionError) as cause:
        raise errors.DataError(f"{name} is not JSON") from cause
    if not isinstance(document, dict):
        raise errors.DataError(f"{name}: is not an object of JSON")
    version = _SCHEMA_VERSION.search(str(document.get("$schema")))
    if version and int(version[1]) > _NEWEST_MAJOR:
        raise errors.DataError(
            f"{name}: $schema: format {version[1]}.{version[2]} is newer than what this reads",
            tip="a newer rocm-wheels may read it",
        )
    return document


_RecordT = TypeVar("_RecordT", bound=records.Record)


def _validate(document: dict[str, Any], model: type[_RecordT], name: str) -> _RecordT:
    try:
        return model.model_validate(document)
    except ValidationError as cause:
        faults = records.summarize_faults(cause, model)
        raise errors.DataError(f"{name}: {faults}", tip=_REPAIR_TIP) from None


def parse_document(content: bytes, *, name: str) -> VariantMetadata:
    """Read a document; DataError with ``name`` (the file) and the key when it breaks a rule of the PEPs."""
    document = _validate(_read_json(content, name), _Document, name)
    variants, providers = dict(sorted(document.variants.items())), dict(sorted(document.providers.items()))
    return VariantMetadata(document.priorities.namespace, variants, providers)


def parse_wheel_document(content: bytes, *, name: str, label: str) -> VariantMetadata:
    """Read the ``variant.json`` of a wheel with ``label`` in its file name: that variant and no other."""
    document = parse_document(content, name=name)
    if tuple(document.variants) != (label,):
        labels = ", ".join(sorted(document.variants)) or "none"
        raise errors.DataError(
            f"{name}: variants: the file name says {label}, here is {labels}",
            tip=_REPAIR_TIP,
        )
    return document


class _OldPriorities(_Priorities):
    feature: Any = None
    property: Any = None


class _OldProvider(records.Record):
    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))

    requires: Any = None
    static_properties: Any = None
    builtin: Any = None
    plugin_api: Any = None
    feature_order: Any = None
    optional: StrictBool = False
    enable_if: Any = None
    install_time: Any = None
    plugin_use: Any = None
    build_requires: Any = None


class _OldDocument(records.Record):
    schema_url: str = Field("not stated", alias="$schema")
    priorities: _OldPriorities = Field(alias="default-priorities")
    providers: dict[_Name, _OldProvider] = Field(default_factory=dict)
    static_properties: dict[_Name, _Features] = Field(default_factory=dict, alias="static-properties")
    variants: dict[_Value, Annotated[dict[_Name, _Features], AfterValidator(_sort_properties)]]


def read_any_format(content: bytes, *, name: str, label: str | None = None) -> VariantMetadata:
    """Read a document of any form that was ever written, and return it in today's.

    ``label`` is the one in the wheel's name (None: an index document). ``notes`` has what an older form
    had that is left out. DataError with file and key for what no form allows.

    Older forms: format 0.0.2 and 0.0.3 (``default-priorities.feature`` and ``.property``, ``install-time``,
    ``enable-if``, ``plugin-use``, ``static-properties`` at the top), and wheels of kernel splitters, which
    have no ``$schema``, and in ``variants`` an entry for each target instead of the label. A provider of
    ``amd`` that nobody owns is replaced by AMD's; another that cannot be kept is left out.
    """
    document = _read_json(content, name)
    if document.get("$schema") in SCHEMAS:
        if label is None:
            return parse_document(content, name=name)
        return parse_wheel_document(content, name=name, label=label)
    old = _validate(document, _OldDocument, name)
    notes = [f"$schema was {old.schema_url}"]
    notes += [
        f"default-priorities.{key} is left out"
        for key in ("feature", "property")
        if key in old.priorities.model_fields_set
    ]
    variants: dict[str, Properties] = dict(sorted(old.variants.items()))
    if label is not None and tuple(variants) != (label,):
        notes.append(f"variants had {', '.join(variants) or 'nothing'} instead of {label}")
        joined = make_properties(value for several in variants.values() for value in list_values(several))
        variants = {label: variants.get(label, joined if label != NULL_LABEL else {})}
    providers = {}
    for namespace, provider in sorted(old.providers.items()):
        key = f"providers.{namespace}"
        fields = provider.model_dump(by_alias=True, exclude_unset=True)
        notes += [
            f"{key}.{left_out} is left out"
            for left_out in ("enable-if", "install-time", "plugin-use", "build-requires")
            if fields.pop(left_out, None) is not None
        ]
        fields = {name: value for name, value in fields.items() if value not in (None, [])}
        static = old.static_properties.get(namespace)
        is_static = provider.install_time is False or provider.plugin_use in ("none", "build")
        if static is not None and (is_static or not provider.requires):
            fields = {
                "static-properties": static,
                **({"feature-order": tuple(static)} if len(static) > 1 else {}),
            }
            notes.append(f"{key}: static-properties stood at the top of the document")
        if namespace not in old.priorities.namespace:
            notes.append(f"{key} is left out: no namespace of that name is ranked")
        elif fields.keys() & {"requires", "static-properties", "builtin"}:
            kept = _validate(fields, Provider, f"{name}: {key}")
            if kept.plugin in UNREGISTERED_PROVIDERS:
                notes.append(f"{key}.requires named {', '.join(kept.requires)}, which is not registered")
            else:
                providers[namespace] = kept
    used = {namespace for properties in variants.values() for namespace in properties}
    namespaces = (*old.priorities.namespace, *sorted(used - set(old.priorities.namespace)))
    if AMD_NAMESPACE in namespaces:
        providers.setdefault(AMD_NAMESPACE, make_bootstrap_provider())
    return VariantMetadata(namespaces, variants, providers, tuple(notes))


def read_wheel_document(content: bytes, *, name: str, label: str) -> tuple[VariantMetadata, tuple[str, ...]]:
    """Read the ``variant.json`` of a wheel in any form that was ever written; returns it in today's.

    With it comes what an older form had that is left out; nothing for a document of today. DataError with
    file and key for what no form allows, or what cannot be said in today's: a namespace without a provider.
    """
    document = read_any_format(content, name=name, label=label)
    return parse_wheel_document(document.to_json(), name=name, label=label), document.notes


NamedDocuments = Sequence[tuple[str, VariantMetadata]]


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
    providers: dict[str, tuple[str, Provider]] = {}  # each with the first wheel that has it
    variants: dict[str, tuple[str, Properties]] = {}
    for wheel, document in ordered:
        for namespace, provider in document.providers.items():
            other, existing = providers.setdefault(namespace, (wheel, provider))
            if existing != provider:
                raise errors.DataError(
                    f"{other} and {wheel} name different providers of {namespace}: "
                    f"{json.dumps(existing.as_json())} and {json.dumps(provider.as_json())}",
                    tip="a namespace has one provider in a release: stamp the second with --join the first",
                )
        for label, properties in document.variants.items():
            other, same = variants.setdefault(label, (wheel, properties))
            if same != properties:
                raise errors.DataError(
                    f"{other} and {wheel} have the label {label} with different properties: "
                    f"{describe_properties(same)} and {describe_properties(properties)}",
                    tip="a label is for one set of properties in a release: stamp one with another --label",
                )
    if providers and (silent := ", ".join(sorted(set(first.namespaces) - providers.keys()))):
        speaks = next(wheel for wheel, document in ordered if document.providers)
        raise errors.DataError(
            f"{longest} names no provider of {silent}, {speaks} names its own",
            tip="in a release all wheels name their providers, or none does",
        )
    return VariantMetadata(
        first.namespaces,
        {label: properties for label, (_, properties) in sorted(variants.items())},
        {namespace: provider for namespace, (_, provider) in sorted(providers.items())},
    )


OWN_PROVIDER_NAME = "rocm-variant-provider"
UNREGISTERED_PROVIDERS = ("amd-variant-provider",)  # never registered on PyPI (looked up in November 2026)


# made on use: a record is compiled by its first value, and who only installs needs none of them
def make_bootstrap_provider() -> Provider:
    """Return AMD's own provider of namespace ``amd``, which is on PyPI."""
    plugin_api = "rocm_bootstrap.variant_provider:AMDVariantPlugin"
    return Provider(requires=("rocm-bootstrap>=0.3,<1",), plugin_api=plugin_api)


def make_own_provider() -> Provider:
    """Return our provider of namespace ``amd``."""
    return Provider(requires=(f"{OWN_PROVIDER_NAME}>=0.1,<1",), plugin_api="rocm_variant_provider")


@dataclass(frozen=True)
class ProviderChoice:
    """What was asked for: ``--provider`` and ``--rocm-property``."""

    provider: str = "rocm-bootstrap"
    rocm_property: str = "bundled"

    def __post_init__(self) -> None:
        if self.rocm_property == "host" and self.provider != "own":
            raise errors.UsageError(
                f"--rocm-property host: {self.provider} does not report the ROCm version of a machine",
                tip="--provider own does; a wheel that brings its ROCm wants --rocm-property bundled",
            )

    @property
    def reports_generics(self) -> bool:
        """Whether ``gfx11_generic`` is a value that this provider knows."""
        return self.provider != "rocm-bootstrap"

    def make_amd_provider(self, targets: Iterable[str]) -> Provider:
        """Return the provider of namespace ``amd``; ``targets`` are those of the wheels of this call."""
        if self.provider == "static":
            values = tuple(dict.fromkeys(targets))
            if not values:
                raise errors.UsageError(
                    "--provider static lists the targets of the release, and none is known here",
                    tip="stamp all wheels of the release at once, or --join one that is stamped already",
                )
            return Provider(static_properties={GFX_ARCH: values})
        return make_own_provider() if self.provider == "own" else make_bootstrap_provider()

    def make_rocm_provider(self, versions: Iterable[str] = ()) -> Provider:
        """Return the provider of namespace ``rocm``: versions, newest first; ``versions`` are of this call.

        All wheels of a release must list the same (PEP 850), also those of two calls, each for its ROCm: so
        the list is of every ROCm that has been released, whichever wheels come.
        """
        from rocm_wheels.models import package_indexes

        released = [release.version for release in package_indexes.list_rocm_releases()]
        listed = {f"{version.major}.{version.minor}" for version in released} | set(versions)
        return Provider(static_properties={ROCM_VERSION: tuple(sorted(listed, key=Version, reverse=True))})


def parse_minor_version(text: str, *, input_name: str) -> str:
    """Return major.minor of a version; UsageError (``input_name`` names the input) when it has none."""
    try:
        release = Version(text).release
    except InvalidVersion:
        release = ()
    if len(release) < 2:
        raise errors.UsageError(f"{input_name}: {text!r} is not a version like 7.2")
    return f"{release[0]}.{release[1]}"
