"""Products of 8-bit floats with a scale for each row, and products of several groups at once.

Every row, column and group has a scale of its own, so that a kernel that takes one for another is seen. The
reference is the product of the very values in float64. One scale for a whole matrix: test_dtypes.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from exact import (
    as_far_as_torch_can,
    as_torch_multiplies,
    assert_within,
    both,
    compare,
    describe,
    require_scaled_products,
    uniform,
)
from inspect_torch import Given

_TERMS = 1024
_GROUP_ENDS = (16, 48, 48, 96)  # rows of each of four groups, of which the third has none
# what torch says of a build without the kernels, and of types and GPUs for which there are none
# (ATen/native/cuda/GroupedBlas.cpp)
_REFUSALS = (
    "is not supported without USE_FBGEMM_GENAI",
    "is only supported on CUDA devices with compute",
    "Expected mat_a to be Float8_e4m3fnuz",
)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz"])
def test_row_wise(torch: Any, device: str, given: Given, said: Any, name: str) -> None:
    """A scale for each row of the left factor and each column of the right one."""
    row = require_scaled_products(device, given, name)
    a, a_exact = both(torch, device, 64, _TERMS, dtype=name, seed=1)
    b, b_exact = both(torch, device, 96, _TERMS, dtype=name, seed=2)
    scale_a, scale_b = _make_scales(torch, 64, 1), _make_scales(torch, 96, 1, seed=4)
    with as_far_as_torch_can(device), as_torch_multiplies(torch, device, row["format"]):
        product = torch._scaled_mm(
            a,
            b.t(),
            scale_a=scale_a.to(device),
            scale_b=scale_b.t().contiguous().to(device),
            out_dtype=torch.bfloat16,
        )
    wanted = (a_exact * scale_a) @ (b_exact * scale_b).t()
    said(assert_within(torch, product, wanted, row["accumulated"], "a product scaled by rows"))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz"])
def test_grouped(torch: Any, device: str, given: Given, said: Any, name: str) -> None:
    """Four products in one call, one of them empty, scaled by rows: as experts of a model are calculated."""
    row = require_scaled_products(device, given, name)
    if not hasattr(torch, "_scaled_grouped_mm"):
        pytest.skip("torch before 2.8 has no grouped products")
    a, a_exact = both(torch, device, _GROUP_ENDS[-1], _TERMS, dtype=name, seed=1)
    b, b_exact = both(torch, device, len(_GROUP_ENDS), 32, _TERMS, dtype=name, seed=2)
    scale_a, scale_b = _make_scales(torch, _GROUP_ENDS[-1]), _make_scales(torch, len(_GROUP_ENDS), 32, seed=4)
    ends = torch.tensor(_GROUP_ENDS, dtype=torch.int32, device=device)
    try:
        with as_far_as_torch_can(device):
            product = torch._scaled_grouped_mm(
                a,
                b.transpose(-2, -1),
                scale_a.to(device),
                scale_b.to(device),
                offs=ends,
                out_dtype=torch.bfloat16,
            )
    except (RuntimeError, ValueError) as refused:
        if not any(sign in str(refused) for sign in _REFUSALS):
            raise
        pytest.skip(f"torch refuses grouped products: {str(refused).partition(chr(10))[0][:160]}")
    wanted = _multiply_groups(torch, a_exact * scale_a[:, None], b_exact * scale_b[:, :, None])
    said(assert_within(torch, product, wanted, row["accumulated"], "grouped products"))


def test_grouped_halves(torch: Any, device: str, said: Any) -> None:
    """The same in bfloat16, without scales."""
    multiply = getattr(torch.nn.functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    if multiply is None:
        pytest.skip("torch before 2.8 has no grouped products")
    ends = torch.tensor(_GROUP_ENDS, dtype=torch.int32, device=device)

    def calculate(a: Any, b: Any) -> Any:
        return multiply(a, b.transpose(-2, -1), offs=ends)

    def like(a: Any, b: Any) -> Any:
        return _multiply_groups(torch, a, b)

    shapes = (_GROUP_ENDS[-1], 128), (len(_GROUP_ENDS), 32, 128)
    with as_far_as_torch_can(device):
        said(describe(compare(torch, device, calculate, *shapes, like=like, dtype="bfloat16")))


def _make_scales(torch: Any, *shape: int, seed: int = 3) -> Any:
    """Return scales of 1/4 to 1, each another one than those beside it."""
    return (uniform(torch, *shape, seed=seed).float() + 1) * 0.375 + 0.25


def _multiply_groups(torch: Any, a: Any, b: Any) -> Any:
    """Return in float64 the rows of each group times the matrix of that group."""
    groups = zip((0, *_GROUP_ENDS), _GROUP_ENDS, b, strict=False)
    return torch.cat([a[begin:end] @ matrix.t() for begin, end, matrix in groups])
