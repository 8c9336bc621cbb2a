"""Stamp wheels as variants: decided for all wheels first, then written.

A wheel's name and ``.dist-info`` say which ROCm it was made with; its device code says the targets. All
variants of a release share the ranking of namespaces and the provider of each, because joining their
documents demands both (PEP 825, PEP 850): so one version's wheels are settled together, and take over
what a wheel or index document that is named with ``--join`` says.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, parallel
from rocm_wheels.package import wheel_plan
from rocm_wheels.variants import device_names, order
from rocm_wheels.variants.document import (
    AMD_NAMESPACE,
    GFX_ARCH,
    HOST_ROCM_VERSION,
    ROCM_NAMESPACE,
    ROCM_VERSION,
    VARIANT_FILE_NAME,
    Properties,
    Provider,
    ProviderChoice,
    VariantMetadata,
    list_values,
    make_properties,
    merge_documents,
    parse_document,
    parse_minor_version,
)
from rocm_wheels.variants.targets import (
    FROM_WHEEL,
    NO_TARGETS,
    WheelTargets,
    choose_targets,
    read_wheel_targets,
    select_rocm_targets,
)
from rocm_wheels.wheels import dist_info, sbom, write_together
from rocm_wheels.wheels.edit import WheelEdit, get_edited_name
from rocm_wheels.wheels.rewrite import (
    BegunRewrite,
    begin_rewrite,
    read_dist_info_files,
    require_distinct_targets,
    rewrite_wheel,
)

_ROCM_LOCAL = re.compile(r"(?:^|\.)(?:(?:dev)?rocm(?P<version>[0-9][0-9a-z.]*)|cpu)$")


def strip_rocm_local(local: str | None) -> str:
    """Return a local version without what tells builds apart: ``git1a2b.rocm7.2.0`` → ``git1a2b``.

    Variants are wheels of one version; with ``+rocm7.2`` or ``+cpu`` each would be a version of its own, and
    an installer chooses the version before it looks at variants.
    """
    return _ROCM_LOCAL.sub("", local or "")


def find_rocm_versions(local: str | None, requirements: Sequence[str]) -> dict[str, str]:
    """Return major.minor of ROCm by the place that states it: the local version, exact requirements."""
    versions = {}
    match = _ROCM_LOCAL.search(local or "")
    if match and match["version"] and re.match(r"[0-9]+\.[0-9]", match["version"]):
        versions[f"its version +{local}"] = ".".join(match["version"].split(".")[:2])
    for text, version in wheel_plan.list_rocm_pins(requirements).items():
        versions[f"its requirement {text}"] = parse_minor_version(version, input_name=text)
    return versions


def read_rocm_version(
    wheel: str, local: str | None, requirements: Sequence[str], requested: str | None
) -> str:
    """Return the ROCm version (major.minor) of a wheel; ``requested`` is ``--rocm``.

    DataError when nothing states one, or when two places differ.
    """
    versions = find_rocm_versions(local, requirements)
    if requested is not None:
        versions = {
            f"--rocm {requested}": parse_minor_version(requested, input_name="--rocm"),
            **versions,
        }
    if not versions:
        raise errors.DataError(
            f"{wheel} does not say which ROCm it was made with: neither its version nor a requirement does",
            tip="name it: --rocm 7.2",
        )
    if len(set(versions.values())) > 1:
        statements = "; ".join(f"{origin} says {version}" for origin, version in versions.items())
        raise errors.DataError(f"{wheel}: its ROCm version is not one: {statements}")
    return next(iter(versions.values()))


def strip_local_pins(requirements: Sequence[str]) -> list[str]:
    """Return requirements with pins like ``torch==2.9.0+rocm7.2`` without the part that variants replace.

    The pins of the ROCm packages stay as they are: those are no variants.
    """
    return [_strip_local_pin(text) for text in requirements]


def _strip_local_pin(text: str) -> str:
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return text  # the writer of wheels refuses it, and says where it stands
    if wheel_plan.is_rocm_package(requirement.name):
        return text
    for specifier in requirement.specifier:
        public, _, local = specifier.version.partition("+")
        local = re.sub("[-_]", ".", local.lower())
        if (remaining := strip_rocm_local(local)) != local:
            text = text.replace(specifier.version, f"{public}+{remaining}" if remaining else public)
    return text


@dataclass(frozen=True)
class WheelFacts:
    """A wheel: its name, its Requires-Dist values as written, its ``variant.json`` (None: it has none).

    ``devices``: the targets that the ROCm of its build has device packages for, as far as its bill tells.
    """

    path: Path
    name: dist_info.WheelName
    requirements: tuple[str, ...]
    document: bytes | None
    devices: tuple[str, ...] = ()

    @property
    def release(self) -> tuple[str, str]:
        """Project and version of the release that the wheel becomes a variant of."""
        version = self.name.version
        local = strip_rocm_local(version.local)
        return self.name.name, f"{version.public}+{local}" if local else version.public

    @property
    def is_stamped(self) -> bool:
        """Whether it is a variant wheel, by its name or its content."""
        return self.name.label is not None or self.document is not None


def read_wheel_facts(wheel: Path) -> WheelFacts:
    """Read a wheel's name and ``.dist-info`` folder, and inflate nothing else. DataError when it is none."""
    name = dist_info.parse_wheel_name(wheel.name)
    files = read_dist_info_files(wheel)
    fields, _ = dist_info.read_metadata_fields(files["METADATA"], f"{wheel}: METADATA")
    devices = tuple(sbom.list_rocm_devices(files[sbom.SBOM_MEMBER])) if sbom.SBOM_MEMBER in files else ()
    requirements = dist_info.get_field_values(fields, "Requires-Dist")
    return WheelFacts(wheel, name, requirements, files.get(VARIANT_FILE_NAME), devices)


JoinedDocuments = Sequence[tuple[str, VariantMetadata]]


def read_joined_document(path: Path) -> VariantMetadata:
    """Read the document of a stamped wheel or of a ``-variants.json``. DataError when there is none."""
    if path.suffix == ".whl":
        content = read_dist_info_files(path).get(VARIANT_FILE_NAME)
        if content is None:
            raise errors.DataError(
                f"{path} has no {VARIANT_FILE_NAME}", tip="--join names a wheel that is stamped already"
            )
    else:
        try:
            content = path.read_bytes()
        except OSError as cause:
            raise errors.DataError(f"cannot read {path}: {cause.strerror}") from None
    document = parse_document(content, name=str(path))
    if not document.providers:
        raise errors.DataError(
            f"{path} names no providers, and a stamp names one for each namespace (PEP 850)",
            tip="make plain wheels of its wheels (wheel retag --label ''), and stamp them",
        )
    return document


def settle_release(
    choice: ProviderChoice, variants: Iterable[Properties], joined: JoinedDocuments
) -> VariantMetadata:
    """Return what the stamps of a release share, as a document without variants.

    ``amd`` is ranked before ``rocm``: code for the very GPU is worth more than a newer ROCm. DataError when
    what was asked for differs from what the release says already, or documents that it joins do.
    """
    property_sets = list(variants)
    targets = chain.from_iterable(
        properties.get(AMD_NAMESPACE, {}).get(GFX_ARCH, ()) for properties in property_sets
    )
    existing = merge_documents(joined) if joined else VariantMetadata((), {})
    ours: dict[str, Provider] = {}
    if choice.provider == "static" and _is_static(existing, AMD_NAMESPACE):
        ours[AMD_NAMESPACE] = existing.providers[AMD_NAMESPACE]
    else:
        ours[AMD_NAMESPACE] = choice.make_amd_provider(targets)
    versions = chain.from_iterable(
        properties.get(ROCM_NAMESPACE, {}).get(ROCM_VERSION, ()) for properties in property_sets
    )
    if stated_versions := set(versions):
        is_listed = _is_static(existing, ROCM_NAMESPACE)
        ours[ROCM_NAMESPACE] = (
            existing.providers[ROCM_NAMESPACE] if is_listed else choice.make_rocm_provider(stated_versions)
        )
    providers = dict(existing.providers)
    for namespace, provider in ours.items():
        providers[namespace] = _require_same_provider(
            namespace, existing.providers.get(namespace, provider), provider, joined
        )
    namespaces = tuple(dict.fromkeys((*existing.namespaces, *ours)))
    release = VariantMetadata(namespaces, {}, {namespace: providers[namespace] for namespace in namespaces})
    _require_listed(release, property_sets)
    return release


def _is_static(document: VariantMetadata, namespace: str) -> bool:
    return namespace in document.providers and bool(document.providers[namespace].static_properties)


def _require_same_provider(
    namespace: str, existing: Provider, ours: Provider, joined: JoinedDocuments
) -> Provider:
    """Return the provider that the release has; a static list that is there may be longer than ours."""
    longer = ours.model_copy(update={"static_properties": existing.static_properties}) == existing and all(
        set(values) <= set(existing.static_properties.get(feature, ()))
        for feature, values in ours.static_properties.items()
    )
    if existing != ours and not longer:
        raise errors.DataError(
            f"{joined[0][0]} has {json.dumps(existing.as_json())} as the provider of {namespace}, this stamp "
            f"{json.dumps(ours.as_json())}",
            tip="a namespace has one provider in a release: choose the same, or stamp the others again",
        )
    return existing


def _require_listed(release: VariantMetadata, variants: Iterable[Properties]) -> None:
    """Raise DataError for a value that a static provider does not list: nobody could install that wheel."""
    for namespace, feature, values in chain.from_iterable(map(list_values, variants)):
        provider = release.providers.get(namespace)
        if provider is None or not provider.static_properties:
            continue
        listed = provider.static_properties.get(feature, ())
        if unlisted := sorted(set(values) - set(listed)):
            raise errors.DataError(
                f"the release lists {_shorten_list(listed)} as {namespace} :: {feature}, "
                f"and not {', '.join(unlisted)}",
                tip="stamp all wheels of the release again, in one command",
            )


def _shorten_list(values: Sequence[str]) -> str:
    return ", ".join(values if len(values) < 10 else (values[0], "…", values[-1])) or "nothing"


@dataclass(frozen=True)
class StampRequest:
    """What a stamp shall say, for all wheels of a call (see ``rocm-wheels wheel stamp --help``)."""

    targets: str = FROM_WHEEL
    label: str | None = None
    rocm_version: str | None = None
    choice: ProviderChoice = field(default_factory=ProviderChoice)
    null: bool = False
    joined: JoinedDocuments = ()

    def __post_init__(self) -> None:
        options = [
            option
            for option, value in (
                ("--gfx", self.targets != FROM_WHEEL),
                ("--label", self.label not in (None, "null")),
                ("--rocm", self.rocm_version is not None),
            )
            if value
        ]
        if self.null and options:
            raise errors.UsageError(
                f"--null states no properties at all, so it does not go with {', '.join(options)}"
            )


@dataclass(frozen=True)
class VariantStamp:
    """A stamp that is decided: the wheel it is for, its label, its document, and what the wheel becomes."""

    source: Path
    label: str
    properties: Properties
    document: VariantMetadata
    edit: WheelEdit

    def describe(self, folder: Path | None, size: int | None = None) -> StampedWheel:
        """Return the new wheel in ``folder`` (None: beside the old one); ``size`` None: it is not written."""
        path = (folder or self.source.parent) / get_edited_name(self.source.name, self.edit)
        return StampedWheel(self.source, path, self.label, self.properties, size)


@dataclass(frozen=True)
class StampedWheel:
    """A wheel that was written, or would be: its ``size`` is None then."""

    source: Path
    path: Path
    label: str
    properties: Properties
    size: int | None


_MOST_BEGUN = 16  # wheels that are copied before all stamps are decided: each holds files open
ReadTargets = Callable[[Path], WheelTargets]


def plan_stamps(
    wheels: Sequence[Path], request: StampRequest, *, read_targets: ReadTargets = read_wheel_targets
) -> list[VariantStamp]:
    """Decide the stamps of wheels; nothing is written. DataError or UsageError when one cannot be.

    ``read_targets`` is asked for the device code of each wheel, several at a time, when all else is right.
    """
    if not wheels:
        raise errors.UsageError(
            "no wheels were named", tip="for example: rocm-wheels wheel stamp dist/torch-*.whl"
        )
    facts = [read_wheel_facts(wheel) for wheel in wheels]
    for wheel in facts:
        if wheel.is_stamped:
            raise errors.DataError(
                f"{wheel.path} is a variant wheel already: {wheel.name.label or VARIANT_FILE_NAME}",
                tip="make a plain wheel of it first: rocm-wheels wheel retag --label ''",
            )
        if marked := list(filter(dist_info.has_variant_marker, wheel.requirements)):
            raise errors.DataError(
                f"{wheel.path}: METADATA has a variant marker, which no installer reads: {marked[0]}",
                tip="take it out: rocm-wheels wheel retag --drop-requirement",
            )
    versions: list[str | None] = [None] * len(facts)
    if not request.null:
        versions = [
            read_rocm_version(
                str(wheel.path), wheel.name.version.local, wheel.requirements, request.rocm_version
            )
            for wheel in facts
        ]
    targets = parallel.run_in_parallel(read_targets, wheels, jobs=os.cpu_count() or 1)
    releases: dict[tuple[str, str], list[tuple[WheelFacts, Properties]]] = {}
    for wheel, version, wheel_targets in zip(facts, versions, targets, strict=True):
        properties = _choose_properties(wheel, request, version, wheel_targets)
        releases.setdefault(wheel.release, []).append((wheel, properties))
    stamps: dict[Path, VariantStamp] = {}  # by the name of the new file
    for group in releases.values():
        for stamp in _plan_release(group, request):
            other = stamps.setdefault(stamp.describe(Path()).path, stamp)
            if other is not stamp:
                raise errors.UsageError(
                    f"{other.source} and {stamp.source} would become the same variant, {stamp.label}",
                    tip="give one of them another --label, or another build tag",
                )
    return list(stamps.values())


def _plan_release(
    group: Sequence[tuple[WheelFacts, Properties]], request: StampRequest
) -> list[VariantStamp]:
    """Return the stamps of the wheels of one release."""
    release = settle_release(request.choice, [properties for _, properties in group], request.joined)
    stamps = []
    for wheel, properties in group:
        label = order.check_label(request.label or order.make_label(properties), properties)
        stated = replace(release, variants={label: properties})
        document = parse_document(stated.to_json(), name=f"the stamp {label}")  # checked by the PEPs' rules
        edit = _make_edit(wheel, label, document)
        stamps.append(VariantStamp(wheel.path, label, properties, document, edit))
    merge_documents([*request.joined, *((stamp.source.name, stamp.document) for stamp in stamps)])
    return stamps


def write_stamps(
    stamps: Sequence[VariantStamp],
    folder: Path | None,
    *,
    batch: write_together.WheelBatch,
    begun: Mapping[Path, BegunRewrite] | None = None,
) -> list[StampedWheel]:
    """Write what was planned into ``folder`` (None: beside each wheel); the wheels themselves stay.

    They are there when ``batch`` is at its end. ``begun`` are wheels whose copying into it has begun.
    UsageError, and nothing is written, when two would become one file.
    """
    ahead = begun or {}
    require_distinct_targets((stamp.source, stamp.describe(folder).path) for stamp in stamps)

    def write_stamp(stamp: VariantStamp) -> StampedWheel:
        if (rewrite := ahead.get(stamp.source)) is not None:
            rewritten = rewrite.stage(stamp.edit).commit()
        else:
            stage = batch.find_stage(folder or stamp.source.parent)
            rewritten = rewrite_wheel(stamp.source, stage, stamp.edit)
        return stamp.describe(folder, rewritten.size)

    return parallel.run_in_parallel(write_stamp, stamps, jobs=os.cpu_count() or 1)


def stamp_wheels(wheels: Sequence[Path], request: StampRequest, folder: Path | None) -> list[StampedWheel]:
    """Plan stamps and write them, as ``plan_stamps`` and ``write_stamps`` do; copying goes on meanwhile.

    No file is there before all stamps are decided.
    """
    with write_together.write_together() as batch, ExitStack() as stack:
        begun: dict[Path, BegunRewrite] = {}

        def read_targets(wheel: Path) -> WheelTargets:
            if len(begun) < _MOST_BEGUN:
                stage = batch.find_stage(folder or wheel.parent)
                begun[wheel] = stack.enter_context(begin_rewrite(wheel, stage))
                return read_wheel_targets(begun[wheel].archive)  # its copy is checked by the same pass
            return read_wheel_targets(wheel)

        stamps = plan_stamps(wheels, request, read_targets=read_targets)
        return write_stamps(stamps, folder, batch=batch, begun=begun)


def _choose_properties(
    wheel: WheelFacts, request: StampRequest, version: str | None, wheel_targets: WheelTargets
) -> Properties:
    is_bundled = request.choice.rocm_property == "bundled"
    feature = (ROCM_NAMESPACE, ROCM_VERSION) if is_bundled else (AMD_NAMESPACE, HOST_ROCM_VERSION)
    if version is not None:
        wheel_targets = select_rocm_targets(str(wheel.path), wheel_targets, version)
    targets = choose_targets(
        str(wheel.path),
        wheel_targets,
        NO_TARGETS if request.null else request.targets,
        generics=request.choice.reports_generics,
    )
    return make_properties([(AMD_NAMESPACE, GFX_ARCH, targets), (*feature, [version] if version else [])])


def _make_edit(wheel: WheelFacts, label: str, document: VariantMetadata) -> WheelEdit:
    targets = document.variants[label].get(AMD_NAMESPACE, {}).get(GFX_ARCH, ())
    only_target = targets[0] if len(targets) == 1 and targets[0] in wheel.devices else None

    def change_requirements(old: Sequence[str]) -> list[str]:
        new = list(old)
        if only_target is not None:
            extra = device_names.make_device_extra(only_target)
            new = [_require_rocm_extra(text, extra) for text in new]
        return strip_local_pins(new)

    local = wheel.name.version.local or ""
    remaining = strip_rocm_local(local)
    return WheelEdit(
        label=label,
        put={VARIANT_FILE_NAME: document.to_json()},
        local=remaining if remaining != local else None,
        requirements=change_requirements,
        step=f"stamp {label}",
    )


def _require_rocm_extra(text: str, extra: str) -> str:
    """Return a requirement on ``rocm`` with an extra, so that its libraries have code for the GPU."""
    requirement = Requirement(text)
    if canonicalize_name(requirement.name) != "rocm" or extra in requirement.extras:
        return text
    requirement.extras = {*requirement.extras, extra}
    return str(requirement)
