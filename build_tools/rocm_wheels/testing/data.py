"""What smoke tests need of the compatibility data, as JSON: they run where rocm-wheels is not installed."""

from __future__ import annotations

import re
from typing import Any

from packaging.version import InvalidVersion, Version

from rocm_wheels.model.compat.domains import domain_libraries, obstacles
from rocm_wheels.model.compat.dtype_rows import Dtype
from rocm_wheels.model.compat.dtypes import (
    TargetDtype,
    architecture_of,
    dtype_table,
    dtypes,
    dtypes_of,
    operations,
)
from rocm_wheels.model.compat.libraries import RocmLibrary, apis_without, rocm_libraries
from rocm_wheels.model.flash_attention import supported
from rocm_wheels.model.gfx import base_target, gfx_targets

_FLASH_SINCE, _FLASH_RELEASE = Version("2.8"), "0.8.2b"  # newer than that release is every torch since 2.8


def smoke_data(target: str | None, torch: str | None = None, rocm: str | None = None) -> dict[str, Any]:
    """Return the rows that smoke tests go through: ``dtypes``, ``libraries``, ``domains``.

    ``flash_attention`` says why torch must have it on this target; "", where it may be without.

    A row that does not concern the GPU of ``target`` says why (``not_here``); one that this torch is too old
    for, on whatever device, does too (``too_new``). ``torch`` and ``rocm`` are versions as torch says them;
    None, when they do not matter. A target that the tables do not have has rows that say so.
    """
    gfx = base_target(target) if target else None
    return {
        "schema": 1,
        "gfx": gfx,
        "dtypes": _dtype_rows(gfx, _version(torch), _version(rocm)),
        "libraries": _library_rows(gfx),
        "domains": _domain_rows(_version(torch)),
        "flash_attention": _flash_attention(gfx, _version(torch)),
    }


def _flash_attention(gfx: str | None, torch: Version | None) -> str:
    """Say why torch must have flash attention: aotriton served these targets first, and still does."""
    if gfx is None or torch is None or torch < _FLASH_SINCE or not supported(gfx, _FLASH_RELEASE):
        return ""
    return f"aotriton has kernels for {gfx} since {gfx_targets()[gfx].aotriton}"


def _version(text: str | None) -> Version | None:
    """Read a version; of HIP's (``7.2.26015-9428210``) what is before the build."""
    if text is None:
        return None
    try:
        return Version(text)
    except InvalidVersion:
        found = re.match(r"[0-9]+(\.[0-9]+)*", text)
        return Version(found[0]) if found else None


def _dtype_rows(gfx: str | None, torch: Version | None, rocm: Version | None) -> list[dict[str, Any]]:
    known = gfx in gfx_targets()
    there = {one.name: one for one in dtypes_of(gfx, torch=torch, rocm=rocm)} if gfx and known else {}
    table = dtype_table()
    rows = []
    for name, dtype in dtypes().items():
        how = table.formats[dtype.format]
        tolerances = table.tolerances.get(name)
        elementwise, accumulated = (
            {"rtol": one.rtol, "atol": one.atol} if one else None
            for one in (
                tolerances.elementwise if tolerances else None,
                tolerances.accumulated if tolerances else None,
            )
        )
        for operation in how.operations if dtype.operations is None else dtype.operations:
            not_here = _not_here(gfx, name, dtype, operation, there.get(name)) if gfx else ""
            rows.append(
                {
                    "id": f"{name}-{operation}",
                    "operation": operation,
                    "torch": dtype.torch,
                    "elements": dtype.elements,
                    "scale": dtype.scale,
                    "block": dtype.block,
                    "bits": dtype.bits,
                    "format": dtype.format,
                    "compared": how.compared,
                    "reference": how.reference,
                    "product": dtype.product or how.product,
                    "multiple": how.multiple,
                    "elementwise": elementwise,
                    "accumulated": accumulated,
                    "not_here": not_here if known or not gfx else f"nothing is known about {gfx}",
                    "too_new": _too_new(name, dtype, torch),
                }
            )
    return rows


def _too_new(name: str, dtype: Dtype, torch: Version | None) -> str:
    if torch is None or dtype.since_torch is None or dtype.since_torch <= torch:
        return ""
    return f"torch has {name} since {dtype.since_torch}"


def _not_here(gfx: str, name: str, dtype: Dtype, operation: str, there: TargetDtype | None) -> str:
    """Say why an operation with a dtype is not for a target; nothing, when it is."""
    if gfx not in gfx_targets():
        return ""
    if there is None:
        since = ", ".join(
            f"{what} {version}"
            for what, version in (("torch", dtype.since_torch), ("ROCm", dtype.since_rocm))
            if version
        )
        said = f"{gfx} ({architecture_of(gfx)}) has no {name} here"
        return f"{said}; it is since {since}" if since else said
    if operation in there.operations:
        return ""
    library = operations()[operation].library
    if library and library in (excluded := gfx_targets()[gfx].excluded):
        why = excluded[library] or "no issue says why"
        return f"{operation} needs {library}, which is not built for {gfx}: {why}"
    note = f": {there.note}" if there.note else ""
    return f"{name} is held and converted on {gfx} ({architecture_of(gfx)}), not calculated with{note}"


def _library_rows(gfx: str | None) -> list[dict[str, Any]]:
    missing = {one.name: one for one in apis_without(gfx)} if gfx in gfx_targets() and gfx else {}
    return [
        {
            "id": name,
            "use": library.use,
            "file": library.therock.file if library.therock else "",
            "api": library.probe.api if library.probe else "",
            "setting": library.probe.setting if library.probe else "",
            "not_here": _missing(name, library, gfx, missing[name].issue) if name in missing else "",
        }
        for name, library in rocm_libraries().items()
    ]


def _missing(name: str, library: RocmLibrary, gfx: str | None, issue: str) -> str:
    return f"{name} is not built for {gfx}: {issue or 'no issue says why'}; {library.without.text}"


def _domain_rows(torch: Version | None) -> list[dict[str, Any]]:
    return [
        {
            "id": name,
            "probe": library.probe,
            "state": library.state.now,
            "code": library.code,
            "from": library.origin.text,
            "obstacles": obstacles(name, torch=torch),
        }
        for name, library in domain_libraries().items()
    ]
