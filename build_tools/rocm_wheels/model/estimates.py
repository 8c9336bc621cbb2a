"""What steps cost where no recorded run tells: stated figures, each with where it is from.

Owns ``data/estimates.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pydantic import Field

from rocm_wheels.model.line_facts import Fact
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import Record, load

_GIB = 1 << 30


class Time(Fact):
    """Minutes of one core, whatever the machine, and core hours that jobs share."""

    minutes: float = Field(ge=0)
    core_hours: float = Field(default=0, ge=0)
    core_hours_per_target: float = Field(default=0, ge=0)

    def serial(self) -> float:
        """Return the seconds that more cores do not shorten."""
        return self.minutes * 60

    def work(self, targets: int) -> float:
        """Return the core seconds that jobs share."""
        return (self.core_hours + self.core_hours_per_target * targets) * 3600


class Size(Fact):
    """So many GiB, and more for each target."""

    gib: float = Field(ge=0)
    gib_per_target: float = Field(default=0, ge=0)

    def bytes(self, targets: int) -> int:
        """Return the size in bytes."""
        return int((self.gib + self.gib_per_target * targets) * _GIB)


class Costs(Record):
    """What one step costs. ``wheel``: the size of the wheel that comes out, where one does."""

    time: Time
    disk: Size
    memory_per_job: Size
    wheel: Size | None = None


class _Table(Record):
    steps: Mapping[str, Costs]
    default: Costs


@lru_cache
def _table() -> _Table:
    return load(data_folder() / "estimates.yaml", _Table)


def costs_of(name: str) -> Costs:
    """Return the stated costs of building a project, or of another kind of step."""
    table = _table()
    return table.steps.get(name, table.default)
