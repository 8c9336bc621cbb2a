"""What GPUs and which ROCm a machine has, by the kernel driver's and ROCm's own files.

Nothing is run and nothing is loaded: an installer asks while the user waits, often on a machine without ROCm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .names import chip_of, read_name

FORCE_CHIPS = "ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH"
FORCE_ROCM = "ROCM_VARIANT_PROVIDER_FORCE_ROCM_VERSION"
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
_NONE = "none"
_NODES = "sys/class/kfd/kfd/topology/nodes"
_VERSION = re.compile(r"\s*([0-9]+)\.([0-9]+)(?![0-9])")


@dataclass(frozen=True)
class Machine:
    """The GPUs by name, the one with the most compute units first; ROCm as major.minor, None without."""

    chips: tuple[str, ...] = ()
    rocm_version: str | None = None


def detect(env: Mapping[str, str], root: Path) -> Machine:
    """Look at the machine whose files are below ``root``. ValueError for a variable that cannot be read."""
    return Machine(_chips(env, root), _rocm_version(env, root))


def _chips(env: Mapping[str, str], root: Path) -> tuple[str, ...]:
    forced = env.get(FORCE_CHIPS, "").strip()
    if forced.lower() == _NONE:
        return ()
    if forced:
        words = [word for word in re.split(r"[,;\s]+", forced) if word]
        return tuple(dict.fromkeys(_named(word, FORCE_CHIPS) for word in words))
    found: dict[str, int] = {}
    for node in _nodes(root):
        name = chip_of(node.get("gfx_target_version", 0))
        if name and node.get("simd_count", 0) > 0:  # a CPU is a node without SIMD units
            found[name] = max(found.get(name, 0), node["simd_count"])
    override = env.get(OVERRIDE, "").strip()
    if found and override:
        return (_overridden(override),)
    # a graphics unit inside the CPU is often the first node, and is never what a big wheel is wanted for
    return tuple(sorted(found, key=lambda name: (-found[name], list(found).index(name))))


def _named(word: str, variable: str) -> str:
    try:
        return read_name(word)
    except ValueError as cause:
        raise ValueError(f"{variable}: {cause}") from None


def _overridden(text: str) -> str:
    parts = text.split(".")
    if len(parts) == 3 and all(part.isdecimal() and len(part) < 3 for part in parts):
        name = chip_of(int(parts[0]) * 10000 + int(parts[1]) * 100 + int(parts[2]))
        if name:
            return name
    raise ValueError(f"{OVERRIDE}: {text!r} is not a version such as 11.0.0")


def _nodes(root: Path) -> list[dict[str, int]]:
    """Return the nodes of the driver's topology in the order of their numbers; [] without a driver."""
    try:
        folders = [path for path in (root / _NODES).iterdir() if path.name.isdecimal()]
    except OSError:
        return []  # no amdgpu driver, or not Linux
    found = []
    for folder in sorted(folders, key=lambda path: int(path.name)):
        try:
            text = (folder / "properties").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # a container may see a node that it must not use
        pairs = [line.split() for line in text.splitlines()]
        found.append({pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()})
    return found


def _rocm_version(env: Mapping[str, str], root: Path) -> str | None:
    forced = env.get(FORCE_ROCM, "").strip()
    if forced.lower() == _NONE:
        return None
    if forced:
        version = _VERSION.match(forced)
        if not version:
            raise ValueError(f"{FORCE_ROCM}: {forced!r} is not a version such as 7.2")
        return f"{int(version[1])}.{int(version[2])}"
    # who sets ROCM_PATH means that ROCm, and not another one that happens to be in /opt
    place = Path(env["ROCM_PATH"]) if env.get("ROCM_PATH") else root / "opt" / "rocm"
    try:
        version = _VERSION.match((place / ".info" / "version").read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None
    return f"{int(version[1])}.{int(version[2])}" if version else None
