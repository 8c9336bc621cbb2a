"""The machine that tests ran on: what a result depends on besides the wheels.

Tests write it into their results, evidence keeps it: a failure that a driver, a firmware or a CPU explains is
found by comparing two of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StringConstraints

from rocm_wheels.core import records, tables

_Word = Annotated[
    str,
    StringConstraints(max_length=300),
    records.require_pattern(r"[^\x00-\x1f\x7f]*", "one printable line"),
]
_MOST_GPUS, _MOST_WORDS = 64, 400
_VECTOR_FEATURES = ("amx", "avx", "asimd", "sve", "sme")  # by which torch and its libraries choose kernels


class TestedGpu(records.Record):
    """A GPU by what its driver says; "" and None are what nothing says.

    ``gfx``: its target. ``pci_id``: vendor:device (``1002:74a1``). ``memory`` in bytes. ``node``: what the
    driver calls it in its topology. ``firmware``: versions by name (``mec``: ``0x000000b8``).
    """

    __test__ = False  # pytest takes classes of this name for tests

    name: _Word = ""
    gfx: _Word = ""
    pci_id: _Word = ""
    address: _Word = ""
    memory: int | None = Field(default=None, ge=0)
    node: _Word = ""
    vbios: _Word = ""
    firmware: Annotated[Mapping[_Word, _Word], Field(max_length=_MOST_WORDS)] = {}


class TestedMachine(records.Record):
    """A machine. ``kernel``: ``Linux 6.8.0``; ``driver``: that of AMD's GPUs, "" without one.

    ``rocm``: the version that torch has, or that is installed. ``cpu_features``: the flags of /proc/cpuinfo.
    ``image``: of the container that the tests ran in, where that is known.
    """

    __test__ = False

    kernel: _Word = ""
    system: _Word = ""
    driver: _Word = ""
    rocm: _Word = ""
    cpu: _Word = ""
    cpu_features: Annotated[tuple[_Word, ...], Field(max_length=_MOST_WORDS)] = ()
    image: _Word = ""
    gpus: Annotated[tuple[TestedGpu, ...], Field(max_length=_MOST_GPUS)] = ()


def describe_machine(machine: TestedMachine) -> list[str]:
    """Return a machine in lines for people: system and driver, the CPU, each GPU and its firmware."""
    driver = f"amdgpu {machine.driver}" if machine.driver else "no driver of AMD's GPUs"
    rocm = f"ROCm {machine.rocm}" if machine.rocm else ""
    lines = [", ".join(filter(None, [machine.kernel, machine.system, driver, rocm, machine.image]))]
    vector_features = [feature for feature in machine.cpu_features if feature.startswith(_VECTOR_FEATURES)]
    if machine.cpu or vector_features:
        lines.append(f"CPU: {' '.join([machine.cpu or 'unnamed', *vector_features])}")
    for gpu in machine.gpus:
        words = [gpu.gfx, gpu.pci_id, gpu.address, tables.format_size(gpu.memory) if gpu.memory else ""]
        words += [f"node {gpu.node}" if gpu.node else "", f"VBIOS {gpu.vbios}" if gpu.vbios else ""]
        lines.append(f"GPU: {gpu.name or 'of AMD'}, {', '.join(filter(None, words))}")
        if gpu.firmware:
            versions = " ".join(f"{name} {version}" for name, version in sorted(gpu.firmware.items()))
            lines.append(f"firmware: {versions}")
    return lines
