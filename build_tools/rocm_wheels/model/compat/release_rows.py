"""Releases of ROCm and package indexes as rows, for people."""

from __future__ import annotations

from rocm_wheels.model.compat.index_rows import load_release_table
from rocm_wheels.model.compat.releases import PackageIndex, list_indexes, list_rocm_releases


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
