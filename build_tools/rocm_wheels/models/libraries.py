"""Libraries: ROCm's by package and artifact, and those of the PyTorch family.

Of those of the family: is somebody at work on one, and which torch its release goes with.

Owns ``data/rocm_libraries.yaml``, ``data/rocm_artifacts.yaml`` and ``data/domain_libraries.yaml``, whose
headers explain their words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import Field

from rocm_wheels.core import errors, records, tables
from rocm_wheels.models import facts, gfx, project_names

# how ROCm names its libraries; librocm_sysdeps_* are copies of system libraries that its packages have
_ROCM_LIBRARY = re.compile(
    r"(?:lib)?(?:amd_|amdhip|hip|hsa-|roc(?!ks)|rccl|MIOpen|origami|rpp\b|composable|mscclpp)", re.IGNORECASE
)


class TheRockBuild(facts.ReadRow):
    """How TheRock builds a library: the ``project`` that targets exclude, the part of rocm-sdk that has it
    (``package``) and its shared library there. Without ``file``: templates, compiled into others."""

    project: str
    package: str = ""
    file: str = ""


class LibraryFallback(facts.ReadRow):
    """What torch does where the library is missing, in words."""

    text: str


class LibraryProbe(facts.ReadRow):
    """The API a test of the library calls; ``setting`` is what makes torch take this library for it."""

    api: str
    setting: str = ""


class LibrarySwitch(facts.ReadRow):
    """The options of torch that look for a library and end without it; one that is off leaves it out."""

    options: tuple[str, ...]


class RocmLibrary(facts.ReadRow):
    """A ROCm library and what of torch stands on it. See the header of the table, also for other columns."""

    use: Literal["linked", "compiled-in", "beside"]
    without: LibraryFallback
    switch: LibrarySwitch | None = None
    therock: TheRockBuild | None = None
    lost: tuple[str, ...] = ()
    probe: LibraryProbe | None = None

    @property
    def project(self) -> str:
        """The name by which TheRock's targets exclude it, or nothing."""
        return self.therock.project if self.therock else ""


class _LibraryTable(facts.FactTable):
    types: Mapping[str, Any]
    unused: tuple[str, ...]
    libraries: Mapping[str, RocmLibrary]


@dataclass(frozen=True)
class MissingLibrary:
    """A library that is not built for a target: what it served, which APIs raise, what torch does instead."""

    name: str
    library: RocmLibrary
    issue: str


@lru_cache
def get_rocm_libraries() -> Mapping[str, RocmLibrary]:
    """Return all libraries by their names on the page, in its order."""
    path = project_names.get_data_folder() / "rocm_libraries.yaml"
    return records.load_record(path, _LibraryTable).libraries


def find_rocm_package(library: str) -> str | None:
    """Return the package of ROCm that has a library (``libamdhip64.so.7``, ``hipblas.dll``); else None.

    Our table knows the package; of other names that are like ROCm's it is ``rocm``.
    """
    spelled = f"lib{library.removeprefix('lib').removesuffix('.dll')}.so" if ".so" not in library else library
    for row in get_rocm_libraries().values():
        if row.therock is not None and row.therock.file and spelled.startswith(row.therock.file):
            return f"rocm-sdk-{row.therock.package}"
    return "rocm" if _ROCM_LIBRARY.match(library) else None


def is_rocm_library(name: str) -> bool:
    """Tell from a library's file name whether it is one of ROCm."""
    return find_rocm_package(name) is not None


def get_exclusions(target: str) -> Mapping[str, str]:
    """Return the projects that ROCm is built without for a target, each with the issue that says why.

    A target's features do not matter. Raises UsageError for an unknown target.
    """
    base = gfx.strip_features(target)
    if base not in gfx.get_gfx_targets():
        raise errors.UsageError(
            f"{target} is no GPU target{tables.suggest_name(base, gfx.get_gfx_targets())}",
            tip=f"targets: {', '.join(gfx.get_gfx_targets())}",
        )
    return gfx.get_gfx_targets()[base].excluded


def list_missing_libraries(target: str) -> tuple[MissingLibrary, ...]:
    """Return the libraries of torch that a target has not got, in the order of the page.

    What is excluded and has nothing to do with torch (test programs, profilers) is no answer.
    Raises UsageError for an unknown target.
    """
    excluded = get_exclusions(target)
    return tuple(
        MissingLibrary(name, library, excluded[library.project])
        for name, library in get_rocm_libraries().items()
        if library.project in excluded
    )


class ArtifactTable(facts.FactTable):
    """The table: buckets by release type, folders of whole ROCm trees, patterns of what each tree has."""

    region: str
    repository: str
    buckets: Mapping[str, str]
    forks: str
    tarballs: Mapping[str, str]
    base: tuple[str, ...]


@lru_cache
def load_artifact_table() -> ArtifactTable:
    """Return the table."""
    return records.load_record(project_names.get_data_folder() / "rocm_artifacts.yaml", ArtifactTable)


class LibraryStatus(facts.ReadRow):
    """Whether somebody is at work on a library."""

    now: Literal["active", "maintenance", "frozen", "retired"]
    note: str = ""


class LibraryRelease(facts.ReadRow):
    """The newest release: Pythons it is for, and what it ``needs`` of torch and of the other libraries."""

    version: facts.VersionField
    python: facts.SpecifierField = SpecifierSet("")
    needs: Mapping[str, facts.SpecifierField] = Field(default_factory=dict)


class LibraryOrigin(facts.ReadRow):
    """Where to take a library from for torch on ROCm, in words."""

    text: str


class DomainLibrary(facts.ReadRow):
    """A library of the PyTorch family. See the header of the table."""

    state: LibraryStatus
    release: LibraryRelease
    code: Literal["pure", "compiled"]
    origin: LibraryOrigin = Field(alias="from")
    probe: str


class _DomainTable(facts.FactTable):
    libraries: Mapping[str, DomainLibrary]


@lru_cache
def get_domain_libraries() -> Mapping[str, DomainLibrary]:
    """Return all libraries by project, those of the page first, in its order."""
    path = project_names.get_data_folder() / "domain_libraries.yaml"
    return records.load_record(path, _DomainTable).libraries


def find_obstacles(project: str, *, torch: Version | None = None) -> tuple[str, ...]:
    """Return why the newest release of a library does not go with a torch, or is better not taken.

    Nothing: it goes. A state is an obstacle when nobody is at work on it any more (frozen, retired).
    Raises UsageError for a library that the table does not have.
    """
    if project not in get_domain_libraries():
        raise errors.UsageError(
            f"nothing is known about {project}{tables.suggest_name(project, get_domain_libraries())}",
            tip=f"libraries: {', '.join(get_domain_libraries())}",
        )
    library = get_domain_libraries()[project]
    release = library.release
    reasons = []
    if library.state.now in ("frozen", "retired"):
        reasons.append(
            f"{project} is {library.state.now}" + (f": {library.state.note}" if library.state.note else "")
        )
    torch_range = release.needs.get("torch")
    if torch and torch_range and not torch_range.contains(torch.public, prereleases=True):
        reasons.append(f"{project} {release.version} needs torch{torch_range}, not {torch}")
    return tuple(reasons)
