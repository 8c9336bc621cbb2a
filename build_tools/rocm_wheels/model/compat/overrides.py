"""Which cards can run another target's kernels, and how the ROCm runtime is told to let them.

Owns ``data/isa_overrides.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pydantic import Field, model_validator

from rocm_wheels.gpus.names import version_of
from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import fault, load

TABLE = "isa_overrides.yaml"
VARIABLE = "HSA_OVERRIDE_GFX_VERSION"


class Override(Fact):
    """A target whose kernels a card can run. ``care`` is what is known to go wrong.

    ``risky``: not without being asked for.
    """

    target: str = Field(alias="as")
    care: str = ""
    risky: bool = False

    @property
    def version(self) -> str:
        """The value of ``HSA_OVERRIDE_GFX_VERSION``: ``10.3.0``."""
        return version_of(self.target)


class PerNode(Fact):
    """Variables that override one card alone. ``since``: the first ROCm that reads them."""

    since: str


class Overrides(FactTable):
    """All there is to know about overrides, by the card's own target."""

    per_node: PerNode
    windows: Fact
    hidden_integrated: Fact
    cards: Mapping[str, tuple[Override, ...]]
    refused: Mapping[str, tuple[Override, ...]]

    @model_validator(mode="after")
    def _same_major(self) -> Overrides:
        for card, options in self.cards.items():
            for option in options:
                if option.target == card or _major(option.target) != _major(card):
                    said = f"{card} cannot run kernels of {option.target}: another major version"
                    raise fault(said, "cards", card, options.index(option))
        return self


@lru_cache
def overrides() -> Overrides:
    """Return the table."""
    return load(data_folder() / TABLE, Overrides)


def _major(target: str) -> str:
    return version_of(target).partition(".")[0]
