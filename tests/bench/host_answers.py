"""Right and wrong answers for ``bench_hosts``: which torch a card gets, and which variables.

Both sides see the same faked lspci and answer; what they answer is judged alike, and not by what we choose:
the target of a card is that of ``gpus/pci_ids.tsv`` (kernel, libhsakmt, rocminfo and others; each row names
its sources), the targets and Pythons of an index are what its owner documents (``model/compat``), and whether
AMD makes code for a target at all is what rocm-bootstrap's table says.

native: the index has code for the card, and nothing makes it pose as another. posing: by
HSA_OVERRIDE_GFX_VERSION it runs code for another that the index has. wrong: no code that it can run. old: an
index of ROCm 5.7 or older, which the tables do not have (torch 2.3 and older). CPU: right where no stable
index has code for the target, wrong where one has.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from host_world import INTEL, MI300X, PHOENIX, RAPHAEL, RX_7900, World, lspci

from rocm_wheels.gpus import detect, pci
from rocm_wheels.gpus.gpu import Hardware, decode_target_number
from rocm_wheels.models import package_indexes
from rocm_wheels.user import index_pages, settings
from rocm_wheels.user.host import StatedMachine, TargetHost, make_host

OVERRIDE, HIP = "HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES"
PYTORCH = "https://download.pytorch.org/whl/"
VERDICTS = ("native", "posing", "CPU, right", "old", "CPU, wrong", "wrong")
THEIRS = """
import contextlib, io, json, os, sys
from torchruntime.configuration import configure
from torchruntime.device_db import get_gpus
from torchruntime.platform_detection import get_torch_platform
names, found = ("HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES"), []
for text in json.load(sys.stdin):
    with open(os.environ["BENCH_LSPCI"], "w") as file:
        file.write(text)
    for name in names:
        os.environ.pop(name, None)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            platform = get_torch_platform(get_gpus())
            configure()
        except Exception as error:
            platform = f"{type(error).__name__}"
    found.append([platform, *(os.environ.get(name, "") for name in names)])
print(json.dumps(found))
"""
TARGETS = (
    "import json, sys; from rocm_bootstrap.targets import ALL_TARGETS; "
    "print(json.dumps([one.name for one in ALL_TARGETS]))"
)
Answer = tuple[str, str, str]  # index or platform, override, HIP_VISIBLE_DEVICES


def kind_of(entry: pci.PciEntry) -> str:
    """Return the class of a card that the table counts it in."""
    gfx = str(entry.gfx)
    if gfx in ("gfx908", "gfx90a", "gfx942", "gfx950"):
        return "Instinct"
    number = int(gfx[3:-2])
    if number < 9:
        return "GCN 1-4"
    if entry.integrated:
        return "APU"
    return {9: "Vega, MI25-60", 10: "RDNA 1-2", 11: "RDNA 3", 12: "RDNA 4"}[number]


def theirs(world: World, machines: list[str]) -> list[Answer]:
    """Ask torchruntime about machines."""
    found: Any = world.answers(THEIRS, machines)
    return [tuple(one) for one in found]


def ours(world: World, machines: list[str]) -> list[Hardware]:
    """Look at the machines as rocm-wheels does where there is no sysfs."""
    found = []
    for text in machines:
        Path(world.env["BENCH_LSPCI"]).write_text(text)
        found.append(detect.detect_hardware(world.env, root=world.folder / "no-such-root", platform="linux"))
    return found


def chosen(hardware: Hardware, host: TargetHost) -> Answer:
    """Return the index and the variables that rocm-wheels takes."""
    index = index_pages.recommend_torch(replace(host, hardware=hardware)).index
    # as the ROCm runtime numbers the cards: lspci does not tell
    amd = [gpu for gpu in hardware.gpus if gpu.vendor == "amd"]
    there = Hardware(tuple(replace(gpu, index=n, hip_index=n) for n, gpu in enumerate(amd)))
    wanted = (
        settings.make_settings(there, _code(index, host.python), {}, "linux")[0]
        if index.vendor == "amd"
        else ()
    )
    said = {one.name: one.value for one in wanted}
    return index.url if index.vendor == "amd" else "cpu", said.get(OVERRIDE, ""), said.get(HIP, "")


def judged(answer: Answer, target: str, python: str) -> str:
    """Judge an answer for a machine with one card."""
    where, override, _ = answer
    if not where.startswith(("rocm", "http")):
        return "CPU, wrong" if _served(target, python) else "CPU, right"
    index = package_indexes.find_index_by_url(where if where.startswith("http") else f"{PYTORCH}{where}")
    if index is None:
        return "old"
    code = _code(index, python)
    poses = decode_target_number(_number(override)) if override else target
    if poses not in code:
        return "wrong"
    return "native" if poses == target else "posing"


def _number(override: str) -> int:
    major, minor, step = map(int, re.findall(r"\d+", override))
    return major * 10000 + minor * 100 + step


def _code(index: package_indexes.PackageIndex, python: str) -> tuple[str, ...]:
    """Return the targets that an index has for a Python on Linux, as is documented."""
    targets = index.list_targets("linux")
    return tuple(target for target in targets if python in index.list_pythons("linux", target))


def _served(target: str, python: str) -> bool:
    stable = [
        one for one in package_indexes.list_indexes() if one.vendor == "amd" and one.channel == "stable"
    ]
    return any(target in _code(index, python) for index in stable)


def cards(world: World, quick: bool) -> list[str]:
    """Ask both about every AMD card whose target is known; return lines of a table."""
    known = [entry for entry in pci.list_pci_entries() if entry.vendor == "amd" and entry.gfx][
        :: 5 if quick else 1
    ]
    machines = [lspci(entry.id) for entry in known]
    peer, seen = theirs(world, machines), ours(world, machines)
    right = [bool(one.gpus) and one.gpus[0].gfx == e.gfx for one, e in zip(seen, known, strict=True)]
    host = make_host(world.env, StatedMachine(gfx=("none",), rocm="none"))
    lines = [f"{len(known)} PCI ids with a known target, as lspci lists them; found by us: {sum(right)}"]
    packaged: Any = world.answers(TARGETS, None)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python in dict.fromkeys((here, "3.14")):
        mine = [chosen(hardware, replace(host, python=python)) for hardware in seen]
        counts: dict[tuple[str, str], Counter[str]] = {}
        for entry, they, we in zip(known, peer, mine, strict=True):
            for side, answer in (("torchruntime", they), ("rocm-wheels", we)):
                verdict = judged(answer, str(entry.gfx), python)
                for kind in (kind_of(entry), "all"):
                    counts.setdefault((kind, side), Counter())[verdict] += 1
        lines += ["", f"{'Python ' + python:16} {'':13}" + "".join(f"{one:>11}" for one in VERDICTS)]
        for (kind, side), count in sorted(counts.items(), key=lambda one: _ORDER.index(one[0][0])):
            lines.append(f"{kind:16} {side:13}" + "".join(f"{count[one] or '-':>11}" for one in VERDICTS))
        beyond = [
            str(entry.gfx)
            for entry, answer in zip(known, mine, strict=True)
            if answer[0] == "cpu" and entry.gfx in packaged
        ]
        lines.append(
            f"{len(beyond)} of our CPU answers are for targets that rocm-bootstrap names and no stable index"
            f" of torch has: {', '.join(sorted(set(beyond)))}"
        )
    return lines


_ORDER = ("Instinct", "RDNA 4", "RDNA 3", "RDNA 1-2", "APU", "Vega, MI25-60", "GCN 1-4", "all")
# what HIP numbers: AMD's cards alone, by the runtime's nodes
MIXED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "Intel iGPU, RX 7900 XTX": ((INTEL, RX_7900), "ROCm; HIP's only device is 0"),
    "Intel iGPU, two RX 7900": ((INTEL, RX_7900, RX_7900), "ROCm; HIP's devices are 0 and 1"),
    "RX 7900 XTX, Raphael iGPU": ((RX_7900, RAPHAEL), "ROCm; gfx1100"),
    "MI300X, 780M": ((MI300X, PHOENIX), "ROCm; gfx942"),
    "eight MI300X": ((MI300X,) * 8, "ROCm; gfx942"),
    "RX 9070 XT": (("1002:7550",), "ROCm; gfx1201, which indexes have code for"),
    "Krackan iGPU": (("1002:1114",), "ROCm; gfx1152"),
}


def mixed(world: World) -> list[str]:
    """Ask both about machines with several cards; return lines of a table."""
    machines = [lspci(*ids) for ids, _ in MIXED.values()]
    host = make_host(world.env, StatedMachine(gfx=("none",), rocm="none"))
    peer, mine = theirs(world, machines), [chosen(one, host) for one in ours(world, machines)]
    lines = [f"{'machine':26} {'torchruntime':46} {'rocm-wheels':46} what is so"]
    for (name, (_, right)), *answers in zip(MIXED.items(), peer, mine, strict=True):
        lines.append(f"{name:26} {_said(answers[0]):46} {_said(answers[1]):46} {right}")
    return lines


def _said(answer: Answer) -> str:
    where, override, hip = answer
    index = package_indexes.find_index_by_url(where)
    said = [
        index.name if index else where,
        f"override {override}" * bool(override),
        f"{HIP}={hip}" * bool(hip),
    ]
    return ", ".join(filter(None, said))
