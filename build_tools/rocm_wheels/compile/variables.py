"""How a variable that may hold the user's own words is extended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.model.project import Platform


def look_up_variable(env: Mapping[str, str], name: str) -> str | None:
    """Return a variable that a Windows program set: Python gives all names there in capitals."""
    return env.get(name) or env.get(name.upper()) or None


def add_flags(env: dict[str, str], name: str, flags: str) -> None:
    """Put compiler flags before the user's own, which then have the last word."""
    env[name] = f"{flags} {env.get(name, '')}".strip()


def prepend_path(env: dict[str, str], name: str, folder: Path, platform: Platform) -> None:
    """Put a folder before what a search path holds already; the separator is the platform's."""
    separator = ";" if platform == "windows" else ":"
    rest = [part for part in env.get(name, "").split(separator) if part and part != os.fspath(folder)]
    env[name] = separator.join([os.fspath(folder), *rest])
