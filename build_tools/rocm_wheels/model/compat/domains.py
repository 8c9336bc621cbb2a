"""Libraries of the PyTorch family: whether somebody is at work on one, and which torch its release goes with.

Owns ``data/domain_libraries.yaml``, whose header explains its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import Field, model_validator

from rocm_wheels.errors import UsageError
from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.compat.versions import SpecifierField, VersionField
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import did_you_mean, fault, load, spelled

TABLE = "domain_libraries.yaml"

LibraryState = Literal["active", "maintenance", "frozen", "retired"]
_OUTSIDE = ("torch", "fbgemm-gpu")


class State(Fact):
    """Whether somebody is at work on a library."""

    now: LibraryState


class Release(Fact):
    """The newest release: Pythons it is for, and what it ``needs`` of torch and of the other libraries."""

    version: VersionField
    python: SpecifierField = SpecifierSet("")
    needs: Mapping[str, SpecifierField] = Field(default_factory=dict)


class Origin(Fact):
    """Where to take a library from for torch on ROCm, in words."""

    text: str


class DomainLibrary(Fact):
    """A library; ``page``: one of the compatibility page. See the header of the table."""

    state: State
    release: Release
    code: Literal["pure", "compiled"]
    files: Literal["none", "cpu", "cuda"] = "none"
    origin: Origin = Field(alias="from")
    probe: Annotated[str, spelled(r"[a-z_]+(\.[A-Za-z_]+)+", "a name in a module: torchaudio.transforms.Vol")]
    page: bool = False

    @model_validator(mode="after")
    def _files_of_code(self) -> DomainLibrary:
        if (self.code == "pure") != (self.files == "none"):
            raise ValueError(f"code is {self.code}, and its wheel's compiled code is {self.files}")
        return self


class DomainTable(FactTable):
    """``data/domain_libraries.yaml``, whole: what a library needs is in it, or torch."""

    libraries: Mapping[str, DomainLibrary]

    @model_validator(mode="after")
    def _known_needs(self) -> DomainTable:
        known = (*self.libraries, *_OUTSIDE)
        for name, library in self.libraries.items():
            for needed in library.release.needs:
                if needed not in known:
                    said = (
                        f"{name} needs {needed}, which the table does not have{did_you_mean(needed, known)}"
                    )
                    raise fault(said, "libraries", name, "release", "needs", needed)
        return self


@lru_cache
def domain_table() -> DomainTable:
    """Return the whole table."""
    return load(data_folder() / TABLE, DomainTable)


def domain_libraries() -> Mapping[str, DomainLibrary]:
    """Return all libraries by project, those of the page first, in its order."""
    return domain_table().libraries


def obstacles(
    project: str, *, torch: Version | None = None, python: Version | None = None
) -> tuple[str, ...]:
    """Return why the newest release of a library does not go with a torch or Python, or is better not taken.

    Nothing: it goes. A state is an obstacle when nobody is at work on it any more (frozen, retired).
    Raises UsageError for a library that the table does not have.
    """
    if project not in domain_libraries():
        raise UsageError(
            f"nothing is known about {project}{did_you_mean(project, domain_libraries())}",
            tip=f"libraries: {', '.join(domain_libraries())}",
        )
    library = domain_libraries()[project]
    release = library.release
    found = []
    if library.state.now in ("frozen", "retired"):
        found.append(
            f"{project} is {library.state.now}" + (f": {library.state.note}" if library.state.note else "")
        )
    wanted = release.needs.get("torch")
    if torch and wanted and not wanted.contains(torch.public, prereleases=True):
        found.append(f"{project} {release.version} needs torch{wanted}, not {torch}")
    if python and not release.python.contains(python, prereleases=True):
        found.append(f"{project} {release.version} needs Python {release.python}, not {python}")
    return tuple(found)


def conflicts() -> tuple[str, ...]:
    """Return which newest releases do not go together, in words."""
    return tuple(
        f"{name} {library.release.version} needs {needed}{wanted}, and the newest is {other.release.version}"
        for name, library in domain_libraries().items()
        for needed, wanted in library.release.needs.items()
        if (other := domain_libraries().get(needed)) and other.release.version not in wanted
    )


def show_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
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
    for name, library in domain_libraries().items():
        rows.append(
            (
                name,
                library.state.now,
                str(library.release.version),
                str(library.release.python),
                " ".join(f"{needed}{wanted}" for needed, wanted in library.release.needs.items()),
                library.code,
                library.origin.text,
                library.state.note,
                library.state.kind,
                domain_table().sources[library.state.source].url,
            )
        )
    return header, rows
