"""Sets of the release area, each read once in a run: they never change."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import Requirement

from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.promotion.pages import read_released_sets
from rocm_wheels.release.promotion.ties import RequirementsByFile, sort_by_dependencies, read_requirements
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.stores.store import Store


class ReleasedSets:
    """The sets of a family, and what their wheels require."""

    def __init__(self, store: Store, paths: FamilyPaths) -> None:
        self.store, self.paths = store, paths
        self._documents: dict[str, SetDocument] = {}
        self._requires: dict[str, Sequence[Requirement]] = {}  # by file name, which belongs to its bytes

    def add_requirements(self, requires: RequirementsByFile) -> None:
        """Take over what was read in staging, and compared when it was copied."""
        self._requires.update(requires)

    def read_documents(self, ids: Sequence[str]) -> list[SetDocument]:
        """Return sets by their ids. Raises ReleaseError for one that was not released."""
        new = [set_id for set_id in ids if set_id not in self._documents]
        self._documents.update(zip(new, read_released_sets(self.store, self.paths, new), strict=True))
        return [self._documents[set_id] for set_id in ids]

    def sort_projects(self, ids: Sequence[str]) -> list[str]:
        """Return the projects of sets, dependencies first."""
        documents = self.read_documents(ids)
        for document in documents:
            if any(file.name not in self._requires for file in document.files):
                self._requires.update(read_requirements(self.store, self.paths, document))
        return sort_by_dependencies(documents, self._requires)
