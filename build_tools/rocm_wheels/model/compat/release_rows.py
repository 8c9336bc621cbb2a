"""Releases of ROCm and package indexes as rows, for people."""

from __future__ import annotations

from rocm_wheels.model.compat.index_rows import release_table
from rocm_wheels.model.compat.releases import Index, indexes, rocm_releases


def show_releases() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: a release of ROCm a row, the newest first."""
    header = ("rocm", "channel", "indexes", "kind", "note", "read", "source")
    sources = release_table().sources
    rows: list[tuple[str, ...]] = [
        (
            str(one.version),
            one.channel,
            " ".join(index.name for index in indexes() if one.version in index.rocm),
            one.kind,
            one.note,
            sources[one.source].retrieved.isoformat(),
            sources[one.source].url,
        )
        for one in rocm_releases()
    ]
    return header, rows


def show_indexes() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: an index a row, best first within a vendor and a channel."""
    header = ("index", "url", "vendor", "channel", "layout", "rocm", "platforms", "targets", "pythons")
    rows: list[tuple[str, ...]] = [
        (
            one.name,
            one.url,
            one.vendor,
            one.channel,
            one.layout,
            " ".join(map(str, one.rocm)),
            " ".join(one.platforms),
            "; ".join(f"{place}: {' '.join(targets)}" for place, targets in one.targets.items())
            or _capability(one),
            " ".join(one.pythons),
            one.kind,
            one.note,
            one.source.retrieved.isoformat(),
            one.source.url,
        )
        for one in indexes()
    ]
    return (*header, "kind", "note", "read", "source"), rows


def _capability(index: Index) -> str:
    if index.capability is None:
        return ""
    least, most = index.capability
    return f"compute capability {least} to {most}" if most else f"compute capability {least} or more"
