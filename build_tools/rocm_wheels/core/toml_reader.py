"""Read TOML, with the place of what is wrong in it; each command reads a configuration file so."""

from __future__ import annotations

import re
import sys
from typing import Any

from rocm_wheels.core import errors


def parse_toml(text: str, *, name: str) -> dict[str, Any]:
    """Read TOML text; ``name`` stands for the file in messages. Raises DataError with line and column.

    What lies deeper in brackets than Python goes is none, nor are integers longer than it reads.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: dict[str, Any] = tomllib.loads(text)
        return document
    except RecursionError:
        place, problem = name, "nested too deep"
    except ValueError as cause:
        where = re.search(r"at line (\d+), column (\d+)", str(cause))
        place = f"{name}:{where[1]}:{where[2]}" if where else name
        problem = str(cause).partition(" (at ")[0]
    raise errors.DataError(f"{place}: not valid TOML: {problem}")
