"""Sets of the release area, each read once in a run: they never change."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import Requirement

from rocm_wheels.release.layout import Places
from rocm_wheels.release.promotion.pages import documents_of
from rocm_wheels.release.promotion.ties import Requires, dependencies_first, requires_of
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.stores.store import Store


class Released:
    """The sets of a family, and what their wheels require."""

    def __init__(self, store: Store, places: Places) -> None:
        self.store, self.places = store, places
        self._documents: dict[str, SetDocument] = {}
        self._requires: dict[str, Sequence[Requirement]] = {}  # by file name, which belongs to its bytes

    def learn(self, requires: Requires) -> None:
        """Take over what was read in staging, and compared when it was copied."""
        self._requires.update(requires)

    def documents(self, ids: Sequence[str]) -> list[SetDocument]:
        """Return sets by their ids. Raises ReleaseError for one that was not released."""
        new = [one for one in ids if one not in self._documents]
        self._documents.update(zip(new, documents_of(self.store, self.places, new), strict=True))
        return [self._documents[one] for one in ids]

    def in_order(self, ids: Sequence[str]) -> list[str]:
        """Return the projects of sets, dependencies first."""
        documents = self.documents(ids)
        for document in documents:
            if any(file.name not in self._requires for file in document.files):
                self._requires.update(requires_of(self.store, self.places, document))
        return dependencies_first(documents, self._requires)
