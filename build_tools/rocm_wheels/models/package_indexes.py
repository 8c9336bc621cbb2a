"""List ROCm releases and package indexes: where torch for a machine comes from, best first.

Owns ``data/rocm_releases.yaml``, and the records of ``data/torch_builds.yaml`` (torch × ROCm × index,
as somebody states or packages it). An index's Pythons and part of its targets are joined from there and
from ``release_lines.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from packaging.version import Version
from pydantic import model_validator

from rocm_wheels.core import errors, records, tables
from rocm_wheels.models import facts, gfx, project_names, release_lines

RELEASES_TABLE = "rocm_releases.yaml"
IndexChannel = Literal["stable", "prerelease", "nightly", "dev"]
IndexLayout = Literal["multi-arch", "per-family", "fat", "variants", "cpu", "cuda", "xpu"]


class RocmRelease(facts.Fact):
    """A release of ROCm; a series (7.2) where nobody says which patch release."""

    version: facts.VersionField
    channel: IndexChannel


class ServedTargets(facts.Fact):
    """Targets that an index is said to serve as a whole."""

    platforms: tuple[str, ...]
    targets: tuple[str, ...]


class CapabilityRange(records.Record):
    """NVIDIA's compute capabilities that an index has code for, both ends included."""

    least: facts.VersionField
    most: facts.VersionField | None = None


class IndexRow(facts.Fact):
    """A package index as the table has it."""

    name: str
    vendor: Literal["amd", "nvidia", "intel", "none"]
    url: str
    channel: IndexChannel
    layout: IndexLayout
    family: str | None = None
    platforms: tuple[Literal["linux", "windows", "macos"], ...]
    machines: tuple[str, ...] = ("x86_64",)
    rocm: tuple[facts.VersionField, ...] = ()
    serves: tuple[ServedTargets, ...] = ()
    capability: CapabilityRange | None = None


class RocmReleaseTable(facts.FactTable):
    """The whole of ``data/rocm_releases.yaml``."""

    releases: tuple[RocmRelease, ...]
    indexes: tuple[IndexRow, ...]


@lru_cache
def load_release_table() -> RocmReleaseTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return records.load_record(project_names.get_data_folder() / RELEASES_TABLE, RocmReleaseTable)


BUILDS_TABLE = "torch_builds.yaml"


class BuildRow(facts.Fact):
    """A torch made with a ROCm. ``targets`` names a set by platform; none: what the index serves."""

    index: str
    torch: facts.VersionField
    rocm: facts.VersionField
    pythons: tuple[facts.PythonField, ...]
    targets: Mapping[str, str] = {}
    companions: Mapping[str, facts.VersionField] = {}


class TritonName(facts.Fact):
    """What the triton is called that goes with torch of an index. ``separate``: torch does not require it."""

    layouts: tuple[str, ...]
    platforms: tuple[str, ...]
    torch: facts.SpecifierField
    name: str
    separate: bool = False


class OwnBuild(facts.Fact):
    """A torch that people have compiled for a target that no index has one for."""

    target: str
    torch: facts.VersionField
    rocm: facts.VersionField


class TorchBuildTable(facts.FactTable):
    """The whole of ``data/torch_builds.yaml``."""

    own_builds: tuple[OwnBuild, ...] = ()
    triton: tuple[TritonName, ...]
    sets: Mapping[str, tuple[str, ...]]
    builds: tuple[BuildRow, ...]

    @model_validator(mode="after")
    def _known_sets(self) -> TorchBuildTable:
        for number, row in enumerate(self.builds):
            for name in row.targets.values():
                if name not in self.sets:
                    message = f"{name} is no set of targets{tables.suggest_name(name, self.sets)}"
                    raise records.make_record_error(message, "builds", number, "targets")
        return self


@lru_cache
def load_build_table() -> TorchBuildTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return records.load_record(project_names.get_data_folder() / BUILDS_TABLE, TorchBuildTable)


def get_row_targets(row: BuildRow) -> dict[str, tuple[str, ...]]:
    """Return the targets that a row states, by platform."""
    sets = load_build_table().sets
    return {platform: sets[name] for platform, name in row.targets.items()}


INDEX_CHANNELS: tuple[IndexChannel, ...] = ("stable", "prerelease", "nightly", "dev")
INDEX_PLATFORMS = ("linux", "windows", "macos")
_MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
# what is taken for a vendor: its own rows, and plain wheels for hardware that torch has no build for
_PlatformTarget = tuple[str, str]  # platform and target
_ROW_VENDORS = {
    "amd": "amd",
    "nvidia": "nvidia",
    "intel": "intel",
    "apple": "none",
    "other": "none",
    "none": "none",
}


@dataclass(frozen=True)
class PackageIndex:
    """A package index, with what it serves.

    ``targets`` are gfx targets by platform, () where nobody says (``serves`` then does not hold it
    against a target); ``pythons`` are Pythons of at least one torch in it, () when not known, and
    ``pythons_for`` those by (platform, target).
    ``family`` is the GPU family of a per-family index. ``kinds`` says how each target is known, by
    (platform, target). ``reason`` is filled by ``find_indexes``: why this index for that machine.
    """

    name: str
    url: str
    channel: IndexChannel
    layout: IndexLayout
    vendor: str
    platforms: tuple[str, ...]
    machines: tuple[str, ...]
    rocm: tuple[Version, ...]
    targets: dict[str, tuple[str, ...]] = field(hash=False)
    pythons: tuple[str, ...]
    kind: facts.FactKind
    source: facts.FactSource
    note: str = ""
    family: str | None = None
    capability: tuple[Version, Version | None] | None = None
    kinds: dict[tuple[str, str], facts.FactKind] = field(default_factory=dict, hash=False)
    pythons_for: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict, hash=False, repr=False)
    reason: str = ""


def list_rocm_releases() -> tuple[RocmRelease, ...]:
    """Return every ROCm release, the newest first."""
    return tuple(sorted(load_release_table().releases, key=lambda release: release.version, reverse=True))


@lru_cache
def list_indexes() -> tuple[PackageIndex, ...]:
    """Return every index, in the order of the table."""
    return tuple(_make_index(row) for row in load_release_table().indexes)


def get_index(name: str) -> PackageIndex:
    """Return the index of a name. Raises UsageError, with the name that was probably meant."""
    indexes_by_name = {index.name: index for index in list_indexes()}
    if name not in indexes_by_name:
        raise errors.UsageError(
            f"there is no index {name!r}{tables.suggest_name(name, indexes_by_name)}",
            tip=f"known: {', '.join(indexes_by_name)}",
        )
    return indexes_by_name[name]


def find_index_by_url(url: str) -> PackageIndex | None:
    """Return the index of an address, with or without a slash at its end; None: not one of the table."""
    return next((index for index in list_indexes() if index.url.rstrip("/") == url.rstrip("/")), None)


def find_indexes(
    target: str | None,
    *,
    vendor: str = "amd",
    platform: str = "linux",
    channel: str = "stable",
    python: str | None = None,
    machine: str | None = None,
) -> tuple[PackageIndex, ...]:
    """Return the indexes that serve a GPU, best first; each says why in ``reason``. Empty: none does.

    ``target`` is a gfx target for ``amd`` (features do not matter), a compute capability (``8.9``) for
    ``nvidia``, and nothing for others; None: not known, and not held against an index. ``vendor`` is as
    in ``Gpu.vendor``, or ``none`` without a GPU. ``python`` is like ``3.12`` or ``3.14t``; ``machine`` as
    the platform spells it. Raises UsageError for a vendor, platform, channel, Python or capability that
    cannot be read.
    """
    for name, value, choices in (
        ("vendor", vendor, tuple(_ROW_VENDORS)),
        ("platform", platform, INDEX_PLATFORMS),
        ("channel", channel, INDEX_CHANNELS),
    ):
        if value not in choices:
            raise errors.UsageError(
                f"{name} {value!r} is none of {', '.join(choices)}{tables.suggest_name(value, choices)}"
            )
    _check_python_text(python)
    parsed_target = _parse_target(target, vendor)
    matches = []
    for index in list_indexes():
        if (
            index.vendor != _ROW_VENDORS[vendor]
            or index.channel != channel
            or platform not in index.platforms
        ):
            continue
        if machine and _MACHINES.get(machine.lower(), machine.lower()) not in index.machines:
            continue
        pythons = index.pythons_for.get((platform, str(parsed_target))) or index.pythons
        if python and pythons and python not in pythons:
            continue
        if _index_serves(index, parsed_target, platform):
            matches.append(replace(index, reason=_explain_index(index, parsed_target, vendor, platform)))
    return tuple(matches)


def list_index_lines(index: PackageIndex | IndexRow) -> tuple[release_lines.TorchLine, ...]:
    """Return the release lines that pytorch.org builds for this index, oldest first; none for others'."""
    if index.layout != "fat":
        return ()
    lines = [line for line in release_lines.get_release_lines() if index.channel in (line.name, "stable")]
    return tuple(
        line
        for line in lines
        if bool(line.torch) == (index.channel == "stable")
        and set(map(facts.parse_version, line.rocm.pytorch_org.values)) & set(index.rocm)
    )


def _make_index(row: IndexRow) -> PackageIndex:
    kinds, pythons_for = _collect_stated(row)
    pythons = set().union(
        *pythons_for.values(), *(_list_line_pythons(line) for line in list_index_lines(row))
    )
    capability = row.capability
    return PackageIndex(
        name=row.name,
        url=row.url,
        channel=row.channel,
        layout=row.layout,
        vendor=row.vendor,
        platforms=row.platforms,
        machines=row.machines,
        rocm=tuple(sorted(row.rocm, reverse=True)),
        targets=_group_by_platform(kinds),
        pythons=tuple(sorted(pythons, key=facts.get_python_key)),
        kind=row.kind,
        source=load_release_table().sources[row.source],
        note=row.note,
        family=row.family,
        capability=(capability.least, capability.most) if capability else None,
        kinds=kinds,
        pythons_for=pythons_for,
    )


def _collect_stated(
    row: IndexRow,
) -> tuple[dict[_PlatformTarget, facts.FactKind], dict[_PlatformTarget, frozenset[str]]]:
    """Return how each (platform, target) of an index is known, and the Pythons that it is there for.

    What builds state comes first; a target of the index as a whole is there for the Pythons of every
    torch that pytorch.org has in it, and of builds that state no targets.
    """
    kinds: dict[_PlatformTarget, facts.FactKind] = {}
    pythons: dict[_PlatformTarget, frozenset[str]] = {}
    all_pythons = frozenset().union(*(_list_line_pythons(line) for line in list_index_lines(row)))
    for build in load_build_table().builds:
        if build.index == row.name:
            build_targets = get_row_targets(build)
            all_pythons |= frozenset() if build_targets else frozenset(build.pythons)
            for platform_target in (
                (platform, target) for platform, targets in build_targets.items() for target in targets
            ):
                kinds.setdefault(platform_target, build.kind)
                pythons[platform_target] = pythons.get(platform_target, frozenset()) | frozenset(
                    build.pythons
                )
    index_targets: list[tuple[_PlatformTarget, facts.FactKind]] = [
        ((platform, target), fact.kind)
        for fact in row.serves
        for platform in fact.platforms
        for target in fact.targets
    ]
    if row.family:
        members = gfx.get_gfx_families()[row.family]
        index_targets += [((platform, target), row.kind) for platform in row.platforms for target in members]
    for platform_target, kind in index_targets:
        kinds.setdefault(platform_target, kind)
        pythons.setdefault(platform_target, all_pythons)
    return kinds, pythons


def _list_line_pythons(line: release_lines.TorchLine) -> frozenset[str]:
    return frozenset((*line.pythons.values, *line.free_threaded.values))


def _group_by_platform(places: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    targets_by_platform: dict[str, tuple[str, ...]] = {}
    for platform, target in places:
        targets_by_platform[platform] = (*targets_by_platform.get(platform, ()), target)
    return targets_by_platform


def _parse_target(target: str | None, vendor: str) -> str | Version | None:
    if target is None or vendor == "amd":
        return gfx.strip_features(target) if target else None
    if vendor != "nvidia":
        return None
    try:
        return facts.parse_version(target)
    except ValueError:
        raise errors.UsageError(
            f"{target!r} is not a compute capability", tip="for an NVIDIA GPU it is like 8.9"
        ) from None


def _index_serves(index: PackageIndex, target: str | Version | None, platform: str) -> bool:
    if target is None:
        return True
    if isinstance(target, Version):
        least, most = index.capability or (target, None)
        return least <= target and (most is None or target <= most)
    return (platform, target) in index.kinds


def _explain_index(index: PackageIndex, target: str | Version | None, vendor: str, platform: str) -> str:
    if index.vendor == "amd":
        rocm = ", ".join(map(str, _list_rocm_for(index, target, platform)))
        text = f"{index.channel} index{f' of ROCm {rocm}' if rocm else ''}"
        if isinstance(target, str):
            text += f" with code for {target} ({index.kinds[platform, target]})"
    elif index.vendor == "nvidia":
        gpu = f"compute capability {target}" if target else "NVIDIA GPUs; the compute capability is unknown"
        text = f"{index.channel} index for {gpu}"
    elif index.vendor == "intel":
        text = f"{index.channel} index for Intel GPUs"
    elif vendor == "apple":
        text = f"{index.channel} index of plain wheels, which use Apple's GPU through MPS"
    else:
        text = f"{index.channel} index of wheels for the CPU: no GPU that torch has a build for"
    return f"{text}; {index.note}" if index.note else text


def _list_rocm_for(index: PackageIndex, target: str | Version | None, platform: str) -> tuple[Version, ...]:
    """Return the ROCm versions of an index that builds for a target state, or all where none does."""
    versions = {
        build.rocm
        for build in load_build_table().builds
        if build.index == index.name and target in get_row_targets(build).get(platform, ())
    }
    return tuple(sorted(versions, reverse=True)) or index.rocm


def _check_python_text(python: str | None) -> None:
    if python is not None:
        try:
            facts.get_python_key(python)
        except ValueError as fault:
            raise errors.UsageError(str(fault), tip="such as 3.12, or 3.14t for free threading") from None


def tabulate_releases() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: a release of ROCm a row, the newest first."""
    header = ("rocm", "channel", "indexes", "kind", "note", "read", "source")
    sources = load_release_table().sources
    rows: list[tuple[str, ...]] = [
        (
            str(release.version),
            release.channel,
            " ".join(index.name for index in list_indexes() if release.version in index.rocm),
            release.kind,
            release.note,
            sources[release.source].retrieved.isoformat(),
            sources[release.source].url,
        )
        for release in list_rocm_releases()
    ]
    return header, rows


def tabulate_indexes() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: an index a row, best first within a vendor and a channel."""
    header = ("index", "url", "vendor", "channel", "layout", "rocm", "platforms", "targets", "pythons")
    rows: list[tuple[str, ...]] = [
        (
            index.name,
            index.url,
            index.vendor,
            index.channel,
            index.layout,
            " ".join(map(str, index.rocm)),
            " ".join(index.platforms),
            "; ".join(f"{platform}: {' '.join(targets)}" for platform, targets in index.targets.items())
            or _format_capability(index),
            " ".join(index.pythons),
            index.kind,
            index.note,
            index.source.retrieved.isoformat(),
            index.source.url,
        )
        for index in list_indexes()
    ]
    return (*header, "kind", "note", "read", "source"), rows


def _format_capability(index: PackageIndex) -> str:
    if index.capability is None:
        return ""
    least, most = index.capability
    return f"compute capability {least} to {most}" if most else f"compute capability {least} or more"
