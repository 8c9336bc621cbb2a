"""Checkout and build of five miniature projects: ROCm/TheRock's scripts beside ours, in one run.

Run by hand: ``python tests/bench/bench_against_peer.py PEER``, where PEER is ``external-builds/pytorch`` of
a ROCm/TheRock checkout. Both get the same repositories, the same ROCm packages and a warm package
cache. The peer's virtual environment with its build tools is made before the clock starts; ours is
made by the commands themselves, whose lock counts as checkout. The second run changes nothing; the
third edits one kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from rocm_wheels.cli.demo import prepare_inputs
from rocm_wheels.demo import ROCM_VERSION, ROCM_WHEELS, TARGETS, list_build_commands

CLONE = Path(__file__).resolve().parents[2]
TORCH = "repos/pytorch_torch_repo.py"
KERNEL = "aten/src/ATen/native/cuda/Activation.cu"


def run(argv: list[str], env: dict[str, str]) -> float:
    begin = time.perf_counter()
    ended = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{' '.join(argv)} failed:\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
    return time.perf_counter() - begin


def ours(folder: Path, urls: dict[str, str]) -> list[list[str]]:
    lines = []
    for call in list_build_commands(folder, urls)[1:]:
        door = ["-m", "rocm_wheels"] if call.program == ROCM_WHEELS else [str(CLONE / call.program)]
        lines.append([sys.executable, *door, *call.arguments])
    return lines


def of_edited_sources(build: list[str]) -> list[str]:
    """A build that a lock would refuse; ROCm and targets are said as the peer's are."""
    if "--lock" not in build:
        return build
    at = build.index("--lock")
    wanted = ["--rocm", f"=={ROCM_VERSION}", "--gfx", ",".join(TARGETS)]
    return [*build[:at], *wanted, *build[at + 2 :]]


def peers(peer: Path, python: Path, folder: Path, urls: dict[str, str]) -> list[list[str]]:
    torch, checkout = folder / "peer" / "pytorch", ["checkout", "--no-commit-hipify"]
    names = {"triton": "triton", "audio": "pytorch_audio", "vision": "pytorch_vision", "apex": "apex"}
    return [
        [str(python), str(peer / "pytorch_torch_repo.py"), *checkout, "--checkout-dir", str(torch),
         "--origin", urls["pytorch"]],
        *([str(python), str(peer / f"pytorch_{name}_repo.py"), *checkout, "--pytorch-dir", str(torch),
           "--checkout-dir", str(folder / "peer" / place),
           *(["--origin", urls["triton"]] if name == "triton" else [])]
          for name, place in names.items()),
        [str(python), str(peer / "build_prod_wheels.py"), "build", "--install-rocm",
         "--find-links", str(folder / "rocm-packages" / "dist"), "--rocm", f"=={ROCM_VERSION}",
         "--rocm-extras", ",".join(f"device-{t}" for t in TARGETS), "--gfx", ",".join(TARGETS),
         "--source-dir", str(folder / "peer"), "--output-dir", str(folder / "peer-wheels")],
    ]  # fmt: skip


def main() -> None:
    peer = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        urls = dict(prepare_inputs(folder, env))
        packages = list_build_commands(folder, urls)[0]
        run([sys.executable, str(CLONE / packages.program), *packages.arguments], env)
        python = folder / "venv" / "bin" / "python"
        venv.create(folder / "venv", with_pip=True)
        tools = ["build", "wheel", "setuptools<82", "packaging", "cmake", "ninja", "ziglang==0.17.0"]
        run([str(python), "-m", "pip", "install", "-q", *tools], env)
        allow = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "protocol.file.allow",
            "GIT_CONFIG_VALUE_0": "always",
        }
        path = f"{folder / 'venv' / 'bin'}{os.pathsep}{env['PATH']}"
        sides = {
            "peer": (peers(peer, python, folder, urls), {**env, **allow, "PATH": path}),
            "ours": (ours(folder, urls), env),
        }
        times: dict[str, list[float]] = {}
        for side, (commands, its_env) in sides.items():
            source = folder / ("peer" if side == "peer" else "sources") / "pytorch"
            first = [run(argv, its_env) for argv in commands]
            again = run(commands[-1], its_env)
            kernel = source / KERNEL
            kernel.write_text(kernel.read_text() + "\n// edited\n")
            door = commands[0][:2] if side == "peer" else [sys.executable, str(CLONE / TORCH)]
            words = ["--no-commit-hipify"] if side == "ours" else []
            where = ["--checkout-dir", str(source)]
            edited = run([*door, "hipify", *where, *words], its_env)
            edited += run(of_edited_sources(commands[-1]), its_env)
            times[side] = [sum(first[:-1]), first[-1], again, edited]
        for row, what in enumerate(
            ("checkout and hipify", "install ROCm and build", "build again", "one kernel edited")
        ):
            theirs, mine = times["peer"][row], times["ours"][row]
            print(f"{what:24} peer {theirs:6.2f} s  ours {mine:6.2f} s  ratio {theirs / mine:5.1f}")


if __name__ == "__main__":
    main()
