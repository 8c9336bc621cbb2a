"""List ROCm releases and package indexes: where torch for a machine comes from, best first.

Owns ``data/rocm_releases.yaml``. What an index has it says itself (``user.choose`` asks it); the table has
the order, and what is answered without the network.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Literal, get_args

from packaging.version import Version

from rocm_wheels.core import records
from rocm_wheels.models import facts, gfx, project_names

IndexChannel = Literal["stable", "prerelease", "nightly", "bkc", "dev"]
IndexLayout = Literal["multi-arch", "per-family", "fat", "variants", "cpu", "cuda", "xpu"]
INDEX_CHANNELS: tuple[IndexChannel, ...] = get_args(IndexChannel)
FAMILY_PLACEHOLDER = "{family}"
_MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
# what is taken for a vendor: its own rows, and plain wheels for hardware that torch has no build for
_ROW_VENDORS = {"amd": "amd", "nvidia": "nvidia", "intel": "intel"} | dict.fromkeys(
    ("apple", "other", "none"), "none"
)


class RocmRelease(facts.Fact):
    """A release of ROCm; a series (7.2) where nobody says which patch release."""

    version: facts.VersionField
    channel: IndexChannel


class ServedTargets(facts.Fact):
    """Targets that an index is said to serve; ``rocm`` and ``pythons`` are its own where none are named."""

    platforms: tuple[str, ...]
    targets: tuple[str, ...]
    rocm: tuple[facts.VersionField, ...] = ()
    pythons: tuple[facts.PythonField, ...] = ()


class CapabilityRange(records.Record):
    """NVIDIA's compute capabilities that an index has code for, both ends included."""

    least: facts.VersionField
    most: facts.VersionField | None = None


class PackageIndex(facts.Fact):
    """A package index. ``url`` has ``{family}`` in it where there is one for each GPU family.

    ``serves`` are gfx targets; ``pythons`` are Pythons of at least one torch in it, () when not known.
    ``reason`` is filled by ``find_indexes``: why this index for that machine.
    """

    name: str
    vendor: Literal["amd", "nvidia", "intel", "none"]
    url: str
    channel: IndexChannel
    layout: IndexLayout
    platforms: tuple[Literal["linux", "windows", "macos"], ...]
    machines: tuple[str, ...] = ("x86_64",)
    rocm: tuple[facts.VersionField, ...] = ()
    pythons: tuple[facts.PythonField, ...] = ()
    serves: tuple[ServedTargets, ...] = ()
    capability: CapabilityRange | None = None
    reason: str = ""

    def find_serving(self, platform: str, target: str) -> ServedTargets | None:
        """Return what is said of a target; None where it is not said to be served."""
        matches = (row for row in self.serves if platform in row.platforms and target in row.targets)
        return next(matches, None)

    def list_targets(self, platform: str) -> tuple[str, ...]:
        """Return the targets that it is said to serve on a platform."""
        return tuple(target for row in self.serves if platform in row.platforms for target in row.targets)

    def list_pythons(self, platform: str, target: str | None) -> tuple[str, ...]:
        """Return the Pythons of a torch for a target; () when nobody says."""
        row = self.find_serving(platform, target) if target else None
        return (row.pythons if row else ()) or self.pythons


class RocmReleaseTable(facts.FactTable):
    """The whole of ``data/rocm_releases.yaml``. After ``until`` what it says has to be read anew."""

    until: date
    releases: tuple[RocmRelease, ...]
    indexes: tuple[PackageIndex, ...]


@lru_cache
def load_release_table() -> RocmReleaseTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return records.load_record(project_names.get_data_folder() / "rocm_releases.yaml", RocmReleaseTable)


def list_rocm_releases() -> tuple[RocmRelease, ...]:
    """Return every ROCm release, the newest first."""
    return tuple(sorted(load_release_table().releases, key=lambda release: release.version, reverse=True))


def list_indexes() -> tuple[PackageIndex, ...]:
    """Return every index, in the order of the table."""
    return load_release_table().indexes


def find_index_by_url(url: str) -> PackageIndex | None:
    """Return the index of an address, with or without a slash at its end; None: not one of the table."""
    for index in list_indexes():
        start, placeholder, end = index.url.rstrip("/").partition(FAMILY_PLACEHOLDER)
        family = r"(gfx\w+(-\w+)?|{family})" if placeholder else ""
        if re.fullmatch(re.escape(start) + family + re.escape(end), url.rstrip("/")):
            return index
    return None


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
    the platform spells it.
    """
    gfx_target = gfx.strip_features(target) if target and vendor == "amd" else None
    capability = Version(target) if target and vendor == "nvidia" else None
    matches = []
    for index in list_indexes():
        if (index.vendor, index.channel) != (_ROW_VENDORS[vendor], channel):
            continue
        if platform not in index.platforms:
            continue
        if machine and _MACHINES.get(machine.lower(), machine.lower()) not in index.machines:
            continue
        if gfx_target and index.find_serving(platform, gfx_target) is None:
            continue
        covered = index.capability
        if capability and covered and not covered.least <= capability <= (covered.most or capability):
            continue
        pythons = index.list_pythons(platform, gfx_target)
        if python is None or not pythons or python in pythons:
            reason = _explain_index(index, gfx_target or capability, vendor, platform)
            matches.append(index.model_copy(update={"reason": reason}))
    return tuple(matches)


def _explain_index(index: PackageIndex, target: str | Version | None, vendor: str, platform: str) -> str:
    if index.vendor == "amd":
        served = index.find_serving(platform, target) if isinstance(target, str) else None
        rocm = sorted((served.rocm if served else ()) or index.rocm, reverse=True)
        text = f"{index.channel} index" + (f" of ROCm {', '.join(map(str, rocm))}" if rocm else "")
        text += f" with code for {target} ({served.kind})" if served else ""
    elif index.vendor == "nvidia":
        gpu = f"compute capability {target}" if target else "NVIDIA GPUs; the compute capability is unknown"
        text = f"{index.channel} index for {gpu}"
    elif index.vendor == "intel":
        text = f"{index.channel} index for Intel GPUs"
    elif vendor == "apple":
        text = f"{index.channel} index of plain wheels, which use Apple's GPU through MPS"
    else:
        text = f"{index.channel} index of wheels for the CPU: no GPU that torch has a build for"
    until = load_release_table().until
    ended = f"the table of indexes is of before {until}: is there a newer rocm-wheels?"
    return "; ".join(filter(None, [text, index.note, ended if date.today() > until else ""]))
