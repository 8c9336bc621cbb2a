"""What a repair without grafts costs: against ``cp``, a bare inflating pass and auditwheel, in one run.

``python tests/bench/bench_repair.py [--runs N] [--size MB] [--auditwheel]``: makes a wheel of 1 GB, of large
libraries that a linker made around bytes that deflate to about three quarters, as device code does. Prints
the medians of alternated runs, each in a process of its own, peak memory, and the ratio to the bound:
twice ``cp`` and one inflating pass. Needs a C compiler for Linux and unzip.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import subprocess
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path

import clock

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
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        libraries = [clock.pack(link_library(Path(place), n, 200 << 20).read_bytes()) for n in range(3)]
        sizes = itertools.accumulate(len(data) for _, data, _ in itertools.cycle(libraries))
        count = next(number for number, total in enumerate(sizes, start=1) if total >= size)
        members = [(f"bench/lib/lib{number}.so", libraries[number % 3]) for number in range(count)]
        members += [(f"bench/include/{each}.h", clock.pack(b"int x;\n" * each)) for each in range(2000)]
        clock.write_wheel(path, members)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--size", type=int, default=1000, help="megabytes")
    wanted = "time `auditwheel repair` too, once; patchelf must be on PATH"
    parser.add_argument("--auditwheel", action="store_true", help=wanted)
    parser.add_argument("--make", type=Path, help="only write the wheel")
    options = parser.parse_args()
    if options.make:
        make_wheel(options.make, options.size * 10**6)
        return
    with tempfile.TemporaryDirectory() as place:
        wheel, out = Path(place) / NAME, Path(place) / "out"
        # in a process of its own: what it took would count as the peak of all that are started later
        subprocess.run([sys.executable, __file__, "--make", wheel, "--size", str(options.size)], check=True)
        with zipfile.ZipFile(wheel) as archive:
            content = sum(entry.file_size for entry in archive.infolist())
        print(f"{wheel.stat().st_size / 1e9:.2f} GB, {content / 1e9:.2f} GB inflated")
        ours = [sys.executable, "-m", "rocm_wheels", "wheel", "repair", wheel, "--output-dir", out]
        ways: dict[str, clock.Words] = {
            "cp": ["cp", "--reflink=never", wheel, out / "copy.whl"],
            "unzip -tqq": ["unzip", "-tqq", wheel],
            "wheel repair": ours,
            "wheel repair --dry-run": [*ours, "--dry-run"],
        }
        going = {name: partial(clock.run, words) for name, words in ways.items()}
        spent = clock.take_turns(going, options.runs, partial(clock.renew, out))
        if options.auditwheel:
            clock.renew(out)
            spent["auditwheel"] = [
                clock.run([sys.executable, "-m", "auditwheel", "repair", "-w", out, wheel])
            ]
        medians = {name: clock.find_medians(several) for name, several in spent.items()}
        for name, median in medians.items():
            print(f"{name:24} {median.clock:7.2f} s {max(each.memory for each in spent[name]):5.0f} MB")
        bound = 2 * medians["cp"].clock + medians["unzip -tqq"].clock
        print(f"bound: {bound:.2f} s; ratio {medians['wheel repair'].clock / bound:.2f}")


if __name__ == "__main__":
    main()
