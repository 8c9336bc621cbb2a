"""torch for two Pythons out of one build tree: real CMake, ninja and device code, on the miniature.

The second Python is another one of this machine, where there is one; else another environment of the same:
its paths differ all the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from miniature import SOURCE, fetch_hipify, make_artifacts, make_repositories
from pythons import find_other_pythons
from sources import isolated_environment
from uv import find_uv_bin

from rocm_wheels.compile import build_request, failure, frontend, sdk_tree
from rocm_wheels.compile.environment import compose_environment
from rocm_wheels.core import workspace
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.sdk import interpreters, rocm_sdk
from rocm_wheels.sources import checkout, pins

pytestmark = [
    pytest.mark.contract_slow,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the miniature is built on Linux"),
]
ROCM = "7.1.0+miniature"
TARGETS = ("gfx942", "gfx1100")
TOOLS = ("setuptools>=77,<82", "build", "cmake>=3.27", "ninja", "scikit-build-core>=1.0")


@dataclass(frozen=True)
class One:
    """A Python with an environment that has ROCm in it."""

    base: interpreters.Interpreter
    python: Path
    sdk: rocm_sdk.RocmSdk


@dataclass(frozen=True)
class Built:
    """A wheel, what was compiled for it, and the seconds of the front end."""

    wheel: bytes
    compiled: tuple[str, ...]
    tree: str
    seconds: float


@dataclass(frozen=True)
class World:
    """torch's checkout and two Pythons."""

    folder: Path
    torch: Path
    env: Mapping[str, str]
    first: One
    second: One

    def build(
        self,
        one: One,
        targets: Sequence[str] = TARGETS[:1],
        *,
        clean: bool = False,
        project: Project | None = None,
        version: str = "2.13.0+rocm7.1.0",
    ) -> Built:
        sdk = sdk_tree.inspect_sdk(
            version=one.sdk.version, root=one.sdk.root, cmake=one.sdk.cmake, bin=one.sdk.bin
        )
        request = build_request.BuildRequest(
            project=project or load_project("pytorch"),
            source=self.torch,
            platform="linux",
            sdk=sdk,
            targets=tuple(targets),
            version=version,
            suffix="+rocm7.1.0",
            flash_attention=False,
            commit_epoch=1_750_000_000,
        )
        log = self.folder / f"{time.monotonic_ns()}.log"
        base = {**self.env, "PATH": f"{one.python.parent}{os.pathsep}{self.env['PATH']}", "MAX_JOBS": "2"}
        made: frontend.BuiltWheel = frontend.FrontEnd(
            request,
            base=base,
            env=compose_environment(request, base),
            python=one.python,
            python_tag=one.base.tag,
            out_dir=self.folder / "out",
            log=log,
            preloads=sdk_tree.ask_preloads(one.python, "linux", base),
            clean=clean,
        ).build()
        lines = [line.split("Building ")[1] for line in log.read_text().splitlines() if "] Building " in line]
        compiled = tuple(sorted(Path(line.split()[-1]).name for line in lines))
        return Built(made.path.read_bytes(), compiled, made.tree, made.seconds)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("two pythons")
    real = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ROCM", "HIP"))}
    env = {**isolated_environment(folder / "home"), "PATH": real["PATH"]}
    python = Path(sys.executable)
    hipify = fetch_hipify(folder / "cache", env=real)
    made = make_repositories(SOURCE, folder / "repositories", hipify=hipify, env=env)
    project = load_project("pytorch")
    pin = pins.choose_pin(project, origin=made["pytorch"].url, ref="nightly")
    torch = folder / "pytorch"
    request = checkout.CheckoutRequest(project, torch, pin, depth=1, commit_hipify=True, local_origin=True)
    checkout.checkout_project(request, env=env, python=python)
    make_artifacts(SOURCE / "rocm", folder / "artifacts", version=ROCM, targets=TARGETS, env=real)
    words = ["--artifact-dir", folder / "artifacts", "--output-dir", folder / "packages"]
    subprocess.run(
        [python, workspace.get_project_home() / "build_tools/build_python_packages.py", *words],
        check=True,
        env=real,
    )

    own = interpreters.query_interpreter(python, env)
    others = [one for one in find_other_pythons(real) if one.headers is not None]
    pythons = [own, others[0] if others else own]
    ones = [environment(one, folder / f"environment {n}", folder, real) for n, one in enumerate(pythons)]
    return World(folder, torch, env, *ones)


def environment(base: interpreters.Interpreter, place: Path, folder: Path, env: Mapping[str, str]) -> One:
    """Make an environment with ROCm and the build tools; ROCm is reached by a path that all share."""
    uv, python = find_uv_bin(), place / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "--no-project", "--python", base.path, place], check=True, env=env)
    rocm = f"rocm[libraries,devel,{','.join(f'device-{target}' for target in TARGETS)}]=={ROCM}"
    words = ["--prerelease", "allow", "--find-links", folder / "packages" / "dist", rocm, *TOOLS]
    subprocess.run([uv, "pip", "install", "-q", "--python", python, *words], check=True, env=env)
    sdk = rocm_sdk.share_sdk(
        rocm_sdk.query_sdk(python, env), "0123abcd", folder / "rocm", lambda root: "0123abcd"
    )
    return One(base, python, sdk)


def test_the_second_python_compiles_only_what_knows_of_python(world: World) -> None:
    first, second = world.first, world.second
    fresh = world.build(first)
    assert fresh.tree == "new"
    assert {"Activation.hip.o", "Error.cpp.o", "Module.cpp.o", "stub.cpp.o"} <= set(fresh.compiled)

    shared = world.build(second)
    assert shared.compiled == ("Module.cpp.o", "stub.cpp.o"), shared.tree
    assert shared.tree.startswith("continued; shared with ")
    alone = world.build(second, clean=True)
    assert alone.compiled == fresh.compiled
    assert shared.wheel == alone.wheel
    back = world.build(first)
    assert back.compiled == shared.compiled and back.wheel == fresh.wheel
    times = f"first {fresh.seconds:.1f} s, second shared {shared.seconds:.1f} s, fresh {alone.seconds:.1f} s"
    print(times, f"{len(fresh.compiled)} and {len(shared.compiled)} objects")

    path = world.folder / "second.whl"
    path.write_bytes(shared.wheel)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        content = b"".join(archive.read(name) for name in names)
    traces = [str(first.python.parent.parent).encode()]
    if first.base.tag != second.base.tag:
        traces += [f"cpython-{first.base.tag[2:]}".encode(), str(first.base.headers).encode()]
    found = [trace for trace in traces if trace in content or any(trace.decode() in name for name in names)]
    assert found == []


def test_a_hip_that_is_not_found_ends_the_build(world: World) -> None:
    """CMake goes on for the CPU; the build does not."""
    hip = world.first.sdk.cmake / "hip"
    hip.rename(hip.with_name("away"))
    try:
        with pytest.raises(failure.BuildFailed) as fault:
            world.build(world.first, ["gfx1100"], clean=True)
    finally:
        hip.with_name("away").rename(hip)
    assert fault.value.failure is not None
    assert fault.value.failure.message == "Could NOT find hip (missing: hip_DIR)"
    whole = world.build(world.first, ["gfx1100"])
    assert (whole.tree, len(whole.compiled)) == ("continued", 12)


def test_sets_of_targets_and_pythons_take_turns(world: World) -> None:
    """Back in a set's tree the same Python compiles nothing, another one what is its own."""
    made = {target: world.build(world.first, [target]) for target in TARGETS}
    for target in TARGETS:
        again = world.build(world.first, [target])
        assert (again.tree, again.compiled) == ("taken back from parking", ())
        assert again.wheel == made[target].wheel
    other = world.build(world.second, TARGETS[:1])
    assert other.tree.startswith("taken back from parking; shared with ")
    assert other.compiled == ("Module.cpp.o", "stub.cpp.o")


SHOW = "import torch; print(torch.__config__.show())"


def test_another_folder_and_rocm_elsewhere_make_the_same_bytes(world: World, tmp_path: Path) -> None:
    """Messages name files by their place in the tree, and flags that torch shows name no folder."""
    made = []
    for name in ("a", "deeper/and-longer/b"):
        source, rocm = tmp_path / name / "pytorch", tmp_path / name / "rocm"
        no_trees = shutil.ignore_patterns("build", "rocm-wheels", "lib", "*.so", "*.egg-info")
        shutil.copytree(world.torch, source, symlinks=True, ignore=no_trees)
        rocm.symlink_to(world.first.sdk.root)
        sdk = replace(world.first.sdk, root=rocm, cmake=rocm / "lib" / "cmake", bin=rocm / "bin")
        made.append(replace(world, torch=source).build(replace(world.first, sdk=sdk)).wheel)
    assert made[0] == made[1]
    path = tmp_path / "torch.whl"
    path.write_bytes(made[0])
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "installed")
        libraries = b"".join(archive.read(name) for name in archive.namelist() if ".so" in name)
        config = archive.read("torch/share/cmake/ATen/ATenConfig.cmake")
    assert b'set(ATEN_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../include")\n' in config
    assert b"./aten/src/ATen/native/cpu/Activation.cpp\0" in libraries
    env = {**world.env, "PYTHONPATH": str(tmp_path / "installed")}
    shown = subprocess.check_output([world.first.python, "-c", SHOW], env=env)
    assert shown.startswith(b"CXX_FLAGS=-Wno-error=")
    for folder in (tmp_path, world.folder):
        assert os.fsencode(folder) not in libraries + shown


PYPROJECT = """
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"
[project]
name = "small"
version = "1.0"
[tool.scikit-build]
build-dir = "build"
"""
CMAKE = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.26)
project(small C)
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
add_subdirectory(src)
""",
    "src/CMakeLists.txt": """
add_custom_command(OUTPUT kernel.c
  COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_CURRENT_SOURCE_DIR}/kernel.in kernel.c
  DEPENDS kernel.in COMMENT "Building kernel.c" VERBATIM)
add_library(core STATIC kernel.c)
set_property(TARGET core PROPERTY POSITION_INDEPENDENT_CODE ON)
python_add_library(torch_python MODULE module.c WITH_SOABI)
target_link_libraries(torch_python PRIVATE core)
install(TARGETS torch_python DESTINATION small)
""",
    "src/kernel.in": "int kernel(void) { return 1; }\n",
    "src/module.c": """
#include <Python.h>
int kernel(void);
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "torch_python", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_torch_python(void) { return kernel() ? PyModule_Create(&module) : NULL; }
""",
    ".gitignore": "/build/\n",
}


def test_scikit_build_core_is_given_the_one_cmake(world: World, tmp_path: Path) -> None:
    """Newer torch is built by it. Commands that name CMake, as those of HIP objects do, stay the same."""
    for name, text in {**CMAKE, "pyproject.toml": PYPROJECT}.items():
        (tmp_path / "small" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "small" / name).write_text(text)
    torch = load_project("pytorch")
    project = torch.model_copy(update={"name": "small", "distribution": "small"})
    # without CC the backend takes the compiler that each Python was built with: Debian's and others differ
    env = {**world.env, "CC": "cc"}
    one = replace(world, torch=tmp_path / "small", folder=tmp_path, env=env)
    first = one.build(world.first, project=project, version="1.0")
    assert sorted(first.compiled) == ["kernel.c", "kernel.c.o", "module.c.o"]
    second = one.build(world.second, project=project, version="1.0")
    assert second.compiled == ("module.c.o",)
    alone = one.build(world.second, project=project, version="1.0", clean=True)
    assert (alone.wheel, len(alone.compiled)) == (second.wheel, 3)
