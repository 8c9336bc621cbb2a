"""Five stub projects (``stub_setup.py``) in git, the miniature's ROCm packages, and commands with a clock."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "worlds"))
import miniature
from stub_setup import WORK
from wheels import library

CLONE = Path(__file__).resolve().parents[2]
ROCM, TARGET = "7.1.0", "gfx942"
PROJECTS = {  # distribution, version
    "triton": ("triton", "3.5.0"),
    "pytorch": ("torch", "2.9.0"),
    "pytorch_audio": ("torchaudio", "2.9.0"),
    "pytorch_vision": ("torchvision", "0.24.0"),
    "apex": ("apex", "1.9.0"),
}
LIBRARIES = {"pytorch": "lib/libtorch_hip.so", "pytorch_vision": "_C.so", "apex": "amp_C.so"}
GIT = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false"]
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'
DROPPED = ("PYTHON", "VIRTUAL_ENV", "ROCM", "HIP", "PYTORCH", "MAX_JOBS", "GITHUB_")


@dataclass(frozen=True)
class Stubs:
    """Source trees and packages in a folder; ``env``: of every command, ``rounds``: of a front end's work."""

    folder: Path
    env: dict[str, str]
    rounds: int

    @property
    def sources(self) -> Path:
        return self.folder / "sources"

    @property
    def packages(self) -> Path:
        return self.folder / "packages" / "dist"

    def words(self, work: str = "work", *more: str, sources: Path | None = None) -> list[str]:
        """Return `rocm-wheels build` of all five; ``work`` names its work directory and its output."""
        return [
            *(sys.executable, "-m", "rocm_wheels", "build", "--install-rocm"),
            *("--find-links", str(self.packages), "--rocm", f"=={ROCM}"),
            *("--rocm-extras", f"device-{TARGET}", "--gfx", TARGET),
            *("--source-dir", str(sources or self.sources), "--work-dir", str(self.folder / work)),
            *("--output-dir", str(self.folder / f"{work}-wheels"), *more),
        ]

    def working(self, share: float = 1.0) -> dict[str, str]:
        """Return the environment in which front ends work; in ``env`` itself they do next to nothing."""
        return {**self.env, "BENCH_ROUNDS": str(round(self.rounds * share))}

    def wheels(self, work: str) -> list[str]:
        return sorted(path.name for path in (self.folder / f"{work}-wheels").glob("*.whl"))

    def edit(self) -> None:
        """Change every project, so that it is built again, installed again and checked again."""
        for name in PROJECTS:
            file = self.sources / name / "files" / "source.txt"
            file.write_text(f"{time.time_ns()}\n")
            git(self.sources / name, "commit", "-q", "-a", "-m", "edited")

    def events(self, work: str) -> list[dict[str, Any]]:
        """Return the events of the newest run."""
        runs = sorted((self.folder / work / "runs").iterdir(), key=lambda run: run.stat().st_mtime_ns)
        return [json.loads(line) for line in (runs[-1] / "events.jsonl").read_text().splitlines()]


def make_stubs(folder: Path, rounds: int) -> Stubs:
    """Make packages and trees; nothing is installed or built."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
    env["PYTHONPATH"] = str(CLONE / "build_tools")
    source = miniature.SOURCE / "rocm"
    made = miniature.make_artifacts(source, folder / "artifacts", version=ROCM, targets=[TARGET], env=env)
    door = CLONE / "build_tools" / "build_python_packages.py"
    words = ["--artifact-dir", str(made), "--output-dir", str(folder / "packages")]
    seconds([sys.executable, str(door), *words], env)
    stubs = Stubs(folder, env, rounds)
    for name in PROJECTS:
        make_tree(stubs.sources / name, name)
    return stubs


def make_tree(tree: Path, project: str) -> None:
    distribution, version = PROJECTS[project]
    (tree / "files").mkdir(parents=True)
    shutil.copyfile(Path(__file__).with_name("stub_setup.py"), tree / "setup.py")
    texts = {
        "name.txt": f"{project} {distribution} {version}\n",
        "version.txt": f"{version}\n",
        "files/source.txt": "one\n",
        ".gitignore": "__pycache__/\nbuild/\ndist/\n",
    }
    if project in ("pytorch", "apex"):
        texts["pyproject.toml"] = PYPROJECT
    if project == "pytorch":
        texts |= {"requirements.txt": "", "torch/README": "where _rocm_init.py is written\n"}
    if project == "triton":
        texts |= {"python/requirements.txt": "", "python/triton/__init__.py": f"__version__ = '{version}'\n"}
    for name, text in texts.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    if project in LIBRARIES:
        binary = tree / "files" / LIBRARIES[project]
        binary.parent.mkdir(parents=True, exist_ok=True)
        binary.write_bytes(library(TARGET, run_path="$ORIGIN"))
    git(tree, "init", "-q")
    git(tree, "add", "-f", ".")
    git(tree, "commit", "-q", "-m", project)


def git(tree: Path, *words: str) -> None:
    subprocess.run([*GIT, *words], cwd=tree, check=True)


def seconds(
    argv: list[str], env: Mapping[str, str], *, cwd: Path | None = None, code: int | None = 0
) -> float:
    """Run a command and return its wall time; end all unless it ends with ``code`` (``None``: fails)."""
    begin = time.perf_counter()
    ended = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    took = time.perf_counter() - begin
    if ended.returncode != code if code is not None else not ended.returncode:
        sys.exit(f"{' '.join(argv)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return took


def calibrate(wanted: float) -> tuple[int, float]:
    """Return the rounds of work that take so many seconds, and what two at a time take beside one."""
    env, rounds = dict(os.environ), 1_000_000
    argv = [sys.executable, "-c", WORK]
    start = min(seconds([*argv, "1"], env) for _ in range(3))
    alone = min(seconds([*argv, str(rounds)], env) for _ in range(3)) - start
    begin = time.perf_counter()
    both = [subprocess.Popen([*argv, str(rounds)]) for _ in range(2)]
    for one in both:
        one.wait()
    together = time.perf_counter() - begin - start
    return max(1, round(rounds * wanted / alone)), together / alone
