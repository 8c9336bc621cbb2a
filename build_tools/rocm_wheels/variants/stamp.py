"""Make variant wheels: what a stamp says is decided for all wheels first, then they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.variants.document import (
    AMD_NAMESPACE,
    GFX_ARCH,
    HOST_ROCM_VERSION,
    ROCM_NAMESPACE,
    ROCM_VERSION,
    Properties,
    VariantMetadata,
    make_properties,
)
from rocm_wheels.variants.labels import check_label, make_label
from rocm_wheels.variants.markers import has_variant_marker
from rocm_wheels.variants.metadata import VARIANT_FILE_NAME, merge_documents
from rocm_wheels.variants.providers import ProviderChoice
from rocm_wheels.variants.release import JoinedDocuments, settle_release
from rocm_wheels.variants.rocm_version import strip_rocm_local, read_rocm_version, strip_local_pins
from rocm_wheels.variants.targets import (
    FROM_WHEEL,
    NO_TARGETS,
    WheelTargets,
    choose_targets,
    read_wheel_targets,
)
from rocm_wheels.variants.wheel_facts import WheelFacts, read_wheel_facts
from rocm_wheels.wheels.archive.edits import WheelEdit, get_edited_name
from rocm_wheels.wheels.archive.rewrite import require_distinct_targets, rewrite_wheel

_RESTAMP_TIP = "rocm-wheels restamp repairs it; --replace gives it a new stamp"


@dataclass(frozen=True)
class StampRequest:
    """What a stamp shall say, for all wheels of a call (see ``rocm-wheels stamp --help``)."""

    targets: str = FROM_WHEEL
    label: str | None = None
    rocm_version: str | None = None
    choice: ProviderChoice = field(default_factory=ProviderChoice)
    null: bool = False
    keep_local: bool = False
    allow_claim: bool = False
    allow_hide: bool = False
    replace: bool = False
    joined: JoinedDocuments = ()

    def __post_init__(self) -> None:
        options = [
            option
            for option, value in (
                ("--targets", self.targets != FROM_WHEEL),
                ("--label", self.label not in (None, "null")),
                ("--rocm-version", self.rocm_version is not None),
                ("--allow-claim", self.allow_claim),
            )
            if value
        ]
        if self.null and options:
            raise UsageError(
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
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StampedWheel:
    """A wheel that was written."""

    source: Path
    path: Path
    label: str
    properties: Properties
    size: int
    notes: tuple[str, ...] = ()


def plan_stamps(
    wheels: Sequence[Path], request: StampRequest, *, wheel_targets: Mapping[Path, WheelTargets] | None = None
) -> list[VariantStamp]:
    """Decide the stamps of wheels; nothing is written. DataError or UsageError when one cannot be.

    ``wheel_targets`` is what is known of the device code of wheels already; that of others is read.
    """
    if not wheels:
        raise UsageError("no wheels were named", tip="for example: rocm-wheels stamp dist/torch-*.whl")
    facts = [read_wheel_facts(wheel) for wheel in wheels]
    for wheel_facts in facts:
        _require_stampable(wheel_facts, replace=request.replace)
    properties = {
        wheel_facts.path: _choose_properties(
            wheel_facts, request, (wheel_targets or {}).get(wheel_facts.path)
        )
        for wheel_facts in facts
    }
    stamps: list[tuple[WheelFacts, VariantStamp]] = []
    for group in group_by_release(facts, keep_local=request.keep_local):
        release = settle_release(
            request.choice, [properties[wheel_facts.path] for wheel_facts in group], request.joined
        )
        group_stamps = []
        for wheel_facts in group:
            label = check_label(
                request.label or make_label(properties[wheel_facts.path]), properties[wheel_facts.path]
            )
            document = release.make_document(label, properties[wheel_facts.path])
            edit = _make_edit(wheel_facts, document, request)
            group_stamps.append(
                (
                    wheel_facts,
                    VariantStamp(wheel_facts.path, label, properties[wheel_facts.path], document, edit),
                )
            )
        merge_documents(
            [*request.joined, *((stamp.source.name, stamp.document) for _, stamp in group_stamps)]
        )
        stamps += group_stamps
    _require_different_files(stamps, keep_local=request.keep_local)
    return [stamp for _, stamp in stamps]


def write_stamps(
    stamps: Iterable[VariantStamp], folder: Path | None, *, replace: bool = False
) -> list[StampedWheel]:
    """Write what was planned into ``folder`` (None: beside each wheel); the wheels themselves stay.

    UsageError, and nothing is written, when two would become one file.
    """
    stamps, written = list(stamps), []
    require_distinct_targets(
        (stamp.source, (folder or stamp.source.parent) / get_edited_name(stamp.source.name, stamp.edit))
        for stamp in stamps
    )
    for stamp in stamps:
        rewritten = rewrite_wheel(stamp.source, folder or stamp.source.parent, stamp.edit, replace=replace)
        written.append(
            StampedWheel(
                stamp.source, rewritten.path, stamp.label, stamp.properties, rewritten.size, stamp.notes
            )
        )
    return written


def unstamp_wheel(
    wheel: Path, folder: Path | None, *, local: str | None = None, replace: bool = False
) -> StampedWheel:
    """Write a variant wheel as a plain one, with local version ``local`` (None: as it is).

    Its ``variant.json`` is left out, whatever it says. DataError when it is no variant wheel.
    """
    facts = read_wheel_facts(wheel)
    if not facts.is_stamped:
        raise DataError(f"{wheel} is not a variant wheel: its name has no label")
    drop = frozenset([VARIANT_FILE_NAME] if facts.document is not None else [])
    rewritten = rewrite_wheel(
        wheel, folder or wheel.parent, WheelEdit(label="", local=local, drop=drop), replace=replace
    )
    return StampedWheel(wheel, rewritten.path, "", {}, rewritten.size)


def _require_stampable(wheel: WheelFacts, *, replace: bool) -> None:
    if wheel.is_stamped and not replace:
        raise DataError(
            f"{wheel.path} is a variant wheel already: {wheel.name.label or VARIANT_FILE_NAME}",
            tip=_RESTAMP_TIP,
        )
    if marked := [requirement for requirement in wheel.requirements if has_variant_marker(requirement)]:
        raise DataError(
            f"{wheel.path}: METADATA has a variant marker, which no installer reads: {marked[0]}",
            tip="rocm-wheels restamp decides such requirements for the wheel",
        )


def _choose_properties(
    wheel: WheelFacts, request: StampRequest, wheel_targets: WheelTargets | None
) -> Properties:
    version_feature = (
        (ROCM_NAMESPACE, ROCM_VERSION)
        if request.choice.rocm_property == "bundled"
        else (AMD_NAMESPACE, HOST_ROCM_VERSION)
    )
    version = []
    if not request.null:  # the quick question first: device code is read from the whole wheel
        local = wheel.name.version.local
        version = [read_rocm_version(str(wheel.path), local, wheel.requirements, request.rocm_version)]
    targets = choose_targets(
        str(wheel.path),
        read_wheel_targets(wheel.path) if wheel_targets is None else wheel_targets,
        NO_TARGETS if request.null else request.targets,
        generics=request.choice.reports_generics,
        allow_claim=request.allow_claim,
        allow_hide=request.allow_hide,
    )
    return make_properties([(AMD_NAMESPACE, GFX_ARCH, targets), (*version_feature, version)])


def _make_edit(wheel: WheelFacts, document: VariantMetadata, request: StampRequest) -> WheelEdit:
    (label,) = document.variants
    put = {VARIANT_FILE_NAME: document.to_json()}
    if request.keep_local:
        return WheelEdit(label=label, put=put)
    remaining = strip_rocm_local(wheel.name.version.local)
    return WheelEdit(
        label=label,
        put=put,
        local=remaining if remaining != (wheel.name.version.local or "") else None,
        requirements=strip_local_pins,
    )


def group_by_release(wheels: Iterable[WheelFacts], *, keep_local: bool) -> list[list[WheelFacts]]:
    """Return the wheels of each release together."""
    groups: dict[tuple[str, str], list[WheelFacts]] = {}
    for wheel in wheels:
        groups.setdefault(wheel.get_release(keep_local=keep_local), []).append(wheel)
    return list(groups.values())


def _require_different_files(stamps: Iterable[tuple[WheelFacts, VariantStamp]], *, keep_local: bool) -> None:
    """Raise UsageError when two wheels would get the same file name."""
    sources: dict[object, Path] = {}
    for wheel, stamp in stamps:
        key = (wheel.get_release(keep_local=keep_local), wheel.name.build, wheel.name.tags, stamp.label)
        first_source = sources.setdefault(key, stamp.source)
        if first_source != stamp.source:
            raise UsageError(
                f"{first_source} and {stamp.source} would become the same variant, {stamp.label}",
                tip="give one of them another --label, or another build tag",
            )
