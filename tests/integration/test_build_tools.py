"""What projects need to be built: each has its own, in the environment that a step belongs to."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from projects import World, made_world, world
from sources import GIT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the tiny projects are built on Linux"),
]
__all__ = ["made_world", "world"]

NOTE_CMAKE = """
from importlib.metadata import version
said = subprocess.run(["cmake", "--version"], capture_output=True, text=True).stdout.split()[2]
note(f"cmake {version('cmake')} {said}")
"""


@pytest.fixture
def tree(world: World) -> Iterator[Path]:
    """The tree of torch, which is as it was afterwards; that of triton, too."""
    yield world.sources / "pytorch"
    for name in ("pytorch", "triton"):
        subprocess.run([*GIT, "clean", "-fdxq"], cwd=world.sources / name, check=True)


def require(world: World, project: str, file: str, text: str) -> None:
    path = world.sources / project / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    world.disturb(project, NOTE_CMAKE)


@pytest.mark.contract_slow
def test_projects_that_pin_different_tools_are_built_by_their_own(world: World, tree: Path) -> None:
    """As torch and triton pin cmake, on a line whose tools are older; also where one of them comes later."""
    require(world, "pytorch", "requirements-build.txt", "cmake==4.0.3\n")
    require(world, "triton", "python/requirements.txt", "cmake>=3.20,<4.0\n")
    world.disturb("pytorch_audio", NOTE_CMAKE)
    for place in world.work.glob("environments/*/tools"):
        shutil.rmtree(place)
    assert world.build("triton").code == 0
    assert [place.name for place in world.work.glob("environments/*/tools/*")] == ["triton"]
    ended = world.build()
    assert ended.code == 0, ended.err
    versions = dict(call.split(" cmake ") for call in world.calls() if " cmake " in call)
    assert versions["pytorch"] == "4.0.3 4.0.3"
    installed, program = versions["triton"].split()
    assert installed == program and installed.startswith("3.")
    assert versions["pytorch_audio"].split()[0] == versions["pytorch_audio"].split()[1]
    ended = world.build()
    assert (ended.code, "nothing to do" in ended.err) == (0, True), ended.err


@pytest.mark.contract_slow
def test_a_project_whose_own_requirements_contradict_each_other_is_named(world: World, tree: Path) -> None:
    require(world, "pytorch", "requirements.txt", "cmake==4.0.3\n")
    require(world, "pytorch", "requirements-build.txt", "cmake<4\n")
    ended = world.build()
    assert ended.code == 11, ended.err
    assert "tip: see the requirements of pytorch; name PROJECTs without it" in ended.err
    assert world.calls() == []


@pytest.mark.exhaustive
def test_tools_belong_to_their_environment(world: World, tree: Path) -> None:
    """As a build from a lock, which says which ROCm, and one without it have an environment each."""
    triton = ("--no-build-pytorch", "--no-build-pytorch-audio")
    assert world.build(*triton).code == 0
    (tree.parent / "triton" / "build").mkdir(exist_ok=True)  # what setuptools and CMake leave
    try:
        for words in (("--rocm", ">7.0"), (), ("--rocm", ">7.0")):  # and back
            ended = world.build("pytorch", *words)
            assert ended.code == 0, ended.err
    finally:
        for place in world.work.glob("environments/*gt7.0*"):
            shutil.rmtree(place)


@pytest.mark.contract_slow
def test_what_lies_in_the_tree_is_not_what_builds_it(world: World, tree: Path) -> None:
    for name in ("build.py", "packaging.py", "pyproject_hooks.py"):
        (tree / name).write_text("raise SystemExit('the tree is on the path of the front end')\n")
    ended = world.build("pytorch")
    assert ended.code == 0, ended.err


@pytest.mark.contract_slow
def test_what_a_wheel_requires_is_there_for_its_import_and_leaves_no_trace(world: World) -> None:
    """As torchvision requires pillow, which its build does not."""
    needs = "global REQUIRES, INIT; REQUIRES = ['iniconfig{0}']; INIT = 'import iniconfig\\n'"
    world.disturb("pytorch_audio", needs.format(""))
    ended = world.build()
    assert ended.code == 0, ended.err
    assert "requires iniconfig" not in ended.err
    assert list(world.work.rglob("iniconfig*")) == []
    # a version that is nowhere: the import is left out, and that is said
    world.reset()
    world.disturb("pytorch_audio", needs.format("==0.0.1.dev99"))
    ended = world.build()
    assert ended.code == 0, ended.err
    assert "not imported: it requires iniconfig==0.0.1.dev99" in " ".join(ended.err.split())
