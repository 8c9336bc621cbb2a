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
from rocm_wheels.model.compat.build_rows import BuildRow, load_build_table, get_row_targets
from rocm_wheels.model.compat.facts import FactKind, FactSource
from rocm_wheels.model.compat.releases import PackageIndex, get_index, list_indexes, list_index_lines
from rocm_wheels.model.compat.versions import parse_version, is_in_series
from rocm_wheels.model.line_facts import LineFactKind, TorchLine
from rocm_wheels.model.lines import get_release_lines

LINES_READ_ON = date(
    2026, 11, 21
)  # when release_lines.yaml was made; its facts name their places and commits
COMPANION_NAMES = {
    "pytorch_vision": "torchvision",
    "pytorch_audio": "torchaudio",
    "triton": "triton",
    "apex": "apex",
}
_FACT_KINDS: Mapping[LineFactKind, FactKind] = {"read": "documented", "documented": "documented"}


@dataclass(frozen=True)
class TorchBuild:
    """A torch that was made with a ROCm and is in an index.

    ``torch`` is a series (2.13) for what pytorch.org builds for a release line. ``targets`` are by
    platform, ``kinds`` how each is known. ``line`` is the release line, None where there is none.
    """

    torch: Version
    rocm: Version
    index: PackageIndex
    pythons: tuple[str, ...]
    targets: Mapping[str, tuple[str, ...]]
    kinds: Mapping[tuple[str, str], FactKind]
    companions: Mapping[str, Version]
    kind: FactKind
    source: FactSource
    note: str
    line: str | None


@lru_cache
def list_builds() -> tuple[TorchBuild, ...]:
    """Return every build, the newest torch first, then the newest ROCm."""
    all_builds = [_make_row_build(row) for row in load_build_table().builds]
    all_builds += [
        _make_line_build(line, index)
        for index in list_indexes()
        for line in list_index_lines(index)
        if line.torch
    ]
    return tuple(sorted(all_builds, key=lambda build: (build.torch, build.rocm), reverse=True))


def find_builds(
    torch: Version | None = None,
    rocm: Version | None = None,
    *,
    target: str | None = None,
    python: str | None = None,
    platform: str | None = None,
    channel: str | None = None,
) -> tuple[TorchBuild, ...]:
    """Return the builds that fit everything that is given; a series stands for its patch releases.

    A target fits where somebody says that the build has it, on ``platform`` if one is given.
    """
    return tuple(
        build
        for build in list_builds()
        if (torch is None or is_same_release(build.torch, torch))
        and (rocm is None or is_same_release(build.rocm, rocm))
        and (python is None or python in build.pythons)
        and (platform is None or platform in build.index.platforms)
        and (channel is None or build.index.channel == channel)
        and (target is None or _build_serves(build, target, platform))
    )


def is_same_release(first: Version, second: Version) -> bool:
    """Say whether two versions can mean the same release: 2.13 and 2.13.1 can, 2.13.0 and 2.13.1 cannot."""
    shorter, longer = sorted((first, second), key=lambda version: len(version.release))
    if len(shorter.release) < 3:
        return is_in_series(longer, shorter)
    return first.release == second.release


def get_triton_name(
    torch_version: str | Version, index: PackageIndex | str, *, platform: str = "linux"
) -> str:
    """Return the name of the triton that torch of an index requires; "" when none goes with it.

    Torch's own metadata pins the version. Raises UsageError for an unknown index, DataError for a
    version that is none.
    """
    torch = _parse_torch(torch_version)
    layout = (get_index(index) if isinstance(index, str) else index).layout
    for row in load_build_table().triton:
        if (
            layout in row.layouts
            and platform in row.platforms
            and row.torch.contains(torch, prereleases=True)
        ):
            return row.name
    return ""


def find_companions(
    torch_version: str | Version, index: PackageIndex | str | None = None
) -> dict[str, Version]:
    """Return versions of torchvision, torchaudio, triton and apex that go with a torch, as far as known.

    They are series (0.28) of the release line; exact ones of ``index`` come before them, of the newest
    ROCm that it has. A torch without a line has those of the index alone. Raises DataError for a version
    that is none.
    """
    torch = _parse_torch(torch_version)
    versions: dict[str, Version] = {}
    line = next(
        (
            candidate
            for candidate in get_release_lines()
            if candidate.torch and is_in_series(torch, Version(candidate.torch))
        ),
        None,
    )
    for project, name in COMPANION_NAMES.items():
        value = line.projects[project].version if line and project in line.projects else None
        if value and value.value:
            versions[name] = parse_version(value.value)
    if index is not None:
        name = index if isinstance(index, str) else index.name
        exact = [candidate for candidate in find_builds(torch) if candidate.index.name == name]
        for build in reversed(exact):
            versions |= build.companions
    return versions


def list_torch_versions() -> tuple[Version, ...]:
    """Return every torch of the tables, the newest first."""
    return _sort_distinct(build.torch for build in list_builds())


def list_rocm_versions() -> tuple[Version, ...]:
    """Return every ROCm that a torch of the tables was made with, the newest first."""
    return _sort_distinct(build.rocm for build in list_builds())


def tabulate_builds() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: a build and platform a row."""
    header = ("torch", "rocm", "index", "channel", "platform", "targets", "pythons", "kind", "read", "source")
    rows: list[tuple[str, ...]] = [
        (
            str(build.torch),
            str(build.rocm),
            build.index.name,
            build.index.channel,
            platform,
            " ".join(targets),
            " ".join(build.pythons),
            build.kind,
            build.source.retrieved.isoformat(),
            build.source.url,
        )
        for build in list_builds()
        for platform, targets in build.targets.items()
    ]
    return header, rows


def _make_row_build(row: BuildRow) -> TorchBuild:
    index = get_index(row.index)
    row_targets = get_row_targets(row)
    kinds = {(platform, target): row.kind for platform, targets in row_targets.items() for target in targets}
    return TorchBuild(
        torch=row.torch,
        rocm=row.rocm,
        index=index,
        pythons=row.pythons,
        targets=row_targets or index.targets,
        kinds=kinds or index.kinds,
        companions=row.companions,
        kind=row.kind,
        source=load_build_table().sources[row.source],
        note=row.note,
        line=None,
    )


def _make_line_build(line: TorchLine, index: PackageIndex) -> TorchBuild:
    fact = line.rocm.pytorch_org
    rocm = next(version for version in map(parse_version, fact.values) if version in index.rocm)
    return TorchBuild(
        torch=parse_version(line.torch),
        rocm=rocm,
        index=index,
        pythons=(*line.pythons.values, *line.free_threaded.values),
        targets=index.targets,
        kinds=index.kinds,
        companions=get_line_companions(line),
        kind=_FACT_KINDS.get(fact.kind, "believed"),
        source=FactSource(url=fact.source, retrieved=LINES_READ_ON, at=f"release line {line.name}"),
        note="",
        line=line.name,
    )


def get_line_companions(line: TorchLine) -> dict[str, Version]:
    """Return the series of torchvision and torchaudio that a release line names."""
    versions = {}
    for project in ("pytorch_vision", "pytorch_audio"):
        value = line.projects[project].version if project in line.projects else None
        if value and value.value:
            versions[COMPANION_NAMES[project]] = parse_version(value.value)
    return versions


def _build_serves(build: TorchBuild, target: str, platform: str | None) -> bool:
    platforms = [platform] if platform else build.targets
    return any((build_platform, target) in build.kinds for build_platform in platforms)


def _parse_torch(text: str | Version) -> Version:
    try:
        return parse_version(text)
    except ValueError as fault:
        raise DataError(f"torch: {fault}") from None


def _sort_distinct(versions: Iterable[Version]) -> tuple[Version, ...]:
    return tuple(sorted(set(versions), reverse=True))
