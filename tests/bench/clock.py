"""What benchmarks have in common: programs with a clock, turns, medians, a wheel of large members."""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rocm_wheels.wheels import dist_info, zip_format

Words = Sequence[str | Path]
Packed = tuple[zip_format.ZipEntry, bytes, str]

# what variantlib is told to make any wheel a variant
VARIANT_PYPROJECT = """
[variant.default-priorities]
namespace = ["bench"]
[variant.providers.bench]
static-properties = { version = ["1"] }
"""


class Spent(NamedTuple):
    """What programs took: seconds on the clock and of processors, and MB of memory at most."""

    clock: float
    processor: float
    memory: float


def run(
    words: Words,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    codes: Collection[int] = (0,),
) -> Spent:
    """Run a program and all that it starts; end all unless its code is one of ``codes`` (none: any)."""
    argv = [*map(str, words)]
    with tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        child = subprocess.Popen(argv, env=env, cwd=cwd, stdout=output, stderr=output)
        _, status, usage = os.wait4(child.pid, 0)
        clock = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        if codes and child.returncode not in codes:
            output.seek(0)
            printed = output.read()[-3000:].decode(errors="replace")
            sys.exit(f"{' '.join(argv)} ended with {child.returncode}:\n{printed}")
    return Spent(clock, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def add_up(parts: Iterable[Spent]) -> Spent:
    """Return what programs took one after the other."""
    clocks, processors, memories = zip(*parts, strict=True)
    return Spent(sum(clocks), sum(processors), max(memories))


def find_medians(several: Iterable[Spent]) -> Spent:
    """Return the median of each figure."""
    return Spent(*map(statistics.median, zip(*several, strict=True)))


def take_turns(
    ways: Mapping[str, Callable[[], Spent]], runs: int, begin: Callable[[], object] = lambda: None
) -> dict[str, list[Spent]]:
    """Go each way so often, by turns, as other work on the machine falls on all; ``begin``: before each."""
    spent: dict[str, list[Spent]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, go in ways.items():
            begin()
            spent[name].append(go())
    return spent


def renew(folder: Path) -> None:
    """Have a folder be there and be empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def pack(content: bytes) -> Packed:
    """Return a member's entry, its deflated bytes and its digest: they can be put in under several names."""
    entry, data = zip_format.make_zip_entry("x", content, date=(46 << 9) + 33, time=0)
    return entry, data, dist_info.encode_record_digest(hashlib.sha256(content).digest())


def write_wheel(path: Path, members: Iterable[tuple[str, Packed]]) -> None:
    """Write a wheel of packed members; METADATA, WHEEL and RECORD follow from its name and from them."""
    project, version, tag = path.stem.split("-", 2)
    info, rows, directory = f"{project}-{version}.dist-info", [], []
    about = {
        "METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: bench\n"
        f"Root-Is-Purelib: {str(tag.endswith('any')).lower()}\nTag: {tag}\n",
    }
    with open(path, "wb") as file:

        def put(name: str, packed: Packed) -> None:
            entry, data, digest = packed
            entry = entry._replace(name=name, raw=name.encode())
            directory.append((entry, file.tell()))
            file.write(zip_format.pack_local_header(entry) + data)
            rows.append(f"{name},{digest},{entry.size}\n")

        for member in members:
            put(*member)
        for name, text in about.items():
            put(f"{info}/{name}", pack(text.encode()))
        put(f"{info}/RECORD", pack("".join([*rows, f"{info}/RECORD,,\n"]).encode()))
        place = file.tell()
        listing = b"".join(zip_format.pack_central_entry(entry, at) for entry, at in directory)
        file.write(listing + zip_format.pack_end_records(len(directory), len(listing), place))
