"""Repair variant wheels and index documents of 2025 and of other producers for today's installers.

The label stays, and so do the properties, which are compared with the device code. Providers that nobody
owns, and keys that no format has any more, go; requirements with variant markers are decided for the wheel.
RECORD gets right digests where its own are hex: every rewriting does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import DataError, UsageError, explain
from rocm_wheels.variants.document import (
    AMD,
    ARCH,
    HOST_VERSION,
    ROCM,
    VERSION,
    Properties,
    Provider,
    VariantMetadata,
    describe,
    properties_of,
)
from rocm_wheels.variants.labels import label_contradictions
from rocm_wheels.variants.legacy import OldDocument, read_any_format
from rocm_wheels.variants.markers import decide, has_variant_marker
from rocm_wheels.variants.metadata import FILE_NAME, merge, parse
from rocm_wheels.variants.providers import ProviderChoice
from rocm_wheels.variants.release import Documents, settle
from rocm_wheels.variants.stamp import Stamp, by_release
from rocm_wheels.variants.targets import choose_targets, read_held
from rocm_wheels.variants.wheel_facts import WheelFacts, read_facts
from rocm_wheels.wheels.archive.edits import Edit

INDEX_SUFFIX = "-variants.json"


@dataclass(frozen=True)
class RestampRequest:
    """What a repair may change: the provider of ``amd`` (``keep_provider``: only if nobody owns it)."""

    choice: ProviderChoice
    keep_provider: bool = True
    rocm_property: str | None = None
    allow_claim: bool = False
    allow_hide: bool = False
    joined: Documents = ()


def plan_restamps(wheels: Sequence[Path], request: RestampRequest) -> list[Stamp]:
    """Decide the repair of wheels, nothing is written; DataError when one cannot be repaired."""
    facts = [read_facts(wheel) for wheel in wheels]
    old = {one.path: _read_old(one) for one in facts}
    stamps: list[Stamp] = []
    for group in by_release(facts, keep_local=True):
        documents = _modern([(one.path.name, old[one.path]) for one in group], request)
        made = [
            _stamp(one, old[one.path], document, request)
            for one, document in zip(group, documents, strict=True)
        ]
        merge([*request.joined, *((stamp.source.name, stamp.document) for stamp in made)])
        stamps += made
    return stamps


def restamp_index(path: Path, request: RestampRequest) -> tuple[VariantMetadata, tuple[str, ...]]:
    """Return an index document (``-variants.json``) in today's form, and what it had that is left out."""
    try:
        old = read_any_format(path.read_bytes(), name=str(path))
    except OSError as cause:
        raise DataError(f"cannot read {path}: {cause.strerror}") from None
    (document,) = _modern([(path.name, old)], request)
    said = [
        f"the label {label} {wrong}"
        for label, properties in document.variants.items()
        for wrong in label_contradictions(label, properties)
    ]
    return document, (*old.notes, *said)


def _read_old(wheel: WheelFacts) -> OldDocument:
    if wheel.document is None:
        raise DataError(f"{wheel.path} has no {FILE_NAME}", tip="rocm-wheels stamp makes one")
    if wheel.name.label is None:
        raise DataError(
            f"{wheel.path} has a {FILE_NAME} and no label in its name: installers take it for a plain wheel",
            tip="rocm-wheels stamp --replace makes a variant of it",
        )
    return read_any_format(wheel.document, name=f"{wheel.path}: {FILE_NAME}", label=wheel.name.label)


def _modern(old: Sequence[tuple[str, OldDocument]], request: RestampRequest) -> list[VariantMetadata]:
    """Return the documents of one release in today's form: same namespaces, same providers."""
    changed = [
        {label: _properties(one, f"{name}: {label}", request) for label, one in document.variants.items()}
        for name, document in old
    ]
    known = [properties for variants in changed for properties in variants.values()]
    ranked = max((document.namespaces for _, document in old), key=len)
    ours: dict[str, Provider] = {}
    if any(AMD in document.namespaces for _, document in old) or any(ROCM in one for one in known):
        ours = dict(settle(request.choice, known, request.joined).providers)
    elif request.joined:
        ours = dict(merge(request.joined).providers)
    kept = _kept(old, request)
    if not request.joined:
        ours = {namespace: provider for namespace, provider in ours.items() if namespace not in kept}
    else:
        kept = {namespace: provider for namespace, provider in kept.items() if namespace not in ours}
    first = merge(request.joined).namespaces if request.joined else ()
    namespaces = tuple(dict.fromkeys((*first, *ranked, *ours)))
    if silent := [one for one in namespaces if one not in {**kept, **ours}]:
        raise DataError(
            f"{old[0][0]}: no provider is known for {', '.join(silent)}",
            tip="--join a wheel or a -variants.json of the release that names it",
        )
    providers = {one: {**kept, **ours}[one] for one in namespaces}
    return [
        parse(VariantMetadata(namespaces, variants, providers).to_json(), name=f"{name}: the new {FILE_NAME}")
        for (name, _), variants in zip(old, changed, strict=True)
    ]


def _kept(old: Sequence[tuple[str, OldDocument]], request: RestampRequest) -> dict[str, Provider]:
    """Return the providers that stay as they are; DataError when two wheels name different ones."""
    kept: dict[str, tuple[str, Provider]] = {}
    for name, document in old:
        for namespace, provider in document.providers.items():
            if (namespace == AMD and not request.keep_provider) or (
                namespace == ROCM and request.choice.rocm_versions
            ):
                continue
            other, known = kept.setdefault(namespace, (name, provider))
            if known != provider:
                raise DataError(
                    f"{other} and {name} name different providers of {namespace}",
                    tip="say which one is right with --provider, or --join a document that has it",
                )
    return {namespace: provider for namespace, (_, provider) in kept.items()}


def _properties(properties: Properties, place: str, request: RestampRequest) -> Properties:
    """Return properties that the provider reports: the ROCm version is where it belongs."""
    versions = properties.get(AMD, {}).get(HOST_VERSION)
    if versions is None or (request.choice.provider == "own" and request.rocm_property != "bundled"):
        return properties
    if request.rocm_property != "bundled":
        raise UsageError(
            f"{place} needs {AMD} :: {HOST_VERSION}, which {request.choice.provider} does not report",
            tip="--rocm-property bundled when the wheel brings or requires its ROCm; else --provider own",
        )
    rest = [
        (namespace, feature, values)
        for namespace, features in properties.items()
        for feature, values in features.items()
        if (namespace, feature) != (AMD, HOST_VERSION)
    ]
    return properties_of([*rest, (ROCM, VERSION, versions)])


def _stamp(wheel: WheelFacts, old: OldDocument, document: VariantMetadata, request: RestampRequest) -> Stamp:
    label = wheel.name.label or ""
    properties = document.variants[label]
    notes = [*old.notes, *_check_targets(wheel, properties, request)]
    notes += [f"its label {label} {said}" for said in label_contradictions(label, properties)]
    decided: dict[str, str | None] = {}
    for text in wheel.requirements:
        try:
            decided[text] = decide(text, label, properties) if has_variant_marker(text) else text
        except DataError as cause:
            raise DataError(f"{wheel.path} cannot be repaired") from cause
        if decided[text] != text:
            notes.append(f"the requirement {text!r} became {decided[text] or 'nothing'!r}")

    def requirements(given: tuple[str, ...]) -> list[str]:
        return [new for text in given if (new := decided.get(text, text)) is not None]

    edit = Edit(label=label, put={FILE_NAME: document.to_json()}, requirements=requirements)
    return Stamp(wheel.path, label, properties, document, edit, tuple(notes))


def _check_targets(wheel: WheelFacts, properties: Properties, request: RestampRequest) -> list[str]:
    """Compare the stated targets with the device code; return what could not be compared."""
    held = read_held(wheel.path)
    stated = properties.get(AMD, {}).get(ARCH, ())
    if not held.targets:
        where = f"it is in {', '.join(held.outside)}" if held.outside else "it holds none"
        return [f"the targets were not compared with device code: {where}"] if stated else []
    try:
        choose_targets(
            str(wheel.path),
            held,
            ",".join(stated) or "none",
            allow_claim=request.allow_claim,
            allow_hide=request.allow_hide or not stated,
        )
    except UsageError as cause:
        raise DataError(f"{wheel.path}: {describe(properties)}: {explain(cause)}") from None
    return []
