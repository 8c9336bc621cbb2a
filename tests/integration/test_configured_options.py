"""CMake that turns an option which was asked for: the build ends as soon as its cache is written."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from projects import Make, compiled
from sources import GIT
from uv import find_uv_bin

from rocm_wheels.compile import failure
from rocm_wheels.models.project import Project

pytestmark = [pytest.mark.contract, pytest.mark.slow, pytest.mark.network]

# As torch's setup.py does: CMake is not run again where its cache and build.ninja are.
SETUP = """
import os, pathlib, subprocess
from setuptools import setup
here = pathlib.Path(__file__).parent
build = here / "build"
if not ((build / "CMakeCache.txt").exists() and (build / "build.ninja").exists()):
    given = [f"-D{k}={v}" for k, v in os.environ.items() if k.startswith(("USE_", "BUILD_"))]
    subprocess.run(["cmake", "-GNinja", "-S", here, "-B", build, *given], check=True)
subprocess.run(["cmake", "--build", build], check=True)
setup(name="small", version=os.environ["BUILD_VERSION"], packages=["small"])
"""
# As torch 2.6.0 looks for HIP (cmake/public/LoadHIP.cmake) and notes that it is not there.
CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(small NONE)
include(CMakeDependentOption)
macro(update_option variable value)
  get_property(help CACHE ${variable} PROPERTY HELPSTRING)
  set(${variable} ${value} CACHE BOOL "${help}" FORCE)
endmacro()
cmake_dependent_option(USE_ROCM "Use ROCm" ON "UNIX" OFF)
option(USE_DISTRIBUTED "Use distributed" ON)
cmake_dependent_option(USE_GLOO "Use Gloo" ON "USE_DISTRIBUTED" OFF)
option(USE_SYSTEM_NCCL "Use the system's NCCL" ON)
option(USE_OPENMP "Use OpenMP" OFF)
list(APPEND CMAKE_MODULE_PATH "${CMAKE_SOURCE_DIR}/modules")
if(USE_ROCM)
  find_package(HIP 1.0 MODULE)
  message("HIP VERSION: ${HIP_VERSION}")
endif()
if(HIP_FOUND)
  update_option(USE_ROCM ON)
  if(NOT USE_SYSTEM_NCCL)
    message(INFO "Forcing USE_SYSTEM_NCCL to ON since it's required by using RCCL")
    update_option(USE_SYSTEM_NCCL ON)
  endif()
else()
  update_option(USE_ROCM OFF)
endif()
if(USE_OPENMP)
  message(WARNING "Not compiling with OpenMP. Suppress this warning with -DUSE_OPENMP=OFF")
  update_option(USE_OPENMP OFF)
endif()
add_custom_target(long ALL COMMAND sh -c "while test -f stop; do sleep 0.1; done"
  WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" VERBATIM)
"""
FIND_HIP = """
set(HIP_ROOT_DIR /usr)
set(HIP_VERSION {version})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(HIP REQUIRED_VARS HIP_ROOT_DIR VERSION_VAR HIP_VERSION)
"""


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a build environment with cmake in it."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([find_uv_bin(), "venv", "-q", "--python", sys.executable, str(place)], check=True)
    program = place / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    tools = ["setuptools>=77,<82", "build", "ninja", "cmake>=3.27"]
    subprocess.run([find_uv_bin(), "pip", "install", "-q", "--python", str(program), *tools], check=True)
    return program


@pytest.fixture
def project(recipe: Project, source: Path) -> Project:
    """The small project with CMake, asked for ROCm; its compiler works until the test ends it."""
    (source / "setup.py").write_text(SETUP)
    (source / "CMakeLists.txt").write_text(CMAKE)
    subprocess.run([*GIT, "add", "."], cwd=source, check=True)
    subprocess.run([*GIT, "commit", "-q", "-m", "cmake"], cwd=source, check=True)
    (source / "stop").touch()
    return recipe.model_copy(update={"environment": {"USE_ROCM": "ON", "USE_CUDA": "0"}})


def find_hip(source: Path, version: str) -> None:
    (source / "modules").mkdir(exist_ok=True)
    (source / "modules" / "FindHIP.cmake").write_text(FIND_HIP.format(version=version))


def lost(make: Make, **more: Any) -> failure.BuildFailed:
    """Build what CMake will not configure as asked; it ends long before its compiler does."""
    began = time.monotonic()
    with pytest.raises(failure.BuildFailed) as fault:
        make(**more)
    assert time.monotonic() - began < 30
    return fault.value


def test_a_build_that_loses_rocm_ends_when_it_is_configured(
    make: Make, project: Project, source: Path
) -> None:
    failed = lost(make, project=project)
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.message) == (
        "configure",
        'No "FindHIP.cmake" found in CMAKE_MODULE_PATH.',
    )
    assert "USE_ROCM=OFF, but USE_ROCM=ON was requested" in str(failed)
    find_hip(source, "0.0.0")  # as hipconfig answers that does not find clang
    failed = lost(make, project=project)
    assert failed.failure is not None and failed.failure.message.startswith(
        'Could NOT find HIP: Found unsuitable version "0.0.0"'
    )
    find_hip(source, "7.2.0")  # repaired: the same build configures anew and goes on
    (source / "stop").unlink()
    assert make(project=project).tree == "continued"


def test_what_a_killed_build_left_configured_without_rocm_is_configured_anew(
    make: Make, project: Project, source: Path
) -> None:
    find_hip(source, "7.2.0")
    (source / "stop").unlink()
    make(project=project)
    cache = source / "build" / "CMakeCache.txt"
    cache.write_text(cache.read_text().replace("USE_ROCM:BOOL=ON", "USE_ROCM:BOOL=OFF"))
    make(project=project)
    assert "USE_ROCM:BOOL=ON" in cache.read_text()


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"USE_OPENMP": "1"}, "Not compiling with OpenMP"),
        ({"USE_SYSTEM_NCCL": "0"}, "Forcing USE_SYSTEM_NCCL to ON"),
    ],
)
def test_every_option_that_was_asked_for_counts(
    make: Make, project: Project, source: Path, asked: dict[str, str], reason: str
) -> None:
    find_hip(source, "7.2.0")
    failed = lost(make, project=project, set_env=asked)
    assert failed.failure is not None and reason in failed.failure.message
    ((name, value),) = asked.items()
    assert f"--set-env small:{name}={value}" in str(failed.tip)


def test_an_option_whose_condition_is_not_met_costs_a_warning(
    make: Make, project: Project, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    find_hip(source, "7.2.0")
    (source / "stop").unlink()
    make(project=project, set_env={"USE_GLOO": "ON", "USE_DISTRIBUTED": "0", "BUILD_TEST": "0"})
    assert "USE_GLOO=ON has no effect" in capsys.readouterr().err


GLOB = """
if(EXISTS "${CMAKE_SOURCE_DIR}/cut")
  execute_process(COMMAND sh -c "kill -9 $PPID")
endif()
file(GLOB sources src/*.c)
foreach(source IN LISTS sources)
  cmake_path(GET source STEM name)
  add_custom_command(OUTPUT ${name}.o COMMAND sh "${CMAKE_SOURCE_DIR}/compile.sh" "${source}" ${name}.o
    DEPENDS "${source}" VERBATIM)
  list(APPEND objects ${name}.o)
endforeach()
add_custom_target(objects ALL DEPENDS ${objects})
"""


def test_patterns_are_looked_through_again_until_that_has_ended_well(
    make: Make, project: Project, source: Path
) -> None:
    find_hip(source, "7.2.0")
    (source / "stop").unlink()
    (source / "CMakeLists.txt").write_text(CMAKE + GLOB)
    make(project=project, source_names="three")
    assert sorted(compiled(source)) == ["a", "b", "c"]
    (source / "src/d.c").write_text("d\n")
    (source / "src/c.c").rename(source / "src/e.c")
    (source / "cut").touch()
    for _ in range(2):  # CMake is killed
        with pytest.raises(failure.BuildFailed):
            make(project=project, source_names="four")
        assert compiled(source) == []
    (source / "cut").unlink()
    make(project=project, source_names="four")
    assert sorted(compiled(source)) == ["d", "e"]
    make(project=project, source_names="four")
    assert compiled(source) == []
