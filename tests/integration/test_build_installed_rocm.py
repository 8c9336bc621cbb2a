"""`build --rocm-path`: wheels built on an installed ROCm, which no package of ROCm stands for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ended
from projects import TAG, TARGET, World, make_tree
from rocm import lay_out, make_torch_tree

from rocm_wheels.audit import audited_wheel, verify
from rocm_wheels.models import project
from rocm_wheels.wheels import dist_info, rewrite

pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]
VERSION = "7.1.0"
USAGE, BUILD = 2, 12


@pytest.fixture
def rocm(world: World, tmp_path: Path) -> Path:
    """Lay out the small ROCm as an installed one, of which nothing says that ROCm's own build made it."""
    root = lay_out(world.folder / "artifacts", tmp_path / "rocm")
    shutil.rmtree(root / "share/therock")
    (compiler,) = world.work.glob("environments/py*/lib/python*/site-packages/ziglang")
    (tmp_path / "ziglang").symlink_to(compiler)  # where the clang of the small ROCm looks for itself
    (root / ".info/version").write_text(f"{VERSION}-98\n")
    return root


def build(world: World, *words: str | Path, command: str = "build", **env: str) -> Ended:
    jobs = ["--jobs", "1"] if command == "build" else []
    common = ["--gfx", TARGET, "--output-dir", world.output]
    common += [] if "--source-dir" in words else ["--source-dir", world.sources]
    place = ["--work-dir", world.folder / "work on rocm"]
    return world.run(command, *map(str, [*common, *place, *jobs, *words]), **env)


def read_torch(world: World) -> Path:
    (wheel,) = world.output.glob("torch-*.whl")
    return wheel


def start_torch(
    wheel: Path, folder: Path, python: Path = Path(sys.executable), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the module that starts ROCm, alone; print which HIP runtime is loaded then."""
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, folder], check=True)
    program = (
        "import runpy; runpy.run_path('torch/_rocm_init.py')['initialize']()\n"
        "print([line.split()[-1] for line in open('/proc/self/maps') if 'libamdhip64' in line][0])"
    )
    bare = {"PATH": os.environ["PATH"], **env}
    command = [python, "-c", program]
    return subprocess.run(command, cwd=folder, env=bare, capture_output=True, text=True, check=False)


def test_a_torch_requires_what_is_installed_and_loads_it(world: World, rocm: Path, tmp_path: Path) -> None:
    ended = build(world, "pytorch", "--rocm-path", rocm)
    assert ended.code == 0, ended.err
    wheel = read_torch(world)
    assert wheel.name.startswith(f"torch-2.9.0+rocm{VERSION}-")
    metadata = dist_info.parse_metadata(rewrite.read_dist_info_files(wheel)["METADATA"], name=wheel.name)
    assert metadata.installed_rocm == VERSION
    assert not [line for line in metadata.requires_dist if line.startswith("rocm")]
    expected = audited_wheel.WheelExpectation(
        project.load_project("pytorch"), "linux", python_tag=TAG, targets=(TARGET,), rocm_version=VERSION
    )
    assert verify.verify_wheel(wheel, expected).passed
    stamp = json.loads((world.folder / f"work on rocm/steps/build-pytorch-{TAG}.json").read_text())
    assert stamp["facts"]["predicate"]["buildDefinition"]["externalParameters"]["installed-rocm"]

    started = start_torch(wheel, tmp_path / "here")
    assert started.stdout.strip() == f"{rocm}/lib/libamdhip64.so.7", started.stderr
    rocm.rename(tmp_path / "moved")
    nowhere = start_torch(wheel, tmp_path / "nowhere")
    assert nowhere.returncode == 1
    assert "ImportError" in nowhere.stderr and f"rocm[libraries]=={VERSION}" in nowhere.stderr
    moved = start_torch(wheel, tmp_path / "there", ROCM_PATH=str(tmp_path / "moved"))
    assert moved.stdout.strip() == f"{tmp_path}/moved/lib/libamdhip64.so.7", moved.stderr
    (with_packages,) = world.work.glob("environments/py*/bin/python")  # of that very version
    packaged = start_torch(wheel, tmp_path / "packaged", with_packages)
    assert "_rocm_sdk_core/lib/libamdhip64.so.7" in packaged.stdout, packaged.stderr
    (tmp_path / "moved/.info/version").write_text("7.3.0\n")
    other = start_torch(wheel, tmp_path / "other", ROCM_PATH=str(tmp_path / "moved"))
    assert (other.returncode, "UserWarning" in other.stderr) == (0, True)


def test_an_upgrade_is_seen_and_the_variable_counts(world: World, rocm: Path) -> None:
    only = ("pytorch",)
    assert build(world, *only, "--rocm-path", rocm).code == 0
    first = world.wheels()
    assert "nothing to do" in build(world, *only, ROCM_PATH=str(rocm)).err
    os.utime(rocm / "include/hip/hip_runtime.h", (1, 1))
    planned = build(world, *only, "--rocm-path", rocm, "--json", command="plan")
    steps = {step["id"]: step for step in json.loads(planned.out)["steps"]}
    assert "ROCm packages" in steps[f"install-tools-{TAG}"]["why"]
    world.calls()
    assert build(world, *only, ROCM_PATH=str(rocm)).code == 0
    assert world.calls() == ["pytorch begun", "pytorch done"]
    assert set(world.wheels()) == set(first)
    place = ("--source-dir", str(world.sources), "--work-dir", str(world.folder / "work on rocm"))
    developed = world.run("dev", "pytorch", *place, "--gfx", TARGET, "--rocm-path", str(rocm))
    assert (developed.code, f"at {rocm};" in developed.err) == (BUILD, True)  # no editable installs in it
    refused = world.run("dev", "pytorch", *place, "--gfx", "gfx1030", ROCM_PATH=str(rocm))
    assert (refused.code, refused.err.count("ROCM_PATH: building on")) == (USAGE, 1)


def test_packages_go_before_the_variable(world: World, rocm: Path) -> None:
    """Where they are asked for, and where the work directory has them."""
    words = [word for word in world.words(command="plan") if word != "--install-rocm"]
    planned = world.run(*words, "--json", ROCM_PATH=str(rocm))
    assert planned.code == 0, planned.err
    request = json.loads(planned.out)["request"]
    assert (request["sdk"]["rocm_path"], request["install_rocm"]) == (None, False)
    assert world.run(*world.words(command="plan"), ROCM_PATH="/nowhere").code == 0


def ask_for_both(world: World, rocm: Path) -> tuple[str, ...]:
    return ("--rocm-path", str(rocm), "--install-rocm", "--find-links", str(world.folder / "packages/dist"))


def lack_rccl(world: World, rocm: Path) -> tuple[str, ...]:
    """Have torch look for what the large one looks for."""
    for name in ("miopen", "hipcub", "hiprtc"):
        (rocm / f"lib/cmake/{name}").mkdir()
        (rocm / f"lib/cmake/{name}/{name}-config.cmake").touch()
    make_tree(rocm.parent / "pytorch", "pytorch")
    make_torch_tree(rocm.parent / "pytorch")
    return ("--rocm-path", str(rocm), "--source-dir", str(rocm.parent), "pytorch")


WRONG: list[tuple[Callable[[World, Path], tuple[str, ...]], int, str]] = [
    (ask_for_both, 2, "--install-rocm, --find-links"),
    (lambda place, rocm: ("--rocm-path", f"{rocm}/nowhere"), 2, "no folder"),
    (lambda place, rocm: ("--rocm-path", str(place.sources)), 11, "no include/hip"),
    (lambda place, rocm: ("--rocm-path", str(rocm), "--packaging", "fat"), 2, "--from-prefix"),
    (lambda place, rocm: ("--rocm-path", str(rocm), "--gfx", "gfx1030"), 2, "--allow-unlisted-targets"),
    (lack_rccl, 2, "--set-env pytorch:USE_RCCL=0"),
]


@pytest.mark.parametrize(("make", "code", "names"), WRONG)
def test_what_cannot_be_built_on_is_refused(
    world: World,
    rocm: Path,
    make: Callable[[World, Path], tuple[str, ...]],
    code: int,
    names: str,
) -> None:
    ended = build(world, *make(world, rocm))
    assert (ended.code, ended.err.count("error: ")) == (code, 1), ended.err
    assert names in ended.err
    assert world.calls() == [] and not world.output.exists()


def test_what_is_left_out_by_its_option_does_not_end_the_build(world: World, rocm: Path) -> None:
    words = (*lack_rccl(world, rocm), "--set-env", "pytorch:USE_RCCL=0")
    planned = build(world, *words, command="plan")
    assert (planned.code, planned.err.count("error: ")) == (0, 0), planned.err
    assert "has no hipSPARSELt: torch is built without it" in planned.err
