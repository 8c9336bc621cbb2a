"""PyTorch's hipify out of a real wheel, on the miniature's sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import miniature
import pytest

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def hipify(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """hipify from the index, whatever local folders there are."""
    env = {k: v for k, v in os.environ.items() if k not in ("PIP_FIND_LINKS", "UV_FIND_LINKS")}
    return miniature.fetch_hipify(tmp_path_factory.mktemp("cache"), env=env)


def test_it_is_read_from_the_index_once(hipify: Path) -> None:
    assert {path.name for path in hipify.iterdir()} == {*miniature.HIPIFY_DIGESTS, ".made-from"}
    assert miniature.fetch_hipify(hipify.parent, env={"PIP_NO_INDEX": "1"}) == hipify


def test_it_translates_the_tree_and_the_submodule(hipify: Path, tmp_path: Path) -> None:
    tree = tmp_path / "pytorch"
    shutil.copytree(miniature.SOURCE / "pytorch", tree)
    shutil.copytree(miniature.SOURCE / "minigemm", tree / "third_party" / "minigemm")
    shutil.copytree(hipify, tree / "torch" / "utils" / "hipify")
    before = {path for path in tree.rglob("*") if path.is_file()}
    script = [sys.executable, "-B", tree / "tools/amd_build/build_amd.py"]
    subprocess.run(script, check=True, capture_output=True, cwd=tmp_path)
    made = sorted(str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file() and p not in before)
    kernels = [f"{p.stem}.hip" for p in (tree / "aten/src/ATen/native/cuda").glob("*.cu")]
    assert made == sorted([
        "aten/src/ATen/hip/HIPContext.cpp",
        "aten/src/ATen/native/hip/DeviceVector.cuh",
        *(f"aten/src/ATen/native/hip/{name}" for name in kernels),
        "aten/src/ATen/test/hip/hip_saxpy_test.hip",
        "c10/hip/HIPException.h",
        "third_party/minigemm/csrc/hip/gemm.hip",
        "third_party/minigemm/include/hip/minigemm/gemm.cuh",
    ])  # fmt: skip
    for path in made:
        text = (tree / path).read_text()
        assert "cudaError_t" not in text
        assert "<<<" not in text
