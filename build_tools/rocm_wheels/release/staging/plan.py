"""Which files a set is made of, and its document: all follows from wheels, lock and when it was begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from rocm_wheels.index.entries import METADATA_SUFFIX
from rocm_wheels.model.gfx import gfx_families
from rocm_wheels.model.lock import Lock
from rocm_wheels.release.layout import Places
from rocm_wheels.release.pages import index_pages
from rocm_wheels.release.sets import Kind, SetDocument, set_id
from rocm_wheels.release.staging.belonging import find_sources
from rocm_wheels.release.staging.cells import plan_cells
from rocm_wheels.release.staging.checks import Subject, check_family, check_set, version_of
from rocm_wheels.release.staging.wheel import StagedWheel, read_wheels


@dataclass(frozen=True)
class StagePlan:
    """A set that is to be staged; ``when`` is the time at which the store says that it was begun."""

    places: Places
    wheels: Sequence[StagedWheel]
    document: SetDocument  # as it will be, without that time
    locks: Mapping[str, bytes]  # by their paths beside the document

    @property
    def bytes_of_wheels(self) -> int:
        """The size of all wheels together."""
        return sum(wheel.file.size for wheel in self.wheels)

    @property
    def index(self) -> str:
        """The path of the set's index."""
        return f"{self.places.index(self.document.id)}/"

    def files(self) -> Mapping[str, bytes | Path]:
        """Return the immutable files by their paths: wheels, with their METADATA beside (PEP 658)."""
        found: dict[str, bytes | Path] = {}
        for wheel in self.wheels:
            path = self.places.file(wheel.file.sha256, wheel.file.name)
            found[path] = wheel.path
            found[path + METADATA_SUFFIX] = wheel.metadata
        return found

    def pages(self, when: str) -> Mapping[str, bytes]:
        """Return the locks and the pages of the set, which belong to it alone."""
        folder = self.places.index(self.document.id)
        pages = index_pages(folder, self.places, ((file, when) for file in self.document.files))
        own = self.places.set_folder(self.document.id)
        return {**{f"{own}/{name}": text for name, text in self.locks.items()}, **pages}

    def finished(self, when: str) -> SetDocument:
        """Return the document as it will be."""
        return self.document.model_copy(update={"created": when})


def plan_stage(
    wheels: Sequence[Path],
    locks: Sequence[Lock],
    *,
    places: Places,
    layout: Kind,
    version: str | None = None,
    origin: str | None = None,
    renamed: Mapping[str, str] = MappingProxyType({}),
    targets: tuple[str, ...] = (),
) -> StagePlan:
    """Read and check the wheels and say what is to be staged. Raises ReleaseError with all that is wrong.

    ``locks`` are one, or those that variants were built from. ``renamed`` maps a ROCm in them to what it is
    called since (``7.1.0rc1`` to ``7.1.0``), for wheels that were rewritten from those of ``origin``.
    ``targets`` are those of a set that is meant for fewer than its locks.
    """
    check_family(places.family, layout)
    read = sorted(read_wheels(wheels), key=lambda wheel: wheel.file.name)
    known = version_of(read, version)
    sources, read = find_sources(locks, read, layout, renamed)
    check_set(Subject(read, sources, places.family, layout))
    if layout == "per-family":
        read = [wheel.of_family(gfx_families()[places.family]) for wheel in read]
    cells = plan_cells(sources, places.family, layout, read, targets)
    files = tuple(wheel.file for wheel in read)
    named = sources.named()
    document = SetDocument(
        schema=2 if sources.several else 1,
        id=set_id(known, ((file.name, file.sha256) for file in files), sources.digest),
        created="",
        version=known,
        rocm=None if sources.several else sources.all[0].rocm,
        family=places.family,
        layout=layout,
        files=files,
        lock=None if sources.several else named[0],
        locks=named if sources.several else (),
        origin=origin,
        planned=cells.planned,
        missing=cells.missing,
    )
    return StagePlan(places, read, document, sources.texts())
