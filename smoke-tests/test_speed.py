"""How fast matrix products, convolutions and attention are: TFLOP/s, by which a gate compares sets.

No test fails for being slow, for nobody knows here what is fast: the numbers go into the results, and the
policy of a channel says how much slower than the last set a set may be (its rule ``speed``). A kernel that is
lost between two builds still calculates rightly, and takes a hundred times as long.

The name of a number holds all that it depends on besides the machine and the wheels: ``tflops:gemm-float16-
4096x4096x4096``. So who changes a shape changes its name. On the CPU shapes are smaller, and names begin with
``tflops:cpu-``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from exact import as_far_as_torch_can, require_scaled_products, uniform
from inspect_torch import Given

pytestmark = pytest.mark.limit(600)  # MIOpen looks for its fastest kernels when it first sees a shape

_ROUND = 0.05  # seconds: many calls at once, so that starting one weighs nothing
_ROUNDS = 12  # the best of so many counts
_LIMIT = 0.8  # seconds, after which there are no more rounds: ten tests, ten seconds a GPU
_FILTER = 3  # rows and columns of a filter
_SHAPES = {
    # rows, terms, columns
    "gemm": {"gpu": (4096, 4096, 4096), "cpu": (512, 512, 512)},
    # pictures, channels (as many come out as go in), rows, columns
    "conv2d": {"gpu": (32, 128, 56, 56), "cpu": (1, 64, 56, 56)},
    # batch, heads, queries (and as many keys), width of a head
    "attention": {"gpu": (2, 16, 2048, 64), "cpu": (1, 4, 512, 64)},
}


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        *(("gemm", dtype) for dtype in ("float16", "bfloat16", "float32")),
        *(("conv2d", dtype) for dtype in ("float16", "bfloat16", "float32")),
        *(("attention", dtype) for dtype in ("float16", "bfloat16")),
    ],
)
def test_speed(torch: Any, device: str, operation: str, dtype: str, record_property: Any) -> None:
    """Forward alone, as torch chooses its kernels by itself."""
    shape = _SHAPES[operation]["cpu" if device == "cpu" else "gpu"]

    def make(*sizes: int, seed: int) -> Any:  # kernels are faster on zeros: the chip draws less power
        return uniform(torch, *sizes, seed=seed).to(device, getattr(torch, dtype))

    if operation == "gemm":
        rows, terms, columns = shape
        inputs = make(rows, terms, seed=1), make(terms, columns, seed=2)
        calculate, operations = torch.matmul, 2 * rows * terms * columns
    elif operation == "conv2d":
        pictures, channels, height, width = shape
        inputs = make(*shape, seed=1), make(channels, channels, _FILTER, _FILTER, seed=2)
        operations = 2 * pictures * channels * height * width * channels * _FILTER**2

        def calculate(values: Any, weights: Any) -> Any:
            return torch.nn.functional.conv2d(values, weights, padding=1)

    else:
        batch, heads, length, head_width = shape
        inputs = tuple(make(*shape, seed=seed) for seed in (1, 2, 3))
        calculate = torch.nn.functional.scaled_dot_product_attention
        operations = 4 * batch * heads * length * length * head_width  # q kᵀ, and its softmax times v
    with as_far_as_torch_can(device):
        speed = _measure(torch, device, lambda: calculate(*inputs), operations)
    record_property(_name(device, operation, dtype, shape), speed)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz"])
def test_speed_of_8_bit_floats(
    torch: Any, device: str, given: Given, name: str, record_property: Any
) -> None:
    """Products of 8-bit floats with one scale for each matrix, on GPUs that have them."""
    require_scaled_products(device, given, name)
    shape = rows, terms, columns = _SHAPES["gemm"]["gpu"]
    left = uniform(torch, rows, terms, seed=1).to(device, getattr(torch, name))
    right = uniform(torch, columns, terms, seed=2).to(device, getattr(torch, name)).t()
    scale = torch.ones((), device=device)
    speed = _measure(
        torch,
        device,
        lambda: torch._scaled_mm(left, right, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16),
        2 * rows * terms * columns,
    )
    record_property(_name(device, "gemm", name, shape), speed)


def _name(device: str, operation: str, dtype: str, shape: tuple[int, ...]) -> str:
    part = "cpu-" if device == "cpu" else ""
    return f"tflops:{part}{operation}-{dtype}-{'x'.join(map(str, shape))}"


def _measure(torch: Any, device: str, call: Callable[[], Any], operations: int) -> float:
    """Return how many TFLOP/s a call makes that takes so many operations: the best of several rounds.

    What is computed must be numbers. The first call chooses kernels, and may compile them; it is not timed.
    """
    backend = getattr(torch, device.partition(":")[0], None)
    wait = getattr(backend, "synchronize", lambda: None)  # a GPU works on when a call has returned

    def time_calls(count: int) -> float:
        wait()
        begun = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        return (time.perf_counter() - begun) / count

    with torch.inference_mode():
        assert bool(call().isfinite().all()), "what it computes are no numbers"
        begun = time.perf_counter()
        best = time_calls(1)
        calls = max(1, int(_ROUND / best))
        for _ in range(_ROUNDS):
            if time.perf_counter() - begun > _LIMIT:
                break
            best = min(best, time_calls(calls))
    return operations / best / 1e12
