"""How long a stranger waits: the demo cold, warm and again, and every door's --help.

Run by hand: ``python tests/bench/bench_first_minutes.py [--cold]``. With ``--cold`` the package
cache is empty (about 200 MB are downloaded). Each figure is the wall time of one whole command in
a fresh clone with a fresh HOME; --help is the best of nine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import clock

CLONE = Path(__file__).resolve().parents[2]
DOORS = [
    "build_tools/build_prod_wheels.py",
    "build_tools/build_python_packages.py",
    "repos/pytorch_torch_repo.py",
    "repos/pytorch_audio_repo.py",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cold", action="store_true", help="begin with an empty package cache")
    cold = parser.parse_args().cold
    with tempfile.TemporaryDirectory() as name:
        scratch, clone = Path(name), Path(name) / "clone"
        subprocess.run(["git", "clone", "-q", str(CLONE), str(clone)], check=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "XDG_"))}
        if cold:
            folders = {"HOME": "home", "UV_CACHE_DIR": "uv", "PIP_CACHE_DIR": "pip"}
            env |= {variable: str(scratch / folder) for variable, folder in folders.items()}
            (scratch / "home").mkdir()
        python = getattr(sys, "_base_executable", sys.executable)
        demo = [python, clone / "build_tools" / "quickstart.py", "demo", "--output-dir", scratch / "demo"]
        print(f"demo, {'cold' if cold else 'warm'} package cache  {clock.run(demo, env).clock:6.1f} s")
        print(f"demo, second run       {clock.run(demo, env).clock:6.2f} s")
        for door in DOORS:
            best = min(clock.run([python, clone / door, "--help"], env).clock for _ in range(9))
            print(f"{door} --help  {best:.2f} s")


if __name__ == "__main__":
    main()
