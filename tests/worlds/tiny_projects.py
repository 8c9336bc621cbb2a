"""Projects with front ends of a tenth of a second, the miniature's ROCm, and `build` as a user starts it.

A front end notes that it began and ended, and runs what a test puts in its way (``World.disturb``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import miniature
import pytest
from audit_wheels import library
from programs import Ended, choose_projects
from source_trees import CLONE, commit_files
from warm_python import warm_python

from rocm_wheels.pipeline import run_record

TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
TARGET = "gfx942"
PROJECTS = ("triton", "pytorch", "pytorch_audio")
_DISTRIBUTIONS = {"triton": "triton", "pytorch": "torch", "pytorch_audio": "torchaudio"}

# What a project's setup.py does, without setuptools: it takes a second to import.
FRONT_END = """
import base64, hashlib, json, os, re, signal, subprocess, sys, time, zipfile
from pathlib import Path

HERE = Path(__file__).parent
PROJECT, DISTRIBUTION = (HERE / "name.txt").read_text().split()
TAG = "cp{0}{1}-cp{0}{1}-linux_x86_64".format(*sys.version_info)
REQUIRES, INIT = [], ""  # what is in the way may set them


def note(text):
    with open(Path(os.environ["TINY_PLACE"], "calls"), "a") as file:
        file.write(f"{PROJECT} {text}\\n")


def make(folder):
    note("begun")
    disturbance = Path(os.environ["TINY_PLACE"], PROJECT)
    if disturbance.exists():
        exec(disturbance.read_text())
    base = (HERE / "version.txt").read_text().strip()
    version = os.environ.get("PYTORCH_BUILD_VERSION" if PROJECT == "pytorch" else "BUILD_VERSION", base)
    if PROJECT == "triton":
        version = base + os.environ["TRITON_WHEEL_VERSION_SUFFIX"]
    info = f"{DISTRIBUTION}-{version}.dist-info"
    files = {f"{DISTRIBUTION}/__init__.py": f"__version__ = {version!r}\\n".encode()}
    files[f"{DISTRIBUTION}/__init__.py"] += INIT.encode()
    requires = [r for r in os.environ.get("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "").split("|") if r]
    requires += REQUIRES
    if PROJECT == "pytorch":
        files["torch/__init__.py"] += b"from torch import _rocm_init, version\\n"
        files["torch/version.py"] = f"__version__ = {version!r}\\nhip = '7.1'\\ncuda = None\\n".encode()
        files["torch/_rocm_init.py"] = (HERE / "torch/_rocm_init.py").read_bytes()
        target = os.environ["PYTORCH_ROCM_ARCH"]
        own = HERE / f"libtorch_hip-{target}.so"
        library = own if own.exists() else HERE / "libtorch_hip.so"
        files["torch/lib/libtorch_hip.so"] = library.read_bytes()
    files[f"{DISTRIBUTION}/source.txt"] = (HERE / "source.txt").read_bytes()
    lines = ["Metadata-Version: 2.1", f"Name: {DISTRIBUTION}", f"Version: {version}"]
    lines += ["Requires-Python: >=3.10"]
    lines += [f"Requires-Dist: {r}" for r in requires if PROJECT == "pytorch" or r in REQUIRES]
    files[f"{info}/METADATA"] = "\\n".join([*lines, ""]).encode()
    wheel = f"Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: false\\nTag: {TAG}\\n"
    files[f"{info}/WHEEL"] = wheel.encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record += f"{name},sha256={digest},{len(data)}\\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\\n".encode()
    name = f"{DISTRIBUTION}-{version}-{TAG}.whl"
    with zipfile.ZipFile(Path(folder, name), "w") as archive:
        for member, data in files.items():
            archive.writestr(zipfile.ZipInfo(member, (2026, 1, 1, 0, 0, 0)), data)
    note("done")
    return name


def build_wheel(folder, config_settings=None, metadata_directory=None):
    return make(folder)


if __name__ == "__main__":
    make(sys.argv[sys.argv.index("--dist-dir") + 1])
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'


@dataclass
class World:
    """Trees of tiny projects, ROCm packages, and a work directory in which ROCm is installed."""

    folder: Path
    env: dict[str, str] = field(repr=False)
    work: Path = Path()
    output: Path = Path()

    @property
    def place(self) -> Path:
        """Where front ends note their calls, and look for what is in their way."""
        return self.folder / "place"

    @property
    def sources(self) -> Path:
        return self.folder / "sources"

    def words(self, *more: str, command: str = "build") -> list[str]:
        """Return the words of `build`: all three projects, one step after the other, or as ``more`` says."""
        usual = {
            "--rocm": "==7.1.0",
            "--rocm-extras": f"device-{TARGET}",
            "--gfx": TARGET,
            "--source-dir": str(self.sources),
            "--work-dir": str(self.work),
            "--output-dir": str(self.output),
            **({"--jobs": "1"} if command == "build" else {}),
        }
        words = [command, "--install-rocm", "--find-links", str(self.folder / "packages" / "dist")]
        for option, value in usual.items():
            words += [] if option in more else [option, value]
        return [*words, *choose_projects(PROJECTS, more)]

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return self._start([sys.executable], *words, **env)

    def run(self, *words: str, **env: str) -> Ended:
        return finish(self._start(warm_python(), *words, **env))

    def _start(self, python: list[str], *words: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*python, "-m", "rocm_wheels", *words],
            env={**self.env, **env},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def build(self, *more: str, **env: str) -> Ended:
        return self.run(*self.words(*more), **env)

    def disturb(self, project: str, code: str = "") -> None:
        """Put Python in the way of a project's front end; nothing takes it away."""
        if code:
            (self.place / project).write_text(code)
        else:
            (self.place / project).unlink(missing_ok=True)

    def calls(self) -> list[str]:
        """Return the calls of front ends since the last question."""
        path = self.place / "calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def wait_for(self, call: str) -> None:
        wait_until(lambda: call in (self.place / "calls").read_text().splitlines(), self.place / "calls")

    def wheels(self) -> dict[str, str]:
        """Return the output: every file's name and digest. Statements are left out: they say when."""
        paths = self.output.rglob("*") if self.output.exists() else []
        files = [path for path in paths if path.is_file() and not path.name.endswith(".intoto.json")]
        return {
            path.relative_to(self.output).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        }

    def reset(self) -> None:
        """Forget all that was done, but for the environments: what is installed there counts no more."""
        for name in ("runs", "built", "fresh", "trees", "rejected"):
            shutil.rmtree(self.work / name, ignore_errors=True)
        for stamp in (self.work / "steps").glob("*.json"):
            if stamp.stem != "probe-targets":  # what that compiles is the same for all tests
                stamp.unlink()
        (self.work / "collected.json").unlink(missing_ok=True)
        for record in self.work.glob("environments/*/rocm-wheels-installed.json"):
            record.unlink()
        shutil.rmtree(self.output, ignore_errors=True)
        for name in PROJECTS:
            self.disturb(name)
        self.calls()

    def runs(self) -> list[run_record.RecordedRun]:
        """Return the runs, oldest first."""
        return [
            run_record.read_run(self.work / "runs" / name)
            for name in reversed(run_record.list_run_ids(self.work / "runs"))
        ]

    def stamp(self, step: str) -> dict[str, Any]:
        known: dict[str, Any] = json.loads((self.work / "steps" / f"{step}.json").read_text())
        return known

    def processes(self) -> list[int]:
        """Return what is alive of all that was started here: by a variable that they all have."""
        mark = f"TINY_PLACE={self.place}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found


def finish(process: subprocess.Popen[str], seconds: float = 120) -> Ended:
    """Wait for a command; no traceback may come of it."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert "Traceback" not in err, err
    return Ended(process.returncode, out, err)


def wait_until(happened: Any, what: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if happened():
                return
        time.sleep(0.01)
    raise AssertionError(f"in vain waited for {what}")


def make_world(folder: Path) -> World:
    """Make packages and trees. Nothing is installed yet."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "GITHUB_", "ROCM", "HIP", "PYTORCH", "MAX_JOBS", "PYTEST"))
    }
    env["UV_CACHE_DIR"] = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
    env["TINY_PLACE"] = str(folder / "place")
    world = World(folder, env, folder / "work", folder / "wheels")
    world.place.mkdir(parents=True)
    source = miniature.SOURCE / "rocm"
    made = miniature.make_artifacts(source, folder / "artifacts", version="7.1.0", targets=[TARGET], env=env)
    door = CLONE / "build_tools" / "build_python_packages.py"
    packages = ["--artifact-dir", str(made), "--output-dir", str(folder / "packages")]
    subprocess.run([*warm_python(), str(door), *packages], env=env, check=True, capture_output=True)
    for name in PROJECTS:
        make_tree(world.sources / name, name)
    return world


def make_tree(tree: Path, project: str) -> None:
    files: dict[str, str | bytes] = {
        "setup.py": FRONT_END,
        "name.txt": f"{project} {_DISTRIBUTIONS[project]}",
        "version.txt": "2.9.0" if project != "triton" else "3.5.0",
        "source.txt": "one",
        ".gitignore": "__pycache__/\n",
    }
    if project == "pytorch":
        files["pyproject.toml"] = PYPROJECT
        files["libtorch_hip.so"] = library(TARGET, run_path="$ORIGIN")
        files["libtorch_hip-gfx1100.so"] = library("gfx1100", run_path="$ORIGIN")
        files["torch/README"] = ""
    commit_files(tree, files, project)


_made: list[World] = []  # modules share one: each has this fixture of its own


@pytest.fixture(scope="session")
def made_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world in which everything was built once."""
    if not _made:
        world = make_world(tmp_path_factory.mktemp("tiny"))
        ended = world.build()
        assert ended.code == 0, ended.err
        _made.append(world)
    return _made[0]


@pytest.fixture
def world(made_world: World) -> Iterator[World]:
    """The same for each test, with nothing done but the environments made. Nothing may be left at work."""
    made_world.reset()
    yield made_world
    end = time.monotonic() + 60
    while made_world.processes() and time.monotonic() < end:
        time.sleep(0.02)
    left = made_world.processes()
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == []
