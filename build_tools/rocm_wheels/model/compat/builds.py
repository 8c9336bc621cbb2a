"""Which torch exists for whom: torch × ROCm × index, with targets, Pythons and what goes with it.

Joins ``torch_builds.yaml`` with what ``release_lines.yaml`` says pytorch.org builds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from packaging.version import Version

from rocm_wheels.errors import DataError
from rocm_wheels.model.compat.build_rows import BuildRow, build_table, targets_of_row
from rocm_wheels.model.compat.facts import FactKind, Source
from rocm_wheels.model.compat.releases import Index, index_named, indexes, lines_of_index
from rocm_wheels.model.compat.versions import read_version, starts_with
from rocm_wheels.model.line_facts import Kind, Line
from rocm_wheels.model.lines import all_lines

LINES_READ = date(2026, 11, 21)  # when release_lines.yaml was made; its facts name their places and commits
PROJECTS = {
    "pytorch_vision": "torchvision",
    "pytorch_audio": "torchaudio",
    "triton": "triton",
    "apex": "apex",
}
_KINDS: Mapping[Kind, FactKind] = {"read": "documented", "documented": "documented"}


@dataclass(frozen=True)
class Build:
    """A torch that was made with a ROCm and is in an index.

    ``torch`` is a series (2.13) for what pytorch.org builds for a release line. ``targets`` are by
    platform, ``kinds`` how each is known. ``line`` is the release line, None where there is none.
    """

    torch: Version
    rocm: Version
    index: Index
    pythons: tuple[str, ...]
    targets: Mapping[str, tuple[str, ...]]
    kinds: Mapping[tuple[str, str], FactKind]
    companions: Mapping[str, Version]
    kind: FactKind
    source: Source
    note: str
    line: str | None


@lru_cache
def builds() -> tuple[Build, ...]:
    """Return every build, the newest torch first, then the newest ROCm."""
    found = [_of_row(row) for row in build_table().builds]
    found += [_of_line(line, index) for index in indexes() for line in lines_of_index(index) if line.torch]
    return tuple(sorted(found, key=lambda one: (one.torch, one.rocm), reverse=True))


def builds_of(
    torch: Version | None = None,
    rocm: Version | None = None,
    *,
    target: str | None = None,
    python: str | None = None,
    platform: str | None = None,
    channel: str | None = None,
) -> tuple[Build, ...]:
    """Return the builds that fit everything that is given; a series stands for its patch releases.

    A target fits where somebody says that the build has it, on ``platform`` if one is given.
    """
    return tuple(
        one
        for one in builds()
        if (torch is None or same_release(one.torch, torch))
        and (rocm is None or same_release(one.rocm, rocm))
        and (python is None or python in one.pythons)
        and (platform is None or platform in one.index.platforms)
        and (channel is None or one.index.channel == channel)
        and (target is None or _has(one, target, platform))
    )


def same_release(one: Version, other: Version) -> bool:
    """Say whether two versions can mean the same release: 2.13 and 2.13.1 can, 2.13.0 and 2.13.1 cannot."""
    short, long = sorted((one, other), key=lambda version: len(version.release))
    if len(short.release) < 3:
        return starts_with(long, short)
    return one.release == other.release


def triton_for(torch_version: str | Version, index: Index | str, *, platform: str = "linux") -> str:
    """Return the name of the triton that torch of an index requires; "" when none goes with it.

    Torch's own metadata pins the version. Raises UsageError for an unknown index, DataError for a
    version that is none.
    """
    torch = _torch(torch_version)
    layout = (index_named(index) if isinstance(index, str) else index).layout
    for row in build_table().triton:
        if (
            layout in row.layouts
            and platform in row.platforms
            and row.torch.contains(torch, prereleases=True)
        ):
            return row.name
    return ""


def companions(torch_version: str | Version, index: Index | str | None = None) -> dict[str, Version]:
    """Return versions of torchvision, torchaudio, triton and apex that go with a torch, as far as known.

    They are series (0.28) of the release line; exact ones of ``index`` come before them, of the newest
    ROCm that it has. A torch without a line has those of the index alone. Raises DataError for a version
    that is none.
    """
    torch = _torch(torch_version)
    found: dict[str, Version] = {}
    line = next((one for one in all_lines() if one.torch and starts_with(torch, Version(one.torch))), None)
    for project, name in PROJECTS.items():
        value = line.projects[project].version if line and project in line.projects else None
        if value and value.value:
            found[name] = read_version(value.value)
    if index is not None:
        name = index if isinstance(index, str) else index.name
        exact = [one for one in builds_of(torch) if one.index.name == name]
        for build in reversed(exact):
            found |= build.companions
    return found


def torch_versions() -> tuple[Version, ...]:
    """Return every torch of the tables, the newest first."""
    return _distinct(one.torch for one in builds())


def rocm_versions() -> tuple[Version, ...]:
    """Return every ROCm that a torch of the tables was made with, the newest first."""
    return _distinct(one.rocm for one in builds())


def show_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: a build and platform a row."""
    header = ("torch", "rocm", "index", "channel", "platform", "targets", "pythons", "kind", "read", "source")
    rows: list[tuple[str, ...]] = [
        (
            str(one.torch),
            str(one.rocm),
            one.index.name,
            one.index.channel,
            platform,
            " ".join(targets),
            " ".join(one.pythons),
            one.kind,
            one.source.retrieved.isoformat(),
            one.source.url,
        )
        for one in builds()
        for platform, targets in one.targets.items()
    ]
    return header, rows


def _of_row(row: BuildRow) -> Build:
    index = index_named(row.index)
    stated = targets_of_row(row)
    kinds = {(platform, one): row.kind for platform, targets in stated.items() for one in targets}
    return Build(
        torch=row.torch,
        rocm=row.rocm,
        index=index,
        pythons=row.pythons,
        targets=stated or index.targets,
        kinds=kinds or index.kinds,
        companions=row.companions,
        kind=row.kind,
        source=build_table().sources[row.source],
        note=row.note,
        line=None,
    )


def _of_line(line: Line, index: Index) -> Build:
    fact = line.rocm.pytorch_org
    rocm = next(one for one in map(read_version, fact.values) if one in index.rocm)
    return Build(
        torch=read_version(line.torch),
        rocm=rocm,
        index=index,
        pythons=(*line.pythons.values, *line.free_threaded.values),
        targets=index.targets,
        kinds=index.kinds,
        companions=companions_of_line(line),
        kind=_KINDS.get(fact.kind, "believed"),
        source=Source(url=fact.source, retrieved=LINES_READ, at=f"release line {line.name}"),
        note="",
        line=line.name,
    )


def companions_of_line(line: Line) -> dict[str, Version]:
    """Return the series of torchvision and torchaudio that a release line names."""
    found = {}
    for project in ("pytorch_vision", "pytorch_audio"):
        value = line.projects[project].version if project in line.projects else None
        if value and value.value:
            found[PROJECTS[project]] = read_version(value.value)
    return found


def _has(build: Build, target: str, platform: str | None) -> bool:
    places = [platform] if platform else build.targets
    return any((place, target) in build.kinds for place in places)


def _torch(text: str | Version) -> Version:
    try:
        return read_version(text)
    except ValueError as fault:
        raise DataError(f"torch: {fault}") from None


def _distinct(versions: Iterable[Version]) -> tuple[Version, ...]:
    return tuple(sorted(set(versions), reverse=True))
