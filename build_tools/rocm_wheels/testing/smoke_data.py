"""What smoke tests need of the compatibility data, as JSON: they run where rocm-wheels is not installed."""

from __future__ import annotations

import re
from typing import Any

from packaging.version import InvalidVersion, Version

from rocm_wheels.models import (
    Dtype,
    RocmLibrary,
    TargetDtype,
    find_architecture,
    find_obstacles,
    get_domain_libraries,
    get_dtypes,
    get_gfx_targets,
    get_operations,
    get_rocm_libraries,
    has_aotriton_kernels,
    list_missing_libraries,
    list_target_dtypes,
    load_dtype_table,
    strip_features,
)

_FLASH_SINCE, _FLASH_RELEASE = Version("2.8"), "0.8.2b"  # newer than that release is every torch since 2.8


def make_smoke_data(target: str | None, torch: str | None = None, rocm: str | None = None) -> dict[str, Any]:
    """Return the rows that smoke tests go through: ``dtypes``, ``libraries``, ``domains``.

    ``flash_attention`` says why torch must have it on this target; "", where it may be without.

    A row that does not concern the GPU of ``target`` says why (``not_here``); one that this torch is too old
    for, on whatever device, does too (``too_new``). ``torch`` and ``rocm`` are versions as torch says them;
    None, when they do not matter. A target that the tables do not have has rows that say so.
    """
    gfx = strip_features(target) if target else None
    return {
        "schema": 1,
        "gfx": gfx,
        "dtypes": _make_dtype_rows(gfx, _parse_version(torch), _parse_version(rocm)),
        "libraries": _make_library_rows(gfx),
        "domains": _make_domain_rows(_parse_version(torch)),
        "flash_attention": _explain_flash_attention(gfx, _parse_version(torch)),
    }


def _explain_flash_attention(gfx: str | None, torch: Version | None) -> str:
    """Say why torch must have flash attention: aotriton served these targets first, and still does."""
    if gfx is None or torch is None or torch < _FLASH_SINCE or not has_aotriton_kernels(gfx, _FLASH_RELEASE):
        return ""
    return f"aotriton has kernels for {gfx} since {get_gfx_targets()[gfx].aotriton}"


def _parse_version(text: str | None) -> Version | None:
    """Read a version; of HIP's (``7.2.26015-9428210``) what is before the build."""
    if text is None:
        return None
    try:
        return Version(text)
    except InvalidVersion:
        match = re.match(r"[0-9]+(\.[0-9]+)*", text)
        return Version(match[0]) if match else None


def _make_dtype_rows(gfx: str | None, torch: Version | None, rocm: Version | None) -> list[dict[str, Any]]:
    is_known = gfx in get_gfx_targets()
    target_dtypes = (
        {row.name: row for row in list_target_dtypes(gfx, torch=torch, rocm=rocm)} if gfx and is_known else {}
    )
    table = load_dtype_table()
    rows = []
    for name, dtype in get_dtypes().items():
        how = table.formats[dtype.format]
        tolerances = table.tolerances.get(name)
        elementwise, accumulated = (
            {"rtol": row.rtol, "atol": row.atol} if row else None
            for row in (
                tolerances.elementwise if tolerances else None,
                tolerances.accumulated if tolerances else None,
            )
        )
        for operation in how.operations if dtype.operations is None else dtype.operations:
            not_here = _why_not_here(gfx, name, dtype, operation, target_dtypes.get(name)) if gfx else ""
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
                    "not_here": not_here if is_known or not gfx else f"nothing is known about {gfx}",
                    "too_new": _why_too_new(name, dtype, torch),
                }
            )
    return rows


def _why_too_new(name: str, dtype: Dtype, torch: Version | None) -> str:
    if torch is None or dtype.since_torch is None or dtype.since_torch <= torch:
        return ""
    return f"torch has {name} since {dtype.since_torch}"


def _why_not_here(gfx: str, name: str, dtype: Dtype, operation: str, target_dtype: TargetDtype | None) -> str:
    """Say why an operation with a dtype is not for a target; nothing, when it is."""
    if gfx not in get_gfx_targets():
        return ""
    if target_dtype is None:
        since = ", ".join(
            f"{component} {version}"
            for component, version in (("torch", dtype.since_torch), ("ROCm", dtype.since_rocm))
            if version
        )
        sentence = f"{gfx} ({find_architecture(gfx)}) has no {name} here"
        return f"{sentence}; it is since {since}" if since else sentence
    if operation in target_dtype.operations:
        return ""
    library = get_operations()[operation].library
    if library and library in (excluded := get_gfx_targets()[gfx].excluded):
        why = excluded[library] or "no issue says why"
        return f"{operation} needs {library}, which is not built for {gfx}: {why}"
    note = f": {target_dtype.note}" if target_dtype.note else ""
    return f"{name} is held and converted on {gfx} ({find_architecture(gfx)}), not calculated with{note}"


def _make_library_rows(gfx: str | None) -> list[dict[str, Any]]:
    missing = (
        {api.name: api for api in list_missing_libraries(gfx)} if gfx in get_gfx_targets() and gfx else {}
    )
    return [
        {
            "id": name,
            "use": library.use,
            "file": library.therock.file if library.therock else "",
            "api": library.probe.api if library.probe else "",
            "setting": library.probe.setting if library.probe else "",
            "not_here": _why_not_built(name, library, gfx, missing[name].issue) if name in missing else "",
        }
        for name, library in get_rocm_libraries().items()
    ]


def _why_not_built(name: str, library: RocmLibrary, gfx: str | None, issue: str) -> str:
    return f"{name} is not built for {gfx}: {issue or 'no issue says why'}; {library.without.text}"


def _make_domain_rows(torch: Version | None) -> list[dict[str, Any]]:
    return [
        {
            "id": name,
            "probe": library.probe,
            "state": library.state.now,
            "code": library.code,
            "from": library.origin.text,
            "obstacles": find_obstacles(name, torch=torch),
        }
        for name, library in get_domain_libraries().items()
    ]
