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
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import clock
import miniature

TARGETS = ("gfx942", "gfx1100")
KERNEL = "aten/src/ATen/native/cuda/Saxpy.cu"
PYTHON_FILE = "torch/cuda/__init__.py"
RUN = (sys.executable, "-m", "rocm_wheels")


Figures = dict[tuple[str, str], list[clock.Spent]]


def print_table(figures: Figures) -> None:
    """Print a row for each step: the medians of both, and their ratios."""
    print("| step | by hand, wall | `dev`, wall | by hand, processor | `dev`, processor | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for step in dict.fromkeys(step for step, _ in figures):
        hand, ours = (clock.find_medians(figures[step, who]) for who in ("hand", "dev"))
        ratios = f"{ours.clock / hand.clock:.2f} wall, {ours.processor / hand.processor:.2f} processor"
        seconds = (hand.clock, ours.clock, hand.processor, ours.processor)
        print(f"| {step} | {' | '.join(f'{each:.2f} s' for each in seconds)} | {ratios} |")


@dataclass(frozen=True)
class Loop:
    """A checkout, and how it is brought up to date."""

    tree: Path
    env: Mapping[str, str]
    words: tuple[str | Path, ...] = ()

    def edit(self, path: str, text: str) -> None:
        with (self.tree / path).open("a", encoding="utf-8") as file:
            file.write(text)

    def switch(self, branch: str) -> clock.Spent:
        return clock.run(["git", "checkout", "-q", branch], self.env, self.tree)

    def develop(self, *more: str) -> clock.Spent:
        return clock.run([*self.words, *more], self.env, self.tree.parent)

    def develop_anew(self) -> clock.Spent:
        shutil.rmtree(self.tree / "build", ignore_errors=True)
        return self.develop()

    def hipify(self) -> clock.Spent:
        return clock.run(["python", "tools/amd_build/build_amd.py"], self.env, self.tree)

    def compile(self) -> clock.Spent:
        return clock.run(["ninja", "-C", "build", "install"], self.env, self.tree)

    def configure(self, **variables: str) -> clock.Spent:
        env = {**self.env, **variables}
        return clock.run(["python", "setup.py", "build_ext", "--inplace"], env, self.tree)


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
    clock.run([*RUN, "rocm", "packages", *packages], env, folder)
    for name in ("dev", "hand"):
        origin = ("--origin", torch.url, "--ref", torch.branch, "--source-dir", folder / name)
        clock.run([*RUN, "checkout", "pytorch", *origin, "--no-commit-hipify"], env, folder)
    words = (
        *(*RUN, "dev", "pytorch", "--source-dir", folder / "dev", "--gfx", ",".join(TARGETS)),
        *("--install-rocm", "--find-links", folder / "packages" / "dist"),
        *("--rocm-extras", "device-gfx942,device-gfx1100"),
    )
    ours = Loop(folder / "dev" / "pytorch", env, words)
    ours.develop()
    printed = subprocess.run(
        [*RUN, "shell", "pytorch", "--work-dir", folder / "dev/.rocm-wheels", "--json"],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    variables = {name: value for name, value in json.loads(printed.stdout).items() if value is not None}
    del variables["ROCM_WHEELS_SHELL"]
    hand = Loop(folder / "hand" / "pytorch", {**env, **variables})
    shutil.copy(ours.tree / "torch/_rocm_init.py", hand.tree / "torch")
    for loop in (ours, hand):
        clock.run(["git", "checkout", "-q", "-b", "one"], env, loop.tree)
        clock.run(["git", "checkout", "-q", "-b", "other"], env, loop.tree)
        loop.edit("aten/src/ATen/native/cuda/Reduce.cu", "// other\n")
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        clock.run(["git", *identity, "commit", "-qm", "other", "aten"], env, loop.tree)
        loop.switch("one")
    hand.configure()
    return ours, hand


def run_steps(ours: Loop, hand: Loop, repeat: int) -> Figures:
    """Go all steps; return what each took, by its name and by whose it is."""
    figures: Figures = {}

    def note(step: str, who: str, *commands: Callable[[], clock.Spent]) -> None:
        figures.setdefault((step, who), []).append(clock.add_up(command() for command in commands))

    def turn(step: str, change: Callable[[Loop], object]) -> None:
        change(hand)
        note(step, "hand", hand.hipify, hand.compile)
        change(ours)
        note(step, "dev", ours.develop)

    def settle() -> None:
        """Bring both up to date, so that each step begins with what it changes alone."""
        for command in (hand.hipify, hand.compile, ours.develop, ours.develop):
            command()

    shutil.rmtree(hand.tree / "build")
    note("first build", "hand", hand.hipify, hand.configure)
    note("first build", "dev", ours.develop_anew)
    settle()
    for number in range(repeat):
        turn("nothing changed", lambda loop: None)
        turn("one kernel", lambda loop, number=number: loop.edit(KERNEL, f"// {number}\n"))
        turn("one Python file", lambda loop, number=number: loop.edit(PYTHON_FILE, f"# {number}\n"))
        turn("another branch, one kernel differs", lambda loop: loop.switch("other"))
        turn("and back", lambda loop: loop.switch("one"))
        settle()
    debug = partial(ours.develop, "--set-env", "pytorch:DEBUG=1")
    debug()
    ours.develop()
    for _ in range(max(1, repeat // 2)):
        note("debug and back", "hand", partial(hand.configure, DEBUG="1"), hand.configure)
        note("debug and back", "dev", debug, ours.develop)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory(prefix="loop-") as name:
        ours, hand = make_loops(Path(name))
        figures = run_steps(ours, hand, repeat)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {repeat} runs each")
    print_table(figures)


if __name__ == "__main__":
    main()
