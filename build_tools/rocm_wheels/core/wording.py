"""Word messages: counts with their noun, choices, sizes, the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 wheel``, ``2 wheels``, ``1,234 wheels``.

    ``plural`` is the noun of more than one, where that is not ``noun`` with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def join_choices(words: Sequence[str]) -> str:
    """Return words as a choice: ``a, b or c``."""
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def suggest_name(word: str, names: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known word nearest to ``word``, or nothing."""
    import difflib  # only when something is wrong

    near = difflib.get_close_matches(word, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def format_size(size: int | None) -> str:
    """Return a number of bytes for people: ``2.1 GB``."""
    if size is None:
        return "unknown size"
    value = float(size)
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
