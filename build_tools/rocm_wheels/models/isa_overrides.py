"""Say which cards can run another target's kernels, and how the ROCm runtime is told to let them.

Owns ``data/isa_overrides.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pydantic import Field, model_validator

from rocm_wheels.core import load_record, make_record_error
from rocm_wheels.gpus import format_override_version
from rocm_wheels.models.facts import Fact, FactTable
from rocm_wheels.models.project_names import get_data_folder

OVERRIDES_TABLE = "isa_overrides.yaml"
OVERRIDE_VARIABLE = "HSA_OVERRIDE_GFX_VERSION"


class TargetOverride(Fact):
    """A target whose kernels a card can run. ``care`` is what is known to go wrong.

    ``risky``: not without being asked for.
    """

    target: str = Field(alias="as")
    care: str = ""
    risky: bool = False

    @property
    def version(self) -> str:
        """The value of ``HSA_OVERRIDE_GFX_VERSION``: ``10.3.0``."""
        return format_override_version(self.target)


class NodeOverride(Fact):
    """Variables that override one card alone. ``since``: the first ROCm that reads them."""

    since: str


class OverrideTable(FactTable):
    """All there is to know about overrides, by the card's own target."""

    per_node: NodeOverride
    windows: Fact
    hidden_integrated: Fact
    cards: Mapping[str, tuple[TargetOverride, ...]]
    refused: Mapping[str, tuple[TargetOverride, ...]]

    @model_validator(mode="after")
    def _same_major(self) -> OverrideTable:
        for card, options in self.cards.items():
            for option in options:
                if option.target == card or _get_major(option.target) != _get_major(card):
                    message = f"{card} cannot run kernels of {option.target}: another major version"
                    raise make_record_error(message, "cards", card, options.index(option))
        return self


@lru_cache
def load_overrides() -> OverrideTable:
    """Return the table."""
    return load_record(get_data_folder() / OVERRIDES_TABLE, OverrideTable)


def _get_major(target: str) -> str:
    return format_override_version(target).partition(".")[0]
