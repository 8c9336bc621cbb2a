"""What results say of the machine: by the kernel's files of faked machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from machines import CPU, GIB, MACHINES, gpu, machine, programs

from rocm_wheels.gpus import detect
from rocm_wheels.models import tested_machine
from rocm_wheels.testing import inspect_machine

CPUINFO = """processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum 8480C
flags\t\t: fpu avx512f amx_bf16 amx_tile amx_int8

processor\t: 1
model name\t: another
flags\t\t: fpu
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def inspect(root: Path, rocm: str = "") -> tested_machine.TestedMachine:
    hardware = detect.detect_hardware({}, root=root, platform="linux", run=programs(), vendors=("amd",))
    return inspect_machine.inspect_machine(
        hardware, {"ROCM_WHEELS_IMAGE": "ghcr.io/x@sha256:1"}, rocm=rocm, root=root
    )


def test_results_say_driver_firmware_gpu_and_cpu(tmp_path: Path) -> None:
    machine(tmp_path, CPU, gpu(90402, 0x74A1, 5, memory=192 * GIB), rocm="7.1.0")
    device = tmp_path / "sys/bus/pci/devices/0000:05:00.0"
    write(device / "vbios_version", "113-M3000100-103\n")
    for name, version in {"mec": "0x000000b8", "sdma": "0x00000013", "uvd": "0x00000000"}.items():
        write(device / f"fw_version/{name}_fw_version", f"{version}\n")
    write(tmp_path / "sys/module/amdgpu/version", "6.12.12\n")
    write(tmp_path / "proc/sys/kernel/osrelease", "6.8.0-51-generic\n")
    write(tmp_path / "proc/cpuinfo", CPUINFO)
    write(tmp_path / "etc/os-release", 'NAME=Ubuntu\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n')
    found = inspect(tmp_path)
    assert (found.driver, found.rocm, found.system) == ("6.12.12", "7.1.0", "Ubuntu 24.04.1 LTS")
    assert found.kernel.endswith(" 6.8.0-51-generic") and found.image == "ghcr.io/x@sha256:1"
    assert found.cpu == "Intel(R) Xeon(R) Platinum 8480C" and "amx_int8" in found.cpu_features
    (card,) = found.gpus
    assert (card.gfx, card.pci_id, card.memory) == ("gfx942", "1002:74a1", 192 * GIB)
    assert card.node == "ip discovery" and card.vbios == "113-M3000100-103"
    assert card.firmware == {"mec": "0x000000b8", "sdma": "0x00000013"}, "of engines that the GPU has"
    assert inspect(tmp_path, rocm="7.2.1").rocm == "7.2.1", "what the tested torch stands on"
    shown = "\n".join(tested_machine.describe_machine(found))
    for part in ("amdgpu 6.12.12", "ROCm 7.1.0", "amx_int8", "mec 0x000000b8", "1002:74a1", "192.0 GiB"):
        assert part in shown


@pytest.mark.parametrize("name", ["none", "mi300x_8", "radeon", "unknown"])
def test_what_is_not_there_is_left_out(tmp_path: Path, name: str) -> None:
    found = inspect(machine(tmp_path, *MACHINES[name]))
    assert len(found.gpus) == sum(node["simd_count"] != 0 for node in MACHINES[name])
    assert all(card.firmware == {} for card in found.gpus)
    assert found == tested_machine.TestedMachine.model_validate(found.model_dump())
    assert tested_machine.describe_machine(found)


def test_a_driver_that_writes_rubbish_stops_no_test(tmp_path: Path) -> None:
    machine(tmp_path, CPU, gpu(90402, 0x74A1, 5))
    device = tmp_path / "sys/bus/pci/devices/0000:05:00.0"
    write(device / "vbios_version", "\x1b[2J" + "x" * 5000)
    (device / "fw_version/mec_fw_version").mkdir(parents=True)
    write(tmp_path / "proc/cpuinfo", "flags: " + " ".join(f"f{n}" for n in range(5000)))
    found = inspect(tmp_path)
    assert "\x1b" not in found.gpus[0].vbios and found.gpus[0].firmware == {}
    assert tested_machine.TestedMachine.model_validate(found.model_dump()) == found


def test_more_than_a_record_takes_and_names_that_are_no_text_stop_no_test(tmp_path: Path) -> None:
    cards = [gpu(90402, 0x74A1, number) for number in range(1, 67)]
    machine(tmp_path, CPU, *cards)
    firmware = tmp_path / "sys/bus/pci/devices/0000:01:00.0/fw_version"
    write(firmware / "me\nc_fw_version", "0x1\n")
    write(firmware / os.fsdecode(b"\xff_fw_version"), "0x2\n")
    for number in range(500):
        write(firmware / f"x{number}_fw_version", "0x3\n")
    write(tmp_path / "proc/cpuinfo", f"flags: {'f' * 400} a\x7fb\n")
    inspected = inspect(tmp_path)
    assert len(inspected.gpus) == 64 and len(inspected.gpus[0].firmware) == 400
    assert tested_machine.TestedMachine.model_validate_json(inspected.model_dump_json()) == inspected
