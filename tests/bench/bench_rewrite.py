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
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rocm_wheels.wheels import archive, dist_info, edit, rewrite, zip_format
from rocm_wheels.wheels.scan import scan_wheel

NAME = "bench-1.0-py3-none-any.whl"
OURS = (
    "import pathlib, sys; from rocm_wheels.wheels.edit import WheelEdit; from "
    "rocm_wheels.wheels.rewrite import rewrite_wheel; {more}"
    "rewrite_wheel(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "
    "WheelEdit(label='rocm7.2', put={{'variant.json': b'{{}}'}}))"
)
NO_SYNC = "import os; os.fsync = lambda number: None; "
PYPROJECT = """
[variant.default-priorities]
namespace = ["bench"]
[variant.providers.bench]
static-properties = { version = ["1"] }
"""


def library(seed: int, size: int) -> bytes:
    """Bytes that deflate to about three quarters, like device code."""
    noise = hashlib.shake_128(b"%d" % seed).digest(size // 2)
    text = (b"\x7fELF section %d " % seed) * 64
    parts = [noise[at : at + 3000] + text[: 1000 + at % 500] for at in range(0, len(noise), 3000)]
    return b"".join(parts)[:size]


def make_wheel(path: Path, size: int, small: int) -> None:
    """Write a wheel of about ``size`` bytes: libraries of 64 MiB, deflated once each, and ``small`` files."""
    info = "bench-1.0.dist-info"
    rows, directory = [], []
    kinds = [packed(library(seed, 64 << 20)) for seed in range(3)]
    with open(path, "wb") as file:

        def put(name: str, entry: zip_format.ZipEntry, data: bytes, digest: str) -> None:
            entry = entry._replace(name=name, raw=name.encode())
            directory.append((entry, file.tell()))
            file.write(zip_format.pack_local_header(entry) + data)
            rows.append(f"{name},{digest},{entry.size}\n")

        number = 0
        while file.tell() < size - (50 << 20):
            put(f"bench/lib/lib{number}.so", *kinds[number % 3])
            number += 1
        for each in range(small):
            text = b"# file %d\n" % each + b"def function(a, b):\n    return a + b\n" * (each % 200)
            put(f"bench/include/part{each % 50}/header_{each}.h", *packed(text))
        put(f"{info}/METADATA", *packed(b"Metadata-Version: 2.1\nName: bench\nVersion: 1.0\n"))
        about = b"Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        put(f"{info}/WHEEL", *packed(about))
        rows.append(f"{info}/RECORD,,\n")
        put(f"{info}/RECORD", *packed("".join(rows).encode()))
        place = file.tell()
        listing = b"".join(zip_format.pack_central_entry(entry, at) for entry, at in directory)
        file.write(listing + zip_format.pack_end_records(len(directory), len(listing), place))


def packed(content: bytes) -> tuple[zip_format.ZipEntry, bytes, str]:
    """A member's entry, its bytes and its digest."""
    entry, data = zip_format.make_zip_entry("x", content, date=(46 << 9) + 33, time=0)
    return entry, data, dist_info.encode_record_digest(hashlib.sha256(content).digest())


def run(argv: list[str | Path], **how: Any) -> tuple[float, float, int]:
    """Run a program; seconds, seconds of CPU and peak memory in MB."""
    start = time.perf_counter()
    child = subprocess.Popen(list(map(str, argv)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **how)
    _, status, usage = os.wait4(child.pid, 0)
    assert child.stderr
    if status:
        raise SystemExit(f"{argv}: {child.stderr.read().decode()[-2000:]}")
    child.returncode = 0
    spent = time.perf_counter() - start
    return spent, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024


def contestants(wheel: Path, box: Path, peers: str | None) -> Iterator[tuple[str, list[list[str | Path]]]]:
    """Yield each way by name, with the programs it runs; the folder ``out`` in ``box`` is empty before."""
    out = box / "out"

    def ours(more: str = "") -> list[list[str | Path]]:
        return [[sys.executable, "-c", OURS.format(more=more), wheel, out]]

    yield "cp --reflink=never", [["cp", "--reflink=never", wheel, out]]
    yield "cp, and sync of the file", [["cp", "--reflink=never", wheel, out], ["sync", out / wheel.name]]
    yield "ours, without fsync", ours(NO_SYNC)
    yield "ours", ours()
    yield (
        "rocm-wheels wheel retag",
        [
            [
                sys.executable,
                "-m",
                "rocm_wheels",
                "wheel",
                "retag",
                wheel,
                "--local-version",
                "rocm7.2",
                "--output-dir",
                out,
            ]
        ],
    )
    if peers:
        (box / "pyproject.toml").write_text(PYPROJECT)
        tool = Path(peers).parent
        yield "variantlib make-variant", [
            [tool / "variantlib", "make-variant", "-f", wheel, "-o", out, "--no-isolation",
             "--pyproject-toml", box / "pyproject.toml",
             "--property", "bench :: version :: 1", "--variant-label", "bench1"]
        ]  # fmt: skip
        yield (
            "wheel tags",
            [
                ["cp", "--reflink=never", wheel, out],
                [tool / "wheel", "tags", "--build", "1", out / wheel.name],
            ],
        )
        yield (
            "wheel unpack, wheel pack",
            [
                [tool / "wheel", "unpack", "-d", out / "tree", wheel],
                [tool / "wheel", "pack", "-d", out, out / "tree" / "-".join(wheel.name.split("-")[:2])],
            ],
        )


def measure(wheel: Path, box: Path, peers: str | None, runs: int) -> None:
    """Print a line for each way."""
    ways = dict(contestants(wheel, box, peers))
    times: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    peak = dict.fromkeys(ways, 0)
    for turn in range(runs):
        for name, programs in ways.items():
            if turn and statistics.median(times[name]) > 15 * statistics.median(times["cp --reflink=never"]):
                continue  # once is enough for what takes that long
            shutil.rmtree(box / "out", ignore_errors=True)
            (box / "out").mkdir()
            os.sync()
            spent = [run([*argv]) for argv in programs]
            times[name].append(sum(seconds for seconds, _, _ in spent))
            cpu[name].append(sum(seconds for _, seconds, _ in spent))
            peak[name] = max(peak[name], *(memory for _, _, memory in spent))
    shutil.rmtree(box / "out", ignore_errors=True)
    base = times["cp --reflink=never"]
    load = os.getloadavg()[1]
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.0f} MB, medians of {runs}, load {load:.1f}")
    print(f"  {'':26} seconds   of cp     best   of cp      CPU  memory")
    for name, values in times.items():
        median, best = statistics.median(values), min(values)
        ratios = median / statistics.median(base), best / min(base)
        line = f"  {name:26} {median:7.2f} {ratios[0]:7.2f}  {best:7.2f} {ratios[1]:7.2f}  "
        print(f"{line}{statistics.median(cpu[name]):7.2f}  {peak[name]:4} MB")
    sys.stdout.flush()


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
