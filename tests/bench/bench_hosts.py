"""The user's side beside its peers, in one run: ``bench_hosts.py [--quick] [--part PART]``.

Parts: answers (which torch every AMD card gets, and which variables: torchruntime), times (of such an
answer; of a provider of variants: rocm-bootstrap), choose (from an index of variants: variantlib, uv),
install (a large wheel over HTTP, cold, warm, and after a kill half-way: pip, uv), doctor (kernels of an
installed library of 1 GB, beside sha256sum), cpu (seconds of CPU of the short commands, which other programs
change less than the time that passes). The peers are installed into an environment that is thrown away,
at the versions in ``host_world``. Seconds are medians of alternated runs, each a process of its own;
``x`` is how many times ours the peer took. The load average stands at each part.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "worlds"))
import clock
import host_answers
from host_files import large_library, variant_index, variants
from host_install import install
from host_world import MOUNTS, RX_7900, World, faked, lspci, make_world, say
from machines import MACHINES
from servers import serve_folder
from uv import find_uv_bin

ASK = "from rocm_bootstrap.variant_provider import AMDVariantPlugin as p; print(p.get_supported_configs())"
ASK_US = "import rocm_variant_provider as p; print(p.get_supported_configs())"
IN_PROCESS = """
import json, os, statistics, sys, time
from pathlib import Path
def spent(call, runs=int(sys.argv[1])):
    call()
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found)
from torchruntime.device_db import get_gpus
from rocm_bootstrap.detect import detect_gpus
from rocm_wheels.gpus.detect import detect_hardware
nowhere = Path("/no-such-root")
print(json.dumps({
    "lspci, torchruntime": spent(get_gpus),
    "lspci": spent(lambda: detect_hardware(os.environ, root=nowhere)),
    "sysfs, rocm-bootstrap": spent(detect_gpus),
    "sysfs": spent(lambda: detect_hardware(os.environ, vendors=("amd",))),
    "sysfs, all": spent(lambda: detect_hardware(os.environ)),
}))
"""
CHOOSING = """
import json, statistics, sys, time
from rocm_wheels import choose
url, spent = json.load(sys.stdin), []
for _ in range(6):
    start = time.perf_counter()
    choose(["torch"], index=url, gfx=["gfx942"])
    spent.append(time.perf_counter() - start)
print(json.dumps(statistics.median(spent[1:])))
"""
RANKING = """
import json, statistics, sys, time
def spent(call, runs=5):
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        first = call()
        found.append(time.perf_counter() - start)
    return statistics.median(found), first
content = sys.stdin.buffer.read()
document = json.loads(content)
from variantlib.api import get_variants_by_priority
from rocm_wheels.variants.order import find_support, order_labels
from rocm_wheels.variants.document import parse_document
def ours():
    metadata = parse_document(content, name="bench")
    return order_labels(metadata, {ns: one.features for ns, one in find_support(metadata, {}).items()})
theirs, they = spent(lambda: [one.label for one in get_variants_by_priority(variants_json=document)])
mine, we = spent(lambda: list(ours()))
assert they == we, (they[:5], we[:5])
print(json.dumps([theirs, mine]))
"""
PEER_RANKS = (
    "import json, sys; from variantlib.api import get_variants_by_priority as ranked; "
    "print(ranked(variants_json=json.load(open(sys.argv[1])))[0].label)"
)


def answers(world: World, quick: bool) -> None:
    """Ask both what machines get."""
    print("\n".join([*host_answers.cards(world, quick), "", *host_answers.mixed(world)]))


def times(world: World, _quick: bool) -> None:
    """Time such an answer, and the answers of providers of variants."""
    if not world.namespaces:
        print("no mount namespaces here: this machine as it is, without a GPU in sysfs")
    ours, python = [world.python, "-m", "rocm_wheels"], world.python
    radeon = faked(world.folder, "radeon")
    Path(world.env["BENCH_LSPCI"]).write_text(lspci(RX_7900))
    peer = "torchruntime info"
    commands = {
        peer: [str(world.bin / "torchruntime"), "info"],
        "get_platform()": [python, "-c", "import rocm_wheels; print(rocm_wheels.get_platform())"],
        "configure": [*ours, "configure"],
        "doctor": [*ours, "doctor"],
        "compat gpu": [*ours, "compat", "gpu", "744c"],
        "nothing": [python, "-c", "pass"],
    }
    found = world.seconds(commands, radeon)
    print(f"{'a Python that does nothing':34} {found.pop('nothing') * 1000:.3g} ms")
    for name in [name for name in found if name != peer]:
        say("answer, one RX 7900 XTX", {name: found[name], peer: found[peer]}, name, "ms")
    commands = {
        "ours": [python, "-c", ASK_US],
        "rocm-bootstrap": [python, "-c", ASK],
        "ours, -m": [python, "-m", "rocm_variant_provider"],
    }
    for name in ("radeon", "mi300x_8"):
        cards = sum(bool(node.get("simd_count")) for node in MACHINES[name])
        seconds = world.seconds(commands, faked(world.folder, name))
        say(f"provider, {cards} GPU in sysfs", seconds, "ours", "ms")
    found = detection(world, radeon)
    seconds = {"ours": found["lspci"], "torchruntime": found["lspci, torchruntime"]}
    say("detection alone, by lspci", seconds, "ours", "ms")
    seconds = {"ours": found["sysfs"], "rocm-bootstrap": found["sysfs, rocm-bootstrap"]}
    say("detection alone, by sysfs", {**seconds, "ours, all": found["sysfs, all"]}, "ours", "ms")


def detection(world: World, radeon: Path) -> dict[str, float]:
    """Return the seconds of detections inside one process."""
    words = [world.python, "-c", IN_PROCESS, "20"]
    inside = ["unshare", "-rm", "sh", "-c", MOUNTS, str(radeon)] if world.namespaces else []
    found: dict[str, float] = json.loads(world.run([*inside, *words]))
    return found


def choose(world: World, quick: bool) -> None:
    """Choose from an index of variants; all must take the same wheel."""
    labels = 10
    root = variant_index(world.folder / "variants", 80 if quick else 200, labels)
    newest = sorted(path.name for path in (root / "torch").glob("*-variants.json"))[-1]
    uv = [find_uv_bin(), "pip", "install", "--dry-run", "-v", "--no-config", "--python", world.python]
    uv += ["--preview-features", "wheel-variants", "--reinstall", "--no-deps"]
    with serve_folder(root) as server:
        us = [world.python, "-m", "rocm_wheels", "choose", "torch", "--gfx", "gfx942"]
        commands = {
            "ours": [*us, "--index", server.url],
            "ours, a folder": [*us, "--index", str(root)],
            "uv, no cache": [*uv, "--default-index", server.url, "--no-cache", "torch"],
            "uv, warm cache": [*uv, "--default-index", server.url, "torch"],
            "variantlib (ranks one file)": [world.python, "-c", PEER_RANKS, str(root / "torch" / newest)],
        }
        said = {name: label_in(world.output(words)) for name, words in commands.items()}
        if len(set(said.values())) != 1:
            raise SystemExit(f"not the same wheel: {said}")
        seconds = world.seconds(commands)
        seconds["ours, in a process"] = world.answers(CHOOSING, server.url)
    wheels = sum(1 for path in (root / "torch").glob("*.whl"))
    say(f"choose of {wheels} wheels, {labels} labels", seconds, "ours", "ms")
    for count in (labels, 200):
        theirs, mine = world.answers(RANKING, variants(count))
        say(f"ranking alone, {count} variants", {"ours": mine, "variantlib": theirs}, "ours", "ms")


def label_in(text: str) -> str:
    """Return the label of the wheel that a tool names first, or its last word."""
    found = re.search(r"torch-[^ /]+-(v\d+|null)\.whl", text)
    return found[1] if found else text.rsplit(maxsplit=1)[-1]


def doctor(world: World, quick: bool) -> None:
    """Read the kernels of an installed library; nothing else does, so sha256sum is the measure."""
    library = world.site / "torch" / "lib" / "libtorch_hip.so"
    ours = [world.python, "-m", "rocm_wheels"]
    commands = {name: [*ours, name, "--gfx", "gfx942"] for name in ("doctor", "configure")}
    small = world.seconds(commands)
    bundles = 300 if quick else 1500
    large_library(library, bundles * 2 // 3, bundles)
    large = world.seconds(commands)
    size = library.stat().st_size / 1e6
    print(f"a library of {size:.0f} MB in {bundles} bundles, half of them compressed")
    for name in commands:
        say(name, {"ours": large[name], "ours, library of 4 kB": small[name]}, "ours", "ms")
    commands = {"ours": [*ours, "targets", str(library)], "sha256sum": ["sha256sum", str(library)]}
    say("targets: reads all of it", world.seconds(commands, runs=1), "ours")


def cpu(world: World, quick: bool) -> None:
    """Print the seconds of CPU, of user and system, of commands that people wait for; bytecode is there."""
    root = variant_index(world.folder / "few-variants", 80, 10)
    ours = [world.python, "-m", "rocm_wheels"]
    with serve_folder(root) as server:
        commands = {
            "choose, by HTTP": [*ours, "choose", "torch", "--gfx", "gfx942", "--index", server.url],
            "choose, a folder": [*ours, "choose", "torch", "--gfx", "gfx942", "--index", str(root)],
            "doctor": [*ours, "doctor", "--gfx", "gfx942"],
            "configure": [*ours, "configure", "--gfx", "gfx942"],
            "compat gpu": [*ours, "compat", "gpu", "744c"],
        }
        for name, words in commands.items():
            print(f"{name:34} {measure_cpu(world, words, 3 if quick else 9):.2f} s of CPU")


def measure_cpu(world: World, words: list[str], runs: int) -> float:
    """Return the median of the seconds of CPU that a command takes, after one that writes its bytecode."""
    env = {name: text for name, text in world.env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(world.folder / "bytecode")
    _, *spent = (clock.run(words, env, codes=(0, 17)) for _ in range(runs + 1))
    return clock.find_medians(spent).processor


PARTS: Mapping[str, Callable[[World, bool], None]] = {
    "answers": answers,
    "times": times,
    "choose": choose,
    "install": install,
    "doctor": doctor,
    "cpu": cpu,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, in under a minute")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this; may be repeated")
    given = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        world = make_world(Path(name), 3 if given.quick else 7)
        for part, measure in PARTS.items():
            if part in (given.part or PARTS):
                print(f"-- {part} (load average {os.getloadavg()[0]:.1f})", flush=True)
                measure(world, given.quick)
    print(f"-- all of this: {time.perf_counter() - begin:.0f} s, {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
