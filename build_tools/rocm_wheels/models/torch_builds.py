"""Say what goes with a torch: its triton, its companions, container images, known issues of builds.

Owns ``data/torch_builds.yaml`` (names of triton, builds that people made themselves),
``data/container_images.yaml`` (images by tag, and what is in them) and ``data/known_issues.yaml``.
"""

from __future__ import annotations

import re
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

BUILDS_TABLE = "torch_builds.yaml"


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
    """The whole of ``data/torch_builds.yaml``. After ``until`` what it says has to be read anew."""

    until: date
    own_builds: tuple[OwnBuild, ...] = ()
    triton: tuple[TritonName, ...]


@lru_cache
def load_build_table() -> TorchBuildTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return records.load_record(project_names.get_data_folder() / BUILDS_TABLE, TorchBuildTable)


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
) -> TritonName | None:
    layout = (package_indexes.get_index(index) if isinstance(index, str) else index).layout
    for row in load_build_table().triton:
        if (
            layout in row.layouts
            and platform in row.platforms
            and row.torch.contains(torch, prereleases=True)
        ):
            return row
    return None


def find_companions(torch_version: str | Version) -> dict[str, Version]:
    """Return the series (0.28) of the projects around torch that go with it, as its release line says.

    {} for a torch without a line. Raises DataError for a version that is none.
    """
    torch = _parse_torch(torch_version)
    lines = (
        line
        for line in release_lines.get_release_lines()
        if line.torch and facts.is_in_series(torch, Version(line.torch))
    )
    line = next(lines, None)
    return get_line_companions(line) if line else {}


def get_line_companions(line: release_lines.TorchLine) -> dict[str, Version]:
    """Return the series of the projects around torch that a release line names, by names of wheels."""
    versions = {}
    for project in list_projects():
        companion = line.get_companion(project)
        value = companion.version if companion else None
        if value and value.value:
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
