"""What a developer's loop costs with `dev` and by hand, on the miniature.

Run by hand: ``python tests/bench/bench_loop.py [--repeat N]``. Both have a checkout of their own, the same
tools and variables (`rocm-wheels shell`). By hand is: ``tools/amd_build/build_amd.py``, then ``ninja
install`` in ``build/``; where a configure step is needed, ``setup.py build_ext --inplace`` in place of ninja.
All figures are of whole commands, waited for; wall time and the time of processors of all their processes;
medians of runs that take turns. What is installed from an index is there before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import miniature

TARGETS = ("gfx942", "gfx1100")
KERNEL = "aten/src/ATen/native/cuda/Saxpy.cu"
PYTHON_FILE = "torch/cuda/__init__.py"
RUN = (sys.executable, "-m", "rocm_wheels")


@dataclass
class Clock:
    """Wall and processor seconds of commands, by step and by whose they are."""

    figures: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)

    def run(self, step: str, who: str, commands: Sequence[Callable[[], None]]) -> None:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        for command in commands:
            command()
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.figures.setdefault((step, who), []).append((wall, cpu))

    def print_table(self) -> None:
        print("| step | by hand, wall | `dev`, wall | by hand, processor | `dev`, processor | ratio |")
        print("| --- | --- | --- | --- | --- | --- |")
        for step in dict.fromkeys(step for step, _ in self.figures):
            hand, ours = (self.figures[step, who] for who in ("hand", "dev"))
            walls = [statistics.median(wall for wall, _ in runs) for runs in (hand, ours)]
            cpus = [statistics.median(cpu for _, cpu in runs) for runs in (hand, ours)]
            ratios = f"{walls[1] / walls[0]:.2f} wall, {cpus[1] / cpus[0]:.2f} processor"
            cells = (f"{seconds:.2f} s" for seconds in (*walls, *cpus))
            print(f"| {step} | {' | '.join(cells)} | {ratios} |")


def call(words: Sequence[str | Path], cwd: Path, env: Mapping[str, str]) -> None:
    ended = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{words} failed:\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")


@dataclass(frozen=True)
class Loop:
    """A checkout, and how it is brought up to date."""

    tree: Path
    env: Mapping[str, str]
    words: tuple[str | Path, ...] = ()

    def edit(self, path: str, text: str) -> None:
        with (self.tree / path).open("a", encoding="utf-8") as file:
            file.write(text)

    def switch(self, branch: str) -> None:
        call(["git", "checkout", "-q", branch], self.tree, self.env)

    def develop(self, *more: str) -> None:
        call([*self.words, *more], self.tree.parent, self.env)

    def develop_anew(self) -> None:
        shutil.rmtree(self.tree / "build", ignore_errors=True)
        self.develop()

    def hipify(self) -> None:
        call(["python", "tools/amd_build/build_amd.py"], self.tree, self.env)

    def compile(self) -> None:
        call(["ninja", "-C", "build", "install"], self.tree, self.env)

    def configure(self, **variables: str) -> None:
        env = {**self.env, **variables}
        call(["python", "setup.py", "build_ext", "--inplace"], self.tree, env)


def make_loops(folder: Path) -> tuple[Loop, Loop]:
    """Make both checkouts, hipified and built once; the other branch has one kernel that differs."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("ROCM", "HIP", "PYTORCH"))
    }
    home = miniature.SOURCE
    hipify = miniature.fetch_hipify(folder / "hipify", env=env)
    torch = miniature.make_repositories(home, folder / "upstream", hipify=hipify, env=env)["pytorch"]
    miniature.make_artifacts(home / "rocm", folder / "artifacts", version="7.1.0", targets=TARGETS, env=env)
    packages = ("--artifact-dir", folder / "artifacts", "--output-dir", folder / "packages")
    call([*RUN, "rocm", "packages", *packages], folder, env)
    for name in ("dev", "hand"):
        origin = ("--origin", torch.url, "--ref", torch.branch, "--source-dir", folder / name)
        call([*RUN, "checkout", "pytorch", *origin, "--no-commit-hipify"], folder, env)
    words = (
        *(
            *RUN,
            "dev",
            "pytorch",
            "--source-dir",
            folder / "dev",
            "--gfx",
            ",".join(TARGETS),
            "--install-rocm",
        ),
        *("--find-links", folder / "packages" / "dist", "--rocm-extras", "device-gfx942,device-gfx1100"),
    )
    ours = Loop(folder / "dev" / "pytorch", env, words)
    ours.develop()
    printed = subprocess.run(
        [*RUN, "shell", "pytorch", "--source-dir", folder / "dev", "--json"],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    variables = {name: value for name, value in json.loads(printed.stdout).items() if value is not None}
    del variables["ROCM_WHEELS_SHELL"]
    hand = Loop(folder / "hand" / "pytorch", {**env, **variables})
    shutil.copy(ours.tree / "torch/_rocm_init.py", hand.tree / "torch")
    for loop in (ours, hand):
        call(["git", "checkout", "-q", "-b", "one"], loop.tree, env)
        call(["git", "checkout", "-q", "-b", "other"], loop.tree, env)
        loop.edit("aten/src/ATen/native/cuda/Reduce.cu", "// other\n")
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        call(["git", *identity, "commit", "-qm", "other", "aten"], loop.tree, env)
        loop.switch("one")
    hand.configure()
    return ours, hand


def run_steps(clock: Clock, ours: Loop, hand: Loop, repeat: int) -> None:
    def first() -> None:
        shutil.rmtree(hand.tree / "build")
        clock.run("first build", "hand", [hand.hipify, hand.configure])
        clock.run("first build", "dev", [ours.develop_anew])

    def turn(step: str, change: Callable[[Loop], None]) -> None:
        change(hand)
        clock.run(step, "hand", [hand.hipify, hand.compile])
        change(ours)
        clock.run(step, "dev", [ours.develop])

    def settle() -> None:
        """Bring both up to date, so that each step begins with what it changes alone."""
        for command in (hand.hipify, hand.compile, ours.develop, ours.develop):
            command()

    def debug_and_back() -> None:
        clock.run("debug and back", "hand", [lambda: hand.configure(DEBUG="1"), hand.configure])
        clock.run(
            "debug and back", "dev", [lambda: ours.develop("--set-env", "pytorch:DEBUG=1"), ours.develop]
        )

    first()
    settle()
    for number in range(repeat):
        turn("nothing changed", lambda loop: None)
        turn("one kernel", lambda loop, number=number: loop.edit(KERNEL, f"// {number}\n"))
        turn("one Python file", lambda loop, number=number: loop.edit(PYTHON_FILE, f"# {number}\n"))
        turn("another branch, one kernel differs", lambda loop: loop.switch("other"))
        turn("and back", lambda loop: loop.switch("one"))
        settle()
    ours.develop("--set-env", "pytorch:DEBUG=1")
    ours.develop()
    for _ in range(max(1, repeat // 2)):
        debug_and_back()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="loop-") as name:
        ours, hand = make_loops(Path(name))
        run_steps(clock, ours, hand, repeat)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {repeat} runs each")
    clock.print_table()


if __name__ == "__main__":
    main()
