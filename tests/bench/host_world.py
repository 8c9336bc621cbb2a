"""The machine of ``bench_hosts``: an environment with the peers, a faked lspci, faked GPUs in sysfs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machines import MACHINES, machine, pci
from pythons import install_torch
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[2]
PEERS = ("torchruntime==2.24.0", "rocm-bootstrap==0.3.0", "variantlib==0.2.2", "pip==26.3")
PROVIDER = ROOT / "build_tools" / "rocm_variant_provider"
RX_7900, MI300X, INTEL, RAPHAEL, PHOENIX = "1002:744c", "1002:74a1", "8086:4680", "1002:164e", "1002:15bf"
# alternates commands, so that what else the machine does falls on all of them
TIMER = """
import json, os, subprocess, sys, time
runs, commands = json.load(sys.stdin)
spent = {name: [] for name in commands}
for number in range(runs + 1):
    for name, words in commands.items():
        start = time.perf_counter()
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if number:  # the first one warms up
            spent[name].append(time.perf_counter() - start)
        if done.returncode not in (0, 17):  # 17: the doctor found something
            sys.exit(f"{words}: {done.stdout.decode()[-1500:]}")
json.dump(spent, sys.stdout)
"""
MOUNTS = 'mount --bind "$0/sys/class" /sys/class && mount --bind "$0/sys/bus" /sys/bus && exec "$@"'


@dataclass
class World:
    """A folder for everything; ``python`` has the peers, this checkout and a torch of next to nothing."""

    folder: Path
    runs: int
    env: dict[str, str] = field(default_factory=dict)
    namespaces: bool = True

    @property
    def bin(self) -> Path:
        return self.folder / "peers" / "bin"

    @property
    def python(self) -> str:
        return str(self.bin / "python")

    @property
    def site(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "peers" / "lib" / version / "site-packages"

    def answers(self, code: str, given: object) -> Any:
        """Run code in the environment with JSON on stdin; return what it prints as JSON on its last line."""
        return json.loads(self.run([self.python, "-c", code], json.dumps(given)).splitlines()[-1])

    def run(self, words: Sequence[str], given: str = "", env: Mapping[str, str] | None = None) -> str:
        """Run a program, which must end well; return what it prints."""
        done = subprocess.run(
            words, input=given, env=env or self.env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, words))}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout

    def output(self, words: Sequence[str]) -> str:
        """Run a program, which must end well; return all that it prints."""
        done = subprocess.run(
            words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, words))}:\n{done.stdout[-3000:]}")
        return done.stdout

    def seconds(
        self, commands: Mapping[str, Sequence[str]], on: Path | None = None, runs: int = 0
    ) -> dict[str, float]:
        """Return the median seconds of each command; ``on``: as root of a machine whose /sys that is."""
        words = [sys.executable, "-c", TIMER]
        inside = ["unshare", "-rm", "sh", "-c", MOUNTS, str(on)] if on and self.namespaces else []
        spent = json.loads(self.run([*inside, *words], json.dumps([runs or self.runs, commands])))
        return {name: statistics.median(several) for name, several in spent.items()}


def make_world(folder: Path, runs: int) -> World:
    """Make the environment with the peers and ours; name the cards of a machine with Intel and an RX 7900."""
    world = World(folder, runs)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "UV_", "PIP_", "VIRTUAL_"))}
    index = {
        k: v for k, v in os.environ.items() if k in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    }
    world.env = env
    uv = find_uv_bin()
    world.run([uv, "venv", "-q", "--python", sys.executable, str(folder / "peers")])
    install = [uv, "pip", "install", "-q", "--python", world.python]
    world.run([*install, *PEERS, str(PROVIDER)], env={**env, **index})
    places = {*sysconfig.get_paths().values()} & set(sys.path) | {str(ROOT / "build_tools")}
    (world.site / "ours.pth").write_text("".join(f"{place}\n" for place in sorted(places)))
    install_torch(world.site, "gfx942", "gfx1100")
    programs = folder / "programs"
    programs.mkdir()
    (programs / "lspci").write_text('#!/bin/sh\ncat "$BENCH_LSPCI"\n')
    (programs / "lspci").chmod(0o755)
    local = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "BENCH_LSPCI": str(folder / "lspci.txt")}
    env |= {"PATH": f"{programs}{os.pathsep}{env['PATH']}", **local}
    (folder / "lspci.txt").write_text(lspci(RX_7900))
    probe = subprocess.run(
        ["unshare", "-rm", "sh", "-c", MOUNTS, str(faked(folder, "radeon")), "true"],
        capture_output=True,
        check=False,
    )
    world.namespaces = probe.returncode == 0
    return world


def faked(folder: Path, name: str) -> Path:
    """Return the root of a machine of ``machines`` with its cards on the PCI bus too."""
    root = folder / f"machine-{name}"
    if not root.exists():
        nodes = MACHINES[name]
        machine(root, *nodes)
        cards = [node for node in nodes if node.get("simd_count")]
        slots = [f"0000:{int(card['location_id']) >> 8:02x}:00.0" for card in cards]
        ids = [f"1002:{int(card['device_id']):04x}" for card in cards]
        pci(root, *((slot, one, 0x0300) for slot, one in zip(slots, ids, strict=True)))
    return root


def lspci(*ids: str) -> str:
    """Return what ``lspci -nn`` prints of a machine with these cards, in the order of their slots."""
    lines = ["00:00.0 Host bridge [0600]: Intel Corporation Device [8086:4660] (rev 02)"]
    for number, one in enumerate(ids):
        kind = "Processing accelerators [1200]" if one[5:7] in ("74", "75") and one[5:] in _INSTINCT else _VGA
        slot = "00:02.0" if one.startswith("8086") else f"{number + 3:02x}:00.0"
        maker = {"1002": "Advanced Micro Devices, Inc. [AMD/ATI]", "8086": "Intel Corporation"}[one[:4]]
        lines.append(f"{slot} {kind}: {maker} Device [{one}] (rev c8)")
    return "\n".join(lines) + "\n"


_VGA = "VGA compatible controller [0300]"
_INSTINCT = {"74a0", "74a1", "74a2", "74a5", "74a9", "74b5", "74b9", "74bd", "75a0", "75a3"}


def say(what: str, seconds: Mapping[str, float], mine: str, unit: str = "s") -> None:
    """Print a line: ours, then each peer with how many times ours it took."""
    scale = {"s": 1, "ms": 1000}[unit]
    own = seconds[mine]
    rest = "".join(
        f"; {name} {value * scale:.3g} {unit}" + (f" (x {value / own:.2g})" if name[:4] != "ours" else "")
        for name, value in seconds.items()
        if name != mine
    )
    print(f"{what:34} {mine} {own * scale:.3g} {unit}{rest}", flush=True)
