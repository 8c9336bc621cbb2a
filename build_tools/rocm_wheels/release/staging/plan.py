"""Which files a set is made of, and its document: all follows from wheels, lock and when it was begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from rocm_wheels.index.entries import METADATA_SUFFIX
from rocm_wheels.model.gfx import get_gfx_families
from rocm_wheels.model.lock import Lock
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.pages import make_set_pages
from rocm_wheels.release.sets import SetLayout, SetDocument, make_set_id
from rocm_wheels.release.staging.belonging import find_sources
from rocm_wheels.release.staging.cells import plan_cells
from rocm_wheels.release.staging.checks import StageSubject, check_family, check_set, find_set_version
from rocm_wheels.release.staging.wheel import StagedWheel, read_staged_wheels


@dataclass(frozen=True)
class StagePlan:
    """A set that is to be staged; ``when`` is the time at which the store says that it was begun."""

    paths: FamilyPaths
    wheels: Sequence[StagedWheel]
    document: SetDocument  # as it will be, without that time
    locks: Mapping[str, bytes]  # by their paths beside the document

    @property
    def wheel_bytes(self) -> int:
        """The size of all wheels together."""
        return sum(wheel.file.size for wheel in self.wheels)

    @property
    def index(self) -> str:
        """The path of the set's index."""
        return f"{self.paths.set_index(self.document.id)}/"

    def list_files(self) -> Mapping[str, bytes | Path]:
        """Return the immutable files by their paths: wheels, with their METADATA beside (PEP 658)."""
        files: dict[str, bytes | Path] = {}
        for wheel in self.wheels:
            path = self.paths.wheel_file(wheel.file.sha256, wheel.file.name)
            files[path] = wheel.path
            files[path + METADATA_SUFFIX] = wheel.metadata
        return files

    def make_pages(self, when: str) -> Mapping[str, bytes]:
        """Return the locks and the pages of the set, which belong to it alone."""
        folder = self.paths.set_index(self.document.id)
        pages = make_set_pages(folder, self.paths, ((file, when) for file in self.document.files))
        set_folder = self.paths.set_folder(self.document.id)
        return {**{f"{set_folder}/{name}": text for name, text in self.locks.items()}, **pages}

    def finish_document(self, when: str) -> SetDocument:
        """Return the document as it will be."""
        return self.document.model_copy(update={"created": when})


def plan_stage(
    wheels: Sequence[Path],
    locks: Sequence[Lock],
    *,
    paths: FamilyPaths,
    layout: SetLayout,
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
    check_family(paths.family, layout)
    staged_wheels = sorted(read_staged_wheels(wheels), key=lambda wheel: wheel.file.name)
    set_version = find_set_version(staged_wheels, version)
    sources, staged_wheels = find_sources(locks, staged_wheels, layout, renamed)
    check_set(StageSubject(staged_wheels, sources, paths.family, layout))
    if layout == "per-family":
        staged_wheels = [
            wheel.restrict_to_targets(get_gfx_families()[paths.family]) for wheel in staged_wheels
        ]
    cells = plan_cells(sources, paths.family, layout, staged_wheels, targets)
    files = tuple(wheel.file for wheel in staged_wheels)
    set_locks = sources.list_set_locks()
    document = SetDocument(
        schema=2 if sources.has_several else 1,
        id=make_set_id(set_version, ((file.name, file.sha256) for file in files), sources.digest),
        created="",
        version=set_version,
        rocm=None if sources.has_several else sources.all[0].rocm,
        family=paths.family,
        layout=layout,
        files=files,
        lock=None if sources.has_several else set_locks[0],
        locks=set_locks if sources.has_several else (),
        origin=origin,
        planned=cells.planned,
        missing=cells.missing,
    )
    return StagePlan(paths, staged_wheels, document, sources.list_lock_files())
