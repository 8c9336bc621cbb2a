"""The records of ``data/rocm_releases.yaml``: releases of ROCm, and package indexes."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.compat.versions import VersionField
from rocm_wheels.model.names import get_data_folder
from rocm_wheels.records import Record, load_record

RELEASES_TABLE = "rocm_releases.yaml"
IndexChannel = Literal["stable", "prerelease", "nightly", "dev"]
IndexLayout = Literal["multi-arch", "per-family", "fat", "variants", "cpu", "cuda", "xpu"]


class RocmRelease(Fact):
    """A release of ROCm; a series (7.2) where nobody says which patch release."""

    version: VersionField
    channel: IndexChannel


class ServedTargets(Fact):
    """Targets that an index is said to serve as a whole."""

    platforms: tuple[str, ...]
    targets: tuple[str, ...]


class CapabilityRange(Record):
    """NVIDIA's compute capabilities that an index has code for, both ends included."""

    least: VersionField
    most: VersionField | None = None


class IndexRow(Fact):
    """A package index as the table has it."""

    name: str
    vendor: Literal["amd", "nvidia", "intel", "none"]
    url: str
    channel: IndexChannel
    layout: IndexLayout
    family: str | None = None
    platforms: tuple[Literal["linux", "windows", "macos"], ...]
    machines: tuple[str, ...] = ("x86_64",)
    rocm: tuple[VersionField, ...] = ()
    serves: tuple[ServedTargets, ...] = ()
    capability: CapabilityRange | None = None


class RocmReleaseTable(FactTable):
    """The whole of ``data/rocm_releases.yaml``."""

    releases: tuple[RocmRelease, ...]
    indexes: tuple[IndexRow, ...]


@lru_cache
def load_release_table() -> RocmReleaseTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return load_record(get_data_folder() / RELEASES_TABLE, RocmReleaseTable)
