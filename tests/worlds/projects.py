"""Projects that are built in a moment: trees, and `build` as a user starts it."""

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
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import miniature
import pytest
from commands import Ended, choose_projects
from sources import CLONE, GIT, commit_files
from uv import find_uv_bin
from warm_python import warm_python
from wheels import library

from rocm_wheels.compile import build_request, environment, frontend, sdk_tree
from rocm_wheels.models import project
from rocm_wheels.pipeline import run_record

# ---- A small project built with setuptools and ninja, and a function that builds it.


# A setup.py in the manner of torch's: ninja compiles in build/, the library lands beside the Python files.
SETUP = """
import os, pathlib, subprocess
from setuptools import setup
here = pathlib.Path(__file__).parent
build = here / "build"
build.mkdir(exist_ok=True)
rule = "rule cc\\n command = sh ../compile.sh $in $out\\n"
names = ["a", "b", "c"]
edges = "".join(f"build {n}.o: cc ../src/{n}.c\\n" for n in names)
(build / "build.ninja").write_text(rule + edges)
subprocess.run(["ninja", "-j1"], cwd=build, check=True)
library = here / "small" / "lib.so"
library.write_text(os.environ["PYTORCH_ROCM_ARCH"] + "".join((build / f"{n}.o").read_text() for n in names))
setup(name="small", version=os.environ["BUILD_VERSION"], packages=["small"], package_data={"small": ["*.so"]})
"""
COMPILE = """
echo "$1" >> ../compiled.txt
if grep -q sleep "$1"; then touch ../asleep; while test -f ../stop; do sleep 0.1; done; fi
if grep -q wrong "$1"; then echo "$1:2:3: error: this is wrong"; exit 1; fi
cat "$1" > "$2"
"""


@pytest.fixture
def recipe() -> project.Project:
    """A project of its own, with audio's way of building."""
    audio = project.load_project("pytorch_audio")
    build = project.BuildRecipe(front_end="setup.py", trees=("build",))
    return audio.model_copy(update={"name": "small", "distribution": "small", "build": build})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    tree = tmp_path / "source"
    files = {
        "setup.py": SETUP,
        "compile.sh": COMPILE,
        "small/__init__.py": "",
        "src/a.c": "a\n",
        "src/b.c": "b\n",
        "src/c.c": "c\n",
        ".gitignore": "/build/\n*.so\n*.egg-info/\n/compiled.txt\n/asleep\n/stop\n/mine.so\n",
    }
    commit_files(tree, files, "small")
    (tree / "mine.so").write_text("the user's own\n")
    return tree


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a build environment."""
    uv = find_uv_bin()
    place = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(place)], check=True)
    program = place / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    tools = ["setuptools>=77,<82", "build", "ninja"]
    subprocess.run([uv, "pip", "install", "-q", "--python", str(program), *tools], check=True)
    return program


@pytest.fixture
def base(tmp_path: Path, python: Path) -> dict[str, str]:
    tools = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    return {"PATH": tools, "HOME": str(tmp_path)}


Make = Callable[..., frontend.BuiltWheel]


@pytest.fixture
def make(tmp_path: Path, recipe: project.Project, source: Path, base: dict[str, str], python: Path) -> Make:
    """Return a function that builds the small project."""
    for part in ("bin", "lib/cmake", "lib/rocm_sysdeps"):
        (tmp_path / "sdk" / part).mkdir(parents=True)
    sdk = sdk_tree.inspect_sdk(
        version="7.1.0", root=tmp_path / "sdk", cmake=tmp_path / "sdk/lib/cmake", bin=tmp_path / "sdk/bin"
    )

    def build(
        targets: tuple[str, ...] = ("gfx942",), *, clean: bool = False, tag: str = "cp311", **more: Any
    ) -> frontend.BuiltWheel:
        request = build_request.BuildRequest(
            project=recipe,
            source=source,
            platform="linux",
            sdk=sdk,
            targets=targets,
            version="1.0+rocm7.1.0",
            suffix="+rocm7.1.0",
        )
        request = replace(request, **more)
        return frontend.FrontEnd(
            request,
            base=base,
            env=environment.compose_environment(request, base),
            python=python,
            python_tag=tag,
            out_dir=tmp_path / "out",
            log=tmp_path / "logs" / "small.log",
            clean=clean,
        ).build()

    return build


def compiled(source: Path) -> list[str]:
    """Return what was compiled since the last question."""
    log = source / "compiled.txt"
    names = [Path(line).stem for line in log.read_text().split()] if log.exists() else []
    log.unlink(missing_ok=True)
    return names


def built_library(wheel: frontend.BuiltWheel) -> str:
    with zipfile.ZipFile(wheel.path) as archive:
        return archive.read("small/lib.so").decode()


def status(source: Path, *more: str) -> str:
    return subprocess.run(
        [*GIT, "status", "--porcelain", *more], cwd=source, check=True, capture_output=True, text=True
    ).stdout


# ---- Projects with front ends of a tenth of a second, the miniature's ROCm, and `build` as a user starts
# it.
#
# A front end notes that it began and ended, and runs what a test puts in its way (``World.disturb``).


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


@pytest.fixture(scope="session")
def made_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world in which everything was built once."""
    world = make_world(tmp_path_factory.mktemp("tiny"))
    ended = world.build()
    assert ended.code == 0, ended.err
    return world


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
