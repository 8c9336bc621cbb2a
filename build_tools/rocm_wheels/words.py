"""Words of messages."""

from __future__ import annotations


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 wheel``, ``2 wheels``, ``1,234 wheels``.

    ``several`` is the noun of more than one, where that is not ``one`` with an s.
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
