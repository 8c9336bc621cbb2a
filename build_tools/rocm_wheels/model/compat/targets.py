"""GPU targets for people: products, what does not exist for them, and what rocm-bootstrap says of the same.

Stands on ``model.gfx``, which owns the table.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from rocm_wheels.model.gfx import get_attribute_fact, get_gfx_families, get_gfx_targets


def find_targets(text: str) -> tuple[str, ...]:
    """Return the targets whose name, family or product holds ``text``, in the order of the table."""
    word = text.casefold().strip()
    return tuple(
        name
        for name, target in get_gfx_targets().items()
        if word
        and any(
            word in label.casefold() for label in (name, target.product, *target.families, *target.products)
        )
    )


def tabulate_targets() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: a target a row, with how far each attribute is only believed."""
    header = (
        "target",
        "products",
        "families",
        "wave",
        "fp8",
        "mx",
        "aotriton",
        "excluded",
        "linux",
        "windows",
        "believed",
        "read",
        "source",
    )
    rows: list[tuple[str, ...]] = []
    for name, target in get_gfx_targets().items():
        believed = [
            item
            for item in ("products", "wave", "fp8")
            if get_attribute_fact(name, item)[0].kind == "believed"
        ]
        rows.append(
            (
                name,
                ", ".join(target.products),
                ", ".join(target.families),
                str(target.wave),
                target.fp8,
                "yes" if target.mx else "no",
                target.aotriton or "",
                ", ".join(_format_exclusion(*item) for item in target.excluded.items()),
                target.readiness.get("linux", ""),
                target.readiness.get("windows", ""),
                ", ".join(believed),
                get_attribute_fact(name, "families")[1].retrieved.isoformat(),
                get_attribute_fact(name, "families")[1].url,
            )
        )
    return header, rows


def _format_exclusion(project: str, issue: str) -> str:
    """Return ``hipBLASLt (ROCm/TheRock#1062)``, or the project alone where no issue is named."""
    reference = issue.removeprefix("https://github.com/").replace("/issues/", "#")
    return f"{project} ({reference})" if issue else project


def import_bootstrap() -> ModuleType | None:
    """Return rocm-bootstrap's table of targets, or None where the package is not installed."""
    try:
        return importlib.import_module("rocm_bootstrap.targets")
    except ModuleNotFoundError:
        return None


def compare_with_bootstrap(module: ModuleType) -> list[str]:
    """Return where rocm-bootstrap's table of targets and ours disagree.

    Every target of ours must be one of theirs; a family of ours must not cross a sub-family of theirs
    (kinds of card aside), and ``XXX`` in its name is the version that they have (gfx110X: gfx110x).
    """
    faults = []
    groups: dict[str, str] = {}
    for name in get_gfx_targets():
        try:
            groups[name] = module.packaging_chain(name)[1].key
        except (ValueError, KeyError):
            faults.append(f"rocm-bootstrap does not know {name}")
    for family, members in get_gfx_families().items():
        if not family.startswith("gfx"):
            continue
        their_groups = {groups[member] for member in members if member in groups}
        if len(their_groups) > 1:
            faults.append(f"{family} holds targets of {', '.join(sorted(their_groups))} of rocm-bootstrap")
    return faults
