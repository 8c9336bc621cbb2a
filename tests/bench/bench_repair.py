"""What a repair without grafts costs: against ``cp``, a bare inflating pass and auditwheel, in one run.

``python tests/bench/bench_repair.py [--runs N] [--size MB] [--auditwheel]``: makes a wheel of 1 GB, of large
libraries that a linker made around bytes that deflate to about three quarters, as device code does. Prints
the medians of alternated runs, each in a process of its own, peak memory, and the ratio to the bound:
twice ``cp`` and one inflating pass. Needs a C compiler for Linux and unzip.
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
import zipfile
from pathlib import Path

NAME = "bench-1.0-cp311-cp311-linux_x86_64.whl"


def link_library(folder: Path, number: int, size: int) -> Path:
    """Link a library with ``size`` bytes of data that deflate like device code, and a run path."""
    noise = hashlib.shake_128(b"%d" % number).digest(size // 2)
    text = (b"section %d " % number) * 64
    pieces = [noise[at : at + 3000] + text[: 500 + at % 500] for at in range(0, len(noise), 3000)]
    data = folder / f"data{number}.bin"
    data.write_bytes(b"".join(pieces))
    source = f'.section .hip_fatbin,"a"\n.globl d{number}\nd{number}: .incbin "{data}"\n'
    library = folder / f"lib{number}.so"
    argv = ["cc", "-shared", "-x", "assembler", "-", "-o", str(library), "-Wl,-z,noexecstack"]
    subprocess.run([*argv, "-Wl,-rpath,$ORIGIN", "-lm"], input=source, text=True, check=True)
    return library


def make_wheel(path: Path, size: int) -> None:
    """Write a wheel of about ``size`` bytes: three libraries of 200 MB several times, and small files."""
    info = "bench-1.0.dist-info"
    about = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n"
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        libraries = [link_library(Path(place), number, 200 << 20) for number in range(3)]
        rows = []
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:

            def put(name: str, content: bytes) -> None:
                archive.writestr(name, content)
                rows.append(f"{name},sha256={_digest(content)},{len(content)}\n")

            number = 0
            while path.stat().st_size < size:
                put(f"bench/lib/lib{number}.so", libraries[number % 3].read_bytes())
                number += 1
            for each in range(2000):
                put(f"bench/include/{each}.h", b"int x;\n" * each)
            put(f"{info}/METADATA", b"Metadata-Version: 2.1\nName: bench\nVersion: 1.0\n")
            put(f"{info}/WHEEL", about.encode())
            archive.writestr(f"{info}/RECORD", "".join(rows) + f"{info}/RECORD,,\n")


def _digest(content: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def run(argv: list[str]) -> tuple[float, int]:
    """Run a program; seconds, and peak memory in MB."""
    start = time.perf_counter()
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    if status:
        raise SystemExit(f"{argv} failed")
    return time.perf_counter() - start, usage.ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--size", type=int, default=1000, help="megabytes")
    parser.add_argument(
        "--auditwheel",
        action="store_true",
        help="time `auditwheel repair` too, once; patchelf must be on PATH",
    )
    parser.add_argument("--make", type=Path, help="only write the wheel")
    options = parser.parse_args()
    if options.make:
        make_wheel(options.make, options.size * 10**6)
        return
    with tempfile.TemporaryDirectory() as place:
        box = Path(place)
        wheel = box / NAME
        # in a process of its own: what it took would count as the peak of all that are started later
        subprocess.run([sys.executable, __file__, "--make", wheel, "--size", str(options.size)], check=True)
        with zipfile.ZipFile(wheel) as archive:
            content = sum(entry.file_size for entry in archive.infolist())
        print(f"{wheel.stat().st_size / 1e9:.2f} GB, {content / 1e9:.2f} GB inflated")
        out = box / "out"
        ours = [sys.executable, "-m", "rocm_wheels", "wheel", "repair", str(wheel), "--output-dir", str(out)]
        ways = {
            "cp": ["cp", "--reflink=never", str(wheel), str(out / "copy.whl")],
            "unzip -tqq": ["unzip", "-tqq", str(wheel)],
            "wheel repair": ours,
            "wheel repair --dry-run": [*ours, "--dry-run"],
        }
        spent: dict[str, list[float]] = {name: [] for name in ways}
        memory = dict.fromkeys(ways, 0)
        for _ in range(options.runs):
            for name, argv in ways.items():
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                seconds, peak = run(argv)
                spent[name].append(seconds)
                memory[name] = max(memory[name], peak)
        median = {name: statistics.median(times) for name, times in spent.items()}
        for name, seconds in median.items():
            print(f"{name:24} {seconds:7.2f} s {memory[name]:5} MB", flush=True)
        bound = 2 * median["cp"] + median["unzip -tqq"]
        print(f"bound: {bound:.2f} s; ratio {median['wheel repair'] / bound:.2f}")
        if options.auditwheel:
            shutil.rmtree(out)
            seconds, peak = run([sys.executable, "-m", "auditwheel", "repair", "-w", str(out), str(wheel)])
            print(f"{'auditwheel repair':24} {seconds:7.2f} s {peak:5} MB")


if __name__ == "__main__":
    main()
