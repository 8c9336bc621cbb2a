"""Look at a machine: every GPU with what it was found by, every ROCm, and whatever was odd.

The order of trust: what variables state, the kernel driver's own files, ROCm's tools, the PCI bus with a
table. A tool that is missing, fails, hangs or prints rubbish is said and never stops anything.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .forced import OVERRIDE, Forced, read_forced, read_overrides
from .gpu import Gpu, Hardware
from .kfd import Topology, read_topology
from .programs import Runner, run_program
from .rocm import find_rocm
from .visible import mark_visible

_VENDORS = ("amd", "nvidia", "intel", "apple")


def look(
    env: Mapping[str, str],
    *,
    root: Path = Path("/"),
    platform: str = sys.platform,
    run: Runner = run_program,
    site_packages: Sequence[Path] = (),
) -> Hardware:
    """Return the hardware of the machine whose files are below ``root`` and whose programs ``run`` starts.

    ``platform`` is as ``sys.platform`` says it. ValueError only for a variable that states something and
    cannot be read, and for two that contradict each other; it names them.
    """
    forced = read_forced(env)
    overrides = read_overrides(env)
    rocm, faults = find_rocm(env, root=root, platform=platform, site_packages=site_packages, forced=forced)
    topology = read_topology(root)
    gpus = forced_gpus(forced) if forced.chips is not None else _posed(topology, overrides)
    gpus, odd = mark_visible(gpus, env, windows=platform == "win32")
    return Hardware(gpus=tuple(sorted(gpus, key=_rank)), rocm=rocm, faults=(*topology.faults, *odd, *faults))


def forced_gpus(forced: Forced) -> list[Gpu]:
    """Return GPUs as variables state them."""
    return [
        Gpu(
            "amd",
            chip,
            chip,
            index=index,
            source="forced",
            confidence="forced",
            notes=(f"by {forced.chips_by}",),
        )
        for index, chip in enumerate(forced.chips or ())
    ]


def _posed(topology: Topology, overrides: Mapping[int | None, str]) -> list[Gpu]:
    found = []
    for gpu, node in zip(topology.gpus, topology.nodes, strict=True):
        other = overrides.get(node, overrides.get(None))
        note = (f"{OVERRIDE} makes {gpu.native or 'it'} pose as {other}",) if other else ()
        found.append(replace(gpu, gfx=other or gpu.gfx, notes=(*gpu.notes, *note)))
    return found


def _rank(gpu: Gpu) -> tuple[object, ...]:
    known = gpu.index is not None
    return (not gpu.visible, _VENDORS.index(gpu.vendor), gpu.integrated is True, not known, gpu.index or 0)
