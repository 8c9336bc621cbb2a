"""Values that are the same on every device, and how far from float64 on the CPU a result may be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
from looking import Given

# The largest difference from float64 on the CPU, as a part of the largest value there, by the type of the
# result: several times what rounding gives in sums of some hundred products (2^-24 for float32, 2^-11 for
# float16, 2^-8 for bfloat16), and what Winograd's convolutions lose. Wrong kernels are off by 0.01 to 1.
# For layers; what is compared by dtype, has the tolerances of the compatibility data.
TOLERANCES = {"float64": 1e-11, "complex128": 1e-11, "float32": 1e-4, "complex64": 1e-4}
TOLERANCES |= {"float16": 5e-3, "bfloat16": 4e-2}
# what torch says of a type or an operation that it does not have on a device
_LACKING = (
    "not implemented for",
    "not supported",
    "only supported",
    "unsupported",
    "Could not run",
    "Invalid scaling configuration",
    "MPS framework doesn't support float64",
    "Required aspect fp64",
)
_NO_MAGMA = "PyTorch with MAGMA"  # a torch for GPUs may be built without this library


def uniform(torch: Any, *shape: int, seed: int = 0) -> Any:
    """Return float64 values in [-1, 1) on the CPU, always the same."""
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator("cpu").manual_seed(seed)) * 2 - 1


def both(torch: Any, device: str, *shape: int, dtype: str = "float32", seed: int = 0) -> tuple[Any, Any]:
    """Return values of a type on a device, and the very same ones as float64 on the CPU."""
    rounded = uniform(torch, *shape, seed=seed).to(getattr(torch, dtype))
    return rounded.to(device), rounded.to(torch.float64)


def assert_close(torch: Any, got: Any, wanted: Any, what: str, *, allowed: float | None = None) -> float:
    """Fail unless a result is close to the float64 one; NaN never is. Return how far it is off."""
    assert tuple(got.shape) == tuple(wanted.shape), f"{what} has the shape {tuple(got.shape)}"
    wide = torch.complex128 if got.dtype.is_complex else torch.float64
    moved, exact = got.detach().cpu().to(wide), wanted.detach()
    scale = float(exact.abs().max()) or 1.0
    error = float((moved - exact).abs().max()) / scale
    name = str(got.dtype).rpartition(".")[2]
    limit = TOLERANCES[name] if allowed is None else allowed
    off = f"{what} ({name}) differs from float64 on the CPU by {error:.2g} of the largest value"
    assert error <= limit, f"{off}; {limit:g} is allowed"
    return error


def assert_within(torch: Any, got: Any, wanted: Any, tolerance: dict[str, float], what: str) -> str:
    """Fail unless |got - wanted| <= atol + rtol * |wanted|; return the largest difference in words."""
    assert tuple(got.shape) == tuple(wanted.shape), f"{what} has the shape {tuple(got.shape)}"
    wide = torch.complex128 if wanted.dtype.is_complex else torch.float64
    moved = got.detach().cpu().to(wide)
    error, room = (moved - wanted).abs(), tolerance["atol"] + tolerance["rtol"] * wanted.abs()
    wrong = ~(error <= room)  # NaN is wrong
    words = f"within rtol {tolerance['rtol']:g}, atol {tolerance['atol']:g}"
    worst = int((error - room).nan_to_num(nan=float("inf")).flatten().argmax())
    assert not bool(wrong.any()), (
        f"{what}: {int(wrong.sum())} of {wrong.numel()} values are not {words}; the worst is"
        f" {moved.flatten()[worst].item()} instead of {wanted.flatten()[worst].item()}"
    )
    return f"off by at most {float(error.max()):.2g}, {words}"


@contextmanager
def as_far_as_torch_can(device: str) -> Iterator[None]:
    """Skip what torch says it cannot do on a device; on a GPU of AMD or NVIDIA that is a failure."""
    lacking = (_NO_MAGMA,) if device.startswith("cuda") else _LACKING
    try:
        yield
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as failure:
        line = (str(failure).strip().splitlines() or [""])[0]
        if not any(sign in str(failure) for sign in lacking):
            raise
        pytest.skip(f"torch on {'the CPU' if device == 'cpu' else device}: {line[:200]}")


def as_torch_multiplies(torch: Any, device: str, number_format: str) -> AbstractContextManager[Any]:
    """Let torch multiply 8-bit floats of AMD's kind (``fp8-fnuz``) by itself on the CPU.

    On a CPU with AMX torch hands scaled products to oneDNN, which takes none of these types: "expects
    float/bfloat16/half/int8/fp8 tensor input" (ATen/native/Blas.cpp, mkldnn/MKLDNNCommon.cpp).
    """
    if device != "cpu" or number_format != "fp8-fnuz":
        return nullcontext()
    return torch.backends.mkldnn.flags(enabled=False)


def require_scaled_products(device: str, given: Given, name: str) -> dict[str, Any]:
    """Return the row of the data for scaled products of a dtype; skip where it says that there are none."""
    rows = [row for row in given.data.get("dtypes", ()) if row["id"] == f"{name}-scaled_mm"]
    if not rows:
        pytest.skip(given.no_data)
    if device != "cpu" and rows[0]["not_here"]:
        pytest.skip(rows[0]["not_here"])
    if rows[0]["too_new"]:
        pytest.skip(rows[0]["too_new"])
    return rows[0]
