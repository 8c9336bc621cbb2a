"""One variable to set, with the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VariableSetting:
    """A variable and its value. ``why`` is one sentence; ``source`` a URL that says that it works."""

    name: str
    value: str
    why: str
    source: str
