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
from rocm_wheels.hosts.installed.distributions import Distribution
from rocm_wheels.wheels.device_code.quick import Library, read_library

Kind = Literal["rocm", "cuda", "xpu", "cpu", "unknown"]

PACKAGES = {"pytorch-triton": "triton", "flash-attn": "flash_attn"}
_LIBRARY = re.compile(r"\.so(\.[0-9.]+)?$|\.(dll|pyd)$")
_OF_KIND: tuple[tuple[Kind, str], ...] = (
    ("rocm", r"(lib)?(torch_hip|c10_hip|amdhip64)\b"),
    ("cuda", r"(lib)?(torch_cuda|c10_cuda|cudart)\b"),
    ("xpu", r"(lib)?(torch_xpu|c10_xpu|sycl)\b"),
)
_LABELS: tuple[tuple[Kind, str], ...] = (
    ("rocm", r"rocm|hip|gfx|rocmsdk"),
    ("cuda", r"cu[0-9]"),
    ("xpu", r"xpu"),
    ("cpu", r"cpu"),
)
# in torch/version.py, and the library that only such a torch has
_SAYS: tuple[tuple[str, Kind], ...] = (("hip", "rocm"), ("cuda", "cuda"), ("xpu", "xpu"))
_HAS: tuple[tuple[str, Kind], ...] = (
    *(("lib/libtorch_hip.so", "rocm"), ("lib/torch_hip.dll", "rocm")),
    *(("lib/libtorch_cuda.so", "cuda"), ("lib/torch_cuda.dll", "cuda"), ("lib/libtorch_xpu.so", "xpu")),
)
_NUMBER = re.compile(r"[._]?(?:sdk)?[._]?([0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc|\.dev)[0-9]+)?)")
_MOST_LIBRARIES = 200


@dataclass(frozen=True)
class Build:
    """What a package was built for.

    ``version`` is that of ROCm (of HIP, where nothing says it) or CUDA as it was written down, "" where
    nothing says any; ``source`` is what says it, ``said`` are the values of its version.py.
    """

    kind: Kind
    version: str = ""
    source: str = ""
    said: dict[str, str] = field(default_factory=dict)


def package_of(distribution: Distribution) -> Path | None:
    """Return the folder that is imported, None when it is not there."""
    name = distribution.name
    module = PACKAGES.get(name) or ("triton" if "triton" in name else name.replace("-", "_"))
    if distribution.editable:
        roots = [distribution.editable, distribution.editable / "src", distribution.editable / "python"]
    else:
        roots = [distribution.place]
    return next((root / module for root in roots if (root / module).is_dir()), None)


def build_of(distribution: Distribution) -> Build:
    """Return what a distribution was built for."""
    package = package_of(distribution)
    said = read_version_file(package / "version.py") if package else {}
    if distribution.name == "torch":
        return _torch(distribution, package, said)
    if "triton" in distribution.name:
        return _triton(distribution)
    for key, kind in _SAYS:
        if said.get(key):
            return Build(kind, said[key], f"{package}/version.py", said)
    linked = [library for library in libraries_of(package) if library.needed] if package else []
    for kind, pattern in _OF_KIND:
        for library in linked:
            if any(re.match(pattern, needed) for needed in library.needed):
                return Build(kind, _labelled(distribution)[1], str(library.path), said)
    built = _by_label(distribution, said)
    if built.kind == "unknown" and any(re.match(r"lib(torch|c10)", n) for one in linked for n in one.needed):
        return Build("cpu", "", str(linked[0].path), said)
    return built


def read_version_file(path: Path) -> dict[str, str]:
    """Return the texts that a version.py assigns to names: nothing is run. {} when it cannot be read."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update({target.id: node.value.value for target in targets if isinstance(target, ast.Name)})
    return found


def libraries_of(package: Path) -> Iterator[Library]:
    """Read the tables of the libraries at the top of a package and in its ``lib`` folder."""
    files = [one for folder in (package, package / "lib") if folder.is_dir() for one in folder.iterdir()]
    for path in sorted(files)[:_MOST_LIBRARIES]:
        if _LIBRARY.search(path.name) and path.is_file():
            try:
                yield read_library(path)
            except DataError:
                continue  # what is wrong with it is ``kernels``' to say


def _torch(distribution: Distribution, package: Path | None, said: dict[str, str]) -> Build:
    if package is None:
        return _by_label(distribution, said)
    for key, kind in _SAYS:
        if said.get(key):
            number = said[key]
            if kind == "rocm":  # HIP counts on its own: torch 2.13.0+rocm10.0.0 has HIP 7.15
                number = said.get("rocm") or _labelled(distribution)[1] or number
            return Build(kind, number, f"{package}/version.py", said)
    for name, kind in _HAS:
        if (package / name).exists():
            return Build(kind, "", str(package / name), said)
    return Build("cpu", "", f"{package}/version.py", said) if said else _by_label(distribution, said)


def _triton(distribution: Distribution) -> Build:
    if distribution.name.endswith("-rocm"):
        return Build("rocm", "", f"name {distribution.name}")
    if distribution.name.endswith("-xpu"):
        return Build("xpu", "", f"name {distribution.name}")
    return _by_label(distribution, {})


def _by_label(distribution: Distribution, said: dict[str, str]) -> Build:
    kind, version = _labelled(distribution)
    return Build(kind, version, f"version {distribution.version}" if kind != "unknown" else "", said)


def _labelled(distribution: Distribution) -> tuple[Kind, str]:
    """Return what the local part of a version says: ``rocm7.1`` → ROCm 7.1, ``cu128`` → CUDA 12.8."""
    label = distribution.label
    for kind, pattern in _LABELS:
        if found := re.search(pattern, label):
            numbers = _NUMBER.match(label[found.end() :])
            if kind == "cuda" and (digits := re.search(r"cu([0-9]+)([0-9])\b", label)):
                return kind, f"{digits[1]}.{digits[2]}"
            return kind, numbers[1] if numbers and kind == "rocm" else ""
    return "unknown", ""
