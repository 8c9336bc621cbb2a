"""Names of GPUs as values of a variant property: ``gfx942``, ``gfx11_generic``.

Source: LLVM, "User Guide for AMDGPU Backend" (processors, and which of them a generic one covers).
"""

from __future__ import annotations

import re

GENERICS = {
    "gfx9_generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9_4_generic": ("gfx942", "gfx950"),
    "gfx10_1_generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10_3_generic": ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    "gfx11_generic": (
        *("gfx1100", "gfx1101", "gfx1102", "gfx1103"),
        *("gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1154"),
    ),
    "gfx11_7_generic": ("gfx1170", "gfx1171", "gfx1172"),
    "gfx12_generic": ("gfx1200", "gfx1201"),
    "gfx12_5_generic": ("gfx1250", "gfx1251"),
    "gfx13_generic": ("gfx1310",),
}
KNOWN = (*("gfx908", "gfx90a"), *(chip for chips in GENERICS.values() for chip in chips))
ROCM_VERSIONS = [f"{major}.{minor}" for major in range(12, 5, -1) for minor in range(29, -1, -1)]
_NAME = re.compile(r"gfx[0-9a-f]{3,5}")


def generic_of(chip: str) -> str | None:
    """Return the generic target whose code runs on a chip; None when there is none, or it is not known."""
    return next((generic for generic, chips in GENERICS.items() if chip in chips), None)


def chip_of(version: int) -> str | None:
    """Return the name for the kernel's number (``90010``: ``gfx90a``), also of a chip that is new."""
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}" if major and max(minor, stepping) < 16 else None


def read_name(text: str) -> str:
    """Return a name as a value: features (``:xnack+``) off, ``-`` as ``_``. ValueError when it is none."""
    name = text.strip().split(":", 1)[0].replace("-", "_")
    if name in GENERICS or _NAME.fullmatch(name):
        return name
    raise ValueError(f"{text.strip()!r} is not the name of a GPU such as gfx942")
