"""Repair variant wheels and index documents of 2025 and of other producers for today's installers.

The label stays, and so do the properties, which are compared with the device code. Providers that nobody
owns, and keys that no format has any more, go; requirements with variant markers are decided for the
wheel. RECORD gets right digests where its own are hex: every rewriting does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import DataError, UsageError, explain_error
from rocm_wheels.package.variant_stamp import (
    JoinedDocuments,
    VariantStamp,
    WheelFacts,
    group_by_release,
    read_wheel_facts,
    settle_release,
)
from rocm_wheels.variants import (
    AMD_NAMESPACE,
    GFX_ARCH,
    HOST_ROCM_VERSION,
    ROCM_NAMESPACE,
    ROCM_VERSION,
    VARIANT_FILE_NAME,
    OldDocument,
    Properties,
    Provider,
    ProviderChoice,
    VariantMetadata,
    choose_targets,
    decide_requirement,
    describe_properties,
    find_label_contradictions,
    has_variant_marker,
    make_properties,
    merge_documents,
    parse_document,
    read_any_format,
    read_wheel_targets,
)
from rocm_wheels.wheels import WheelEdit

VARIANT_INDEX_SUFFIX = "-variants.json"


@dataclass(frozen=True)
class RestampRequest:
    """What a repair may change: the provider of ``amd`` (``keep_provider``: only if nobody owns it)."""

    choice: ProviderChoice
    keep_provider: bool = True
    rocm_property: str | None = None
    allow_claim: bool = False
    allow_hide: bool = False
    joined: JoinedDocuments = ()


def plan_restamps(wheels: Sequence[Path], request: RestampRequest) -> list[VariantStamp]:
    """Decide the repair of wheels, nothing is written; DataError when one cannot be repaired."""
    facts = [read_wheel_facts(wheel) for wheel in wheels]
    old = {wheel_facts.path: _read_old_document(wheel_facts) for wheel_facts in facts}
    stamps: list[VariantStamp] = []
    for group in group_by_release(facts, keep_local=True):
        documents = _modernize_documents(
            [(wheel_facts.path.name, old[wheel_facts.path]) for wheel_facts in group], request
        )
        group_stamps = [
            _make_restamp(wheel_facts, old[wheel_facts.path], document, request)
            for wheel_facts, document in zip(group, documents, strict=True)
        ]
        merge_documents([*request.joined, *((stamp.source.name, stamp.document) for stamp in group_stamps)])
        stamps += group_stamps
    return stamps


def restamp_index(path: Path, request: RestampRequest) -> tuple[VariantMetadata, tuple[str, ...]]:
    """Return an index document (``-variants.json``) in today's form, and what it had that is left out."""
    try:
        old = read_any_format(path.read_bytes(), name=str(path))
    except OSError as cause:
        raise DataError(f"cannot read {path}: {cause.strerror}") from None
    (document,) = _modernize_documents([(path.name, old)], request)
    contradictions = [
        f"the label {label} {contradiction}"
        for label, properties in document.variants.items()
        for contradiction in find_label_contradictions(label, properties)
    ]
    return document, (*old.notes, *contradictions)


def _read_old_document(wheel: WheelFacts) -> OldDocument:
    if wheel.document is None:
        raise DataError(f"{wheel.path} has no {VARIANT_FILE_NAME}", tip="rocm-wheels stamp makes one")
    if wheel.name.label is None:
        raise DataError(
            (
                f"{wheel.path} has a {VARIANT_FILE_NAME} and no label in its name: installers "
                "take it for a plain wheel"
            ),
            tip="rocm-wheels stamp --replace makes a variant of it",
        )
    return read_any_format(wheel.document, name=f"{wheel.path}: {VARIANT_FILE_NAME}", label=wheel.name.label)


def _modernize_documents(
    old: Sequence[tuple[str, OldDocument]], request: RestampRequest
) -> list[VariantMetadata]:
    """Return the documents of one release in today's form: same namespaces, same providers."""
    changed = [
        {
            label: _move_rocm_version(entry, f"{name}: {label}", request)
            for label, entry in document.variants.items()
        }
        for name, document in old
    ]
    property_sets = [properties for variants in changed for properties in variants.values()]
    ranked = max((document.namespaces for _, document in old), key=len)
    ours: dict[str, Provider] = {}
    if any(AMD_NAMESPACE in document.namespaces for _, document in old) or any(
        ROCM_NAMESPACE in entry for entry in property_sets
    ):
        ours = dict(settle_release(request.choice, property_sets, request.joined).providers)
    elif request.joined:
        ours = dict(merge_documents(request.joined).providers)
    kept_providers = _collect_kept_providers(old, request)
    if not request.joined:
        ours = {
            namespace: provider for namespace, provider in ours.items() if namespace not in kept_providers
        }
    else:
        kept_providers = {
            namespace: provider for namespace, provider in kept_providers.items() if namespace not in ours
        }
    first = merge_documents(request.joined).namespaces if request.joined else ()
    namespaces = tuple(dict.fromkeys((*first, *ranked, *ours)))
    if silent := [entry for entry in namespaces if entry not in {**kept_providers, **ours}]:
        raise DataError(
            f"{old[0][0]}: no provider is known for {', '.join(silent)}",
            tip="--join a wheel or a -variants.json of the release that names it",
        )
    providers = {entry: {**kept_providers, **ours}[entry] for entry in namespaces}
    return [
        parse_document(
            VariantMetadata(namespaces, variants, providers).to_json(),
            name=f"{name}: the new {VARIANT_FILE_NAME}",
        )
        for (name, _), variants in zip(old, changed, strict=True)
    ]


def _collect_kept_providers(
    old: Sequence[tuple[str, OldDocument]], request: RestampRequest
) -> dict[str, Provider]:
    """Return the providers that stay as they are; DataError when two wheels name different ones."""
    kept_providers: dict[str, tuple[str, Provider]] = {}
    for name, document in old:
        for namespace, provider in document.providers.items():
            if (namespace == AMD_NAMESPACE and not request.keep_provider) or (
                namespace == ROCM_NAMESPACE and request.choice.rocm_versions
            ):
                continue
            first_name, existing = kept_providers.setdefault(namespace, (name, provider))
            if existing != provider:
                raise DataError(
                    f"{first_name} and {name} name different providers of {namespace}",
                    tip="say which one is right with --provider, or --join a document that has it",
                )
    return {namespace: provider for namespace, (_, provider) in kept_providers.items()}


def _move_rocm_version(properties: Properties, origin: str, request: RestampRequest) -> Properties:
    """Return properties that the provider reports: the ROCm version is where it belongs."""
    versions = properties.get(AMD_NAMESPACE, {}).get(HOST_ROCM_VERSION)
    if versions is None or (request.choice.provider == "own" and request.rocm_property != "bundled"):
        return properties
    if request.rocm_property != "bundled":
        raise UsageError(
            (
                f"{origin} needs {AMD_NAMESPACE} :: {HOST_ROCM_VERSION}, which {request.choice.provider} "
                "does not report"
            ),
            tip="--rocm-property bundled when the wheel brings or requires its ROCm; else --provider own",
        )
    other_values = [
        (namespace, feature, values)
        for namespace, features in properties.items()
        for feature, values in features.items()
        if (namespace, feature) != (AMD_NAMESPACE, HOST_ROCM_VERSION)
    ]
    return make_properties([*other_values, (ROCM_NAMESPACE, ROCM_VERSION, versions)])


def _make_restamp(
    wheel: WheelFacts, old: OldDocument, document: VariantMetadata, request: RestampRequest
) -> VariantStamp:
    label = wheel.name.label or ""
    properties = document.variants[label]
    notes = [*old.notes, *_check_targets(wheel, properties, request)]
    notes += [
        f"its label {label} {contradiction}" for contradiction in find_label_contradictions(label, properties)
    ]
    decided: dict[str, str | None] = {}
    for text in wheel.requirements:
        try:
            decided[text] = decide_requirement(text, label, properties) if has_variant_marker(text) else text
        except DataError as cause:
            raise DataError(f"{wheel.path} cannot be repaired") from cause
        if decided[text] != text:
            notes.append(f"the requirement {text!r} became {decided[text] or 'nothing'!r}")

    def requirements(texts: tuple[str, ...]) -> list[str]:
        return [new for text in texts if (new := decided.get(text, text)) is not None]

    edit = WheelEdit(label=label, put={VARIANT_FILE_NAME: document.to_json()}, requirements=requirements)
    return VariantStamp(wheel.path, label, properties, document, edit, tuple(notes))


def _check_targets(wheel: WheelFacts, properties: Properties, request: RestampRequest) -> list[str]:
    """Compare the stated targets with the device code; return what could not be compared."""
    wheel_targets = read_wheel_targets(wheel.path)
    targets = properties.get(AMD_NAMESPACE, {}).get(GFX_ARCH, ())
    if not wheel_targets.targets:
        where = f"it is in {', '.join(wheel_targets.outside)}" if wheel_targets.outside else "it holds none"
        return [f"the targets were not compared with device code: {where}"] if targets else []
    try:
        choose_targets(
            str(wheel.path),
            wheel_targets,
            ",".join(targets) or "none",
            allow_claim=request.allow_claim,
            allow_hide=request.allow_hide or not targets,
        )
    except UsageError as cause:
        raise DataError(f"{wheel.path}: {describe_properties(properties)}: {explain_error(cause)}") from None
    return []
