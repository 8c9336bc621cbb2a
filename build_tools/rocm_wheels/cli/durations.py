"""Lengths of time on the command line: ``90m``, ``1.5h``, ``7d``, ``30s``, or seconds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


if TYPE_CHECKING:
    _Base = click.ParamType[float]
else:
    _Base = click.ParamType  # not generic before click 8.2


class Duration(_Base):
    """A length of time, in seconds once it is read."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it; click's own error for anything else, and for nothing at all."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w|)\s*", str(value))
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is not a length of time: 30s, 90m, 6h, 7d", param, ctx)
        return float(match[1]) * _UNITS[match[2]]
