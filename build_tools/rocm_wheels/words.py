"""Words of messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 wheel``, ``2 wheels``, ``1,234 wheels``.

    ``several`` is the noun of more than one, where that is not ``one`` with an s.
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def listed(words: Sequence[str]) -> str:
    """Return words as a choice: ``a, b or c``."""
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known word nearest to ``word``, or nothing."""
    import difflib  # only when something is wrong

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def amount(size: int | None) -> str:
    """Return a number of bytes for people: ``2.1 GB``."""
    if size is None:
        return "unknown size"
    value = float(size)
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
