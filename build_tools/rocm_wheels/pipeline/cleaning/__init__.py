"""Deleting what builds left, by kind, age, size or step: never anything that is not ours or is in use.

``find_leftovers`` finds what there is, ``select_leftovers`` (pure) says what goes, ``remove_leftover`` deletes it. A piece is
renamed before it is deleted: killed in the middle, nothing that is half there looks whole, and the next
cleaning goes on.
"""

from rocm_wheels.pipeline.cleaning.pieces import (
    DEFAULT_LEFTOVER_KINDS,
    LEFTOVER_KINDS,
    LeftoverKind,
    Leftover,
    find_leftovers,
)
from rocm_wheels.pipeline.cleaning.removing import (
    LeftoverSelection,
    select_leftovers,
    hold_for_cleaning,
    remove_leftover,
)

__all__ = [
    "DEFAULT_LEFTOVER_KINDS",
    "LEFTOVER_KINDS",
    "LeftoverSelection",
    "LeftoverKind",
    "Leftover",
    "select_leftovers",
    "find_leftovers",
    "hold_for_cleaning",
    "remove_leftover",
]
