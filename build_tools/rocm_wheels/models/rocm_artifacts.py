"""Say where TheRock's builds lie, and what parts of ROCm are made of which artifacts.

Owns ``data/rocm_artifacts.yaml``, whose header explains its words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from rocm_wheels.core import Record, load_record
from rocm_wheels.models.facts import FactTable
from rocm_wheels.models.project_names import get_data_folder


class RocmPart(Record):
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


class ArtifactTable(FactTable):
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
    return load_record(get_data_folder() / "rocm_artifacts.yaml", ArtifactTable)
