"""The records of ``data/torch_builds.yaml``: torch × ROCm × index, as somebody states or packages it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pydantic import model_validator

from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.compat.versions import PythonField, SpecifierField, VersionField
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import did_you_mean, fault, load

TABLE = "torch_builds.yaml"


class BuildRow(Fact):
    """A torch made with a ROCm. ``targets`` names a set by platform; none: what the index serves."""

    index: str
    torch: VersionField
    rocm: VersionField
    pythons: tuple[PythonField, ...]
    targets: Mapping[str, str] = {}
    companions: Mapping[str, VersionField] = {}


class TritonName(Fact):
    """What the triton is called that torch of an index requires."""

    layouts: tuple[str, ...]
    platforms: tuple[str, ...]
    torch: SpecifierField
    name: str


class BuildTable(FactTable):
    """The whole of ``data/torch_builds.yaml``."""

    triton: tuple[TritonName, ...]
    sets: Mapping[str, tuple[str, ...]]
    builds: tuple[BuildRow, ...]

    @model_validator(mode="after")
    def _known_sets(self) -> BuildTable:
        for number, row in enumerate(self.builds):
            for name in row.targets.values():
                if name not in self.sets:
                    said = f"{name} is no set of targets{did_you_mean(name, self.sets)}"
                    raise fault(said, "builds", number, "targets")
        return self


@lru_cache
def build_table() -> BuildTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return load(data_folder() / TABLE, BuildTable)


def targets_of_row(row: BuildRow) -> dict[str, tuple[str, ...]]:
    """Return the targets that a row states, by platform."""
    sets = build_table().sets
    return {platform: sets[name] for platform, name in row.targets.items()}
