"""Paths as options give them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click import Context, Parameter


class GivenPath(click.Path):
    """A path that is really given: an empty one (of a variable that is not set) is not the current folder."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(path_type=Path, file_okay=file_okay)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:
        """Return the path. Raises click's BadParameter for an empty one."""
        if not os.fspath(value):
            self.fail("the path is empty; is a variable not set?", param, ctx)
        return super().convert(value, param, ctx)
