"""Checkout and build of five miniature projects: ROCm/TheRock's scripts beside ours, in one run.

Run by hand: ``python tests/bench/bench_against_peer.py --peer PEER [--rounds N]``, where PEER is
``external-builds/pytorch`` of a ROCm/TheRock checkout. Both get the same repositories, the same ROCm packages
and a warm package cache. The peer's virtual environment with its build tools is made before the clock starts;
ours is made by the commands themselves, whose lock counts as checkout. The second run changes nothing; the
third edits one kernel. Each round begins with empty folders, the sides by turns; figures are medians of the
rounds, of the time on the clock and of the processor time of the commands and of all that they started.
``--check`` only checks the command lines.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import clock
import miniature
from miniature import ROCM_VERSION, TARGETS
from peer_lines import check_lines

CLONE = Path(__file__).resolve().parents[2]
TORCH = "repos/pytorch_torch_repo.py"
KERNEL = "aten/src/ATen/native/cuda/Activation.cu"


def ours(folder: Path, urls: dict[str, str]) -> list[list[str]]:
    """As the demo does it: lock, checkout, build."""
    command, lock = [sys.executable, "-m", "rocm_wheels"], str(folder / "sources.lock.json")
    sources = ["--lock", lock, "--source-dir", str(folder / "sources")]
    return [
        [*command, "lock", "make", "--pytorch-origin", urls["pytorch"], "--triton-origin", urls["triton"],
         "--rocm", ROCM_VERSION, "--gfx", ",".join(TARGETS), "-o", lock],
        [*command, "checkout", *sources],
        [sys.executable, str(CLONE / "build_tools/build_prod_wheels.py"), "build", *sources, "--install-rocm",
         "--find-links", str(folder / "rocm-packages" / "dist"),
         "--rocm-extras", ",".join(f"device-{target}" for target in TARGETS),
         "--output-dir", str(folder / "wheels")],
    ]  # fmt: skip


def make_inputs(folder: Path, env: dict[str, str]) -> dict[str, str]:
    """Make the repositories and the packages of ROCm; return the URLs."""
    hipify = miniature.fetch_hipify(folder / "hipify", env=env)
    upstream = miniature.make_repositories(miniature.SOURCE, folder / "upstream", hipify=hipify, env=env)
    artifacts, rocm = folder / "rocm-artifacts", miniature.SOURCE / "rocm"
    miniature.make_artifacts(rocm, artifacts, version=ROCM_VERSION, targets=TARGETS, env=env)
    script = str(CLONE / "build_tools/build_python_packages.py")
    words = ["--artifact-dir", str(artifacts), "--output-dir", str(folder / "rocm-packages")]
    clock.run([sys.executable, script, *words], env)
    return {name: repository.url for name, repository in upstream.items()}


def of_edited_sources(build: list[str]) -> list[str]:
    """A build that a lock would refuse; ROCm and targets are said as the peer's are."""
    at = build.index("--lock")
    return [*build[:at], "--rocm", f"=={ROCM_VERSION}", "--gfx", ",".join(TARGETS), *build[at + 2 :]]


def peers(peer: Path, python: Path, folder: Path, urls: dict[str, str]) -> list[list[str]]:
    torch, checkout = folder / "peer" / "pytorch", ["checkout", "--no-commit-hipify"]
    names = {"triton": "triton", "audio": "pytorch_audio", "vision": "pytorch_vision", "apex": "apex"}
    return [
        [str(python), str(peer / "pytorch_torch_repo.py"), *checkout, "--checkout-dir", str(torch),
         "--gitrepo-origin", urls["pytorch"]],
        *([str(python), str(peer / f"pytorch_{name}_repo.py"), *checkout, "--torch-dir", str(torch),
           "--checkout-dir", str(folder / "peer" / place),
           *(["--gitrepo-origin", urls["triton"]] if name == "triton" else [])]
          for name, place in names.items()),
        [str(python), str(peer / "build_prod_wheels.py"), "build", "--install-rocm",
         "--find-links", str(folder / "rocm-packages" / "dist"), "--rocm-sdk-version", f"=={ROCM_VERSION}",
         "--rocm-extras", ",".join(f"device-{target}" for target in TARGETS),
         "--pytorch-rocm-arch", ",".join(TARGETS), "--root-checkout-dir", str(folder / "peer"),
         "--output-dir", str(folder / "peer-wheels")],
    ]  # fmt: skip


def list_sides(
    peer: Path, python: Path, folder: Path, urls: dict[str, str]
) -> dict[str, tuple[list[list[str]], list[list[str]]]]:
    """Return by side the commands of a whole run, and those that follow an edited kernel."""
    theirs, mine = peers(peer, python, folder, urls), ours(folder, urls)
    torch = {"peer": folder / "peer" / "pytorch", "ours": folder / "sources" / "pytorch"}
    their_hipify = [*theirs[0][:2], "hipify", "--checkout-dir", str(torch["peer"])]
    my_hipify = [sys.executable, str(CLONE / TORCH), "hipify", "--checkout-dir", str(torch["ours"])]
    return {
        "peer": (theirs, [their_hipify, theirs[-1]]),
        "ours": (mine, [[*my_hipify, "--no-commit-hipify"], of_edited_sources(mine[-1])]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peer", type=Path, required=True, help="external-builds/pytorch of a ROCm/TheRock checkout"
    )
    parser.add_argument("--rounds", type=int, default=3, help="whole runs of each side [default: 3]")
    parser.add_argument("--check", action="store_true", help="only check the command lines")
    given = parser.parse_args()
    peer = given.peer.resolve()
    if given.check:
        folder, urls = Path("/folder"), {"pytorch": "file:///pytorch", "triton": "file:///triton"}
        sides = list_sides(peer, Path(sys.executable), folder, urls)
        check_lines(line for pair in sides.values() for lines in pair for line in lines)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        urls = make_inputs(folder, env)
        python = folder / "venv" / "bin" / "python"
        allow = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "protocol.file.allow",
            "GIT_CONFIG_VALUE_0": "always",
        }
        path = f"{folder / 'venv' / 'bin'}{os.pathsep}{env['PATH']}"
        environments = {"peer": {**env, **allow, "PATH": path}, "ours": env}
        times: dict[str, list[list[clock.Spent]]] = {"peer": [], "ours": []}
        inputs = set(folder.iterdir())
        for _ in range(given.rounds):
            for made in set(folder.iterdir()) - inputs:
                shutil.rmtree(made) if made.is_dir() else made.unlink()
            venv.create(folder / "venv", with_pip=True)
            tools = ["build", "wheel", "setuptools<82", "packaging", "cmake", "ninja", "ziglang==0.17.0"]
            clock.run([str(python), "-m", "pip", "install", "-q", *tools], env)
            for side, (commands, after_edit) in list_sides(peer, python, folder, urls).items():
                side_env = environments[side]
                first = [clock.run(argv, side_env) for argv in commands]
                again = clock.run(commands[-1], side_env)
                kernel = folder / ("peer" if side == "peer" else "sources") / "pytorch" / KERNEL
                kernel.write_text(kernel.read_text() + "\n// edited\n")
                edited = clock.add_up(clock.run(argv, side_env) for argv in after_edit)
                times[side].append([clock.add_up(first[:-1]), first[-1], again, edited])
                parts = (f"{part.clock:.2f} s ({part.processor:.2f})" for part in times[side][-1])
                print(f"{side}: {', '.join(parts)}", flush=True)
        print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {given.rounds} rounds")
        rows = ("checkout and hipify", "install ROCm and build", "build again", "one kernel edited")
        for row, what in enumerate(rows):
            for kind in ("clock", "processor"):
                theirs, mine = (
                    statistics.median(getattr(figures[row], kind) for figures in times[side])
                    for side in times
                )
                print(
                    f"{what:24} {kind:9} peer {theirs:6.2f} s  ours {mine:6.2f} s  ratio {theirs / mine:5.1f}"
                )


if __name__ == "__main__":
    main()
