"""State what steps cost where no recorded run tells: figures, each with where it is from.

A project's are in its recipe (``costs``); ``data/estimates.yaml`` has those of the other kinds of steps, and
those of a project whose recipe states none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pydantic import Field

from rocm_wheels.core import records
from rocm_wheels.models import facts, project_names, release_lines

_GIB = 1 << 30


class StepTime(release_lines.LineFact):
    """Minutes of one core, whatever the machine, and core hours that jobs share."""

    minutes: float = Field(ge=0)
    core_hours: float = Field(default=0, ge=0)
    core_hours_per_target: float = Field(default=0, ge=0)

    def get_serial_seconds(self) -> float:
        """Return the seconds that more cores do not shorten."""
        return self.minutes * 60

    def get_core_seconds(self, targets: int) -> float:
        """Return the core seconds that jobs share."""
        return (self.core_hours + self.core_hours_per_target * targets) * 3600


class StepSize(release_lines.LineFact):
    """So many GiB, and more for each target."""

    gib: float = Field(ge=0)
    gib_per_target: float = Field(default=0, ge=0)

    def get_bytes(self, targets: int) -> int:
        """Return the size in bytes."""
        return int((self.gib + self.gib_per_target * targets) * _GIB)


class StepCosts(records.Record):
    """What one step costs. ``wheel``: the size of the wheel that comes out, where one does."""

    time: StepTime
    disk: StepSize
    memory_per_job: StepSize
    wheel: StepSize | None = None


class EstimateTable(records.Record):
    """``data/estimates.yaml``: costs by the kind of a step; ``default``: of a project that states none.

    ``compiler_cache``: what a compiler cache of builds must be able to keep.
    """

    table: facts.TableHead | None = None
    steps: Mapping[str, StepCosts]
    default: StepCosts
    compiler_cache: StepSize


@lru_cache
def load_estimate_table() -> EstimateTable:
    """Return the table of steps."""
    return records.load_record(project_names.get_data_folder() / "estimates.yaml", EstimateTable)
