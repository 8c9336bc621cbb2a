"""What `install` adds to uv: ``python tests/bench/bench_install.py [--runs N] [--index URL PACKAGES…]``.

By turns, a new environment each time, caches warm: `rocm-wheels install --venv` with the proof of kernels,
and uv alone (venv, pip compile to a lock, pip install, pip check). Without --index six tiny wheels from
servers of this machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "worlds"))
import clock
from pythons import pypi, rocm_index, served_index
from uv import find_uv_bin

from rocm_wheels.user.requested import PYPI_URL

PACKAGES = ["torch", "torchvision", "torchaudio"]


def install_alone(index: str, rest: str, packages: list[str], folder: Path) -> list[list[str]]:
    """Return what uv is told for the same: a lock, and its installation."""
    uv, lock, python = find_uv_bin(), str(folder / "pylock.toml"), str(folder / "uv" / "bin" / "python")
    requirements = folder / "requirements.in"
    requirements.write_text("\n".join(packages))
    indexes = ["--no-config", "--quiet", "--index", index, "--default-index", rest]
    compiling = ["--python", python, "--format", "pylock.toml", "-o", lock, str(requirements)]
    return [
        [uv, "venv", "--quiet", "--no-config", "--python", sys.executable, str(folder / "uv")],
        [uv, "pip", "compile", *indexes, *compiling],
        [uv, "pip", "install", *indexes, "--python", python, "-r", lock, "--preview-features", "pylock"],
        [uv, "pip", "check", "--quiet", "--no-config", "--python", python],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--index", help="install from there, and what it lacks from PyPI")
    parser.add_argument("packages", nargs="*")
    given = parser.parse_args()
    packages = given.packages or PACKAGES
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        index, rest = given.index, PYPI_URL
        if index is None:
            index = stack.enter_context(served_index(folder / "rocm", rocm_index(folder / "wheels"))).url
            rest = stack.enter_context(served_index(folder / "pypi", pypi(folder / "rest"))).url
        env = {name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        env |= {"UV_CACHE_DIR": str(folder / "uv-cache"), "XDG_CACHE_HOME": str(folder / "cache")}
        env |= {"UV_DEFAULT_INDEX": rest, "PIP_CONFIG_FILE": os.devnull}
        env |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1")
        ours = [sys.executable, "-m", "rocm_wheels", "install", *packages, "--venv", str(folder / "ours")]
        ours += ["--python", sys.executable, "--index", index, "--gfx", "gfx942"]
        commands = {"ours": [ours], "uv": install_alone(index, rest, packages, folder)}

        def go(name: str) -> clock.Spent:
            shutil.rmtree(folder / name, ignore_errors=True)
            return clock.add_up(clock.run(words, env) for words in commands[name])

        ways = {name: partial(go, name) for name in commands}
        clock.take_turns(ways, 1)  # warms up
        for name, several in clock.take_turns(ways, given.runs).items():
            median = clock.find_medians(several)
            print(f"{name:5} {median.clock:.2f} s (least {min(several).clock:.2f}),", end=" ")
            print(f"of processors {median.processor:.2f} s")


if __name__ == "__main__":
    main()
