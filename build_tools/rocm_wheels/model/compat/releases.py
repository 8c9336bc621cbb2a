"""ROCm releases and package indexes: where torch for a machine comes from, best first.

Owns ``data/rocm_releases.yaml``. An index's Pythons and part of its targets are joined from
``torch_builds.yaml`` and ``release_lines.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from packaging.version import Version

from rocm_wheels.errors import UsageError
from rocm_wheels.model.compat.build_rows import build_table, targets_of_row
from rocm_wheels.model.compat.facts import FactKind, Source
from rocm_wheels.model.compat.index_rows import Channel, IndexRow, Layout, RocmRelease, release_table
from rocm_wheels.model.compat.versions import python_key, read_version
from rocm_wheels.model.gfx import base_target, gfx_families
from rocm_wheels.model.line_facts import Line
from rocm_wheels.model.lines import all_lines
from rocm_wheels.records import did_you_mean

CHANNELS: tuple[Channel, ...] = ("stable", "prerelease", "nightly", "dev")
PLATFORMS = ("linux", "windows", "macos")
_MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
# what is taken for a vendor: its own rows, and plain wheels for hardware that torch has no build for
_Place = tuple[str, str]  # platform and target
_ROWS_OF = {
    "amd": "amd",
    "nvidia": "nvidia",
    "intel": "intel",
    "apple": "none",
    "other": "none",
    "none": "none",
}


@dataclass(frozen=True)
class Index:
    """A package index, with what it serves.

    ``targets`` are gfx targets by platform, () where nobody says (``serves`` then does not hold it
    against a target); ``pythons`` are Pythons of at least one torch in it, () when not known, and
    ``pythons_for`` those by (platform, target).
    ``family`` is the GPU family of a per-family index. ``kinds`` says how each target is known, by
    (platform, target). ``reason`` is filled by ``indexes_for``: why this index for that machine.
    """

    name: str
    url: str
    channel: Channel
    layout: Layout
    vendor: str
    platforms: tuple[str, ...]
    machines: tuple[str, ...]
    rocm: tuple[Version, ...]
    targets: dict[str, tuple[str, ...]] = field(hash=False)
    pythons: tuple[str, ...]
    kind: FactKind
    source: Source
    note: str = ""
    family: str | None = None
    capability: tuple[Version, Version | None] | None = None
    kinds: dict[tuple[str, str], FactKind] = field(default_factory=dict, hash=False)
    pythons_for: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict, hash=False, repr=False)
    reason: str = ""


def rocm_releases() -> tuple[RocmRelease, ...]:
    """Return every ROCm release, the newest first."""
    return tuple(sorted(release_table().releases, key=lambda one: one.version, reverse=True))


@lru_cache
def indexes() -> tuple[Index, ...]:
    """Return every index, in the order of the table."""
    return tuple(_index(row) for row in release_table().indexes)


def index_named(name: str) -> Index:
    """Return the index of a name. Raises UsageError, with the name that was probably meant."""
    known = {one.name: one for one in indexes()}
    if name not in known:
        raise UsageError(
            f"there is no index {name!r}{did_you_mean(name, known)}", tip=f"known: {', '.join(known)}"
        )
    return known[name]


def index_at(url: str) -> Index | None:
    """Return the index of an address, with or without a slash at its end; None: not one of the table."""
    return next((one for one in indexes() if one.url.rstrip("/") == url.rstrip("/")), None)


def indexes_for(
    target: str | None,
    *,
    vendor: str = "amd",
    platform: str = "linux",
    channel: str = "stable",
    python: str | None = None,
    machine: str | None = None,
) -> tuple[Index, ...]:
    """Return the indexes that serve a GPU, best first; each says why in ``reason``. Empty: none does.

    ``target`` is a gfx target for ``amd`` (features do not matter), a compute capability (``8.9``) for
    ``nvidia``, and nothing for others; None: not known, and not held against an index. ``vendor`` is as
    in ``Gpu.vendor``, or ``none`` without a GPU. ``python`` is like ``3.12`` or ``3.14t``; ``machine`` as
    the platform spells it. Raises UsageError for a vendor, platform, channel, Python or capability that
    cannot be read.
    """
    for what, word, known in (
        ("vendor", vendor, tuple(_ROWS_OF)),
        ("platform", platform, PLATFORMS),
        ("channel", channel, CHANNELS),
    ):
        if word not in known:
            raise UsageError(f"{what} {word!r} is none of {', '.join(known)}{did_you_mean(word, known)}")
    _readable(python)
    wanted = _wanted(target, vendor)
    found = []
    for index in indexes():
        if index.vendor != _ROWS_OF[vendor] or index.channel != channel or platform not in index.platforms:
            continue
        if machine and _MACHINES.get(machine.lower(), machine.lower()) not in index.machines:
            continue
        pythons = index.pythons_for.get((platform, str(wanted))) or index.pythons
        if python and pythons and python not in pythons:
            continue
        if _serves(index, wanted, platform):
            found.append(replace(index, reason=_reason(index, wanted, vendor, platform)))
    return tuple(found)


def lines_of_index(index: Index | IndexRow) -> tuple[Line, ...]:
    """Return the release lines that pytorch.org builds for this index, oldest first; none for others'."""
    if index.layout != "fat":
        return ()
    lines = [line for line in all_lines() if index.channel in (line.name, "stable")]
    return tuple(
        line
        for line in lines
        if bool(line.torch) == (index.channel == "stable")
        and set(map(read_version, line.rocm.pytorch_org.values)) & set(index.rocm)
    )


def _index(row: IndexRow) -> Index:
    kinds, pythons_for = _stated(row)
    pythons = set().union(*pythons_for.values(), *(_pythons(line) for line in lines_of_index(row)))
    capability = row.capability
    return Index(
        name=row.name,
        url=row.url,
        channel=row.channel,
        layout=row.layout,
        vendor=row.vendor,
        platforms=row.platforms,
        machines=row.machines,
        rocm=tuple(sorted(row.rocm, reverse=True)),
        targets=_by_platform(kinds),
        pythons=tuple(sorted(pythons, key=python_key)),
        kind=row.kind,
        source=release_table().sources[row.source],
        note=row.note,
        family=row.family,
        capability=(capability.least, capability.most) if capability else None,
        kinds=kinds,
        pythons_for=pythons_for,
    )


def _stated(row: IndexRow) -> tuple[dict[_Place, FactKind], dict[_Place, frozenset[str]]]:
    """Return how each (platform, target) of an index is known, and the Pythons that it is there for.

    What builds state comes first; a target of the index as a whole is there for the Pythons of every
    torch that pytorch.org has in it, and of builds that state no targets.
    """
    kinds: dict[_Place, FactKind] = {}
    pythons: dict[_Place, frozenset[str]] = {}
    everywhere = frozenset().union(*(_pythons(line) for line in lines_of_index(row)))
    for build in build_table().builds:
        if build.index == row.name:
            stated = targets_of_row(build)
            everywhere |= frozenset() if stated else frozenset(build.pythons)
            for place in ((platform, target) for platform, targets in stated.items() for target in targets):
                kinds.setdefault(place, build.kind)
                pythons[place] = pythons.get(place, frozenset()) | frozenset(build.pythons)
    whole: list[tuple[_Place, FactKind]] = [
        ((platform, target), fact.kind)
        for fact in row.serves
        for platform in fact.platforms
        for target in fact.targets
    ]
    if row.family:
        members = gfx_families()[row.family]
        whole += [((platform, target), row.kind) for platform in row.platforms for target in members]
    for place, kind in whole:
        kinds.setdefault(place, kind)
        pythons.setdefault(place, everywhere)
    return kinds, pythons


def _pythons(line: Line) -> frozenset[str]:
    return frozenset((*line.pythons.values, *line.free_threaded.values))


def _by_platform(places: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for platform, target in places:
        found[platform] = (*found.get(platform, ()), target)
    return found


def _wanted(target: str | None, vendor: str) -> str | Version | None:
    if target is None or vendor == "amd":
        return base_target(target) if target else None
    if vendor != "nvidia":
        return None
    try:
        return read_version(target)
    except ValueError:
        raise UsageError(
            f"{target!r} is not a compute capability", tip="for an NVIDIA GPU it is like 8.9"
        ) from None


def _serves(index: Index, wanted: str | Version | None, platform: str) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, Version):
        least, most = index.capability or (wanted, None)
        return least <= wanted and (most is None or wanted <= most)
    return (platform, wanted) in index.kinds


def _reason(index: Index, wanted: str | Version | None, vendor: str, platform: str) -> str:
    if index.vendor == "amd":
        rocm = ", ".join(map(str, _rocm_for(index, wanted, platform)))
        what = f"{index.channel} index{f' of ROCm {rocm}' if rocm else ''}"
        if isinstance(wanted, str):
            what += f" with code for {wanted} ({index.kinds[platform, wanted]})"
    elif index.vendor == "nvidia":
        known = (
            f"compute capability {wanted}" if wanted else "NVIDIA GPUs; the compute capability is not known"
        )
        what = f"{index.channel} index for {known}"
    elif index.vendor == "intel":
        what = f"{index.channel} index for Intel GPUs"
    elif vendor == "apple":
        what = f"{index.channel} index of plain wheels, which use Apple's GPU through MPS"
    else:
        what = f"{index.channel} index of wheels for the CPU: no GPU that torch has a build for"
    return f"{what}; {index.note}" if index.note else what


def _rocm_for(index: Index, wanted: str | Version | None, platform: str) -> tuple[Version, ...]:
    """Return the ROCm versions of an index that builds for a target state, or all where none does."""
    stated = {
        build.rocm
        for build in build_table().builds
        if build.index == index.name and wanted in targets_of_row(build).get(platform, ())
    }
    return tuple(sorted(stated, reverse=True)) or index.rocm


def _readable(python: str | None) -> None:
    if python is not None:
        try:
            python_key(python)
        except ValueError as fault:
            raise UsageError(str(fault), tip="such as 3.12, or 3.14t for free threading") from None
