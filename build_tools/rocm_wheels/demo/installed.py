"""What an installer took: the label of a variant stays in what it installed, as ``variant.json``."""

from __future__ import annotations

import json
from pathlib import Path

from rocm_wheels.errors import DataError


def wheel_taken(environment: Path, name: str) -> str:
    """Return version and kind of an installed wheel: ``2.13.0a0 (plain wheel)``, ``… (variant null)``."""
    places = [*environment.glob("lib/python*/site-packages"), *environment.glob("Lib/site-packages")]
    found = [folder for place in places for folder in place.glob(f"{name}-*.dist-info")]
    if len(found) != 1:
        raise DataError(f"{name} was not installed once into {environment}, but {len(found)} times")
    version = found[0].name.removesuffix(".dist-info").partition("-")[2]
    document = found[0] / "variant.json"
    if not document.is_file():
        return f"{version} (plain wheel)"
    labels = json.loads(document.read_text(encoding="utf-8"))["variants"]
    return f"{version} (variant {', '.join(labels)})"
