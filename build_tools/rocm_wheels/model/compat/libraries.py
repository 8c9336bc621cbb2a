"""ROCm libraries by what they do for torch, and what is left of torch on a target that has not got one.

Owns ``data/rocm_libraries.yaml``, whose header explains its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import model_validator

from rocm_wheels.errors import UsageError
from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.gfx import base_target, gfx_targets
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import did_you_mean, fault, load, spelled

TABLE = "rocm_libraries.yaml"

Use = Literal["linked", "compiled-in", "beside"]
_Api = Annotated[
    str,
    spelled(r"torch(vision)?(\.[A-Za-z_][A-Za-z0-9_]*)*", "a name in torch or torchvision: torch.stft"),
]


class TheRockBuild(Fact):
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


class Apis(Fact):
    """APIs of torch besides those of the page."""

    apis: tuple[_Api, ...]


class HipTypes(Fact):
    """The types of HIP that the precision page means by one name."""

    hip: tuple[str, ...]


class LibraryTypes(Fact):
    """What a library calculates with, by the names of the precision page."""

    full: tuple[str, ...] = ()
    partly: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every name, those without limits first."""
        return (*self.full, *self.partly, *self.inputs, *self.outputs)


class Without(Fact):
    """What torch does where the library is missing, in words."""

    text: str


class Probe(Fact):
    """The API a test of the library calls; ``setting`` is what makes torch take this library for it."""

    api: _Api
    setting: str = ""


class RocmLibrary(Fact):
    """A ROCm library, with the APIs that the compatibility page gives it. See the header of the table."""

    use: Use
    apis: tuple[_Api, ...]
    without: Without
    therock: TheRockBuild | None = None
    more: Apis | None = None
    types: LibraryTypes | None = None
    lost: tuple[_Api, ...] = ()
    probe: Probe | None = None

    @property
    def project(self) -> str:
        """The name by which TheRock's targets exclude it, or nothing."""
        return self.therock.project if self.therock else ""

    @property
    def serves(self) -> tuple[str, ...]:
        """All APIs, those of the page first."""
        return tuple(dict.fromkeys((*self.apis, *(self.more.apis if self.more else ()))))

    @model_validator(mode="after")
    def _own_apis(self) -> RocmLibrary:
        named = (*self.lost, *((self.probe.api,) if self.probe else ()))
        for api in named:
            if api not in self.serves:
                raise ValueError(f"{api} is not among its APIs{did_you_mean(api, self.serves)}")
        return self


class LibraryTable(FactTable):
    """``data/rocm_libraries.yaml``, whole: every type is a known one, and a project is of one library."""

    types: Mapping[str, HipTypes]
    unused: tuple[str, ...]
    libraries: Mapping[str, RocmLibrary]

    @model_validator(mode="after")
    def _known_types(self) -> LibraryTable:
        for name, library in self.libraries.items():
            named = library.types.all if library.types else ()
            for one in named:
                if one not in self.types:
                    raise fault(
                        f"{name}: no type {one}{did_you_mean(one, self.types)}", "libraries", name, "types"
                    )
                if named.count(one) > 1:
                    raise fault(f"{name}: {one} is named twice", "libraries", name, "types")
        return self

    @model_validator(mode="after")
    def _projects_once(self) -> LibraryTable:
        projects = [one.project for one in self.libraries.values() if one.project]
        for project in (*projects, *self.unused):
            if (*projects, *self.unused).count(project) > 1:
                raise ValueError(f"two libraries are the project {project}")
        return self


@dataclass(frozen=True)
class Missing:
    """A library that is not built for a target: what it served, which APIs raise, what torch does instead."""

    name: str
    library: RocmLibrary
    issue: str

    @property
    def lost(self) -> tuple[str, ...]:
        """APIs that raise."""
        return self.library.lost

    @property
    def slower(self) -> tuple[str, ...]:
        """APIs that go another way."""
        return tuple(api for api in self.library.serves if api not in self.library.lost)


@lru_cache
def library_table() -> LibraryTable:
    """Return the whole table."""
    return load(data_folder() / TABLE, LibraryTable)


def rocm_libraries() -> Mapping[str, RocmLibrary]:
    """Return all libraries by their names on the page, in its order."""
    return library_table().libraries


def hip_types_of(name: str) -> tuple[str, ...]:
    """Return the types of HIP that a library calculates with; none, when the precision page has not got it.

    Raises UsageError for an unknown library.
    """
    if name not in rocm_libraries():
        raise UsageError(
            f"{name} is no ROCm library that torch uses{did_you_mean(name, rocm_libraries())}",
            tip=f"libraries: {', '.join(rocm_libraries())}",
        )
    types = rocm_libraries()[name].types
    return tuple(hip for one in (types.all if types else ()) for hip in library_table().types[one].hip)


def excluded_from(target: str) -> Mapping[str, str]:
    """Return the projects that ROCm is built without for a target, each with the issue that says why.

    A target's features do not matter. Raises UsageError for an unknown target.
    """
    base = base_target(target)
    if base not in gfx_targets():
        raise UsageError(
            f"{target} is no GPU target{did_you_mean(base, gfx_targets())}",
            tip=f"targets: {', '.join(gfx_targets())}",
        )
    return gfx_targets()[base].excluded


def apis_without(target: str) -> tuple[Missing, ...]:
    """Return the libraries of torch that a target has not got, in the order of the page.

    What is excluded and has nothing to do with torch (test programs, profilers) is no answer.
    Raises UsageError for an unknown target.
    """
    excluded = excluded_from(target)
    return tuple(
        Missing(name, library, excluded[library.project])
        for name, library in rocm_libraries().items()
        if library.project in excluded
    )


def unknown_exclusions() -> tuple[tuple[str, str], ...]:
    """Return (target, project) of exclusions about which this table says nothing: none, when it is whole."""
    known = {*library_table().unused, *(one.project for one in rocm_libraries().values() if one.project)}
    return tuple(
        (target, project)
        for target in gfx_targets()
        for project in excluded_from(target)
        if project not in known
    )


def show_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
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
    for name, library in rocm_libraries().items():
        lacking = [one for one in gfx_targets() if library.project and library.project in excluded_from(one)]
        rows.append(
            (
                name,
                library.use,
                library.therock.file if library.therock else "",
                " ".join(library.serves),
                " ".join(library.types.all if library.types else ()),
                library.without.text,
                " ".join(library.lost),
                " ".join(lacking),
                library.kind,
                library_table().sources[library.source].url,
            )
        )
    return header, rows
