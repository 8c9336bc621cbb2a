"""What an installer took: the label of a variant stays in what it installed, as ``variant.json``."""

from __future__ import annotations

import json
from pathlib import Path

from rocm_wheels.errors import DataError


def describe_installed_wheel(environment: Path, name: str) -> str:
    """Return version and kind of an installed wheel: ``2.13.0a0 (plain wheel)``, ``… (variant null)``."""
    site_packages = [*environment.glob("lib/python*/site-packages"), *environment.glob("Lib/site-packages")]
    folders = [folder for parent in site_packages for folder in parent.glob(f"{name}-*.dist-info")]
    if len(folders) != 1:
        raise DataError(f"{name} was not installed once into {environment}, but {len(folders)} times")
    version = folders[0].name.removesuffix(".dist-info").partition("-")[2]
    document = folders[0] / "variant.json"
    if not document.is_file():
        return f"{version} (plain wheel)"
    labels = json.loads(document.read_text(encoding="utf-8"))["variants"]
    return f"{version} (variant {', '.join(labels)})"
