"""GPUs in the topology of the amdgpu kernel driver: files, so no ROCm and no program is needed.

``/sys/class/kfd/kfd/topology/nodes/N/properties`` has one ``key value`` a line; processors are nodes too.
The runtime leaves a node out whose ``/dev/dri/renderD*`` it may not open (libhsakmt, topology.c): that is how
a container sees only some of the cards, although all are listed. It numbers nodes by their folder's number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .gpu import Gpu
from .names import INTEGRATED, chip_of
from .pci_names import described

NODES = "sys/class/kfd/kfd/topology/nodes"
_AMD = 0x1002
NO_DEVICES = "none of the GPUs' device files is here"  # how that fault begins
_NUMBER = re.compile("[0-9]{1,20}")
_NO_NAME = "ip discovery"  # what the driver calls every card that says itself what it is made of
_FRAME_BUFFER = (1, 2)  # heap_type of a bank: memory of the GPU, reachable by the processor or not


@dataclass
class Topology:
    """The GPUs of the driver, what could not be read, and whether there is such a driver at all.

    ``nodes`` is the number of each GPU among the nodes that the runtime sees, by the GPU's place in ``gpus``.
    """

    gpus: list[Gpu] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    present: bool = False


@dataclass(frozen=True)
class _Node:
    folder: Path
    values: Mapping[str, int]
    reachable: bool = True


def read_topology(root: Path) -> Topology:
    """Read the GPUs from the files below ``root``, in the order of the nodes; never raises."""
    found = Topology(present=os.path.isdir(root / NODES))  # noqa: PTH112 - closed folders are none
    nodes = _with_devices(list(_nodes(root, found)), root, found)
    user_number = 0
    for node in nodes:
        # a processor is a node without SIMD units; NVIDIA's driver can make nodes for its cards, too
        if node.values.get("simd_count", 0) > 0 and node.values.get("vendor_id", _AMD) == _AMD:
            index = sum(gpu.index is not None for gpu in found.gpus) if node.reachable else None
            found.gpus.append(_gpu(node, index, found.faults))
            found.nodes.append(user_number)
        user_number += node.reachable
    return found


def _nodes(root: Path, found: Topology) -> Iterator[_Node]:
    try:
        folders = [path for path in (root / NODES).iterdir() if path.name.isdecimal()]
    except OSError as cause:
        if found.present:
            found.faults.append(f"/{NODES} cannot be read: {cause.strerror}")
        return
    closed: dict[str, list[str]] = {}
    for folder in sorted(folders, key=lambda path: int(path.name)):
        values = _values(folder / "properties")
        if isinstance(values, str):  # a scheduler gave this GPU to somebody else; its node stays in the list
            closed.setdefault(values, []).append(folder.name)
        elif values:
            yield _Node(folder, values)
    for why, names in closed.items():
        nodes = f"node {names[0]}" if len(names) == 1 else f"nodes {', '.join(names)}"
        found.faults.append(f"{nodes} of the amdgpu driver: closed to this process ({why})")


def _values(path: Path) -> dict[str, int] | str:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as cause:
        return cause.strerror or str(cause)
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and _NUMBER.fullmatch(pair[1])}


def _with_devices(nodes: list[_Node], root: Path, found: Topology) -> list[_Node]:
    """Mark the nodes whose device file is not here, where others' are."""
    minors = {index: node.values.get("drm_render_minor", 0) for index, node in enumerate(nodes)}
    gpus = [index for index, minor in minors.items() if minor]
    here = _names(root / "dev/dri")
    missing = [index for index in gpus if f"renderD{minors[index]}" not in here]
    if gpus and len(missing) == len(gpus):
        # an image is often built without the devices that it runs with later: the cards are there
        found.faults.append(
            f"{NO_DEVICES} (/dev/dri/renderD{minors[gpus[0]]}): no program can use "
            "them; a container needs --device=/dev/kfd --device=/dev/dri"
        )
        return nodes
    return [_Node(node.folder, node.values, index not in missing) for index, node in enumerate(nodes)]


def _gpu(node: _Node, index: int | None, faults: list[str]) -> Gpu:
    values = node.values
    number = values.get("gfx_target_version", 0)
    pci_id = (
        f"{values.get('vendor_id', _AMD):04x}:{values['device_id']:04x}" if "device_id" in values else None
    )
    entry = described(pci_id)
    chip = chip_of(number) or (entry.gfx if entry else None)
    if chip is None:
        said = f"gfx_target_version {number}" if number else "no gfx_target_version"
        faults.append(f"node {node.folder.name} of the amdgpu driver is a GPU with {said}")
    missing = not node.reachable
    return Gpu(
        vendor="amd",
        gfx=chip,
        native=chip,
        name=(entry.name if entry else "") or _text(node.folder / "name").replace(_NO_NAME, ""),
        pci_id=pci_id,
        address=_address(values),
        uuid=f"GPU-{values['unique_id']:016x}" if values.get("unique_id") else None,
        index=index,
        visible=not missing,
        hidden_by=f"/dev/dri/renderD{values.get('drm_render_minor')}, which is not here" if missing else "",
        integrated=_integrated(values, entry.integrated if entry else None, chip),
        simd_count=values["simd_count"],
        memory=_memory(node.folder),
        source="kfd",
        confidence="read" if chip_of(number) else "derived" if chip else "unknown",
        notes=(*_notes(values), *((entry.note,) if entry and entry.note and not chip_of(number) else ())),
    )


def _integrated(values: Mapping[str, int], entry: bool | None, chip: str | None) -> bool | None:
    if entry is not None:
        return entry
    if chip in INTEGRATED or values.get("cpu_cores_count", 0) > 0:
        return True
    return None


def _address(values: Mapping[str, int]) -> str | None:
    """Return the slot of a node: bus, device and function are in the low half of ``location_id``."""
    if "location_id" not in values:
        return None
    place = values["location_id"] & 0xFFFF
    return f"{values.get('domain', 0):04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"


def _notes(values: Mapping[str, int]) -> tuple[str, ...]:
    partition = (
        values.get("location_id", 0) >> 28
    )  # kfd_topology.c: where a card is divided, its part's number
    return (f"part {partition} of a divided card",) if partition else ()


def _memory(folder: Path) -> int | None:
    """Return the bytes of the GPU's own memory, None when the driver does not say."""
    total = 0
    try:
        banks = list((folder / "mem_banks").iterdir())
    except OSError:
        return None
    for bank in banks:
        values = _values(bank / "properties")
        if isinstance(values, dict) and values.get("heap_type") in _FRAME_BUFFER:
            total += values.get("size_in_bytes", 0)
    return total or None


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
