"""Code that is made here and now: torch.compile, and extensions with a kernel of their own."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from exact import assert_close, both
from looking import Given

pytestmark = pytest.mark.limit(600)

_ROCM_VARIABLES = ("ROCM_HOME", "ROCM_PATH", "HIP_PATH", "CUDA_HOME", "CUDA_PATH")
_CPU_SOURCE = """
#include <torch/extension.h>
at::Tensor twice_and_one(at::Tensor x) { return x * 2 + 1; }
"""
_GPU_SOURCE = """
#include <torch/extension.h>
__global__ void kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2 + 1;
}
at::Tensor twice_and_one(at::Tensor x) {
    auto y = at::empty_like(x);
    kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""


@pytest.fixture
def compilers(torch: Any, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile, not find what was compiled last time; skip or fail where what compiles is missing."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    if device == "cpu":
        if not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))):
            pytest.skip("torch.compile needs a C++ compiler for the CPU, and none is on PATH")
    elif device == "mps":
        pytest.skip("not tested on mps")
    else:
        assert importlib.util.find_spec("triton"), "torch.compile needs triton for GPUs; it is not installed"


@pytest.mark.quick
@pytest.mark.usefixtures("compilers")
def test_compiled_function(torch: Any, device: str) -> None:
    """Pointwise operations and a reduction, fused."""

    def normalised(x: Any) -> Any:
        return torch.sin(x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()

    values, exact = both(torch, device, 33, 257)
    assert_close(torch, torch.compile(normalised, fullgraph=True)(values), normalised(exact), "the result")


@pytest.mark.quick
@pytest.mark.usefixtures("compilers")
def test_compiled_network_backward(torch: Any, device: str) -> None:
    """A layer with an activation, and its gradients."""

    def layer(x: Any, w: Any) -> Any:
        return torch.nn.functional.gelu(x @ w).sum()

    (x, x64), (w, w64) = both(torch, device, 64, 96), both(torch, device, 96, 32, seed=1)
    for one in (x, w, x64, w64):
        one.requires_grad_()
    torch.compile(layer, fullgraph=True)(x, w).backward()
    layer(x64, w64).backward()
    assert_close(torch, x.grad, x64.grad, "the gradient of the input")
    assert_close(torch, w.grad, w64.grad, "the gradient of the weights")


def test_extension(  # noqa: PLR0917 - pytest passes them by name
    torch: Any, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Given, said: Any
) -> None:
    """An extension compiled with no ROCM_HOME: torch finds ROCm by itself, as a user's build has it."""
    for name in _ROCM_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    monkeypatch.setenv("PATH", programs)  # as in an environment that is activated: ninja, hipcc
    _require_tools(device)
    cpp_extension = importlib.import_module("torch.utils.cpp_extension")
    declared = "at::Tensor twice_and_one(at::Tensor x);"
    sources: dict[str, Any] = {"cpp_sources": _CPU_SOURCE}
    if device != "cpu":
        assert given.gpu is not None
        monkeypatch.setenv("PYTORCH_ROCM_ARCH", given.gpu["arch"].split(":")[0])  # not for all of a fat wheel
        _require_rocm(cpp_extension)
        sources = {"cpp_sources": declared, "cuda_sources": _GPU_SOURCE}
    made = cpp_extension.load_inline(
        "smoke_extension", **sources, functions=["twice_and_one"], build_directory=str(tmp_path)
    )
    values, exact = both(torch, device, 1000)
    assert_close(torch, made.twice_and_one(values), exact * 2 + 1, "what the extension calculates")
    said(f"ROCm at {cpp_extension.ROCM_HOME}" if device != "cpu" else "for the CPU")


def _require_tools(device: str) -> None:
    if not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))) and not os.environ.get("CXX"):
        pytest.skip("no C++ compiler is on PATH")
    if not shutil.which("ninja") and importlib.util.find_spec("ninja") is None:
        pytest.skip("ninja is not there: pip install ninja")
    include = importlib.import_module("sysconfig").get_path("include")
    if not Path(include, "Python.h").is_file():
        pytest.skip(f"this Python has no headers: no {include}/Python.h")


def _require_rocm(cpp_extension: Any) -> None:
    """Skip where there is no ROCm to compile with. What runs torch alone (_rocm_sdk_core) is none."""
    try:
        version = importlib.metadata.version("rocm-sdk-devel")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    home = cpp_extension.ROCM_HOME
    if not version and (home is None or "_rocm_sdk_" in str(home)):
        pytest.skip("no ROCm with a compiler is installed: pip install 'rocm[libraries,devel]'")
    assert home is not None, (
        f"rocm-sdk-devel {version} is installed, and torch finds no ROCm without ROCM_HOME"
    )
