"""Sizes on the command line: ``50G``, ``500M``, ``1.5T``, or bytes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

if TYPE_CHECKING:
    _Base = click.ParamType[int]
else:
    _Base = click.ParamType  # not generic before click 8.2


class Size(_Base):
    """A size in bytes once it is read; units are powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; click's own error for anything else."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", str(value), re.IGNORECASE)
        if match is None:
            self.fail(f"{value!r} is not a size: 500M, 50G, 1.5T", param, ctx)
        return int(float(match[1]) * (1 << _UNITS[match[2].lower()]))
