"""Read GPUs from the topology of the amdgpu kernel driver: files, so no ROCm and no program is needed.

``/sys/class/kfd/kfd/topology/nodes/N/properties`` has one ``key value`` a line; processors are nodes too.
The runtime leaves a node out whose ``/dev/dri/renderD*`` it may not open (libhsakmt, topology.c): that is
how a container sees only some of the cards, although all are listed. It numbers nodes by their folder's
number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class _KfdNode:
    folder: Path
    values: Mapping[str, int]
    reachable: bool = True


def read_topology(root: Path) -> KfdTopology:
    """Read the GPUs from the files below ``root``, in the order of the nodes; never raises."""
    topology = KfdTopology(present=os.path.isdir(root / TOPOLOGY_NODES))  # noqa: PTH112 - closed folders are none
    nodes = _mark_missing_devices(list(_read_nodes(root, topology)), root, topology)
    user_number = 0
    for node in nodes:
        # a processor is a node without SIMD units; NVIDIA's driver can make nodes for its cards, too
        if (
            node.values.get("simd_count", 0) > 0
            and node.values.get("vendor_id", _AMD_VENDOR_ID) == _AMD_VENDOR_ID
        ):
            index = sum(gpu.index is not None for gpu in topology.gpus) if node.reachable else None
            topology.gpus.append(_make_gpu(node, index, topology.faults))
            topology.nodes.append(user_number)
        user_number += node.reachable
    return topology


def _read_nodes(root: Path, topology: KfdTopology) -> Iterator[_KfdNode]:
    try:
        folders = [path for path in (root / TOPOLOGY_NODES).iterdir() if path.name.isdecimal()]
    except OSError as cause:
        if topology.present:
            topology.faults.append(f"/{TOPOLOGY_NODES} cannot be read: {cause.strerror}")
        return
    closed: dict[str, list[str]] = {}
    for folder in sorted(folders, key=lambda path: int(path.name)):
        values = _read_values(folder / "properties")
        if isinstance(values, str):  # a scheduler gave this GPU to somebody else; its node stays in the list
            closed.setdefault(values, []).append(folder.name)
        elif values:
            yield _KfdNode(folder, values)
    for why, names in closed.items():
        nodes = f"node {names[0]}" if len(names) == 1 else f"nodes {', '.join(names)}"
        topology.faults.append(f"{nodes} of the amdgpu driver: closed to this process ({why})")


def _read_values(path: Path) -> dict[str, int] | str:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as cause:
        return cause.strerror or str(cause)
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and _UNSIGNED.fullmatch(pair[1])}


def _mark_missing_devices(nodes: list[_KfdNode], root: Path, topology: KfdTopology) -> list[_KfdNode]:
    """Mark the nodes whose device file is not here, where others' are."""
    minors = {index: node.values.get("drm_render_minor", 0) for index, node in enumerate(nodes)}
    gpus = [index for index, minor in minors.items() if minor]
    device_names = _list_names(root / "dev/dri")
    missing = [index for index in gpus if f"renderD{minors[index]}" not in device_names]
    if gpus and len(missing) == len(gpus):
        # an image is often built without the devices that it runs with later: the cards are there
        topology.faults.append(
            f"{NO_DEVICE_FILES} (/dev/dri/renderD{minors[gpus[0]]}): no program can use "
            "them; a container needs --device=/dev/kfd --device=/dev/dri"
        )
        return nodes
    return [_KfdNode(node.folder, node.values, index not in missing) for index, node in enumerate(nodes)]


def _make_gpu(node: _KfdNode, index: int | None, faults: list[str]) -> Gpu:
    values = node.values
    number = values.get("gfx_target_version", 0)
    vendor = f"{values.get('vendor_id', _AMD_VENDOR_ID):04x}"
    pci_id = f"{vendor}:{values['device_id']:04x}" if "device_id" in values else None
    entry = find_pci_entry(pci_id)
    name = read_text(node.folder / "name")
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
        index=index,
        visible=node.reachable,
        hidden_by=""
        if node.reachable
        else f"/dev/dri/renderD{values.get('drm_render_minor')}, which is not here",
        simd_count=values["simd_count"],
        memory=_read_memory(node.folder),
        node=name,
    )
    if gpu.gfx is None:
        version_text = f"gfx_target_version {number}" if number else "no gfx_target_version"
        faults.append(f"node {node.folder.name} of the amdgpu driver is a GPU with {version_text}")
    return gpu


def _describe_partition(values: Mapping[str, int]) -> tuple[str, ...]:
    partition = (
        values.get("location_id", 0) >> 28
    )  # kfd_topology.c: where a card is divided, its part's number
    return (f"part {partition} of a divided card",) if partition else ()


def _read_memory(folder: Path) -> int | None:
    """Return the bytes of the GPU's own memory, None when the driver does not say."""
    total = 0
    try:
        banks = list((folder / "mem_banks").iterdir())
    except OSError:
        return None
    for bank in banks:
        values = _read_values(bank / "properties")
        if isinstance(values, dict) and values.get("heap_type") in _FRAME_BUFFER:
            total += values.get("size_in_bytes", 0)
    return total or None


def _list_names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()
