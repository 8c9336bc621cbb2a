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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, parallel
from rocm_wheels.models.versions import is_asan_version
from rocm_wheels.package import wheel_plan
from rocm_wheels.variants import device_names, document, order, targets
from rocm_wheels.wheels import dist_info, edit, rewrite, sbom, write_together

_ROCM_LOCAL = re.compile(r"(?:^|\.)(?:(?:dev)?rocm(?P<version>[0-9][0-9a-z.]*)|cpu(?:\.asan)?)$")

JoinedDocuments = Sequence[tuple[str, document.VariantMetadata]]
ReadTargets = Callable[[Path], targets.WheelTargets]


def strip_rocm_local(local: str | None) -> str:
    """Return a local version without what tells builds apart: ``git1a2b.rocm7.2.0`` → ``git1a2b``.

    Variants are wheels of one version; with ``+rocm7.2`` or ``+cpu`` each would be a version of its own, and
    an installer chooses the version before it looks at variants. ``asan`` stays, for that very reason.
    """
    parts = [part for part in _ROCM_LOCAL.sub("", local or "").split(".") if part not in ("", "asan")]
    return ".".join([*parts, "asan"] if is_asan_version(f"1+{local}") else parts)


def read_rocm_version(
    wheel: str, local: str | None, requirements: Sequence[str], requested: str | None
) -> str:
    """Return the ROCm version (major.minor) of a wheel; ``requested`` is ``--rocm``.

    Its local version and exact requirements state it. DataError when nothing does, or when two places differ.
    """
    versions = {}
    if requested is not None:
        versions[f"--rocm {requested}"] = document.parse_minor_version(requested, input_name="--rocm")
    match = _ROCM_LOCAL.search(local or "")
    if match and match["version"] and re.match(r"[0-9]+\.[0-9]", match["version"]):
        versions[f"its version +{local}"] = ".".join(match["version"].split(".")[:2])
    for text, version in wheel_plan.list_rocm_pins(requirements).items():
        versions[f"its requirement {text}"] = document.parse_minor_version(version, input_name=text)
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

    The pins of the ROCm packages stay as they are: those are no variants. What is no requirement stays, too:
    the writer of wheels refuses it, and says where it stands.
    """
    stripped = []
    for text in requirements:
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, RecursionError):
            stripped.append(text)
            continue
        new = text
        for specifier in () if wheel_plan.is_rocm_package(requirement.name) else requirement.specifier:
            public, _, local = specifier.version.partition("+")
            local = re.sub("[-_]", ".", local.lower())
            if (remaining := strip_rocm_local(local)) != local:
                new = new.replace(specifier.version, f"{public}+{remaining}" if remaining else public)
        stripped.append(new)
    return stripped


@dataclass(frozen=True)
class _WheelFacts:
    """A wheel, its name, and its Requires-Dist values as written.

    ``devices``: the targets that the ROCm of its build has device packages for, as far as its bill tells.
    """

    path: Path
    name: dist_info.WheelName
    requirements: tuple[str, ...]
    devices: tuple[str, ...]

    @property
    def release(self) -> tuple[str, str]:
        """Project and version of the release that the wheel becomes a variant of."""
        version = self.name.version
        local = strip_rocm_local(version.local)
        return self.name.name, f"{version.public}+{local}" if local else version.public


def _read_wheel_facts(wheel: Path) -> _WheelFacts:
    """Read a wheel's name and ``.dist-info`` folder. DataError when it is no wheel, or cannot be stamped."""
    name = dist_info.parse_wheel_name(wheel.name)
    files = rewrite.read_dist_info_files(wheel)
    if name.label is not None or document.VARIANT_FILE_NAME in files:
        raise errors.DataError(
            f"{wheel} is a variant wheel already: {name.label or document.VARIANT_FILE_NAME}",
            tip="make a plain wheel of it first: rocm-wheels wheel retag --label ''",
        )
    fields, _ = dist_info.read_metadata_fields(files["METADATA"], f"{wheel}: METADATA")
    requirements = dist_info.get_field_values(fields, "Requires-Dist")
    if marked := list(filter(dist_info.has_variant_marker, requirements)):
        raise errors.DataError(
            f"{wheel}: METADATA has a variant marker, which no installer reads: {marked[0]}",
            tip="take it out: rocm-wheels wheel retag --drop-requirement",
        )
    devices = tuple(sbom.list_rocm_devices(files[sbom.SBOM_MEMBER])) if sbom.SBOM_MEMBER in files else ()
    return _WheelFacts(wheel, name, requirements, devices)


def read_joined_document(path: Path) -> document.VariantMetadata:
    """Read the document of a stamped wheel or of a ``-variants.json``. DataError when there is none."""
    if path.suffix == ".whl":
        content = rewrite.read_dist_info_files(path).get(document.VARIANT_FILE_NAME)
        if content is None:
            raise errors.DataError(
                f"{path} has no {document.VARIANT_FILE_NAME}",
                tip="--join names a wheel that is stamped already",
            )
    else:
        try:
            content = path.read_bytes()
        except OSError as cause:
            raise errors.DataError(f"cannot read {path}: {cause.strerror}") from None
    joined = document.parse_document(content, name=str(path))
    if not joined.providers:
        raise errors.DataError(
            f"{path} names no providers, and a stamp names one for each namespace (PEP 850)",
            tip="make plain wheels of its wheels (wheel retag --label ''), and stamp them",
        )
    return joined


def _settle_release(
    choice: document.ProviderChoice, variants: Sequence[document.Properties], joined: JoinedDocuments
) -> document.VariantMetadata:
    """Return what the stamps of a release share, as a document without variants.

    ``amd`` is ranked before ``rocm``: code for the very GPU is worth more than a newer ROCm. DataError when
    what was asked for differs from what the release says already, or documents that it joins do.
    """
    amd, rocm = document.AMD_NAMESPACE, document.ROCM_NAMESPACE
    existing = document.merge_documents(joined) if joined else document.VariantMetadata((), {})
    listing = {name for name, provider in existing.providers.items() if provider.static_properties}

    def list_stated(namespace: str, feature: str) -> list[str]:
        return [value for stated in variants for value in stated.get(namespace, {}).get(feature, ())]

    ours: dict[str, document.Provider] = {}
    if choice.provider == "static" and amd in listing:
        ours[amd] = existing.providers[amd]
    else:
        ours[amd] = choice.make_amd_provider(list_stated(amd, document.GFX_ARCH))
    if versions := list_stated(rocm, document.ROCM_VERSION):
        is_listed = rocm in listing
        ours[rocm] = existing.providers[rocm] if is_listed else choice.make_rocm_provider(versions)
    for namespace, provider in ours.items():
        theirs = existing.providers.get(namespace, provider)
        # a static list that is there may be longer than ours
        is_same = provider.model_copy(update={"static_properties": theirs.static_properties}) == theirs
        if not is_same or any(
            set(values) - set(theirs.static_properties.get(feature, ()))
            for feature, values in provider.static_properties.items()
        ):
            raise errors.DataError(
                f"{joined[0][0]} has {json.dumps(theirs.as_json())} as the provider of {namespace}, this"
                f" stamp {json.dumps(provider.as_json())}",
                tip="a namespace has one provider in a release: choose the same, or stamp the others again",
            )
    providers = {**ours, **existing.providers}
    namespaces = tuple(dict.fromkeys((*existing.namespaces, *ours)))
    # a value that a static provider does not list is of a wheel that nobody could install
    for stated in variants:
        for namespace, feature, values in document.list_values(stated):
            static = providers[namespace].static_properties
            listed = static.get(feature, ())
            if static and (unlisted := sorted(set(values) - set(listed))):
                shown = listed if len(listed) < 10 else (listed[0], "…", listed[-1])
                raise errors.DataError(
                    f"the release lists {', '.join(shown) or 'nothing'} as {namespace} :: {feature}, "
                    f"and not {', '.join(unlisted)}",
                    tip="stamp all wheels of the release again, in one command",
                )
    return document.VariantMetadata(namespaces, {}, {name: providers[name] for name in namespaces})


@dataclass(frozen=True)
class StampRequest:
    """What a stamp shall say, for all wheels of a call (see ``rocm-wheels wheel stamp --help``)."""

    targets: str = targets.FROM_WHEEL
    label: str | None = None
    rocm_version: str | None = None
    choice: document.ProviderChoice = field(default_factory=document.ProviderChoice)
    null: bool = False
    joined: JoinedDocuments = ()

    def __post_init__(self) -> None:
        stated = {
            "--gfx": self.targets != targets.FROM_WHEEL,
            "--label": self.label not in (None, document.NULL_LABEL),
            "--rocm": self.rocm_version is not None,
        }
        if self.null and any(stated.values()):
            options = ", ".join(option for option, is_stated in stated.items() if is_stated)
            raise errors.UsageError(f"--null states no properties at all, so it does not go with {options}")
        if self.rocm_version is not None:
            document.parse_minor_version(self.rocm_version, input_name="--rocm")


@dataclass(frozen=True)
class VariantStamp:
    """A stamp that is decided: the wheel it is for, its label, its document, and what the wheel becomes."""

    source: Path
    label: str
    properties: document.Properties
    document: document.VariantMetadata
    edit: edit.WheelEdit

    def describe(self, folder: Path | None, size: int | None = None) -> StampedWheel:
        """Return the new wheel in ``folder`` (None: beside the old one); ``size`` None: it is not written."""
        path = (folder or self.source.parent) / edit.get_edited_name(self.source.name, self.edit)
        return StampedWheel(self.source, path, self.label, self.properties, size)


@dataclass(frozen=True)
class StampedWheel:
    """A wheel that was written, or would be: its ``size`` is None then."""

    source: Path
    path: Path
    label: str
    properties: document.Properties
    size: int | None


def plan_stamps(
    wheels: Sequence[Path], request: StampRequest, *, read_targets: ReadTargets = targets.read_wheel_targets
) -> list[VariantStamp]:
    """Decide the stamps of wheels; nothing is written. DataError or UsageError when one cannot be.

    ``read_targets`` is asked for the device code of each wheel, several at a time, when all else is right.
    """
    facts = [_read_wheel_facts(wheel) for wheel in wheels]
    versions: list[str | None] = [None] * len(facts)
    if not request.null:
        versions = [
            read_rocm_version(
                str(wheel.path), wheel.name.version.local, wheel.requirements, request.rocm_version
            )
            for wheel in facts
        ]
    held = parallel.run_in_parallel(read_targets, wheels, jobs=os.cpu_count() or 1)
    releases: dict[tuple[str, str], list[tuple[_WheelFacts, document.Properties]]] = {}
    for wheel, version, wheel_targets in zip(facts, versions, held, strict=True):
        properties = _choose_properties(wheel, request, version, wheel_targets)
        releases.setdefault(wheel.release, []).append((wheel, properties))
    stamps: dict[str, VariantStamp] = {}  # by the name of the new file
    for group in releases.values():
        release = _settle_release(request.choice, [properties for _, properties in group], request.joined)
        documents = [*request.joined]
        for wheel, properties in group:
            label = order.check_label(request.label or order.make_label(properties), properties)
            stated = replace(release, variants={label: properties})
            # read back: so it is checked by the PEPs' rules
            checked = document.parse_document(stated.to_json(), name=f"the stamp {label}")
            documents.append((wheel.path.name, checked))
            change = _make_edit(wheel, label, checked)
            stamp = VariantStamp(wheel.path, label, properties, checked, change)
            other = stamps.setdefault(edit.get_edited_name(wheel.path.name, change), stamp)
            if other is not stamp:
                raise errors.UsageError(
                    f"{other.source} and {stamp.source} would become the same variant, {label}",
                    tip="give one of them another --label, or another build tag",
                )
        document.merge_documents(documents)
    return list(stamps.values())


def write_stamps(
    stamps: Sequence[VariantStamp],
    folder: Path | None,
    *,
    batch: write_together.WheelBatch,
    begun: Mapping[Path, rewrite.BegunRewrite] | None = None,
) -> list[StampedWheel]:
    """Write what was planned into ``folder`` (None: beside each wheel); the wheels themselves stay.

    They are there when ``batch`` is at its end. ``begun`` are wheels whose copying into it has begun.
    UsageError, and nothing is written, when two would become one file.
    """
    ahead = begun or {}
    rewrite.require_distinct_targets((stamp.source, stamp.describe(folder).path) for stamp in stamps)

    def write_stamp(stamp: VariantStamp) -> StampedWheel:
        if stamp.source in ahead:
            written = ahead[stamp.source].stage(stamp.edit).commit()
        else:
            stage = batch.find_stage(folder or stamp.source.parent)
            written = rewrite.rewrite_wheel(stamp.source, stage, stamp.edit)
        return stamp.describe(folder, written.stat().st_size)

    return parallel.run_in_parallel(write_stamp, stamps, jobs=os.cpu_count() or 1)


def _choose_properties(
    wheel: _WheelFacts, request: StampRequest, version: str | None, held: targets.WheelTargets
) -> document.Properties:
    if version is not None:
        held = targets.select_rocm_targets(str(wheel.path), held, version)
    requested = targets.NO_TARGETS if request.null else request.targets
    chosen = targets.choose_targets(
        str(wheel.path), held, requested, generics=request.choice.reports_generics
    )
    namespace, feature = document.ROCM_NAMESPACE, document.ROCM_VERSION
    if request.choice.rocm_property == "host":
        namespace, feature = document.AMD_NAMESPACE, document.HOST_ROCM_VERSION
    has_asan = is_asan_version(wheel.name.version)
    if has_asan and (request.null or request.choice.provider != "own"):
        raise errors.UsageError(
            f"{wheel.path} has AddressSanitizer, which is for who asks for it: only our provider can",
            tip="add --provider own",
        )
    return document.make_properties(
        [
            (document.AMD_NAMESPACE, document.GFX_ARCH, chosen),
            (namespace, feature, [version] if version else []),
            (document.AMD_NAMESPACE, document.SANITIZER, ["address"] if has_asan else []),
        ]
    )


def _make_edit(wheel: _WheelFacts, label: str, stated: document.VariantMetadata) -> edit.WheelEdit:
    chips = stated.variants[label].get(document.AMD_NAMESPACE, {}).get(document.GFX_ARCH, ())
    # for one GPU alone rocm is required with its device package, so that its libraries have code for it
    extra = device_names.make_device_extra(chips[0]) if len(chips) == 1 and chips[0] in wheel.devices else ""

    def change_requirements(old: Sequence[str]) -> list[str]:
        return strip_local_pins([_require_extra(text, extra) if extra else text for text in old])

    local = wheel.name.version.local or ""
    remaining = strip_rocm_local(local)
    return edit.WheelEdit(
        label=label,
        put={document.VARIANT_FILE_NAME: stated.to_json()},
        local=remaining if remaining != local else None,
        requirements=change_requirements,
        step=f"stamp {label}",
    )


def _require_extra(text: str, extra: str) -> str:
    """Return a requirement; one on ``rocm`` itself with an extra."""
    requirement = Requirement(text)
    if canonicalize_name(requirement.name) != "rocm" or extra in requirement.extras:
        return text
    requirement.extras = {*requirement.extras, extra}
    return str(requirement)
