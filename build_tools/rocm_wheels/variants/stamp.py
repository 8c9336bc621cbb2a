"""Make variant wheels: what a stamp says is decided for all wheels first, then they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.variants.document import (
    AMD,
    ARCH,
    HOST_VERSION,
    ROCM,
    VERSION,
    Properties,
    VariantMetadata,
    properties_of,
)
from rocm_wheels.variants.labels import check_label, label_of
from rocm_wheels.variants.markers import has_variant_marker
from rocm_wheels.variants.metadata import FILE_NAME, merge
from rocm_wheels.variants.providers import ProviderChoice
from rocm_wheels.variants.release import Documents, settle
from rocm_wheels.variants.rocm_version import release_local, rocm_version_of, without_release_local
from rocm_wheels.variants.targets import FROM_WHEEL, NO_TARGETS, HeldTargets, choose_targets, read_held
from rocm_wheels.variants.wheel_facts import WheelFacts, read_facts
from rocm_wheels.wheels.archive.edits import Edit, edited_name
from rocm_wheels.wheels.archive.rewrite import require_apart, rewrite_wheel

_RESTAMP = "rocm-wheels restamp repairs it; --replace gives it a new stamp"


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
    joined: Documents = ()

    def __post_init__(self) -> None:
        given = [
            option
            for option, value in (
                ("--targets", self.targets != FROM_WHEEL),
                ("--label", self.label not in (None, "null")),
                ("--rocm-version", self.rocm_version is not None),
                ("--allow-claim", self.allow_claim),
            )
            if value
        ]
        if self.null and given:
            raise UsageError(f"--null states no properties at all, so it does not go with {', '.join(given)}")


@dataclass(frozen=True)
class Stamp:
    """A stamp that is decided: the wheel it is for, its label, its document, and what the wheel becomes."""

    source: Path
    label: str
    properties: Properties
    document: VariantMetadata
    edit: Edit
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stamped:
    """A wheel that was written."""

    source: Path
    path: Path
    label: str
    properties: Properties
    size: int
    notes: tuple[str, ...] = ()


def plan_stamps(
    wheels: Sequence[Path], request: StampRequest, *, held: Mapping[Path, HeldTargets] | None = None
) -> list[Stamp]:
    """Decide the stamps of wheels; nothing is written. DataError or UsageError when one cannot be.

    ``held`` is what is known of the device code of wheels already; that of others is read.
    """
    if not wheels:
        raise UsageError("no wheels were named", tip="for example: rocm-wheels stamp dist/torch-*.whl")
    facts = [read_facts(wheel) for wheel in wheels]
    for one in facts:
        _require_fit(one, replace=request.replace)
    properties = {one.path: _properties(one, request, (held or {}).get(one.path)) for one in facts}
    stamps: list[tuple[WheelFacts, Stamp]] = []
    for group in by_release(facts, keep_local=request.keep_local):
        release = settle(request.choice, [properties[one.path] for one in group], request.joined)
        made = []
        for one in group:
            label = check_label(request.label or label_of(properties[one.path]), properties[one.path])
            document = release.document(label, properties[one.path])
            edit = _edit(one, document, request)
            made.append((one, Stamp(one.path, label, properties[one.path], document, edit)))
        merge([*request.joined, *((stamp.source.name, stamp.document) for _, stamp in made)])
        stamps += made
    _require_different_files(stamps, keep_local=request.keep_local)
    return [stamp for _, stamp in stamps]


def write_stamps(stamps: Iterable[Stamp], folder: Path | None, *, replace: bool = False) -> list[Stamped]:
    """Write what was planned into ``folder`` (None: beside each wheel); the wheels themselves stay.

    UsageError, and nothing is written, when two would become one file.
    """
    stamps, written = list(stamps), []
    require_apart(
        (one.source, (folder or one.source.parent) / edited_name(one.source.name, one.edit)) for one in stamps
    )
    for stamp in stamps:
        made = rewrite_wheel(stamp.source, folder or stamp.source.parent, stamp.edit, replace=replace)
        written.append(
            Stamped(stamp.source, made.path, stamp.label, stamp.properties, made.size, stamp.notes)
        )
    return written


def unstamp_wheel(
    wheel: Path, folder: Path | None, *, local: str | None = None, replace: bool = False
) -> Stamped:
    """Write a variant wheel as a plain one, with local version ``local`` (None: as it is).

    Its ``variant.json`` is left out, whatever it says. DataError when it is no variant wheel.
    """
    facts = read_facts(wheel)
    if not facts.is_stamped:
        raise DataError(f"{wheel} is not a variant wheel: its name has no label")
    drop = frozenset([FILE_NAME] if facts.document is not None else [])
    made = rewrite_wheel(
        wheel, folder or wheel.parent, Edit(label="", local=local, drop=drop), replace=replace
    )
    return Stamped(wheel, made.path, "", {}, made.size)


def _require_fit(wheel: WheelFacts, *, replace: bool) -> None:
    if wheel.is_stamped and not replace:
        raise DataError(
            f"{wheel.path} is a variant wheel already: {wheel.name.label or FILE_NAME}", tip=_RESTAMP
        )
    if marked := [one for one in wheel.requirements if has_variant_marker(one)]:
        raise DataError(
            f"{wheel.path}: METADATA has a variant marker, which no installer reads: {marked[0]}",
            tip="rocm-wheels restamp decides such requirements for the wheel",
        )


def _properties(wheel: WheelFacts, request: StampRequest, held: HeldTargets | None) -> Properties:
    place = (ROCM, VERSION) if request.choice.rocm_property == "bundled" else (AMD, HOST_VERSION)
    version = []
    if not request.null:  # the quick question first: device code is read from the whole wheel
        local = wheel.name.version.local
        version = [rocm_version_of(str(wheel.path), local, wheel.requirements, request.rocm_version)]
    targets = choose_targets(
        str(wheel.path),
        read_held(wheel.path) if held is None else held,
        NO_TARGETS if request.null else request.targets,
        generics=request.choice.reports_generics,
        allow_claim=request.allow_claim,
        allow_hide=request.allow_hide,
    )
    return properties_of([(AMD, ARCH, targets), (*place, version)])


def _edit(wheel: WheelFacts, document: VariantMetadata, request: StampRequest) -> Edit:
    (label,) = document.variants
    put = {FILE_NAME: document.to_json()}
    if request.keep_local:
        return Edit(label=label, put=put)
    left = release_local(wheel.name.version.local)
    return Edit(
        label=label,
        put=put,
        local=left if left != (wheel.name.version.local or "") else None,
        requirements=without_release_local,
    )


def by_release(wheels: Iterable[WheelFacts], *, keep_local: bool) -> list[list[WheelFacts]]:
    """Return the wheels of each release together."""
    found: dict[tuple[str, str], list[WheelFacts]] = {}
    for wheel in wheels:
        found.setdefault(wheel.release(keep_local=keep_local), []).append(wheel)
    return list(found.values())


def _require_different_files(stamps: Iterable[tuple[WheelFacts, Stamp]], *, keep_local: bool) -> None:
    """Raise UsageError when two wheels would get the same file name."""
    seen: dict[object, Path] = {}
    for wheel, stamp in stamps:
        key = (wheel.release(keep_local=keep_local), wheel.name.build, wheel.name.tags, stamp.label)
        other = seen.setdefault(key, stamp.source)
        if other != stamp.source:
            raise UsageError(
                f"{other} and {stamp.source} would become the same variant, {stamp.label}",
                tip="give one of them another --label, or another build tag",
            )
