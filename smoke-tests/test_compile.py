"""Code that is made here and now: torch.compile, triton, kernels from text, and extensions with their own."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from exact import compare, describe, list_loaded_files
from inspect_torch import Given

pytestmark = pytest.mark.limit(600)

_WINDOW = 37  # keys that a query sees besides its own
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
def compilers(
    torch: Any, device: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compile, not find what was compiled last time; skip or fail where what compiles is missing.

    The quick part takes the vectors that all x86 processors and compilers have: torch tries each kind that
    there is on the compiler first, which takes longer than the test.
    """
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    if device == "cpu":
        if not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))):
            pytest.skip("torch.compile needs a C++ compiler for the CPU, and none is on PATH")
        if request.node.get_closest_marker("quick") and platform.machine() in ("x86_64", "AMD64"):
            monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
            config = importlib.import_module("torch._inductor.config")
            if hasattr(config.cpp, "vec_isa_ok"):
                monkeypatch.setattr(config.cpp, "vec_isa_ok", True)
    elif device == "mps":
        pytest.skip("not tested on mps")
    else:
        assert importlib.util.find_spec("triton"), "torch.compile needs triton for GPUs; it is not installed"


@pytest.mark.usefixtures("compilers")
def test_compiled_function(torch: Any, device: str) -> None:
    """Pointwise operations and a reduction, fused."""

    def normalised(x: Any) -> Any:
        return torch.sin(x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()

    compare(torch, device, torch.compile(normalised, fullgraph=True), (33, 257), like=normalised)


@pytest.mark.quick
@pytest.mark.usefixtures("compilers")
def test_compiled_network_backward(torch: Any, device: str) -> None:
    """A layer with an activation, and its gradients."""

    def layer(x: Any, w: Any) -> Any:
        return torch.nn.functional.gelu(x @ w)

    compiled, names = torch.compile(layer, fullgraph=True), ("the input", "the weights")
    compare(torch, device, compiled, (64, 96), (96, 32), like=layer, learns=names)


@pytest.mark.usefixtures("compilers")
def test_compiled_max_autotune(torch: Any, device: str, said: Any) -> None:
    """Products by the fastest of many kernels, which are compiled and timed here; then of other factors."""

    def layer(x: Any, w: Any, bias: Any) -> Any:
        return torch.relu(torch.addmm(bias, x, w))

    compiled = torch.compile(layer, fullgraph=True, mode="max-autotune")

    def run(*inputs: Any) -> Any:
        return compiled(*inputs).clone()

    shapes = (256, 320), (320, 192), (192,)
    worst = max(compare(torch, device, run, *shapes, like=layer, seed=seed) for seed in (1, 5))
    counted = importlib.import_module("torch._dynamo.utils").counters["inductor"]
    tuned = counted["select_algorithm_autotune"] + counted["select_algorithm_num_precompiles"]
    said(f"{describe(worst)}; {tuned} kernels were chosen among")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("mask", ["scores", "window"])
@pytest.mark.usefixtures("compilers")
def test_compiled_flex_attention(torch: Any, device: str, mask: str, dtype: str, said: Any) -> None:
    """Attention with scores of one's own, and within a window: the result, and on a GPU the gradients."""
    try:
        flex = importlib.import_module("torch.nn.attention.flex_attention")
    except ImportError:
        pytest.skip("torch before 2.5 has no FlexAttention")
    if device == "cpu" and not torch.cpu._is_avx2_supported():
        pytest.skip("torch has FlexAttention on CPUs with AVX2 alone")
    length, width = 200, 64  # no multiple of a block
    slopes = torch.tensor([0.5, 0.25, 0.125], device=device)

    def lower_by_distance(score: Any, _batch: Any, head: Any, query: Any, key: Any) -> Any:
        return score - slopes[head] * (query - key).abs()

    def is_in_window(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
        return (query >= key) & (query - key <= _WINDOW)

    if mask == "scores":
        options: dict[str, Any] = {"score_mod": lower_by_distance}
    else:
        block_mask = flex.create_block_mask(is_in_window, None, None, length, length, device=device)
        options = {"block_mask": block_mask}

    def formula(query: Any, key: Any, value: Any) -> Any:
        position = torch.arange(length, dtype=torch.float64)
        distance = position[:, None] - position
        scores = query @ key.transpose(-2, -1) / width**0.5
        if mask == "scores":
            scores = scores - slopes.cpu().double()[:, None, None] * distance.abs()
        else:
            scores = scores.masked_fill((distance < 0) | (distance > _WINDOW), -torch.inf)
        return torch.softmax(scores, dim=-1) @ value

    attend = functools.partial(torch.compile(flex.flex_attention, fullgraph=True), **options)
    # torch has no backward of it on the CPU
    names = ("the query", "the key", "the value") if device != "cpu" else ()
    shapes = [(2, 3, length, width)] * 3
    said(describe(compare(torch, device, attend, *shapes, like=formula, learns=names, dtype=dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_triton_dot(  # noqa: PLR0917 - pytest passes them by name
    torch: Any, device: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    """``tl.dot`` in a kernel with sizes that no block divides; on the CPU triton interprets it."""
    if not device.startswith(("cpu", "cuda")):
        pytest.skip(f"not tested on {device}")
    if importlib.util.find_spec("triton") is None:
        assert device == "cpu", "triton is not installed"
        pytest.skip("triton is not installed")
    if device == "cpu":
        if dtype == "bfloat16":
            pytest.skip("triton interprets by numpy, which takes the bits of bfloat16 for whole numbers")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    elif torch.version.hip:
        backend = importlib.import_module("triton.runtime").driver.active.get_current_target().backend
        assert backend == "hip", f"triton compiles for {backend}, not for AMD's GPUs"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.delitem(sys.modules, "triton_kernels", raising=False)  # one that is interpreted stays so
    kernel = importlib.import_module("triton_kernels").multiply
    rows, terms, columns = 70, 90, 50

    def multiply(left: Any, right: Any) -> Any:
        product = torch.full((rows, columns), torch.nan, device=device)
        grid = (-(-rows // 32), -(-columns // 32))
        kernel[grid](left, right, product, rows, columns, terms, ROWS=32, COLUMNS=32, TERMS=32)
        return product

    shapes = (rows, terms), (terms, columns)
    worst = compare(torch, device, multiply, *shapes, like=torch.matmul, dtype=dtype)
    said(f"{describe(worst)}{', interpreted' if device == 'cpu' else ''}")


@pytest.mark.gpu
def test_kernel_from_text(torch: Any, device: str, said: Any) -> None:
    """A kernel that hiprtc compiles from its text, on whole numbers: exact."""
    if not device.startswith("cuda"):
        pytest.skip("for GPUs of AMD and NVIDIA")
    text = "template <typename T> T add_scaled(T x, T y, T factor) { return factor * x + y; }"
    add_scaled = torch.cuda.jiterator._create_jit_fn(text, factor=1.0)
    x, y = torch.arange(5000, dtype=torch.float32), torch.arange(5000, dtype=torch.float32).flip(0)
    result = add_scaled(x.to(device), y.to(device), factor=3.0)
    assert torch.equal(result.cpu(), 3 * x + y), "the kernel calculates something else"
    names = [Path(path).name for path in list_loaded_files()]
    said("; ".join(["exact", *(name for name in names if "rtc" in name and ".so" in name)]))


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
    compare(torch, device, made.twice_and_one, (1000,), like=lambda values: values * 2 + 1)
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
