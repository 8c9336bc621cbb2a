"""Values that are the same on every device, and how far from float64 on the CPU a result may be."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from inspect_torch import Given

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
    """Return values of a type on a device, and the very same ones in double precision on the CPU."""
    values = uniform(torch, *shape, seed=seed)
    if dtype.startswith("complex"):
        values = torch.complex(values, uniform(torch, *shape, seed=seed + 100))
    rounded = values.to(getattr(torch, dtype))
    return rounded.to(device), rounded.to(values.dtype)


def compare(
    torch: Any,
    device: str,
    function: Callable[..., Any],
    *shapes: tuple[int, ...],
    like: Callable[..., Any] | None = None,
    learns: Sequence[str] = (),
    dtype: str = "float32",
    seed: int = 0,
    what: str = "the result",
) -> float:
    """Call a function on a device, and on the CPU in double precision; fail unless both are close.

    ``shapes`` are those of its arguments, ``like`` is what is calculated on the CPU, if not the same. With
    ``learns``, names of the arguments, their gradients are compared, too. Return how far it is off.
    """
    pairs = [both(torch, device, *shape, dtype=dtype, seed=seed + n) for n, shape in enumerate(shapes)]
    inputs, exact = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for values in (*inputs, *exact) if learns else ():
        values.requires_grad_()
    result, expected = function(*inputs), (like or function)(*exact)
    worst = assert_close(torch, result, expected, what)
    if learns:
        named = list(zip(learns, inputs, exact, strict=True))
        worst = max(worst, compare_gradients(torch, device, result, expected, named))
    return worst


def compare_gradients(
    torch: Any,
    device: str,
    result: Any,
    expected: Any,
    named: Sequence[tuple[str, Any, Any]],
    *,
    times: float = 1,
) -> float:
    """Compare what two results have as gradients; ``named`` are names, and the values of both that learn.

    They may be off by so many ``times`` what a result may. Return how far they are off.
    """
    weight, weight64 = both(torch, device, *result.shape, dtype=_name(result), seed=9)
    (result * weight).sum().backward()
    (expected * weight64).sum().backward()
    return max(
        assert_close(
            torch,
            values.grad,
            values64.grad,
            f"the gradient of {name}",
            allowed=times * TOLERANCES[_name(values)],
        )
        for name, values, values64 in named
    )


def _name(values: Any) -> str:
    return str(values.dtype).rpartition(".")[2]


def assert_close(torch: Any, got: Any, wanted: Any, what: str, *, allowed: float | None = None) -> float:
    """Fail unless a result is close to the float64 one; NaN never is. Return how far it is off."""
    assert tuple(got.shape) == tuple(wanted.shape), f"{what} has the shape {tuple(got.shape)}"
    wide = torch.complex128 if got.dtype.is_complex else torch.float64
    moved, exact = got.detach().cpu().to(wide), wanted.detach()
    scale = float(exact.abs().max()) or 1.0
    error = float((moved - exact).abs().max()) / scale
    limit = TOLERANCES[_name(got)] if allowed is None else allowed
    off = f"{what} ({_name(got)}) differs from float64 on the CPU by {error:.2g} of the largest value"
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


def describe(off: float) -> str:
    """Return how far a result is off in words."""
    return f"off by {off:.1e} of the largest value"


def list_loaded_files() -> list[str]:
    """Return the paths of files that this process has mapped (Linux); none elsewhere."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8").splitlines() if maps.is_file() else []
    places = {line.split(maxsplit=5)[-1].strip() for line in lines}
    return sorted(place for place in places if place.startswith("/"))  # no "[heap]"


def require_installed(project: str) -> str:
    """Return the version of a project; skip where it is not installed."""
    try:
        return importlib.metadata.version(project)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{project} is not installed")


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
