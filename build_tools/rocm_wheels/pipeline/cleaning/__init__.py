"""Deleting what builds left, by kind, age, size or step: never anything that is not ours or is in use.

``find_pieces`` finds what there is, ``choose`` (pure) says what goes, ``remove`` deletes it. A piece is
renamed before it is deleted: killed in the middle, nothing that is half there looks whole, and the next
cleaning goes on.
"""

from rocm_wheels.pipeline.cleaning.pieces import DEFAULT_KINDS, KINDS, Kind, Piece, find_pieces
from rocm_wheels.pipeline.cleaning.removing import Choice, choose, in_the_way, remove

__all__ = [
    "DEFAULT_KINDS",
    "KINDS",
    "Choice",
    "Kind",
    "Piece",
    "choose",
    "find_pieces",
    "in_the_way",
    "remove",
]
