"""Read GPUs from the topology of the amdgpu kernel driver: files, so no ROCm and no program is needed.

``/sys/class/kfd/kfd/topology/nodes/N/properties`` has one ``key value`` a line; processors are nodes too.
The runtime leaves a node out whose ``/dev/dri/renderD*`` it may not open (libhsakmt, topology.c): that is
how a container sees only some of the cards, although all are listed. It numbers nodes by their folder's
number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .gpu import Gpu, decode_target_number
from .pci import find_pci_entry, make_amd_gpu
from .pci_bus import format_slot
from .programs import read_text

TOPOLOGY_NODES = "sys/class/kfd/kfd/topology/nodes"
_AMD_VENDOR_ID = 0x1002
NO_DEVICE_FILES = "none of the GPUs' device files is here"  # how that fault begins
_UNSIGNED = re.compile("[0-9]{1,20}")
_PLACEHOLDER_NAME = "ip discovery"  # what the driver calls every card that says itself what it is made of
_FRAME_BUFFER = (1, 2)  # heap_type of a bank: memory of the GPU, reachable by the processor or not


@dataclass
class KfdTopology:
    """The GPUs of the driver, what could not be read, and whether there is such a driver at all.

    ``nodes`` is the number of each GPU among the nodes that the runtime sees, by the GPU's place in ``gpus``.
    """

    gpus: list[Gpu] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    present: bool = False


def read_topology(root: Path) -> KfdTopology:
    """Read the GPUs from the files below ``root``, in the order of the nodes; never raises."""
    topology = KfdTopology(present=os.path.isdir(root / TOPOLOGY_NODES))  # noqa: PTH112 - closed folders are none
    nodes = _read_nodes(root, topology)
    # a node whose device file is not here is none for the runtime, where others' are
    devices = {
        folder: f"/dev/dri/renderD{values['drm_render_minor']}"
        for folder, values in nodes.items()
        if values.get("drm_render_minor")
    }
    present = _list_names(root / "dev/dri")
    missing = {
        folder: device for folder, device in devices.items() if device.rpartition("/")[2] not in present
    }
    if missing and len(missing) == len(devices):
        # an image is often built without the devices that it runs with later: the cards are there
        topology.faults.append(
            f"{NO_DEVICE_FILES} ({next(iter(missing.values()))}): no program can use "
            "them; a container needs --device=/dev/kfd --device=/dev/dri"
        )
        missing = {}
    user_number = index = 0
    for folder, values in nodes.items():
        is_reachable = folder not in missing
        # a processor is a node without SIMD units; NVIDIA's driver can make nodes for its cards, too
        if values.get("simd_count", 0) > 0 and values.get("vendor_id", _AMD_VENDOR_ID) == _AMD_VENDOR_ID:
            gpu = _make_gpu(folder, values, topology.faults)
            if is_reachable:
                gpu = replace(gpu, index=index)
            else:
                gpu = replace(gpu, visible=False, hidden_by=f"{missing[folder]}, which is not here")
            index += is_reachable
            topology.gpus.append(gpu)
            topology.nodes.append(user_number)
        user_number += is_reachable
    return topology


def _read_nodes(root: Path, topology: KfdTopology) -> dict[Path, dict[str, int]]:
    """Return the values of each node that can be read, by its folder."""
    try:
        folders = [path for path in (root / TOPOLOGY_NODES).iterdir() if path.name.isdecimal()]
    except OSError as cause:
        if topology.present:
            topology.faults.append(f"/{TOPOLOGY_NODES} cannot be read: {cause.strerror}")
        return {}
    nodes: dict[Path, dict[str, int]] = {}
    closed: dict[str, list[str]] = {}
    for folder in sorted(folders, key=lambda path: int(path.name)):
        try:
            nodes[folder] = _read_values(folder / "properties")
        except OSError as cause:  # a scheduler gave this GPU to somebody else; its node stays in the list
            closed.setdefault(cause.strerror or str(cause), []).append(folder.name)
    for why, names in closed.items():
        listed = f"node {names[0]}" if len(names) == 1 else f"nodes {', '.join(names)}"
        topology.faults.append(f"{listed} of the amdgpu driver: closed to this process ({why})")
    return {folder: values for folder, values in nodes.items() if values}


def _read_values(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in path.read_text(encoding="ascii", errors="replace").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and _UNSIGNED.fullmatch(pair[1])}


def _make_gpu(folder: Path, values: Mapping[str, int], faults: list[str]) -> Gpu:
    number = values.get("gfx_target_version", 0)
    vendor = f"{values.get('vendor_id', _AMD_VENDOR_ID):04x}"
    pci_id = f"{vendor}:{values['device_id']:04x}" if "device_id" in values else None
    entry = find_pci_entry(pci_id)
    name = read_text(folder / "name")
    gpu = make_amd_gpu(
        decode_target_number(number),
        "kfd",
        pci_id=pci_id,
        name=(entry.name if entry else "") or name.replace(_PLACEHOLDER_NAME, ""),
        integrated=True if values.get("cpu_cores_count", 0) > 0 else None,
        notes=_describe_partition(values),
        address=format_slot(values.get("domain", 0), values["location_id"])
        if "location_id" in values
        else None,
        uuid=f"GPU-{values['unique_id']:016x}" if values.get("unique_id") else None,
        simd_count=values["simd_count"],
        memory=_read_memory(folder),
        node=name,
    )
    if gpu.gfx is None:
        version_text = f"gfx_target_version {number}" if number else "no gfx_target_version"
        faults.append(f"node {folder.name} of the amdgpu driver is a GPU with {version_text}")
    return gpu


def _describe_partition(values: Mapping[str, int]) -> tuple[str, ...]:
    partition = (
        values.get("location_id", 0) >> 28
    )  # kfd_topology.c: where a card is divided, its part's number
    return (f"part {partition} of a divided card",) if partition else ()


def _read_memory(folder: Path) -> int | None:
    """Return the bytes of the GPU's own memory, None when the driver does not say."""
    total = 0
    for bank in sorted(_list_names(folder / "mem_banks")):
        try:
            values = _read_values(folder / "mem_banks" / bank / "properties")
        except OSError:
            continue  # of one bank nobody knows: the others tell enough
        if values.get("heap_type") in _FRAME_BUFFER:
            total += values.get("size_in_bytes", 0)
    return total or None


def _list_names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()
