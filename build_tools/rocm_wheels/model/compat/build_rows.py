"""The records of ``data/torch_builds.yaml``: torch × ROCm × index, as somebody states or packages it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pydantic import model_validator

from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.compat.versions import PythonField, SpecifierField, VersionField
from rocm_wheels.model.names import get_data_folder
from rocm_wheels.records import suggest_name, make_record_error, load_record

BUILDS_TABLE = "torch_builds.yaml"


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


class TorchBuildTable(FactTable):
    """The whole of ``data/torch_builds.yaml``."""

    triton: tuple[TritonName, ...]
    sets: Mapping[str, tuple[str, ...]]
    builds: tuple[BuildRow, ...]

    @model_validator(mode="after")
    def _known_sets(self) -> TorchBuildTable:
        for number, row in enumerate(self.builds):
            for name in row.targets.values():
                if name not in self.sets:
                    message = f"{name} is no set of targets{suggest_name(name, self.sets)}"
                    raise make_record_error(message, "builds", number, "targets")
        return self


@lru_cache
def load_build_table() -> TorchBuildTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return load_record(get_data_folder() / BUILDS_TABLE, TorchBuildTable)


def get_row_targets(row: BuildRow) -> dict[str, tuple[str, ...]]:
    """Return the targets that a row states, by platform."""
    sets = load_build_table().sets
    return {platform: sets[name] for platform, name in row.targets.items()}
