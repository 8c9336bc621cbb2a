"""What reading targets costs against inflating the wheel: ``python tests/bench/bench_targets.py WHEEL…``.

Prints, for each wheel, the median of alternated runs, each in a process of its own, their ratio
to a plain inflation of every member (what ``unzip -t`` does), and the peak memory.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 5
CODE = {
    "inflate": "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).testzip()",
    "targets": "import sys, pathlib; from rocm_wheels.wheels.wheel_code import read_device_code; "
    "read_device_code(pathlib.Path(sys.argv[1]), whole=False)",
    "details": "import sys, pathlib; from rocm_wheels.wheels.wheel_code import read_device_code; "
    "read_device_code(pathlib.Path(sys.argv[1]))",
    "scan": "import sys, pathlib; from rocm_wheels.wheels.scan import scan_wheel; "
    "scan_wheel(pathlib.Path(sys.argv[1]))",
    "start": "import rocm_wheels.wheels.scan",
}
PEAK = "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"


def measure(wheel: Path) -> None:
    """Print a line a reading."""
    times: dict[str, list[float]] = {name: [] for name in CODE}
    peak: dict[str, str] = {}
    for _ in range(RUNS):
        for name, code in CODE.items():
            start = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", code + PEAK, wheel], check=True, capture_output=True, text=True
            )
            times[name].append(time.perf_counter() - start)
            peak[name] = done.stdout.strip()
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{wheel.name} ({wheel.stat().st_size / 1e6:.0f} MB)")
    for name, value in medians.items():
        print(f"  {name:8} {value:6.2f} s  {value / medians['inflate']:5.2f} of inflate  {peak[name]:>4} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", type=Path, nargs="+", metavar="WHEEL")
    for wheel in parser.parse_args().wheels:
        measure(wheel)
