"""Word messages: counts with their noun, choices, sizes, durations, the name that was probably meant."""

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


def format_size(size: int | None, *, unknown: str = "unknown size") -> str:
    """Return a number of bytes for people: ``2.1 GiB``; ``unknown`` for ``None``.

    Units are powers of 1024: so are the sizes that people give (``50G``) and those that we are given
    (limits of memory, of Slurm, of /dev/shm), and one number can be compared with another.
    """
    if size is None:
        return unknown
    if size < 1024:
        return f"{size} B"
    value, units = size / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}"


def format_duration(seconds: float) -> str:
    """Return a length of time for people: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 7 min``, ``12 d``.

    Two units at most, and without what is nought of them; days from three of them on.
    """
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    rest = round(seconds)
    units = [("d", 86400), ("h", 3600), ("min", 60), ("s", 1)]
    if rest < 3 * 86400:
        del units[0]
    parts: list[tuple[int, str]] = []
    for unit, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)
