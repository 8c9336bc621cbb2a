"""Looking at machines: the kernel's files, tools that answer, fail or print rubbish, and the PCI bus."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import CPU, GIB, MACHINES, NODES, gpu, look, machine, pci, programs, text

from rocm_wheels.gpus import detect, nvidia, rocm, variables, vendors, windows_macos
from rocm_wheels.gpus.gpu import (
    Gpu,
    Hardware,
    decode_target_number,
    format_override_version,
    parse_override_version,
)
from rocm_wheels.gpus.pci_bus import parse_lspci
from rocm_wheels.gpus.programs import Look, ProgramAnswer

RX, IGPU = ("0000:03:00.0", "1002:744c", 0x0300), ("0000:0f:00.0", "1002:164e", 0x0300)
RTX, UHD = ("0000:01:00.0", "10de:2684", 0x0300), ("0000:00:02.0", "8086:4680", 0x0300)
CONSOLE, SOUND = ("0000:06:00.0", "1a03:2000", 0x0300), ("0000:03:00.1", "1002:ab30", 0x0403)
NPU, MI300X = ("0000:00:0b.0", "8086:7d1d", 0x1200), ("0001:05:00.0", "1002:74a1", 0x1200)


def seen(hardware: Hardware) -> list[tuple[object, ...]]:
    return [(gpu.gfx or gpu.vendor, gpu.index, gpu.confidence) for gpu in hardware.gpus]


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("none", []),
        ("mi300x", [("gfx942", 0, "read")]),
        ("mi300x_8", [("gfx942", n, "read") for n in range(8)]),
        ("mi300x_cpx", [("gfx942", n, "read") for n in range(8)]),
        ("mi300a", [("gfx942", 0, "read")]),
        ("mi250x", [("gfx90a", 0, "read"), ("gfx90a", 1, "read")]),
        ("mi210", [("gfx90a", 0, "read")]),
        ("mi100", [("gfx908", 0, "read")]),
        ("mi350x", [("gfx950", 0, "read")]),
        ("radeon", [("gfx1100", 0, "read")]),
        ("apu", [("gfx1151", 0, "read")]),
        ("mixed", [("gfx1100", 1, "read"), ("gfx1036", 0, "read")]),  # discrete first, HIP's own numbers
        ("many_apus_first", [("gfx1201", 9, "read"), *(("gfx1103", n, "read") for n in range(9))]),
        ("old_and_new", [("gfx803", 0, "read"), ("gfx1100", 1, "read")]),
        ("unknown", [("gfx1312", 0, "read")]),
        ("unreadable", [("gfx1100", 1, "derived"), ("gfx942", 2, "read"), ("amd", 0, "unknown")]),
    ],
)
def test_machines_by_the_drivers_files(tmp_path: Path, name: str, gpus: list[tuple[object, ...]]) -> None:
    found = look(machine(tmp_path, *MACHINES[name]))
    assert seen(found) == gpus
    assert len(found.faults) == 2 * (name == "unreadable")
    assert all(one.source == "kfd" and one.visible for one in found.gpus)


def test_what_is_said_of_a_card(tmp_path: Path) -> None:
    first, second = look(machine(tmp_path / "a", *MACHINES["mi250x"])).gpus
    assert (first.pci_id, first.address, second.address) == ("1002:740c", "0000:c1:00.0", "0000:c6:00.0")
    assert (first.uuid, first.memory, first.simd_count) == ("GPU-abba0000000000c1", 64 * GIB, 440)
    assert "MI250X" in first.name and first.integrated is False
    igpu = look(machine(tmp_path / "b", *MACHINES["apu"])).gpus[0]
    assert (igpu.integrated, igpu.memory, igpu.native) == (True, None, "gfx1151")
    parts = look(machine(tmp_path / "c", *MACHINES["mi300x_cpx"])).gpus
    assert {part.address for part in parts} == {"0000:05:00.0"} and len({part.uuid for part in parts}) == 8
    assert [part.notes for part in parts][:2] == [(), ("part 1 of a divided card",)]
    unknown = look(machine(tmp_path / "d", *MACHINES["unknown"]))
    assert (unknown.gpus[0].name, unknown.gpus[0].integrated) == ("", None)


def test_a_container_sees_the_cards_that_it_was_given(tmp_path: Path) -> None:
    root = machine(tmp_path, *MACHINES["mi300x_8"])
    for bus in (5, 6, 8, 9, 10, 11, 12):
        (root / f"dev/dri/renderD{127 + bus}").unlink()
    found = look(root)
    assert [(one.address, one.index) for one in found.usable] == [("0000:07:00.0", 0)]
    assert found.gpus[-1].hidden_by == "/dev/dri/renderD139, which is not here"
    for bus in range(5, 13):
        (root / f"dev/dri/renderD{127 + bus}").unlink(missing_ok=True)
    found = look(root)  # an image that is being built has none
    assert len(found.usable) == 8
    assert "--device=/dev/kfd" in found.faults[0]


def test_nodes_that_are_closed_are_said_at_once(tmp_path: Path) -> None:
    slots = [(f"0000:{n:02x}:00.0", "1002:74a1", 0x1200) for n in range(5, 13)]
    root = pci(machine(tmp_path, *MACHINES["mi300x_8"]), *slots)
    for number in range(3, 10):
        (root / NODES / f"{number}/properties").unlink()
    (root / NODES / "notes").mkdir()
    found = look(root)
    assert len(found.usable) == 1 and len(found.gpus) == 8
    closed = "nodes 3, 4, 5, 6, 7, 8, 9 of the amdgpu driver: closed to this process"
    assert found.faults == (f"{closed} (No such file or directory)",)
    assert found.gpus[1].hidden_by == "kfd, which does not list it for this process"


def test_cards_of_all_makers_where_the_driver_lists_amds(tmp_path: Path) -> None:
    root = pci(machine(tmp_path, *MACHINES["mixed"]), RX, IGPU, RTX, UHD, CONSOLE, SOUND, NPU)
    found = look(root, nvidia_smi=text("nvidia_smi.csv"), nvidia_smi_banner=text("nvidia_smi.txt"))
    assert [(one.vendor, one.gfx or one.capability, one.source) for one in found.gpus] == [
        ("amd", "gfx1100", "kfd"),
        ("nvidia", "8.9", "nvidia-smi"),
        ("nvidia", "12.1", "nvidia-smi"),
        ("amd", "gfx1036", "kfd"),  # inside the processor
        ("intel", None, "pci"),
    ]
    assert (found.cuda, found.faults) == ("12.8", ())
    assert found.gpus[1].pci_id == "10de:2684" and found.gpus[1].memory == 24564 * 2**20
    only = look(root, vendors=("amd",))
    assert [one.gfx for one in only.gpus] == ["gfx1100", "gfx1036"]
    without_smi = look(root)
    assert without_smi.gpus[1].confidence == "derived" and without_smi.gpus[1].capability == "8.9"


def test_a_card_whose_id_stands_for_two_chips_says_so(tmp_path: Path) -> None:
    said = "revision df (RX 6750 GRE 10GB) is gfx1031, says device-info"
    root = pci(tmp_path / "bus", ("0000:03:00.0", "1002:73ff", 0x300))
    (by_id,) = look(root).gpus
    assert (by_id.gfx, by_id.notes) == ("gfx1032", (said,))
    odd = machine(tmp_path / "odd", CPU, gpu(999999999, 0x73FF, 3))
    assert look(odd).gpus[0].notes == (said,)
    named = machine(tmp_path / "named", CPU, gpu(100301, 0x73FF, 3))
    (by_driver,) = look(named).gpus
    assert (by_driver.gfx, by_driver.notes) == ("gfx1031", ())  # the driver knows which


def test_a_machine_without_the_driver_is_told_by_its_slots(tmp_path: Path) -> None:
    root = pci(tmp_path, MI300X, ("0000:09:00.0", "1002:fffe", 0x0380), CONSOLE, NPU)
    found = look(root)
    assert seen(found) == [("gfx942", None, "derived"), ("amd", None, "unknown")]
    assert found.usable[0].name.endswith("[Instinct MI300X]")
    unknown = "an AMD GPU (1002:fffe): its target is unknown"
    assert found.faults == (f"{unknown}; ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH can state it",)
    assert found.tried == ("PCI bus: 3 cards", "kfd: no such driver", "rocminfo: not installed")
    one_domain = parse_lspci(text("lspci_nn_one_domain.txt"))
    assert {*one_domain} < {*parse_lspci(text("lspci_nn.txt"))} and len(one_domain) == 4
    by_lspci = look(tmp_path / "no", lspci=text("lspci_nn.txt"))
    assert [(one.vendor, one.gfx, one.address) for one in by_lspci.gpus] == [
        ("amd", "gfx1100", "0000:03:00.0"),
        ("amd", "gfx942", "0001:05:00.0"),
        ("amd", None, "0000:0f:00.0"),
        ("nvidia", None, "0000:01:00.0"),
    ]


def test_tools_are_not_asked_where_they_cannot_know_more(tmp_path: Path) -> None:
    def never(*_: object) -> ProgramAnswer:
        raise AssertionError("a program was started")

    assert detect.detect_hardware({}, root=pci(tmp_path / "a", UHD), run=never).usable == ()
    mixed = machine(tmp_path / "b", *MACHINES["mixed"])
    assert detect.detect_hardware({}, root=mixed, run=never, vendors=("amd",)).usable
    forced = {"ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942"}
    assert detect.detect_hardware(forced, root=tmp_path / "c", run=never, vendors=("amd",)).usable


def test_windows_linux_asks_rocm_although_there_is_no_card_on_its_bus(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    root = pci(tmp_path, ("0000:00:01.0", "1414:008e", 0x0302))
    found = look(root, rocminfo=text("rocminfo_apu_and_radeon.txt"))
    assert seen(found) == [("gfx1100", 1, "read"), ("gfx1151", 0, "read")]


def test_windows_linux_without_rocm_asks_the_windows_around(tmp_path: Path) -> None:
    root = pci(tmp_path, ("0000:00:01.0", "1414:008e", 0x0302))
    run = programs(powershell=text("wmi.txt"))
    assert seen(detect.detect_hardware({}, root=root, run=run)) == []
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    found = detect.detect_hardware({}, root=root, run=run, vendors=("amd",))
    assert seen(found) == [("gfx1100", 1, "derived"), ("gfx1036", 0, "derived")]


@pytest.mark.parametrize(
    ("printed", "gpus"),
    [
        # generic targets are further ISAs of an agent, and no GPUs
        ("rocminfo_mi300x_vf.txt", [("gfx942", 0, "read")]),
        ("rocminfo_apu_and_radeon.txt", [("gfx1100", 1, "read"), ("gfx1151", 0, "read")]),
    ],
)
def test_rocms_tools_where_the_driver_is_silent(
    tmp_path: Path, printed: str, gpus: list[tuple[object, ...]]
) -> None:
    found = look(tmp_path, rocminfo=text(printed))
    assert (seen(found), found.faults) == (gpus, ())


def test_what_rocminfo_says_of_a_card() -> None:
    (card,) = rocm.parse_rocminfo(text("rocminfo_mi300x_vf.txt"))
    assert (card.name, card.pci_id, card.address) == ("AMD Instinct MI300X VF", "1002:74b5", "0000:83:00.0")
    assert (card.uuid, card.simd_count, card.integrated) == ("GPU-43529fe3ce00c724", 1216, False)
    apu, _ = rocm.parse_rocminfo(text("rocminfo_apu_and_radeon.txt"))
    assert (apu.uuid, apu.integrated) == (None, True)


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ({"rocminfo": ProgramAnswer(fault="rocminfo did not answer within 10 seconds")},
         "rocminfo did not answer within 10 seconds"),
        ({"rocminfo": ProgramAnswer("", "rocminfo failed with exit code 1: ROCk module is NOT loaded")},
         "ROCk module is NOT loaded"),
        ({"rocminfo": "Segmentation fault\n"}, "rocminfo printed no agents, but 'Segmentation fault'"),
        ({"rocminfo": ""}, "rocminfo printed no agents, but 'nothing'"),
        ({"lspci": "lspci: Cannot open /proc\n"},
         "lspci printed no list of devices, but 'lspci: Cannot open /proc'"),
        ({"lspci": ProgramAnswer(fault="lspci cannot be started: Exec format error")},
         "lspci cannot be started"),
        ({"nvidia_smi": "No devices were found\n"},
         "nvidia-smi printed no GPUs, but 'No devices were found'"),
        ({"nvidia_smi": ProgramAnswer(fault="nvidia-smi failed with exit code 9: NVIDIA-SMI has failed")},
         "NVIDIA-SMI has failed"),
    ],
)  # fmt: skip
def test_a_tool_that_fails_is_said_and_stops_nothing(
    tmp_path: Path, answers: dict[str, str], fault: str
) -> None:
    found = look(tmp_path, **answers)
    assert found.gpus == () and len(found.faults) == 1
    assert fault in found.faults[0]
    others = {key: value for key, value in answers.items() if key != "lspci"}
    after = look(pci(tmp_path, MI300X, RTX), **others)
    assert [one.gfx for one in after.usable] == ["gfx942"]


def test_windows_names_the_cards_and_the_driver_their_targets() -> None:
    run = programs(powershell=text("wmi.txt"), clinfo=text("clinfo_amd.txt"))
    env = {"HIP_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": ""}
    found = detect.detect_hardware(env, root=Path("/no"), platform="win32", run=run)
    assert [(one.vendor, one.gfx, one.index, one.visible, one.source) for one in found.gpus] == [
        ("amd", "gfx1100", 0, True, "clinfo"),
        ("intel", None, None, True, "wmi"),
        ("amd", "gfx1036", 1, False, "clinfo"),
    ]
    assert found.gpus[0].pci_id == "1002:744c"
    table = look(platform="win32", powershell=text("wmi.txt"))
    assert seen(table)[:2] == [("gfx1100", 1, "derived"), ("gfx1036", 0, "derived")]
    quick = look(platform="win32", vendors=("amd",), clinfo=text("clinfo_amd.txt"))
    assert seen(quick) == [("gfx1100", 0, "read"), ("gfx1036", 1, "read")]
    broken = look(platform="win32", powershell=ProgramAnswer(fault="it is blocked"), clinfo="?")
    assert broken.faults == ("clinfo printed no list of platforms, but '?'", "it is blocked", "it is blocked")
    (polaris,) = windows_macos.parse_clinfo(text("clinfo_columns.txt"))
    assert (polaris.gfx, polaris.index) == ("gfx803", 0)


def test_a_new_vendor_is_one_row_and_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def query_acme(look: Look, gpus: Sequence[Gpu]) -> tuple[list[Gpu], str | None]:
        name = look.ask(("acme-smi",)) or ""
        look.tried.append("acme-smi: 1 GPU")
        return [replace(gpu, name=name, confidence="read") for gpu in gpus], None

    module = ModuleType("rocm_wheels.gpus.acme")
    module.query_acme = query_acme  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    acme = vendors.GpuVendor("1ac3", "Acme", "acme", query="acme:query_acme")
    monkeypatch.setitem(vendors.GPU_VENDORS, "acme", acme)
    pci(tmp_path, ("0000:03:00.0", "1ac3:0001", 0x0300))
    hardware = look(tmp_path, acme_smi="Anvil 9000")
    [gpu_of_acme] = hardware.gpus
    assert (gpu_of_acme.vendor, gpu_of_acme.name, gpu_of_acme.confidence) == ("acme", "Anvil 9000", "read")
    assert "acme-smi: 1 GPU" in hardware.tried


def test_nvidia_on_windows_is_listed_once() -> None:
    wmi = "PCI\\VEN_10DE&DEV_2684&SUBSYS_889D1043&REV_A1\\4&1|NVIDIA GeForce RTX 4090\n"
    smi = text("nvidia_smi.csv").splitlines()[0]
    found = look(platform="win32", powershell=wmi, nvidia_smi=smi)
    (card,) = found.gpus
    assert (card.pci_id, card.capability, card.source) == ("10de:2684", "8.9", "nvidia-smi")


def test_macs() -> None:
    (apple,) = look(platform="darwin", system_profiler=text("system_profiler_m3.json")).gpus
    assert (apple.vendor, apple.name, apple.integrated) == ("apple", "Apple M3 Max", True)
    found = look(platform="darwin", system_profiler=text("system_profiler_intel.json"))
    assert [(one.vendor, one.pci_id, one.visible) for one in found.gpus] == [
        ("intel", "8086:3e9b", True),
        ("amd", "1002:7340", False),
    ]
    assert found.usable == () and found.gpus[1].hidden_by == "macOS, which has no ROCm"
    said = "system_profiler printed no list of displays, but '{}'"
    assert look(platform="darwin", system_profiler="{}").faults == (said,)


def test_the_driver_says_its_version_or_its_kernels(tmp_path: Path) -> None:
    assert look(tmp_path).driver is None
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.8.0-45-generic\n")
    assert look(tmp_path).driver == "in Linux 6.8.0-45-generic"
    (tmp_path / "sys/module/amdgpu/version").write_text("6.16.13\n")
    assert look(tmp_path).driver == "6.16.13"


def test_tools_are_asked_without_what_hides_gpus(tmp_path: Path) -> None:
    asked: list[dict[str, str]] = []

    def run(words: object, env: dict[str, str], timeout: float) -> ProgramAnswer:
        asked.append(env)
        return ProgramAnswer(installed=False)

    env = {"HIP_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "", "HSA_OVERRIDE_GFX_VERSION": "9.4.2"}
    env["PATH"] = "/x"
    detect.detect_hardware(env, root=tmp_path, run=run, vendors=("amd",))  # type: ignore[arg-type]
    assert asked[0] == {"PATH": os.pathsep.join(("/x", "/opt/rocm/bin")), "LC_ALL": "C"}


def test_generic_targets_come_after_the_exact_ones_of_their_kind_of_gpu(tmp_path: Path) -> None:
    cards = gpu(90402, 0x74A1, 3), gpu(110003, 0x15BF, 4, 24), gpu(130102, 0xFFFE, 5, 8)
    root = machine(tmp_path, CPU, *cards, rocm="9.42.0")
    here = variables.list_supported_features(look(root))
    assert here == {
        "gfx_arch": ("gfx942", "gfx1312", "gfx9_4_generic", "gfx1103", "gfx11_generic"),
        "rocm_version": ("9.42",),
    }
    assert all(set(values) <= set(variables.list_known_features(here)[name]) for name, values in here.items())
    assert variables.list_supported_features(look(tmp_path / "no")) == {}


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may read everything")
def test_a_closed_folder_is_said(tmp_path: Path) -> None:
    root = machine(tmp_path, *MACHINES["mi300x"])
    (root / NODES).chmod(0)
    assert "Permission denied" in look(root).faults[0]


@given(st.integers(min_value=0, max_value=10**7))
def test_every_number_has_a_name_or_none(version: int) -> None:
    name = decode_target_number(version)
    assert name is None or parse_override_version(format_override_version(name)) == name


def test_what_is_no_chip_has_no_version() -> None:
    with pytest.raises(ValueError, match="is not the name of a GPU"):
        format_override_version("gfx11_generic")


KEYS = ["simd_count", "gfx_target_version", "vendor_id", "device_id", "location_id", "unique_id"]
KEYS += ["drm_render_minor", "x"]
VALUES = st.text(max_size=9) | st.integers(min_value=0).map(str)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES)))
def test_nodes_may_say_anything(lines: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        node = Path(folder) / NODES / "1"
        node.mkdir(parents=True)
        said = "".join(f"{key} {value}\n" for key, value in [("simd_count", 4), *lines])
        (node / "properties").write_text(said, encoding="utf-8")
        look(Path(folder))


READERS: list[Callable[[str], object]] = [rocm.parse_rocminfo, parse_lspci, nvidia.parse_nvidia_smi]
READERS += [windows_macos.parse_clinfo, windows_macos.parse_pnp_devices, windows_macos.parse_system_profiler]


BEGINNINGS = r"(\{|\[|  Name: +gfx|\*{7}\nAgent 1\n\*{7}\n|0, ){1,3}.*"


@given(st.text() | st.from_regex(BEGINNINGS, fullmatch=True))
def test_readers_of_tools_read_or_refuse_anything(printed: str) -> None:
    for read in READERS:
        try:
            read(printed)
        except rocm.ToolOutputError as refusal:
            assert str(refusal)
