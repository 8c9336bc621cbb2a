"""Faked machines for the detection of GPUs: files as the kernel writes them, programs that answer from texts.

The nodes of MI100 and RX 7900 XTX are recorded (tests/data/gpus); all others are constructed in the same
form, with the PCI ids, sizes and numbers of nodes that the cards have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rocm_wheels.gpus import detect
from rocm_wheels.gpus.gpu import Hardware
from rocm_wheels.gpus.programs import ProgramAnswer, Runner
from rocm_wheels.gpus.vendors import GPU_VENDORS

DATA = Path(__file__).resolve().parents[1] / "data" / "gpus"
NODES = "sys/class/kfd/kfd/topology/nodes"
Node = Mapping[str, int | str]
CPU: Node = {"cpu_cores_count": 64, "simd_count": 0, "gfx_target_version": 0, "vendor_id": 0, "device_id": 0}
GIB = 2**30


def text(name: str) -> str:
    """A text of tests/data/gpus without the lines that say where it is from."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#:"))


def recorded(name: str, **more: int) -> Node:
    """A recorded node, with some values others."""
    pairs = (line.split() for line in text(name).splitlines())
    return {**{key: int(value) for key, value in pairs}, **more}


def gpu(version: int, device: int, bus: int, simds: int = 1216, *, memory: int = 0, **more: int) -> Node:
    """A GPU by its number, PCI device and bus. ``memory`` in bytes."""
    card = {"simd_count": simds, "gfx_target_version": version, "vendor_id": 0x1002, "device_id": device}
    place = {"location_id": bus << 8, "domain": 0, "drm_render_minor": 127 + bus}
    return {
        "cpu_cores_count": 0,
        **card,
        **place,
        "unique_id": 0xABBA000000000000 + bus,
        "memory": memory,
        **more,
    }


MACHINES: dict[str, Sequence[Node]] = {
    "none": [CPU],
    "mi300x": [CPU, CPU, gpu(90402, 0x74A1, 5, memory=192 * GIB)],
    "mi300x_8": [CPU, CPU, *(gpu(90402, 0x74A1, bus, memory=192 * GIB) for bus in range(5, 13))],
    "mi300x_cpx": [
        CPU,
        *(gpu(90402, 0x74A1, 5, 152, location_id=n << 28 | 0x500, unique_id=7 + n) for n in range(8)),
    ],
    "mi300a": [{**gpu(90402, 0x74A0, 1, 912), "cpu_cores_count": 24}],
    "mi250x": [
        CPU,
        gpu(90010, 0x740C, 0xC1, 440, memory=64 * GIB),
        gpu(90010, 0x740C, 0xC6, 440, memory=64 * GIB),
    ],
    "mi210": [CPU, gpu(90010, 0x740F, 0x43, 416, memory=64 * GIB)],
    "mi100": [CPU, recorded("kfd_mi100.txt")],
    "mi350x": [CPU, gpu(90500, 0x75A0, 5, 1024, memory=288 * GIB)],
    "radeon": [CPU, recorded("kfd_rx7900xtx.txt")],
    "apu": [CPU, gpu(110501, 0x1586, 0xC5, 80)],
    "mixed": [CPU, gpu(100306, 0x164E, 0x0F, 4), recorded("kfd_rx7900xtx.txt", location_id=0x300)],
    "many_apus_first": [
        CPU,
        *(gpu(110003, 0x15BF, n, 24) for n in range(1, 10)),
        gpu(120001, 0x7550, 32, 128),
    ],
    "old_and_new": [CPU, gpu(80003, 0x67DF, 1, 144), gpu(110000, 0x744C, 3, 192)],
    "unknown": [CPU, gpu(130102, 0xFFFE, 5)],
    "unreadable": [CPU, gpu(999999999, 0xFFFE, 5), gpu(999999999, 0x744C, 6), gpu(90402, 0x74A1, 7)],
}


def machine(root: Path, *nodes: Node, rocm: str | None = None, devices: bool = True) -> Path:
    """Write a machine below ``root``: nodes numbered from 0, their device files, ROCm in /opt."""
    for number, node in enumerate(nodes):
        folder = root / NODES / str(number)
        (folder / "mem_banks" / "0").mkdir(parents=True)
        values = {key: value for key, value in node.items() if key != "memory"}
        _write(folder / "properties", "".join(f"{key} {value}\n" for key, value in values.items()))
        _write(folder / "name", "ip discovery\n" if node.get("simd_count") else "\n")
        bank = f"heap_type 1\nsize_in_bytes {node.get('memory', 0)}\nflags 0\nwidth 8192\n"
        _write(folder / "mem_banks/0/properties", bank)
        if devices and node.get("drm_render_minor"):
            _write(root / f"dev/dri/renderD{node['drm_render_minor']}", "")
    if rocm is not None:
        _write(root / "opt/rocm/.info/version", rocm)
    return root


def pci(root: Path, *cards: tuple[str, str, int]) -> Path:
    """Write cards of the PCI bus: slot, vendor:device, class."""
    (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    for slot, pci_id, kind in cards:
        folder = root / "sys/bus/pci/devices" / slot
        _write(folder / "class", f"0x{kind:04x}00\n")
        _write(folder / "vendor", f"0x{pci_id[:4]}\n")
        _write(folder / "device", f"0x{pci_id[5:]}\n")
    return root


def programs(**answers: str | ProgramAnswer) -> Runner:
    """Programs that answer with a text; ``_`` in a name stands for ``-``; all others are not installed."""

    def run(words: Sequence[str], env: Mapping[str, str], timeout: float) -> ProgramAnswer:
        name = Path(words[0].replace("\\", "/")).name.removesuffix(".exe")
        key = name.replace("-", "_") + ("_banner" if words == ("nvidia-smi",) else "")
        answer = answers.get(key, ProgramAnswer(installed=False))
        return ProgramAnswer(answer) if isinstance(answer, str) else answer

    return run


def look(
    root: Path = Path("/no"),
    env: Mapping[str, str] | None = None,
    *,
    platform: str = "linux",
    vendors: Collection[str] = GPU_VENDORS.keys(),
    **answers: str | ProgramAnswer,
) -> Hardware:
    """Look at a machine: its files, its variables, what its programs answer."""
    return detect.detect_hardware(
        env or {}, root=root, platform=platform, run=programs(**answers), vendors=vendors
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
