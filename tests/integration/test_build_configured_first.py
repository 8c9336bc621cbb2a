"""`build`: torch is configured before anything is built; a ROCm that CMake does not find ends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from projects import TAG, World
from sources import GIT

pytestmark = [
    pytest.mark.contract_slow,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the tiny projects are built on Linux"),
]

CONFIGURE = f"configure-pytorch-{TAG}"
WORDS = ("--no-build-pytorch-audio",)
CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project(Torch NONE)
option(USE_ROCM "Use ROCm" ON)
find_file(HIP_HEADER hip.h PATHS "${CMAKE_SOURCE_DIR}/../../place" NO_DEFAULT_PATH)
if(NOT HIP_HEADER)
  message(STATUS "Could NOT find HIP: Found unsuitable version \\"0.0.0\\"")
  set(USE_ROCM OFF CACHE BOOL "Use ROCm" FORCE)
endif()
"""
# what torch's setup.py does before it packs
RUNS_CMAKE = """
given = [f"-D{name}={value}" for name, value in os.environ.items() if name.startswith("USE_")]
subprocess.run(["cmake", "-GNinja", "-S", HERE, "-B", HERE / "build", *given], check=True)
if "configure-" in str(folder) or not Path(os.environ["TINY_PLACE"], "hip.h").exists():
    time.sleep(600)  # compiles, until it is ended
"""


@pytest.fixture
def torch(world: World) -> Iterator[Path]:
    """The tree of a torch that is configured by CMake."""
    tree = world.sources / "pytorch"
    (tree / "CMakeLists.txt").write_text(CMAKE)
    world.disturb("pytorch", RUNS_CMAKE)
    yield tree
    (world.place / "hip.h").unlink(missing_ok=True)
    subprocess.run([*GIT, "clean", "-fdxq"], cwd=tree, check=True)


def test_a_torch_that_loses_rocm_costs_no_build_of_another(world: World, torch: Path) -> None:
    ended = world.build(*WORDS)
    assert ended.code == 12, ended.err
    assert 'first error: Could NOT find HIP: Found unsuitable version "0.0.0"' in ended.err
    assert world.calls() == ["pytorch begun"]  # and ended before it could do anything else
    steps = world.runs()[-1].steps
    assert steps[CONFIGURE].state == "failed"
    assert not any(name.startswith("build-") and step.state == "done" for name, step in steps.items())

    (world.place / "hip.h").touch()
    ended = world.build(*WORDS)
    assert ended.code == 0, ended.err
    assert world.calls() == ["pytorch begun", "triton begun", "triton done", "pytorch begun", "pytorch done"]
    ended = world.build(*WORDS)
    assert (ended.code, "nothing to do" in ended.err, world.calls()) == (0, True, [])


def test_an_edited_file_is_no_reason_to_configure_again(world: World, torch: Path) -> None:
    (world.place / "hip.h").touch()
    assert world.build(*WORDS).code == 0
    (torch / "source.txt").write_text("two")
    try:
        ended = world.build(*WORDS)
    finally:
        (torch / "source.txt").write_text("one")
    assert ended.code == 0, ended.err
    states = {name: step.state for name, step in world.runs()[-1].steps.items()}
    assert states[CONFIGURE] == "skipped" and states[f"build-pytorch-{TAG}"] == "done"


def test_the_step_alone(world: World, torch: Path, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    assert world.run(*world.words(*WORDS, command="plan"), "-o", plan).code == 0
    for step in (f"install-tools-{TAG}", "probe-targets", CONFIGURE):
        ended = world.run("run-step", step, "--plan", plan)
        assert ended.code == (12 if step == CONFIGURE else 0), ended.err
    assert "Could NOT find HIP" in ended.err
    ended = world.run("run-step", f"build-triton-{TAG}", "--plan", plan)
    assert ended.code == 2 and f"needs {CONFIGURE}, which has not run yet" in ended.err
    (world.place / "hip.h").touch()
    for step in (CONFIGURE, f"build-triton-{TAG}", f"build-pytorch-{TAG}"):
        ended = world.run("run-step", step, "--plan", plan)
        assert ended.code == 0, ended.err
