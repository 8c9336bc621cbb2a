"""What an installed package was built for, from what it says of itself and from its libraries.

torch writes ``torch/version.py`` (``hip``, ``cuda``, ``xpu``; PyTorch's tools/generate_torch_version.py);
of the others, what their libraries are linked to, then the local part of the version.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rocm_wheels.errors import DataError
from rocm_wheels.hosts.installed.distributions import InstalledDistribution
from rocm_wheels.wheels.device_code.quick import LibraryTargets, read_library_targets

BuildKind = Literal["rocm", "cuda", "xpu", "cpu", "unknown"]

MODULE_NAMES = {"pytorch-triton": "triton", "flash-attn": "flash_attn"}
_LIBRARY_FILE = re.compile(r"\.so(\.[0-9.]+)?$|\.(dll|pyd)$")
_LINKED_KINDS: tuple[tuple[BuildKind, str], ...] = (
    ("rocm", r"(lib)?(torch_hip|c10_hip|amdhip64)\b"),
    ("cuda", r"(lib)?(torch_cuda|c10_cuda|cudart)\b"),
    ("xpu", r"(lib)?(torch_xpu|c10_xpu|sycl)\b"),
)
_LABEL_KINDS: tuple[tuple[BuildKind, str], ...] = (
    ("rocm", r"rocm|hip|gfx|rocmsdk"),
    ("cuda", r"cu[0-9]"),
    ("xpu", r"xpu"),
    ("cpu", r"cpu"),
)
# in torch/version.py, and the library that only such a torch has
_VERSION_KEYS: tuple[tuple[str, BuildKind], ...] = (("hip", "rocm"), ("cuda", "cuda"), ("xpu", "xpu"))
_TORCH_LIBRARIES: tuple[tuple[str, BuildKind], ...] = (
    *(("lib/libtorch_hip.so", "rocm"), ("lib/torch_hip.dll", "rocm")),
    *(("lib/libtorch_cuda.so", "cuda"), ("lib/torch_cuda.dll", "cuda"), ("lib/libtorch_xpu.so", "xpu")),
)
_LABEL_VERSION = re.compile(r"[._]?(?:sdk)?[._]?([0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc|\.dev)[0-9]+)?)")
_MAX_LIBRARIES = 200


@dataclass(frozen=True)
class PackageBuild:
    """What a package was built for.

    ``version`` is that of ROCm (of HIP, where nothing says it) or CUDA as it was written down, "" where
    nothing says any; ``source`` is what says it, ``version_values`` are the values of its version.py.
    """

    kind: BuildKind
    version: str = ""
    source: str = ""
    version_values: dict[str, str] = field(default_factory=dict)


def find_package_folder(distribution: InstalledDistribution) -> Path | None:
    """Return the folder that is imported, None when it is not there."""
    name = distribution.name
    module = MODULE_NAMES.get(name) or ("triton" if "triton" in name else name.replace("-", "_"))
    if distribution.editable:
        roots = [distribution.editable, distribution.editable / "src", distribution.editable / "python"]
    else:
        roots = [distribution.site_folder]
    return next((root / module for root in roots if (root / module).is_dir()), None)


def detect_build(distribution: InstalledDistribution) -> PackageBuild:
    """Return what a distribution was built for."""
    package = find_package_folder(distribution)
    version_values = read_version_file(package / "version.py") if package else {}
    if distribution.name == "torch":
        return _detect_torch_build(distribution, package, version_values)
    if "triton" in distribution.name:
        return _detect_triton_build(distribution)
    for key, kind in _VERSION_KEYS:
        if version_values.get(key):
            return PackageBuild(kind, version_values[key], f"{package}/version.py", version_values)
    linked = [library for library in read_libraries(package) if library.needed] if package else []
    for kind, pattern in _LINKED_KINDS:
        for library in linked:
            if any(re.match(pattern, needed) for needed in library.needed):
                return PackageBuild(kind, _parse_label(distribution)[1], str(library.path), version_values)
    built = _make_labelled_build(distribution, version_values)
    if built.kind == "unknown" and any(
        re.match(r"lib(torch|c10)", n) for linked_library in linked for n in linked_library.needed
    ):
        return PackageBuild("cpu", "", str(linked[0].path), version_values)
    return built


def read_version_file(path: Path) -> dict[str, str]:
    """Return the texts that a version.py assigns to names: nothing is run. {} when it cannot be read."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    values = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            values.update({target.id: node.value.value for target in targets if isinstance(target, ast.Name)})
    return values


def read_libraries(package: Path) -> Iterator[LibraryTargets]:
    """Read the tables of the libraries at the top of a package and in its ``lib`` folder."""
    files = [file for folder in (package, package / "lib") if folder.is_dir() for file in folder.iterdir()]
    for path in sorted(files)[:_MAX_LIBRARIES]:
        if _LIBRARY_FILE.search(path.name) and path.is_file():
            try:
                yield read_library_targets(path)
            except DataError:
                continue  # what is wrong with it is ``kernels``' to say


def _detect_torch_build(
    distribution: InstalledDistribution, package: Path | None, version_values: dict[str, str]
) -> PackageBuild:
    if package is None:
        return _make_labelled_build(distribution, version_values)
    for key, kind in _VERSION_KEYS:
        if version_values.get(key):
            number = version_values[key]
            if kind == "rocm":  # HIP counts on its own: torch 2.13.0+rocm10.0.0 has HIP 7.15
                number = version_values.get("rocm") or _parse_label(distribution)[1] or number
            return PackageBuild(kind, number, f"{package}/version.py", version_values)
    for name, kind in _TORCH_LIBRARIES:
        if (package / name).exists():
            return PackageBuild(kind, "", str(package / name), version_values)
    return (
        PackageBuild("cpu", "", f"{package}/version.py", version_values)
        if version_values
        else _make_labelled_build(distribution, version_values)
    )


def _detect_triton_build(distribution: InstalledDistribution) -> PackageBuild:
    if distribution.name.endswith("-rocm"):
        return PackageBuild("rocm", "", f"name {distribution.name}")
    if distribution.name.endswith("-xpu"):
        return PackageBuild("xpu", "", f"name {distribution.name}")
    return _make_labelled_build(distribution, {})


def _make_labelled_build(distribution: InstalledDistribution, version_values: dict[str, str]) -> PackageBuild:
    kind, version = _parse_label(distribution)
    return PackageBuild(
        kind, version, f"version {distribution.version}" if kind != "unknown" else "", version_values
    )


def _parse_label(distribution: InstalledDistribution) -> tuple[BuildKind, str]:
    """Return what the local part of a version says: ``rocm7.1`` → ROCm 7.1, ``cu128`` → CUDA 12.8."""
    label = distribution.label
    for kind, pattern in _LABEL_KINDS:
        if match := re.search(pattern, label):
            numbers = _LABEL_VERSION.match(label[match.end() :])
            if kind == "cuda" and (digits := re.search(r"cu([0-9]+)([0-9])\b", label)):
                return kind, f"{digits[1]}.{digits[2]}"
            return kind, numbers[1] if numbers and kind == "rocm" else ""
    return "unknown", ""
