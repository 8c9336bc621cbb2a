"""What a second run of ``build`` takes for current, and what not: after the demo, on the same trees."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from finished_demo import Demo, required

from rocm_wheels.core import files

pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]
OTHERS = ("--no-build-triton", "--no-build-pytorch-vision", "--no-build-apex")
ONLY_TORCH = (*OTHERS, "--no-build-pytorch-audio")
ONLY_AUDIO = (*OTHERS, "--no-build-pytorch")


def test_the_same_lock_gives_the_same_bytes_in_another_folder(demo: Demo, tmp_path: Path) -> None:
    """And with another HOME, whatever day it is: what hipcc names by the folder is named by the tree."""
    place = ("--lock", str(demo.folder / "sources.lock.json"), "--source-dir", str(tmp_path / "elsewhere"))
    demo.ours("checkout", "torch", "triton", *place, code=0)
    packages = str(demo.folder / "rocm-packages" / "dist")
    rocm = ("--install-rocm", "--find-links", packages, "--rocm-extras", "device-gfx942,device-gfx1100")
    left_out = ("--no-build-pytorch-audio", "--no-build-pytorch-vision", "--no-build-apex")
    words = ("build", *place, *rocm, *left_out, "--output-dir", str(tmp_path / "wheels"))
    ended = demo.run(*words, HOME=str(tmp_path / "home"))
    assert ended.code == 0, ended.err
    first = json.loads((demo.folder.parent / "digests.json").read_text())
    (torch,) = (tmp_path / "wheels").glob("torch-*.whl")
    assert hashlib.sha256(torch.read_bytes()).hexdigest() == first["torch"]


def test_a_source_tree_is_built_by_one_run_at_a_time(demo: Demo, tmp_path: Path) -> None:
    packages = str(demo.folder / "rocm-packages" / "dist")
    other = ["--install-rocm", "--find-links", packages, "--work-dir", str(demo.folder / "other-work")]
    place = demo.torch / ".git" / "rocm-wheels"
    with files.lock_folder(place, purpose="a build with its own work directory"):
        ended = demo.build(*other, *ONLY_TORCH, output="other")
    assert ended.code == 2, ended.err
    assert f"{place} is in use by process" in ended.err
    assert "(a build with its own work directory)" in ended.err
    assert "tip: wait for it to end, then run this again, or build from another checkout" in ended.err
    assert not list((demo.folder / "other").glob("*.whl"))
    shutil.rmtree(demo.folder / "other-work")


def test_another_torch_in_the_environment_is_another_input(demo: Demo) -> None:
    """Built against what an earlier run installed: as current as with the torch of the same run."""
    assert demo.build(*OTHERS).code == 0
    assert "nothing to do" in demo.build(*ONLY_AUDIO).err
    assert demo.build(*ONLY_TORCH, "--pytorch-build-number", "2").code == 0
    (demo.folder / "second").mkdir()
    shutil.copy2(demo.wheels()["torch"], demo.folder / "second")  # test_build_against has use for it
    ended = demo.build(*ONLY_AUDIO)
    assert re.search(r"inputs changed: PYTORCH_VERSION .+\.post2\), pins, wheel of pytorch", ended.err), (
        ended.err
    )
    assert "nothing to do" in demo.build(*ONLY_AUDIO).err


def test_variables_of_the_user_that_reach_a_wheel_are_inputs(demo: Demo) -> None:
    mine = {"SOURCE_DATE_EPOCH": "1700000000"}
    assert demo.build(*ONLY_AUDIO).code == 0
    assert "inputs changed: SOURCE_DATE_EPOCH" in demo.build(*ONLY_AUDIO, **mine).err
    assert "nothing to do" in demo.build(*ONLY_AUDIO, **mine).err


def test_a_companion_requires_the_torch_that_it_was_built_against(demo: Demo) -> None:
    """Whatever the shell says; what is asked for by name goes before, and is no torch that nobody built."""
    assert demo.build(*OTHERS).code == 0
    torch = demo.wheels()["torch"].name.split("-")[1]
    ended = demo.build(*ONLY_AUDIO, PYTORCH_VERSION="1.0")
    assert ended.code == 0, ended.err
    assert required(demo.wheels()["torchaudio"]) == [f"Requires-Dist: torch=={torch}"]
    words = ("--set-env", "pytorch_audio:PYTORCH_VERSION=2.13.0a0")
    assert "inputs changed: PYTORCH_VERSION" in demo.build(*ONLY_AUDIO, *words).err
    assert required(demo.wheels()["torchaudio"]) == ["Requires-Dist: torch==2.13.0a0"]
    ended = demo.build(*ONLY_AUDIO, "--set-env", "pytorch_audio:PYTORCH_VERSION=1.*")
    assert ended.code == 2 and "torch==1.* does not require one exact version" in ended.err
    ended = demo.build(*ONLY_AUDIO, "--set-env", "pytorch_audio:PYTORCH_VERSION=2.10.0")
    assert ended.code == 14, "its own requirement says otherwise"
    assert "does not require torch==2.10.0, but torch>=2.11" in ended.err
    assert demo.build(*ONLY_AUDIO).code == 0


def test_options_that_do_nothing_are_named(demo: Demo) -> None:
    packages = str(demo.folder / "rocm-packages" / "dist")
    ended = demo.build(*ONLY_AUDIO, "--find-links", packages, "--rocm-extras", "device-gfx942")
    assert (
        "--find-links, --rocm-extras: of no effect on ROCm packages, which are taken as installed"
        in ended.err
    )


@pytest.mark.parametrize("option", ["--output-dir", "--work-dir"])
def test_a_folder_inside_a_source_tree_is_refused(demo: Demo, option: str) -> None:
    place = demo.torch / "inside"
    words = demo.build_words(option, str(place))
    ended = demo.run(*words)
    assert ended.code == 2
    assert f"{option} {place} is inside the source tree of pytorch, {demo.torch}" in ended.err
    assert not place.exists()


def test_a_wheel_that_is_gone_is_built_again_with_its_tools(demo: Demo) -> None:
    """Also: the installer's cache goes where it is asked to, and the choice of flash attention is told."""
    cache = demo.folder / "installer cache"
    for stamp in (demo.folder / "sources" / ".rocm-wheels" / "steps").glob("install-tools-*.json"):
        stamp.unlink()  # else there is nothing to install
    for note in demo.folder.glob("sources/.rocm-wheels/environments/*/tools/*/rocm-wheels-packages.json"):
        note.unlink()
    next((demo.folder / "sources/.rocm-wheels/built").glob("build-pytorch-cp3??/*.whl")).unlink()
    demo.wheels()["torch"].unlink()
    ended = demo.run(*demo.build_words(*ONLY_TORCH), UV_CACHE_DIR=str(cache))
    row = next(line for line in ended.out.splitlines() if line.startswith("torch-"))
    assert "gfx942, gfx1100" in row and "built, verified" in row
    assert "flash attention: on, aotriton has kernels for gfx942, gfx1100" in ended.err
    assert any(cache.iterdir())


def test_what_lies_around_a_run_does_not_reach_it(demo: Demo, tmp_path: Path) -> None:
    """A module on PYTHONPATH, the repository of a hook (git sets GIT_DIR), pieces of a killed run."""
    (tmp_path / "torch.py").write_text("raise ImportError('a torch of somebody else')")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    notes = tmp_path / ".git" / "info" / "exclude"
    notes.parent.mkdir(exist_ok=True)
    notes.write_text("")
    name = demo.wheels()["torchaudio"].name
    demo.wheels()["torchaudio"].unlink()  # so that one is delivered
    pieces = [demo.folder / "wheels" / f".{name}.x1.part"]
    work = demo.folder / "sources" / ".rocm-wheels"
    step = next((work / "steps").glob("build-pytorch_audio-cp3??.json")).stem  # others are of a set a target
    pieces.append(work / "fresh" / step / ".fresh-x1" / name)
    for piece in pieces:
        piece.parent.mkdir(exist_ok=True)
        piece.write_text("half a wheel")
    around = {"GIT_DIR": str(tmp_path / ".git"), "GIT_INDEX_FILE": str(tmp_path / "index")}
    ended = demo.build("--clean", *ONLY_AUDIO, PYTHONPATH=str(tmp_path), **around)
    assert ended.code == 0, ended.err
    assert "PYTHONPATH: not for the build environment" in ended.err
    assert notes.read_text() == ""
    assert [piece for piece in pieces if piece.exists()] == []


def test_a_kernel_that_comes_goes_or_is_renamed_counts(demo: Demo) -> None:
    """As upstream, its CMakeLists.txt globs without CONFIGURE_DEPENDS and its setup.py configures once."""
    setup = (demo.torch / "setup.py").read_text() + (demo.torch / "CMakeLists.txt").read_text()
    assert "CONFIGURE_DEPENDS" not in setup and '"build.ninja").is_file()' in setup
    folder = demo.torch / "aten/src/ATen/native/cuda"
    module = demo.torch / "third_party/minigemm/csrc/cuda"
    text = (folder / "Activation.cu").read_text().replace("Relu", "Mine").replace("relu", "first_mine")
    (gemm,) = module.glob("*.cu")

    def build(*kernels: str) -> dict[str, int]:
        """Build; return when each object was written. In the library are these kernels of ours alone."""
        ended = demo.build(*ONLY_TORCH)
        assert ended.code == 0, ended.err
        with zipfile.ZipFile(demo.wheels()["torch"]) as archive:
            library = archive.read("torch/lib/libtorch_hip.so")
        assert sorted(set(re.findall(rb"(?:first|second|third)_mine", library))) == sorted(
            kernel.encode() for kernel in kernels
        )
        return {path.name: path.stat().st_mtime_ns for path in (demo.torch / "build").rglob("*.o")}

    before = build()
    new = [folder / "First.cu", module / "Second.cu"]
    try:
        new[0].write_text(text)
        new[1].write_text(gemm.read_text().replace("sgemm", "second_mine"))
        objects = build("first_mine", "second_mine")
        assert objects.keys() - before.keys() == {"First.hip.o", "Second.hip.o"}
        assert before.items() <= objects.items()  # what was compiled stays
        new[1].unlink()
        new.append(new[0].rename(folder / "Third.cu"))
        new[2].write_text(text.replace("first_mine", "third_mine"))
        objects = build("third_mine")
        assert before.items() <= objects.items()
    finally:
        for path in new:
            path.unlink(missing_ok=True)
    assert before.items() <= build().items()
    assert "nothing to do" in demo.build(*ONLY_TORCH).err
