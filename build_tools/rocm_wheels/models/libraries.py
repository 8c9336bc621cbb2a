"""Libraries: ROCm's by package and artifact, and those of the PyTorch family.

Of those of the family: is somebody at work on one, and which torch its release goes with.

Owns ``data/rocm_libraries.yaml``, ``data/rocm_artifacts.yaml`` and ``data/domain_libraries.yaml``, whose
headers explain their words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import Field, model_validator

from rocm_wheels.core import errors, records, tables
from rocm_wheels.models import facts, gfx, project_names

LIBRARIES_TABLE = "rocm_libraries.yaml"
# how ROCm names its libraries; librocm_sysdeps_* are copies of system libraries that its packages have
_ROCM_LIBRARY = re.compile(
    r"(?:lib)?(?:amd_|amdhip|hip|hsa-|roc(?!ks)|rccl|MIOpen|origami|rpp\b|composable|mscclpp)", re.IGNORECASE
)

LibraryUse = Literal["linked", "compiled-in", "beside"]
_Api = Annotated[
    str,
    records.require_pattern(
        r"torch(vision)?(\.[A-Za-z_][A-Za-z0-9_]*)*", "a name in torch or torchvision: torch.stft"
    ),
]


class TheRockBuild(facts.Fact):
    """How TheRock builds a library: the ``project`` that targets exclude, the part of rocm-sdk that has it
    (``package``) and its shared library there. Without ``file``: templates, compiled into others."""

    project: str
    package: Literal["", "core", "libraries"] = ""
    file: str = ""

    @model_validator(mode="after")
    def _file_of_package(self) -> TheRockBuild:
        if bool(self.package) != bool(self.file):
            raise ValueError("a file is in a package, and a package is named for its file")
        return self


class LibraryApis(facts.Fact):
    """APIs of torch besides those of the page."""

    apis: tuple[_Api, ...]


class HipTypes(facts.Fact):
    """The types of HIP that the precision page means by one name."""

    hip: tuple[str, ...]


class LibraryTypes(facts.Fact):
    """What a library calculates with, by the names of the precision page."""

    full: tuple[str, ...] = ()
    partly: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def all_types(self) -> tuple[str, ...]:
        """Every name, those without limits first."""
        return (*self.full, *self.partly, *self.inputs, *self.outputs)


class LibraryFallback(facts.Fact):
    """What torch does where the library is missing, in words."""

    text: str


class LibraryProbe(facts.Fact):
    """The API a test of the library calls; ``setting`` is what makes torch take this library for it."""

    api: _Api
    setting: str = ""


class LibrarySwitch(facts.Fact):
    """The options of torch that look for a library and end without it; one that is off leaves it out."""

    options: tuple[
        Annotated[str, records.require_pattern(r"USE_[A-Z_]+", "an option of torch: USE_RCCL")], ...
    ]


class RocmLibrary(facts.Fact):
    """A ROCm library, with the APIs that the compatibility page gives it. See the header of the table."""

    use: LibraryUse
    apis: tuple[_Api, ...]
    without: LibraryFallback
    switch: LibrarySwitch | None = None
    therock: TheRockBuild | None = None
    more: LibraryApis | None = None
    types: LibraryTypes | None = None
    lost: tuple[_Api, ...] = ()
    probe: LibraryProbe | None = None

    @property
    def project(self) -> str:
        """The name by which TheRock's targets exclude it, or nothing."""
        return self.therock.project if self.therock else ""

    @property
    def all_apis(self) -> tuple[str, ...]:
        """All APIs, those of the page first."""
        return tuple(dict.fromkeys((*self.apis, *(self.more.apis if self.more else ()))))

    @model_validator(mode="after")
    def _own_apis(self) -> RocmLibrary:
        apis = (*self.lost, *((self.probe.api,) if self.probe else ()))
        for api in apis:
            if api not in self.all_apis:
                raise ValueError(f"{api} is not among its APIs{tables.suggest_name(api, self.all_apis)}")
        return self


class LibraryTable(facts.FactTable):
    """``data/rocm_libraries.yaml``, whole: every type is a known one, and a project is of one library."""

    types: Mapping[str, HipTypes]
    unused: tuple[str, ...]
    libraries: Mapping[str, RocmLibrary]

    @model_validator(mode="after")
    def _known_types(self) -> LibraryTable:
        for name, library in self.libraries.items():
            type_names = library.types.all_types if library.types else ()
            for type_name in type_names:
                if type_name not in self.types:
                    raise records.make_record_error(
                        f"{name}: no type {type_name}{tables.suggest_name(type_name, self.types)}",
                        "libraries",
                        name,
                        "types",
                    )
                if type_names.count(type_name) > 1:
                    raise records.make_record_error(
                        f"{name}: {type_name} is named twice", "libraries", name, "types"
                    )
        return self

    @model_validator(mode="after")
    def _projects_once(self) -> LibraryTable:
        projects = [library.project for library in self.libraries.values() if library.project]
        for project in (*projects, *self.unused):
            if (*projects, *self.unused).count(project) > 1:
                raise ValueError(f"two libraries are the project {project}")
        return self


@dataclass(frozen=True)
class MissingLibrary:
    """A library that is not built for a target: what it served, which APIs raise, what torch does instead."""

    name: str
    library: RocmLibrary
    issue: str


@lru_cache
def load_library_table() -> LibraryTable:
    """Return the whole table."""
    return records.load_record(project_names.get_data_folder() / LIBRARIES_TABLE, LibraryTable)


def get_rocm_libraries() -> Mapping[str, RocmLibrary]:
    """Return all libraries by their names on the page, in its order."""
    return load_library_table().libraries


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


def tabulate_rocm_libraries() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of the table: a row a library, with the targets that have not got it."""
    header = (
        "library",
        "use",
        "file",
        "APIs",
        "types",
        "without it",
        "raise then",
        "not for",
        "kind",
        "source",
    )
    rows: list[tuple[str, ...]] = []
    for name, library in get_rocm_libraries().items():
        targets_without = [
            target
            for target in gfx.get_gfx_targets()
            if library.project and library.project in get_exclusions(target)
        ]
        rows.append(
            (
                name,
                library.use,
                library.therock.file if library.therock else "",
                " ".join(library.all_apis),
                " ".join(library.types.all_types if library.types else ()),
                library.without.text,
                " ".join(library.lost),
                " ".join(targets_without),
                library.kind,
                load_library_table().sources[library.source].url,
            )
        )
    return header, rows


class RocmPart(records.Record):
    """What an option of ``install_rocm_from_artifacts`` takes, as patterns of file names."""

    artifacts: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    beside: Mapping[str, tuple[str, ...]] = {}

    def list_patterns(self, chosen: Collection[str], *, tests: bool) -> tuple[str, ...]:
        """Return the patterns, given the names of all chosen parts."""
        components = ("lib", "test") if tests else ("lib",)
        patterns = [f"{name}_{component}" for name in self.artifacts for component in components]
        more = [pattern for other in sorted(self.beside) if other in chosen for pattern in self.beside[other]]
        return tuple(dict.fromkeys((*patterns, *self.patterns, *(self.tests if tests else ()), *more)))


class ArtifactTable(facts.FactTable):
    """The table: buckets by release type, folders of whole ROCm trees, patterns by part."""

    region: str
    repository: str
    buckets: Mapping[str, str]
    forks: str
    tarballs: Mapping[str, str]
    base: tuple[str, ...]
    parts: Mapping[str, RocmPart]


@lru_cache
def load_artifact_table() -> ArtifactTable:
    """Return the table."""
    return records.load_record(project_names.get_data_folder() / "rocm_artifacts.yaml", ArtifactTable)


DOMAIN_LIBRARIES_TABLE = "domain_libraries.yaml"

LibraryState = Literal["active", "maintenance", "frozen", "retired"]
_OTHER_NAMES = ("torch", "fbgemm-gpu")


class LibraryStatus(facts.Fact):
    """Whether somebody is at work on a library."""

    now: LibraryState


class LibraryRelease(facts.Fact):
    """The newest release: Pythons it is for, and what it ``needs`` of torch and of the other libraries."""

    version: facts.VersionField
    python: facts.SpecifierField = SpecifierSet("")
    needs: Mapping[str, facts.SpecifierField] = Field(default_factory=dict)


class LibraryOrigin(facts.Fact):
    """Where to take a library from for torch on ROCm, in words."""

    text: str


class DomainLibrary(facts.Fact):
    """A library; ``page``: one of the compatibility page. See the header of the table."""

    state: LibraryStatus
    release: LibraryRelease
    code: Literal["pure", "compiled"]
    files: Literal["none", "cpu", "cuda"] = "none"
    origin: LibraryOrigin = Field(alias="from")
    probe: Annotated[
        str,
        records.require_pattern(r"[a-z_]+(\.[A-Za-z_]+)+", "a name in a module: torchaudio.transforms.Vol"),
    ]
    page: bool = False

    @model_validator(mode="after")
    def _files_of_code(self) -> DomainLibrary:
        if (self.code == "pure") != (self.files == "none"):
            raise ValueError(f"code is {self.code}, and its wheel's compiled code is {self.files}")
        return self


class DomainTable(facts.FactTable):
    """``data/domain_libraries.yaml``, whole: what a library needs is in it, or torch."""

    libraries: Mapping[str, DomainLibrary]

    @model_validator(mode="after")
    def _known_needs(self) -> DomainTable:
        names = (*self.libraries, *_OTHER_NAMES)
        for name, library in self.libraries.items():
            for needed in library.release.needs:
                if needed not in names:
                    message = (
                        f"{name} needs {needed}, which the table does not "
                        f"have{tables.suggest_name(needed, names)}"
                    )
                    raise records.make_record_error(message, "libraries", name, "release", "needs", needed)
        return self


@lru_cache
def load_domain_table() -> DomainTable:
    """Return the whole table."""
    return records.load_record(project_names.get_data_folder() / DOMAIN_LIBRARIES_TABLE, DomainTable)


def get_domain_libraries() -> Mapping[str, DomainLibrary]:
    """Return all libraries by project, those of the page first, in its order."""
    return load_domain_table().libraries


def find_obstacles(
    project: str, *, torch: Version | None = None, python: Version | None = None
) -> tuple[str, ...]:
    """Return why the newest release of a library does not go with a torch or Python, or is better not taken.

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
    if python and not release.python.contains(python, prereleases=True):
        reasons.append(f"{project} {release.version} needs Python {release.python}, not {python}")
    return tuple(reasons)


def tabulate_domain_libraries() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of the table: a row a library."""
    header = (
        "library",
        "state",
        "newest",
        "Python",
        "needs",
        "code",
        "for ROCm from",
        "note",
        "kind",
        "source",
    )
    rows: list[tuple[str, ...]] = []
    for name, library in get_domain_libraries().items():
        rows.append(
            (
                name,
                library.state.now,
                str(library.release.version),
                str(library.release.python),
                " ".join(f"{needed}{accepted}" for needed, accepted in library.release.needs.items()),
                library.code,
                library.origin.text,
                library.state.note,
                library.state.kind,
                load_domain_table().sources[library.state.source].url,
            )
        )
    return header, rows
