"""Look at the machine that tests run on: kernel, driver, firmware, GPUs and CPU, by the kernel's files.

Firmware: ``fw_version/*_fw_version`` and ``vbios_version`` of the PCI device, which is also
``/sys/class/drm/card*/device`` (Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_ucode.c and amdgpu_atombios.c).
What cannot be read is left out: no test fails for it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.core import installation
from rocm_wheels.gpus.gpu import Gpu, Hardware
from rocm_wheels.models import tested_machine

_MOST_CHARACTERS, _MOST_WORDS, _MOST_GPUS = 300, 400, 64  # as the record takes them
_MOST_BYTES = 64 << 10  # of a file: the first processor, or one line
_FIRMWARE_SUFFIX = "_fw_version"
_NO_FIRMWARE = re.compile("0x0+")  # of an engine that this GPU does not have
_SYSTEM_NAME = re.compile(r'^PRETTY_NAME="?([^"\n]*)"?$', re.MULTILINE)


def inspect_machine(
    hardware: Hardware, env: Mapping[str, str], *, rocm: str = "", root: Path = Path("/")
) -> tested_machine.TestedMachine:
    """Return what the files below ``root`` say of a machine, whose GPUs are ``hardware``.

    ``rocm``: the version that the tested torch has, for one that does not stand on what is installed.
    """
    amd_gpus = [gpu for gpu in hardware.gpus if gpu.vendor == "amd"]
    release = _cut(_read_text(root / "proc/sys/kernel/osrelease")) or platform.release()
    system = _SYSTEM_NAME.search(_read_text(root / "etc/os-release"))
    first_cpu = _read_text(root / "proc/cpuinfo").partition("\n\n")[0]
    lines = (line.partition(":") for line in first_cpu.splitlines())
    cpu = {name.strip().lower(): value.strip() for name, _, value in lines}
    features = cpu.get("flags", cpu.get("features", "")).split()  # of x86, of Arm
    return tested_machine.TestedMachine(
        kernel=_cut(f"{platform.system()} {release}"),
        system=_cut(system[1]) if system else "",
        driver=_cut(hardware.driver or ""),
        rocm=_cut(rocm or next((installed.version for installed in hardware.rocm), "")),
        cpu=_cut(cpu.get("model name", "") if first_cpu else platform.processor()),
        cpu_features=tuple(map(_cut, features[:_MOST_WORDS])),
        image=_cut(env.get(installation.IMAGE_VARIABLE, "")),
        gpus=tuple(_inspect_gpu(gpu, root) for gpu in amd_gpus[:_MOST_GPUS]),
    )


def _inspect_gpu(gpu: Gpu, root: Path) -> tested_machine.TestedGpu:
    device = root / "sys/bus/pci/devices" / (gpu.address or "none")
    versions = {
        _cut(file.name).removesuffix(_FIRMWARE_SUFFIX): _cut(_read_text(file))
        for file in sorted((device / "fw_version").glob("*"))[:_MOST_WORDS]
    }
    return tested_machine.TestedGpu(
        name=_cut(gpu.name),
        gfx=_cut(gpu.gfx or ""),
        pci_id=_cut(gpu.pci_id or ""),
        address=_cut(gpu.address or ""),
        memory=gpu.memory,
        node=_cut(gpu.node),
        vbios=_cut(_read_text(device / "vbios_version")),
        firmware={
            name: version
            for name, version in versions.items()
            if version and not _NO_FIRMWARE.fullmatch(version)
        },
    )


def _read_text(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return content.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _cut(text: str) -> str:
    """Return the first line of a text, without what cannot be printed."""
    printable = text.encode(errors="replace").decode()  # names of files may hold bytes that are no text
    line = (printable.strip().splitlines() or [""])[0]
    return re.sub(r"[\x00-\x1f\x7f]", " ", line)[:_MOST_CHARACTERS]
