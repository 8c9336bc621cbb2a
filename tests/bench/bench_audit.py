"""What an audit of published wheels costs, beside `unzip -t` and `auditwheel show`.

Run by hand: ``python tests/bench/bench_audit.py WHEEL... [--without-auditwheel]``. Processor time (user and
system) and the largest memory of each process; wall times are shown, and say nothing on a busy machine. Of
several wheels, the last row is one command for all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import clock

AUDIT = (sys.executable, "-m", "rocm_wheels", "audit", "--json")


def describe(wheels: list[Path], spent: clock.Spent) -> str:
    size = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    return f"{size:6.0f} {spent.processor:8.1f} s {spent.clock:6.1f} s {spent.memory:6.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", type=Path, nargs="+", metavar="WHEEL")
    parser.add_argument("--without-auditwheel", action="store_true")
    options = parser.parse_args()
    wheels: list[Path] = options.wheels
    print(f"{'':44} {'MB':>6} {'processor':>10} {'wall':>8} {'memory':>9}")
    for wheel in wheels:
        programs: dict[str, clock.Words] = {
            "rocm-wheels audit": [*AUDIT, wheel],
            "unzip -t": ["unzip", "-tqq", wheel],
        }
        if not options.without_auditwheel and "linux" in wheel.name:
            programs["auditwheel show"] = [sys.executable, "-m", "auditwheel", "show", "--json", wheel]
        print(wheel.name)
        costs = {name: clock.run(words, codes=()) for name, words in programs.items()}
        own = costs["rocm-wheels audit"].processor
        for name, cost in costs.items():
            ratio = "" if name == "rocm-wheels audit" else f"  audit takes {own / cost.processor:.2f} of it"
            print(f"  {name:42} {describe([wheel], cost)}{ratio}", flush=True)
    if len(wheels) > 1:
        every = clock.run([*AUDIT, *wheels], codes=())
        print(f"{f'all {len(wheels)} in one command':44} {describe(wheels, every)}")


if __name__ == "__main__":
    main()
