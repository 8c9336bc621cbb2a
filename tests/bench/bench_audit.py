"""What an audit of published wheels costs, beside `unzip -t` and `auditwheel show`.

Run by hand: ``python tests/bench/bench_audit.py WHEEL... [--without-auditwheel]``. Processor time (user and
system) and the largest memory of each process; wall times are shown, and say nothing on a busy machine. Of
several wheels, the last row is one command for all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """What one process took: seconds of processor and of wall clock, MB of memory."""

    processor: float
    wall: float
    memory: float


def run(argv: list[str]) -> Cost:
    """Run a program to its end, whatever that is."""
    begin = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", type=Path, nargs="+", metavar="WHEEL")
    parser.add_argument("--without-auditwheel", action="store_true")
    options = parser.parse_args()
    wheels, with_auditwheel = options.wheels, not options.without_auditwheel
    print(f"{'':44} {'MB':>6} {'processor':>10} {'wall':>8} {'memory':>9}")
    for wheel in wheels:
        size = wheel.stat().st_size / 1e6
        programs = {
            "rocm-wheels audit": [sys.executable, "-m", "rocm_wheels", "audit", "--json", str(wheel)],
            "unzip -t": ["unzip", "-tqq", str(wheel)],
        }
        if with_auditwheel and "linux" in wheel.name:
            programs["auditwheel show"] = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
        print(wheel.name)
        costs = {name: run(argv) for name, argv in programs.items()}
        own = costs["rocm-wheels audit"].processor
        for name, cost in costs.items():
            ratio = "" if name == "rocm-wheels audit" else f"  audit takes {own / cost.processor:.2f} of it"
            numbers = f"{size:6.0f} {cost.processor:8.1f} s {cost.wall:6.1f} s {cost.memory:6.0f} MB"
            print(f"  {name:42} {numbers}{ratio}", flush=True)
    if len(wheels) > 1:
        cost = run([sys.executable, "-m", "rocm_wheels", "audit", "--json", *map(str, wheels)])
        size = sum(wheel.stat().st_size for wheel in wheels) / 1e6
        numbers = f"{size:6.0f} {cost.processor:8.1f} s {cost.wall:6.1f} s {cost.memory:6.0f} MB"
        print(f"{f'all {len(wheels)} in one command':44} {numbers}")


if __name__ == "__main__":
    main()
