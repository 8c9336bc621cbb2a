"""Preflight of real plans: what the steps that will run need, and nothing that is done already."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from sources import commit_files

from rocm_wheels.cli import build, build_options
from rocm_wheels.pipeline import plan, preflight

TAG = f"cp3{sys.version_info[1]}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout of torch, as far as a plan looks into it."""
    tree = tmp_path / "root" / "pytorch"
    commit_files(tree, {"setup.py": "", "version.txt": "2.9.0\n"}, "torch")
    return tmp_path / "root"


def planned(root: Path, *words: str, **env: str) -> plan.PlannedRun:
    return planned_cells(root, *words, **env)[0]


def planned_cells(root: Path, *words: str, **env: str) -> tuple[plan.PlannedRun, ...]:
    options = ["--source-dir", root, "--output-dir", root.parent / "dist", "--install-rocm"]
    given = build.production.commands["build"].make_context(
        "build", [*map(str, options), "--gfx", "gfx942,gfx1100", *words]
    )
    whole = {**os.environ, **env}
    return plan.plan_cells(plan.check_request(build_options.make_wheels_request(given.params, whole), whole))


def test_what_builds_download_is_told_and_offline_it_must_be_there(root: Path, tmp_path: Path) -> None:
    triton, llvm = root / "triton", tmp_path / "llvm"
    files = {"setup.py": "", "cmake/llvm-hash.txt": "", "cmake/json-version.txt": ""}
    files["cmake/nvidia-toolchain-version.json"] = "{}"
    pins = root / "pytorch" / "cmake" / "External" / "aotriton.cmake"
    pins.parent.mkdir(parents=True)
    pins.write_text('set(__AOTRITON_VER "0.11b")\n')
    commit_files(triton, files, "triton")

    def told(*words: str, **env: str) -> list[tuple[str, str]]:
        plain = {"LLVM_SYSPATH": "", "JSON_SYSPATH": "", "AOTRITON_INSTALLED_PREFIX": ""}
        found = [
            f
            for f in preflight.preflight_plan(planned(root, *words, **{**plain, **env}))
            if f.check == "downloads"
        ]
        return [(f.severity, f.message + f.tip) for f in found]

    online = told()
    assert [severity for severity, _ in online] == ["warning"] * 4
    names = ("LLVM_SYSPATH", "JSON_SYSPATH", "UV_OFFLINE=1", "AOTRITON_INSTALLED_PREFIX")
    for name in names:
        assert any(name in text for _, text in online)
    offline = told(UV_OFFLINE="1")
    assert [severity for severity, _ in offline] == ["error"] * 3  # NVIDIA's programs are not needed
    llvm.mkdir()
    assert ("error", True) in [
        (s, "lacks lib/cmake/mlir" in text) for s, text in told(LLVM_SYSPATH=str(llvm))
    ]
    for name in ("lib/cmake/mlir", "lib/cmake/llvm", "bin/FileCheck"):
        (llvm / name).mkdir(parents=True)
    rest = told(
        "--set-env", f"triton:LLVM_SYSPATH={llvm}", "--no-enable-pytorch-flash-attention", UV_OFFLINE="1"
    )
    assert len(rest) == 1 and "JSON_SYSPATH" in rest[0][1]
    assert planned(root, UV_OFFLINE="true").facts.env["UV_OFFLINE"] == "1"


def test_a_download_that_the_machines_own_replaces(root: Path, tmp_path: Path) -> None:
    """As torchcodec's: FFmpeg by a variable that says so, libavif by a folder that must hold it."""
    cmake = ("fetch_and_expose_non_gpl_ffmpeg_libs.cmake", "fetch_avif_from_s3.cmake")
    files = {f"src/torchcodec/_core/{name}": "" for name in cmake}
    commit_files(root / "torchcodec", {"pyproject.toml": "", "version.txt": "0.16.0\n", **files}, "codec")

    def tell(**env: str) -> list[tuple[str, str]]:
        findings = preflight.preflight_plan(planned(root, "pytorch", "torchcodec", UV_OFFLINE="1", **env))
        told = [(f.severity, f.message + f.tip) for f in findings if f.check == "downloads"]
        return [(severity, text) for severity, text in told if "torchcodec" in text]

    confirm, folder = "I_CONFIRM_THIS_IS_NOT_A_LICENSE_VIOLATION", "FETCHCONTENT_SOURCE_DIR_AVIF_S3"
    [(severity, ffmpeg), (_, avif)] = tell()
    assert severity == "error"
    assert f"set {confirm}=1" in ffmpeg
    assert f"set {folder}=DIR (a folder with include/avif/avif.h" in avif
    [(_, avif)] = tell(**{confirm: "1", folder: str(tmp_path)})
    assert "lacks include/avif/avif.h" in avif


def test_a_download_that_a_variable_leaves_out(root: Path) -> None:
    """As torchaudio's of FFmpeg; the variable of the recipe holds, not one that happens to be set."""
    files = {"setup.py": "", "version.txt": "2.9.0\n", "third_party/ffmpeg/multi/CMakeLists.txt": ""}
    commit_files(root / "pytorch_audio", files, "audio")

    def list_tips(*words: str) -> list[str]:
        findings = preflight.preflight_plan(planned(root, *words, USE_FFMPEG="0", UV_OFFLINE="1"))
        return [f.tip for f in findings if f.check == "downloads" and "pytorch_audio" in f.message]

    [tip] = list_tips()
    assert "FFMPEG_ROOT=DIR" in tip
    assert "USE_FFMPEG=0" in tip
    assert list_tips("--set-env", "pytorch_audio:USE_FFMPEG=0") == []
