"""List libraries of the PyTorch family: is somebody at work on one, and which torch its release goes with.

Owns ``data/domain_libraries.yaml``, whose header explains its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import Field, model_validator

from rocm_wheels.core import UsageError, load_record, make_record_error, require_pattern, suggest_name
from rocm_wheels.models.facts import Fact, FactTable, SpecifierField, VersionField
from rocm_wheels.models.project_names import get_data_folder

DOMAIN_LIBRARIES_TABLE = "domain_libraries.yaml"

LibraryState = Literal["active", "maintenance", "frozen", "retired"]
_OTHER_NAMES = ("torch", "fbgemm-gpu")


class LibraryStatus(Fact):
    """Whether somebody is at work on a library."""

    now: LibraryState


class LibraryRelease(Fact):
    """The newest release: Pythons it is for, and what it ``needs`` of torch and of the other libraries."""

    version: VersionField
    python: SpecifierField = SpecifierSet("")
    needs: Mapping[str, SpecifierField] = Field(default_factory=dict)


class LibraryOrigin(Fact):
    """Where to take a library from for torch on ROCm, in words."""

    text: str


class DomainLibrary(Fact):
    """A library; ``page``: one of the compatibility page. See the header of the table."""

    state: LibraryStatus
    release: LibraryRelease
    code: Literal["pure", "compiled"]
    files: Literal["none", "cpu", "cuda"] = "none"
    origin: LibraryOrigin = Field(alias="from")
    probe: Annotated[
        str, require_pattern(r"[a-z_]+(\.[A-Za-z_]+)+", "a name in a module: torchaudio.transforms.Vol")
    ]
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
        names = (*self.libraries, *_OTHER_NAMES)
        for name, library in self.libraries.items():
            for needed in library.release.needs:
                if needed not in names:
                    message = (
                        f"{name} needs {needed}, which the table does not have{suggest_name(needed, names)}"
                    )
                    raise make_record_error(message, "libraries", name, "release", "needs", needed)
        return self


@lru_cache
def load_domain_table() -> DomainTable:
    """Return the whole table."""
    return load_record(get_data_folder() / DOMAIN_LIBRARIES_TABLE, DomainTable)


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
        raise UsageError(
            f"nothing is known about {project}{suggest_name(project, get_domain_libraries())}",
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


def find_conflicts() -> tuple[str, ...]:
    """Return which newest releases do not go together, in words."""
    return tuple(
        (
            f"{name} {library.release.version} needs {needed}{accepted}, and the newest is "
            f"{other.release.version}"
        )
        for name, library in get_domain_libraries().items()
        for needed, accepted in library.release.needs.items()
        if (other := get_domain_libraries().get(needed)) and other.release.version not in accepted
    )


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
