"""Which files a set is made of, and its document: all follows from wheels, lock and when it was begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.index.entries import METADATA_SUFFIX
from rocm_wheels.model.lock import Lock
from rocm_wheels.release.layout import LOCK, Places
from rocm_wheels.release.pages import index_pages
from rocm_wheels.release.sets import Kind, SetDocument, SetLock, set_id
from rocm_wheels.release.staging.cells import plan_cells
from rocm_wheels.release.staging.checks import Subject, check_family, check_set, version_of
from rocm_wheels.release.staging.wheel import StagedWheel, read_wheels
from rocm_wheels.sources.lock.file import lock_digest, lock_text


@dataclass(frozen=True)
class StagePlan:
    """A set that is to be staged; ``when`` is the time at which the store says that it was begun."""

    places: Places
    wheels: Sequence[StagedWheel]
    document: SetDocument  # as it will be, without that time
    lock_text: bytes

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
        """Return the lock and the pages of the set, which belong to it alone."""
        folder = self.places.index(self.document.id)
        pages = index_pages(folder, self.places, ((file, when) for file in self.document.files))
        return {self.places.lock(self.document.id): self.lock_text, **pages}

    def finished(self, when: str) -> SetDocument:
        """Return the document as it will be."""
        return self.document.model_copy(update={"created": when})


def plan_stage(
    wheels: Sequence[Path],
    lock: Lock,
    *,
    places: Places,
    layout: Kind,
    version: str | None = None,
    origin: str | None = None,
) -> StagePlan:
    """Read and check the wheels and say what is to be staged. Raises ReleaseError with all that is wrong."""
    check_family(places.family, layout)
    read = sorted(read_wheels(wheels), key=lambda wheel: wheel.file.name)
    known = version_of(read, version)
    check_set(Subject(read, lock, places.family, layout))
    cells = plan_cells(lock, places.family, layout, read)
    digest = lock_digest(lock)
    files = tuple(wheel.file for wheel in read)
    document = SetDocument(
        id=set_id(known, ((file.name, file.sha256) for file in files), digest),
        created="",
        version=known,
        rocm=lock.rocm,
        family=places.family,
        layout=layout,
        files=files,
        lock=SetLock(digest=digest, path=LOCK),
        origin=origin,
        planned=cells.planned,
        missing=cells.missing,
    )
    return StagePlan(places, read, document, lock_text(lock).encode("utf-8"))
