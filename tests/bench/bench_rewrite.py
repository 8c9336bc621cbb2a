"""What rewriting a wheel costs: against ``cp``, variantlib and the ``wheel`` package, in one run.

``python tests/bench/bench_rewrite.py [--runs N] [--wheel FILE] [--peers PYTHON] [--large]``: makes a wheel
of 1 GB (large libraries, thousands of small files) unless one is named, and prints the median of
alternated runs, each in a process of its own, the ratio to ``cp`` and the peak memory. PYTHON is an
interpreter that has variantlib[cli] 0.2.2 and wheel. Then how many bytes are inflated and hashed when a
wheel is checked and rewritten, and with ``--large`` a wheel of 5 GB with ZIP64.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import clock

from rocm_wheels.wheels import archive, edit, rewrite
from rocm_wheels.wheels.scan import scan_wheel

NAME = "bench-1.0-py3-none-any.whl"
OURS = (
    "import pathlib, sys; from rocm_wheels.wheels.edit import WheelEdit; from "
    "rocm_wheels.wheels.rewrite import rewrite_wheel; {more}"
    "rewrite_wheel(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "
    "WheelEdit(label='rocm7.2', put={{'variant.json': b'{{}}'}}))"
)
NO_SYNC = "import os; os.fsync = lambda number: None; "


def library(seed: int, size: int) -> bytes:
    """Bytes that deflate to about three quarters, like device code."""
    noise = hashlib.shake_128(b"%d" % seed).digest(size // 2)
    text = (b"\x7fELF section %d " % seed) * 64
    parts = [noise[at : at + 3000] + text[: 1000 + at % 500] for at in range(0, len(noise), 3000)]
    return b"".join(parts)[:size]


def make_wheel(path: Path, size: int, small: int) -> None:
    """Write a wheel of about ``size`` bytes: libraries of 64 MiB, deflated once each, and ``small`` files."""
    kinds = [clock.pack(library(seed, 64 << 20)) for seed in range(3)]
    count = -(-(size - (50 << 20)) // len(kinds[0][1]))
    members = [(f"bench/lib/lib{number}.so", kinds[number % 3]) for number in range(count)]
    for each in range(small):
        text = b"# file %d\n" % each + b"def function(a, b):\n    return a + b\n" * (each % 200)
        members.append((f"bench/include/part{each % 50}/header_{each}.h", clock.pack(text)))
    clock.write_wheel(path, members)


def contestants(wheel: Path, box: Path, peers: str | None) -> Iterator[tuple[str, list[clock.Words]]]:
    """Yield each way by name, with the programs it runs; the folder ``out`` in ``box`` is empty before."""
    out = box / "out"
    copy = ["cp", "--reflink=never", wheel, out]

    def ours(more: str = "") -> list[clock.Words]:
        return [[sys.executable, "-c", OURS.format(more=more), wheel, out]]

    yield "cp --reflink=never", [copy]
    yield "cp, and sync of the file", [copy, ["sync", out / wheel.name]]
    yield "ours, without fsync", ours(NO_SYNC)
    yield "ours", ours()
    retag = ["wheel", "retag", wheel, "--local-version", "rocm7.2", "--output-dir", out]
    yield "rocm-wheels wheel retag", [[sys.executable, "-m", "rocm_wheels", *retag]]
    if peers:
        (box / "pyproject.toml").write_text(clock.VARIANT_PYPROJECT)
        tool = Path(peers).parent
        words = ["make-variant", "-f", wheel, "-o", out, "--no-isolation", "--variant-label", "bench1"]
        words += ["--pyproject-toml", box / "pyproject.toml", "--property", "bench :: version :: 1"]
        yield "variantlib make-variant", [[tool / "variantlib", *words]]
        tags = [tool / "wheel", "tags", "--build", "1", out / wheel.name]
        yield "wheel tags", [copy, tags]
        tree = out / "tree" / "-".join(wheel.name.split("-")[:2])
        unpack = [tool / "wheel", "unpack", "-d", out / "tree", wheel]
        yield "wheel unpack, wheel pack", [unpack, [tool / "wheel", "pack", "-d", out, tree]]


def measure(wheel: Path, box: Path, peers: str | None, runs: int) -> None:
    """Print a line for each way."""
    ways = dict(contestants(wheel, box, peers))
    spent: dict[str, list[clock.Spent]] = {name: [] for name in ways}
    base = spent["cp --reflink=never"]
    for _ in range(runs):
        for name, programs in ways.items():
            its = spent[name]
            if its and clock.find_medians(its).clock > 15 * clock.find_medians(base).clock:
                continue  # once is enough for what takes that long
            clock.renew(box / "out")
            os.sync()
            its.append(clock.add_up(map(clock.run, programs)))
    shutil.rmtree(box / "out")
    load = os.getloadavg()[1]
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.0f} MB, medians of {runs}, load {load:.1f}")
    print(f"  {'':26} seconds   of cp     best   of cp      CPU  memory")
    of_cp = clock.find_medians(base).clock, min(base).clock
    for name, several in spent.items():
        median, best = clock.find_medians(several), min(several).clock
        line = f"  {name:26} {median.clock:7.2f} {median.clock / of_cp[0]:7.2f}"
        line = f"{line}  {best:7.2f} {best / of_cp[1]:7.2f}  "
        print(f"{line}{median.processor:7.2f}  {max(each.memory for each in several):4.0f} MB", flush=True)


def count(wheel: Path, box: Path) -> None:
    """Print how many bytes are inflated and hashed when a wheel is checked and rewritten."""
    seen = {"inflated": 0, "hashed": 0}

    def inflater(bits: int) -> Any:
        stream = zlib.decompressobj(bits)

        class Counting:
            def __getattr__(self, name: str) -> Any:
                return getattr(stream, name)

            def decompress(self, data: bytes, most: int = 0) -> bytes:
                piece = stream.decompress(data, most)
                seen["inflated"] += len(piece)
                return piece

        return Counting()

    class Hasher:
        def __init__(self, data: bytes = b"") -> None:
            self.inner = hashlib.sha256(data)

        def update(self, data: bytes) -> None:
            seen["hashed"] += len(data)
            self.inner.update(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    archive.zlib = SimpleNamespace(**{**vars(zlib), "decompressobj": inflater})  # type: ignore[assignment]
    archive.hashlib = SimpleNamespace(**{**vars(hashlib), "sha256": Hasher})  # type: ignore[assignment]
    scan = scan_wheel(wheel)
    total = sum(member.size for member in scan.members)
    size = wheel.stat().st_size
    print(f"checked: inflated {seen['inflated'] / total:.3f} of the content, ", end="")
    print(f"hashed {(seen['hashed'] - size) / total:.3f} of it and {size / size:.0f} times the file")
    seen.update(inflated=0, hashed=0)
    rewrite.rewrite_wheel(wheel, box / "out", edit.WheelEdit(local="rocm7.2", put={"variant.json": b"{}"}))
    print(f"rewritten: inflated {seen['inflated'] / total:.4f} of the content, hashed {seen['hashed']} bytes")
    shutil.rmtree(box / "out")


def apart(work: str, *given: object) -> None:
    """Run a function of this file in a process of its own: the peak of a child begins with its parent's."""
    subprocess.run([sys.executable, __file__, "--apart", work, *map(str, given)], check=True)


def main() -> None:
    """Run everything."""
    if sys.argv[1:3] == ["--apart", "make"]:
        return make_wheel(Path(sys.argv[3]), int(sys.argv[4]), 5_000)
    if sys.argv[1:3] == ["--apart", "count"]:
        return count(Path(sys.argv[3]), Path(sys.argv[4]))
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--peers")
    parser.add_argument("--large", action="store_true", help="the wheel of 5 GB too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-rewrite-") as name:
        box = Path(name)
        wheel = given.wheel or box / NAME
        if not given.wheel:
            apart("make", wheel, given.megabytes * 1_000_000)
        measure(wheel, box, given.peers, given.runs)
        apart("count", wheel, box)
        if given.large:
            if not given.wheel:
                wheel.unlink()
            huge = box / "large" / NAME
            huge.parent.mkdir()
            apart("make", huge, 5_000_000_000)
            measure(huge, box, None, 1)
    return None


if __name__ == "__main__":
    main()
