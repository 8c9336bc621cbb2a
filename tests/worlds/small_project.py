"""A small project built with setuptools and ninja, and a function that builds it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from source_trees import GIT, commit_files
from uv import find_uv_bin

from rocm_wheels.compile import build_request, environment, frontend, sdk_tree
from rocm_wheels.models import project

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


def library(wheel: frontend.BuiltWheel) -> str:
    with zipfile.ZipFile(wheel.path) as archive:
        return archive.read("small/lib.so").decode()


def status(source: Path, *more: str) -> str:
    return subprocess.run(
        [*GIT, "status", "--porcelain", *more], cwd=source, check=True, capture_output=True, text=True
    ).stdout
