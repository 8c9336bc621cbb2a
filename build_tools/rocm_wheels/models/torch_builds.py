"""List which torch exists for whom: builds by ROCm and index, container images, known issues of builds.

Joins ``torch_builds.yaml`` with what ``release_lines.yaml`` says pytorch.org builds. Owns
``data/container_images.yaml`` (images by tag, and what is in them) and ``data/known_issues.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Literal

from packaging.version import Version
from pydantic import field_validator

from rocm_wheels.core import errors, records
from rocm_wheels.models import ci, facts, package_indexes, project_names, release_lines
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.models.project import list_projects

LINES_READ_ON = date(
    2026, 11, 21
)  # when release_lines.yaml was made; its facts name their places and commits
_FACT_KINDS: Mapping[release_lines.LineFactKind, facts.FactKind] = {
    "read": "documented",
    "documented": "documented",
}


@dataclass(frozen=True)
class TorchBuild:
    """A torch that was made with a ROCm and is in an index.

    ``torch`` is a series (2.13) for what pytorch.org builds for a release line. ``targets`` are by
    platform.
    """

    torch: Version
    rocm: Version
    index: package_indexes.PackageIndex
    pythons: tuple[str, ...]
    targets: Mapping[str, tuple[str, ...]]
    companions: Mapping[str, Version]
    kind: facts.FactKind
    source: facts.FactSource


@lru_cache
def list_builds() -> tuple[TorchBuild, ...]:
    """Return every build, the newest torch first, then the newest ROCm."""
    all_builds = [_make_row_build(row) for row in package_indexes.load_build_table().builds]
    all_builds += [
        _make_line_build(line, index)
        for index in package_indexes.list_indexes()
        for line in package_indexes.list_index_lines(index)
        if line.torch
    ]
    return tuple(sorted(all_builds, key=lambda build: (build.torch, build.rocm), reverse=True))


def find_builds(torch: Version, *, platform: str | None = None) -> tuple[TorchBuild, ...]:
    """Return the builds of a torch, on any platform if none is given; a series is all of its releases."""
    return tuple(
        build
        for build in list_builds()
        if is_same_release(build.torch, torch) and (platform is None or platform in build.index.platforms)
    )


def is_same_release(first: Version, second: Version) -> bool:
    """Say whether two versions can mean the same release: 2.13 and 2.13.1 can, 2.13.0 and 2.13.1 cannot."""
    shorter, longer = sorted((first, second), key=lambda version: len(version.release))
    if len(shorter.release) < 3:
        return facts.is_in_series(longer, shorter)
    return first.release == second.release


def get_triton_name(
    torch_version: str | Version, index: package_indexes.PackageIndex | str, *, platform: str = "linux"
) -> str:
    """Return the name of the triton that goes with torch of an index; "" when none does.

    Torch's own metadata pins the version. Raises UsageError for an unknown index, DataError for a
    version that is none.
    """
    row = _find_triton(_parse_torch(torch_version), index, platform)
    return row.name if row else ""


def find_separate_triton(
    torch_version: str | Version, index: package_indexes.PackageIndex | str, *, platform: str = "linux"
) -> str:
    """Return the requirement (``triton-windows==3.5.*``) of a triton on PyPI that torch does not require.

    "" where torch requires its own, or none goes with it; without a version where no release line tells it.
    """
    row = _find_triton(_parse_torch(torch_version), index, platform)
    if row is None or not row.separate:
        return ""
    series = find_companions(torch_version).get("triton")
    return f"{row.name}=={'.'.join(map(str, series.release[:2]))}.*" if series else row.name


def _find_triton(
    torch: Version, index: package_indexes.PackageIndex | str, platform: str
) -> package_indexes.TritonName | None:
    layout = (package_indexes.get_index(index) if isinstance(index, str) else index).layout
    for row in package_indexes.load_build_table().triton:
        if (
            layout in row.layouts
            and platform in row.platforms
            and row.torch.contains(torch, prereleases=True)
        ):
            return row
    return None


def find_companions(
    torch_version: str | Version, index: package_indexes.PackageIndex | str | None = None
) -> dict[str, Version]:
    """Return versions of the projects around torch (torchvision, triton, …) that go with it, as far as known.

    They are series (0.28) of the release line; exact ones of ``index`` come before them, of the newest
    ROCm that it has. A torch without a line has those of the index alone. Raises DataError for a version
    that is none.
    """
    torch = _parse_torch(torch_version)
    versions: dict[str, Version] = {}
    line = next(
        (
            candidate
            for candidate in release_lines.get_release_lines()
            if candidate.torch and facts.is_in_series(torch, Version(candidate.torch))
        ),
        None,
    )
    if line:
        versions |= get_line_companions(line)
    if index is not None:
        name = index if isinstance(index, str) else index.name
        exact = [candidate for candidate in find_builds(torch) if candidate.index.name == name]
        for build in reversed(exact):
            versions |= build.companions
    return versions


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


def _make_row_build(row: package_indexes.BuildRow) -> TorchBuild:
    index = package_indexes.get_index(row.index)
    row_targets = package_indexes.get_row_targets(row)
    return TorchBuild(
        torch=row.torch,
        rocm=row.rocm,
        index=index,
        pythons=row.pythons,
        targets=row_targets or index.targets,
        companions=row.companions,
        kind=row.kind,
        source=package_indexes.load_build_table().sources[row.source],
    )


def _make_line_build(line: release_lines.TorchLine, index: package_indexes.PackageIndex) -> TorchBuild:
    fact = line.rocm.pytorch_org
    rocm = next(version for version in map(facts.parse_version, fact.values) if version in index.rocm)
    return TorchBuild(
        torch=facts.parse_version(line.torch),
        rocm=rocm,
        index=index,
        pythons=(*line.pythons.values, *line.free_threaded.values),
        targets=index.targets,
        companions=get_line_companions(line, by_default=True),
        kind=_FACT_KINDS.get(fact.kind, "believed"),
        source=facts.FactSource(url=fact.source, retrieved=LINES_READ_ON, at=f"release line {line.name}"),
    )


def get_line_companions(line: release_lines.TorchLine, *, by_default: bool = False) -> dict[str, Version]:
    """Return the series of the projects around torch that a release line names, by the names of their wheels.

    ``by_default``: of those alone that are installed with torch when nothing is named.
    """
    versions = {}
    for project in list_projects():
        companion = line.get_companion(project)
        value = companion.version if companion else None
        if value and value.value and (project.install.default_place or not by_default):
            versions[project.distribution] = facts.parse_version(value.value)
    return versions


def _parse_torch(text: str | Version) -> Version:
    try:
        return facts.parse_version(text)
    except ValueError as fault:
        raise errors.DataError(f"torch: {fault}") from None


IMAGES_TABLE = "container_images.yaml"
_IMAGE_TAG = re.compile(
    r"rocm(?P<rocm>[0-9.]+)"
    r"(?:(?:_(?P<family>gfx[^_]+))?_(?P<system>[a-z]+[0-9.]+)_py(?P<python>3\.\d+)"
    r"_pytorch_(?:release_)?(?P<torch>[0-9.]+)(?:_(?P<extra>[a-z]+_[0-9.]+))?)?\Z"
)


class ImageRow(facts.Fact):
    """Tags of an image that one source names."""

    image: str
    use: Literal["run", "build"]
    tags: tuple[str, ...]

    @field_validator("tags")
    @classmethod
    def _are_read(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for tag in value:
            if not _IMAGE_TAG.match(tag):
                raise ValueError(
                    f"{tag} is not a tag such as rocm7.2_ubuntu24.04_py3.12_pytorch_release_2.9.1"
                )
        return value


class ImageTable(facts.FactTable):
    """The whole of ``data/container_images.yaml``."""

    images: tuple[ImageRow, ...]


@dataclass(frozen=True)
class TorchImage:
    """A tag, and what it says of itself; None is what it does not say.

    ``system`` is like ``ubuntu24.04``, ``family`` the GPU family that the image is for.
    """

    name: str
    use: str
    rocm: Version
    torch: Version | None
    python: str | None
    system: str | None
    family: str | None
    kind: facts.FactKind
    source: facts.FactSource


@lru_cache
def load_image_table() -> ImageTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return records.load_record(project_names.get_data_folder() / IMAGES_TABLE, ImageTable)


@lru_cache
def list_images() -> tuple[TorchImage, ...]:
    """Return every image, the newest ROCm first, then the newest torch."""
    table = load_image_table()
    table_images = [
        _make_image(row, tag, table.sources[row.source]) for row in table.images for tag in row.tags
    ]
    return tuple(
        sorted(table_images, key=lambda image: (image.rocm, image.torch or Version("0")), reverse=True)
    )


def tabulate_images() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: first what `container run` knows by name, then a tag a row."""
    header = ("image", "name", "use", "rocm", "torch", "python", "system", "family", "kind", "read", "source")
    table = ci.load_container_table()
    rows: list[tuple[str, ...]] = []
    for name, pinned in table.images.items():
        made = f"made by dockerfiles/{pinned.dockerfile}, which starts from it" if pinned.dockerfile else ""
        use = "; ".join(filter(None, (pinned.about, made, pinned.note)))
        source = table.sources[pinned.source]
        read = (pinned.kind, source.retrieved.isoformat(), source.url)
        rows.append((f"{pinned.image}@{pinned.digest}", name, use, *[""] * 5, *read))
    rows += [
        (
            image.name,
            "",
            image.use,
            str(image.rocm),
            str(image.torch or ""),
            image.python or "",
            image.system or "",
            image.family or "",
            image.kind,
            image.source.retrieved.isoformat(),
            image.source.url,
        )
        for image in list_images()
    ]
    return header, rows


def _make_image(row: ImageRow, tag: str, source: facts.FactSource) -> TorchImage:
    match = _IMAGE_TAG.match(tag)
    if match is None:
        raise ValueError(tag)  # the record has let none through
    torch = match["torch"]
    return TorchImage(
        name=f"{row.image}:{tag}",
        use=row.use,
        rocm=facts.parse_version(match["rocm"]),
        torch=facts.parse_version(torch) if torch else None,
        python=match["python"],
        system=match["system"],
        family=match["family"],
        kind=row.kind,
        source=source,
    )


ISSUES_TABLE = "known_issues.yaml"
_ISSUE_NAME = re.compile(r"[\w.-]+/[\w.-]+#[1-9]\d*\Z")


class KnownIssue(facts.Fact):
    """Something that goes wrong with builds of torch; empty ``targets``, ``platforms``, ``layouts``: all.

    ``without_device``: only where this device is missing (``/dev/kfd``). ``issue`` is like
    ``ROCm/TheRock#7081``; None: nobody opened one, ``source`` is the evidence.
    """

    title: str
    effect: Literal["wrong", "crash", "hang", "kernels", "import", "install", "slow", "documentation"]
    torch: facts.SpecifierField
    rocm: facts.SpecifierField
    targets: tuple[str, ...] = ()
    platforms: tuple[Literal["linux", "windows"], ...] = ()
    layouts: tuple[package_indexes.IndexLayout, ...] = ()
    without_device: Literal["", "/dev/kfd"] = ""
    workaround: str = ""
    state: Literal["open", "fixed", "closed"]
    fixed: str = ""
    issue: str | None = None

    @field_validator("issue")
    @classmethod
    def _names_a_thread(cls, value: str | None) -> str | None:
        if value is not None and not _ISSUE_NAME.match(value):
            raise ValueError("an issue is written owner/repository#number")
        return value


class IssueTable(facts.FactTable):
    """The whole of ``data/known_issues.yaml``."""

    issues: tuple[KnownIssue, ...]


@lru_cache
def load_issue_table() -> IssueTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return records.load_record(project_names.get_data_folder() / ISSUES_TABLE, IssueTable)


def get_issues() -> tuple[KnownIssue, ...]:
    """Return every known issue, in the order of the table."""
    return load_issue_table().issues


def get_issue_url(issue: KnownIssue) -> str:
    """Return where an issue can be read."""
    if issue.issue is None:
        return get_issue_source(issue).url
    repository, _, number = issue.issue.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


def get_issue_source(issue: KnownIssue) -> facts.FactSource:
    """Return where an issue was read."""
    return load_issue_table().sources[issue.source]


def find_issues(
    torch: Version | None = None,
    rocm: Version | None = None,
    target: str | None = None,
    platform: str | None = None,
) -> tuple[KnownIssue, ...]:
    """Return the issues that everything given fits; what is not given (None) fits every issue."""
    gfx = strip_features(target) if target else None
    return tuple(
        issue
        for issue in get_issues()
        if (torch is None or issue.torch.contains(torch.public, prereleases=True))
        and (rocm is None or issue.rocm.contains(rocm.public, prereleases=True))
        and (gfx is None or not issue.targets or gfx in issue.targets)
        and (platform is None or not issue.platforms or platform in issue.platforms)
    )


def tabulate_issues() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: an issue a row."""
    header = (
        "effect",
        "title",
        "torch",
        "rocm",
        "targets",
        "platforms",
        "layouts",
        "state",
        "workaround",
        "kind",
        "read",
        "source",
    )
    rows: list[tuple[str, ...]] = [
        (
            issue.effect,
            issue.title,
            str(issue.torch) or "all",
            str(issue.rocm) or "all",
            " ".join(issue.targets) or "all",
            " without ".join(filter(None, (" ".join(issue.platforms) or "all", issue.without_device))),
            " ".join(issue.layouts) or "all",
            f"{issue.state} ({issue.fixed})" if issue.fixed else issue.state,
            issue.workaround,
            issue.kind,
            get_issue_source(issue).retrieved.isoformat(),
            get_issue_url(issue),
        )
        for issue in get_issues()
    ]
    return header, rows
