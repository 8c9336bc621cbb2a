"""What projects need to be built: each has its own, in the environment that a step belongs to."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Ended
from projects import TAG, World
from sources import GIT

from rocm_wheels.core import process
from rocm_wheels.package import provenance

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the tiny projects are built on Linux"),
]

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


PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER = "3.12" if PYTHON != "3.12" else "3.13"


def lock(world: World, folder: Path) -> Path:
    """Lock torch and torchaudio, and check them out."""
    sources, variables = list[str](), dict[str, str]()
    for name in ("pytorch", "pytorch_audio"):
        tree, variable = world.sources / name, f"ROCM_WHEELS_{name.upper()}"
        branch = process.capture_output([*GIT, "branch", "--show-current"], cwd=tree, env=world.env)
        sources += ["--project", name]
        variables |= {f"{variable}_ORIGIN": tree.as_uri(), f"{variable}_REF": branch}
    words = ["--rocm", "7.1.0", "--gfx", "gfx942", "--python", f"{PYTHON},{OTHER}", "-o", str(folder / "l")]
    words += ["--source-dir", str(world.sources)]
    made = world.run("lock", "make", *sources, *words, **variables)
    assert made.code == 0, made.err
    words = ["--lock", str(folder / "l"), "--source-dir", str(folder / "trees"), "--no-hipify"]
    assert (ended := world.run("checkout", *words)).code == 0, ended.err
    return folder / "l"


def update(world: World, file: Path, links: Path | None = None) -> Ended:
    words = ["--find-links", str(links or world.folder / "packages" / "dist")]
    return world.run("lock", "update", str(file), "tools", *words, "--rocm-extras", "device-gfx942")


def build(world: World, file: Path, *more: str, links: Path | None = None, **env: str) -> Ended:
    folder = file.parent
    return world.run(
        *("build", "--lock", str(file), "--install-rocm", "--source-dir", str(folder / "trees")),
        *("--find-links", str(links or world.folder / "packages" / "dist"), "--jobs", "1"),
        *("--work-dir", str(folder / "work"), "--output-dir", str(folder / "wheels"), *more),
        **env,
    )


def read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text())
    return content


@pytest.mark.contract_slow
def test_a_locked_build_installs_the_files_of_the_lock(world: World, tmp_path: Path) -> None:
    file = lock(world, tmp_path)
    assert (read(file)["lock_version"], "tools" in read(file)) == ("1", False)
    shutil.copy(file, tmp_path / "before")
    ended = update(world, file)
    assert ended.code == 0, ended.err
    locked = read(file)
    assert (locked["lock_version"], list(locked["tools"])) == ("2", sorted([PYTHON, OTHER]))
    tools = locked["tools"][PYTHON]
    assert {"rocm", "rocm-sdk-core", "rocm-sdk-device-gfx942"} <= tools["rocm"].keys()
    assert {"build", "cmake", "ninja", "setuptools"} <= tools["projects"]["pytorch"].keys()
    content = file.read_bytes()
    assert "is up to date" in update(world, file).err and file.read_bytes() == content
    # installs them, without a network, and says from which files each is
    ended = build(world, file, UV_OFFLINE="1")
    assert ended.code == 0, ended.err
    noted = read(next((tmp_path / "work").glob("environments/*/tools/pytorch/rocm-wheels-packages.json")))
    files = {name: {package["file"]: package["sha256"]} for name, package in noted.items()}
    assert all(files[name].items() <= tools["projects"]["pytorch"][name]["files"].items() for name in files)
    assert files.keys() == tools["projects"]["pytorch"].keys()
    statement = provenance.verify_provenance(next((tmp_path / "wheels").glob("torch-*.whl"))).build
    assert statement is not None
    digests = {entry["name"]: entry.get("digest", {}).get("sha256") for entry in statement.dependencies}
    assert digests["cmake"] == noted["cmake"]["sha256"]
    assert digests["rocm-sdk-core"] in tools["rocm"]["rocm-sdk-core"]["files"].values()
    again = build(world, file, UV_OFFLINE="1")
    assert (again.code, "nothing to do" in again.err) == (0, True), again.err
    # what changed between two locks
    other = read(file)
    other["tools"][PYTHON]["projects"]["pytorch"]["cmake"] = {
        "version": "3.31.0",
        "files": {"cmake-3.31.0-py3-none-any.whl": "0" * 64},
    }
    (tmp_path / "other").write_text(json.dumps(other))
    said = world.run("lock", "diff", str(tmp_path / "other"), str(file), "--json")
    (change,) = json.loads(said.out)["tools"]
    assert (change["name"], change["group"], change["old"]["version"]) == ("cmake", "pytorch", "3.31.0")
    # the lock no longer has what a tree requires
    del other["tools"][PYTHON]["projects"]["pytorch"]["cmake"]
    (tmp_path / "other").write_text(json.dumps(other))
    ended = build(world, tmp_path / "other")
    assert (ended.code, "has no cmake for it" in ended.err, "tools` resolves" in ended.err) == (
        11,
        True,
        True,
    )
    # it has tools for other Pythons only
    del other["tools"][PYTHON]
    (tmp_path / "other").write_text(json.dumps(other))
    ended = build(world, tmp_path / "other")
    assert (ended.code, f"has tools for Python {OTHER}" in ended.err) == (2, True), ended.err


@pytest.mark.contract_slow
def test_an_exchanged_file_is_refused(world: World, tmp_path: Path) -> None:
    links = tmp_path / "links"
    shutil.copytree(world.folder / "packages" / "dist", links)
    file = lock(world, tmp_path)
    assert (ended := update(world, file, links)).code == 0, ended.err
    wheel = next(links.glob("rocm_sdk_core-*"))
    expected = read(file)["tools"][PYTHON]["rocm"]["rocm-sdk-core"]["files"][wheel.name]
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("exchanged.txt", "")
    ended = build(world, file, links=links)
    assert (ended.code, f"{file} says {expected}" in ended.err) == (11, True), ended.err
    assert "rocm-sdk-core==7.1.0 has the sha256 " in ended.err
    assert not list((tmp_path / "work").rglob("exchanged.txt")) and world.calls() == []
    assert TAG in ended.err
