"""GPU targets for people: products, what does not exist for them, and what rocm-bootstrap says of the same.

Stands on ``model.gfx``, which owns the table.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from rocm_wheels.model.gfx import fact_of, gfx_families, gfx_targets


def targets_named(text: str) -> tuple[str, ...]:
    """Return the targets whose name, family or product holds ``text``, in the order of the table."""
    word = text.casefold().strip()
    return tuple(
        name
        for name, target in gfx_targets().items()
        if word
        and any(word in one.casefold() for one in (name, target.product, *target.families, *target.products))
    )


def show_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
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
    for name, target in gfx_targets().items():
        believed = [one for one in ("products", "wave", "fp8") if fact_of(name, one)[0].kind == "believed"]
        rows.append(
            (
                name,
                ", ".join(target.products),
                ", ".join(target.families),
                str(target.wave),
                target.fp8,
                "yes" if target.mx else "no",
                target.aotriton or "",
                ", ".join(_with_issue(*one) for one in target.excluded.items()),
                target.readiness.get("linux", ""),
                target.readiness.get("windows", ""),
                ", ".join(believed),
                fact_of(name, "families")[1].retrieved.isoformat(),
                fact_of(name, "families")[1].url,
            )
        )
    return header, rows


def _with_issue(project: str, issue: str) -> str:
    """Return ``hipBLASLt (ROCm/TheRock#1062)``, or the project alone where no issue is named."""
    short = issue.removeprefix("https://github.com/").replace("/issues/", "#")
    return f"{project} ({short})" if issue else project


def bootstrap() -> ModuleType | None:
    """Return rocm-bootstrap's table of targets, or None where the package is not installed."""
    try:
        return importlib.import_module("rocm_bootstrap.targets")
    except ModuleNotFoundError:
        return None


def against_bootstrap(module: ModuleType) -> list[str]:
    """Return where rocm-bootstrap's table of targets and ours disagree.

    Every target of ours must be one of theirs; a family of ours must not cross a sub-family of theirs
    (kinds of card aside), and ``XXX`` in its name is the version that they have (gfx110X: gfx110x).
    """
    faults = []
    groups: dict[str, str] = {}
    for name in gfx_targets():
        try:
            groups[name] = module.packaging_chain(name)[1].key
        except (ValueError, KeyError):
            faults.append(f"rocm-bootstrap does not know {name}")
    for family, members in gfx_families().items():
        if not family.startswith("gfx"):
            continue
        theirs = {groups[one] for one in members if one in groups}
        if len(theirs) > 1:
            faults.append(f"{family} holds targets of {', '.join(sorted(theirs))} of rocm-bootstrap")
    return faults
