"""Code that is made here and now: torch.compile, triton, kernels from text, and extensions with their own."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from exact import assert_close, both
from looking import Given

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


@pytest.mark.usefixtures("compilers")
def test_compiled_max_autotune(torch: Any, device: str, said: Any) -> None:
    """Products by the fastest of many kernels, which are compiled and timed here; then of other factors."""

    def layer(x: Any, w: Any, bias: Any) -> Any:
        return torch.relu(torch.addmm(bias, x, w))

    compiled = torch.compile(layer, fullgraph=True, mode="max-autotune")
    worst = 0.0
    for seed in (1, 2):
        (x, x64), (w, w64) = (
            both(torch, device, 256, 320, seed=seed),
            both(torch, device, 320, 192, seed=seed + 4),
        )
        bias, bias64 = both(torch, device, 192, seed=seed + 8)
        worst = max(
            worst, assert_close(torch, compiled(x, w, bias).clone(), layer(x64, w64, bias64), "the result")
        )
    counted = importlib.import_module("torch._dynamo.utils").counters["inductor"]
    tuned = counted["select_algorithm_autotune"] + counted["select_algorithm_num_precompiles"]
    said(f"off by {worst:.1e} of the largest value; {tuned} kernels were chosen among")


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
    pairs = [both(torch, device, 2, 3, length, width, dtype=dtype, seed=seed) for seed in range(3)]
    inputs, exact = zip(*pairs, strict=True)
    for values in (*inputs, *exact) if device != "cpu" else ():
        values.requires_grad_()
    slopes = torch.tensor([0.5, 0.25, 0.125], device=device)

    def lower_by_distance(score: Any, _batch: Any, head: Any, query: Any, key: Any) -> Any:
        return score - slopes[head] * (query - key).abs()

    def is_in_window(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
        return (query >= key) & (query - key <= _WINDOW)

    position = torch.arange(length, dtype=torch.float64)
    distance = position[:, None] - position
    scores = exact[0] @ exact[1].transpose(-2, -1) / width**0.5
    if mask == "scores":
        options: dict[str, Any] = {"score_mod": lower_by_distance}
        scores = scores - slopes.cpu().double()[:, None, None] * distance.abs()
    else:
        block_mask = flex.create_block_mask(is_in_window, None, None, length, length, device=device)
        options = {"block_mask": block_mask}
        scores = scores.masked_fill((distance < 0) | (distance > _WINDOW), -torch.inf)
    expected = torch.softmax(scores, dim=-1) @ exact[2]
    result = torch.compile(flex.flex_attention, fullgraph=True)(*inputs, **options)
    worst = assert_close(torch, result, expected, "attention")
    if device != "cpu":  # torch has no backward of it on the CPU
        weight, weight64 = both(torch, device, *result.shape, dtype=dtype, seed=9)
        (result * weight).sum().backward()
        (expected * weight64).sum().backward()
        for name, values, values64 in zip(("query", "key", "value"), inputs, exact, strict=True):
            worst = max(worst, assert_close(torch, values.grad, values64.grad, f"the gradient of the {name}"))
    said(f"off by {worst:.1e} of the largest value")


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
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    multiply = importlib.import_module("triton_kernels").multiply
    rows, terms, columns = 70, 90, 50
    left, left64 = both(torch, device, rows, terms, dtype=dtype)
    right, right64 = both(torch, device, terms, columns, dtype=dtype, seed=1)
    product = torch.full((rows, columns), torch.nan, device=device)
    grid = (-(-rows // 32), -(-columns // 32))
    multiply[grid](left, right, product, rows, columns, terms, ROWS=32, COLUMNS=32, TERMS=32)
    worst = assert_close(torch, product, left64 @ right64, "the product of the kernel")
    said(f"off by {worst:.1e} of the largest value{', interpreted' if device == 'cpu' else ''}")


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
    mapped = Path("/proc/self/maps")
    names = (
        {line.rpartition("/")[2] for line in mapped.read_text().splitlines()} if mapped.is_file() else set()
    )
    said("; ".join(["exact", *sorted(name for name in names if "rtc" in name and ".so" in name)]))


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
