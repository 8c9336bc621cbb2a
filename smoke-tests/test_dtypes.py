"""Every dtype of the compatibility data by every operation that it has, on the devices that have it.

The reference is calculated on the CPU in the type that the data name (float64 for numbers with a point), from
the very values that the device got. Tolerances are the data's: of one operation an element, and of sums and
products of 1024 terms in [-1, 1).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from exact import as_far_as_torch_can, as_torch_multiplies, assert_within, uniform

os.environ["HIPBLASLT_ALLOW_TF32"] = "1"  # read by the first product; without allow_tf32 it changes nothing
_TERMS = 1024
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # the values of four bits without their sign (OCP MX)


def test_dtype(torch: Any, device: str, dtype_row: dict[str, Any], said: Any) -> None:
    """One operation with one dtype."""
    if device != "cpu" and dtype_row["not_here"]:
        pytest.skip(dtype_row["not_here"])
    if dtype_row["too_new"]:
        pytest.skip(dtype_row["too_new"])
    with as_far_as_torch_can(device):
        measured = OPERATIONS[dtype_row["operation"]](torch, device, dtype_row)
    said(measured or "exact")


def _type(torch: Any, name: str) -> Any:
    return getattr(torch, name.removeprefix("torch."))


def _numbers(torch: Any, row: dict[str, Any], *shape: int, seed: int) -> Any:
    """Return values on the CPU in the reference's type, which the dtype can hold within its precision."""
    kind = row["format"]
    if kind in ("int", "bool"):
        source = torch.Generator("cpu").manual_seed(seed)
        return torch.randint(0, 2 if kind == "bool" else 12, shape, generator=source)
    if kind == "scale":
        source = torch.Generator("cpu").manual_seed(seed)
        return 2.0 ** torch.randint(-20, 20, shape, generator=source).double()
    values = uniform(torch, *shape, seed=seed)
    return torch.complex(values, uniform(torch, *shape, seed=seed + 100)) if kind == "complex" else values


def _compare(torch: Any, row: dict[str, Any], got: Any, wanted: Any, *, sums: bool = False) -> str:
    """Compare as the data say: equal, or within the tolerance of an element or of a sum."""
    if row["compared"] == "equal":
        moved = got.cpu().to(wanted.dtype)
        assert bool(torch.equal(moved, wanted)), f"{int((moved != wanted).sum())} values are not equal"
        return ""
    return assert_within(torch, got, wanted, row["accumulated" if sums else "elementwise"], row["id"])


def _given_and_exact(torch: Any, device: str, row: dict[str, Any], *shape: int, seed: int) -> tuple[Any, Any]:
    rounded = _numbers(torch, row, *shape, seed=seed).to(_type(torch, row["torch"]))
    return rounded.to(device), rounded.to(_type(torch, row["reference"]))


def _cast(torch: Any, device: str, row: dict[str, Any]) -> str:
    exact = _numbers(torch, row, 37, 61, seed=1).to(_type(torch, row["reference"]))
    cast = exact.to(device).to(_type(torch, row["torch"]))
    assert str(cast.dtype) == row["torch"]
    return _compare(torch, row, cast.to(exact.dtype), exact)


def _elementwise(name: str) -> Callable[..., str]:
    def operation(torch: Any, device: str, row: dict[str, Any]) -> str:
        (a, a_exact), (b, b_exact) = (
            _given_and_exact(torch, device, row, 37, 61, seed=seed) for seed in (1, 2)
        )
        function = getattr(torch, name)
        return _compare(torch, row, function(a, b), function(a_exact, b_exact))

    return operation


def _factors(torch: Any, device: str, row: dict[str, Any], rows: int, columns: int) -> list[tuple[Any, Any]]:
    shapes = (rows, _TERMS), (_TERMS, columns)
    return [_given_and_exact(torch, device, row, *shape, seed=n) for n, shape in enumerate(shapes, 1)]


def _sum(torch: Any, device: str, row: dict[str, Any]) -> str:
    values, exact = _given_and_exact(torch, device, row, 17, _TERMS, seed=1)
    return _compare(torch, row, values.sum(-1), exact.sum(-1), sums=True)


def _matmul(torch: Any, device: str, row: dict[str, Any]) -> str:
    if row["format"] == "tf32":
        return _tf32(torch, device, row)
    (a, a_exact), (b, b_exact) = _factors(torch, device, row, 64, 48)
    return _compare(torch, row, a @ b, a_exact @ b_exact, sums=True)


def _tf32(torch: Any, device: str, row: dict[str, Any]) -> str:
    """The product may err as ten digits a factor do, and must not be that of float32."""
    if device == "cpu":
        pytest.skip("what allow_tf32 changes, it changes on GPUs")
    (a, a_exact), (b, b_exact) = _factors(torch, device, {**row, "torch": row["elements"]}, 64, 48)
    torch.backends.cuda.matmul.allow_tf32 = True
    product = a @ b
    measured = _compare(torch, row, product, a_exact @ b_exact, sums=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    assert not bool(torch.equal((a @ b).cpu(), product.cpu())), (
        "allow_tf32 changes nothing: the product with it is that of float32, bit by bit"
    )
    return measured


def _int_mm(torch: Any, device: str, row: dict[str, Any]) -> str:
    side = 2 * row["multiple"]
    (a, a_exact), (b, b_exact) = _factors(torch, device, row, side, side)
    product = torch._int_mm(a, b)
    assert str(product.dtype) == row["product"]
    return _compare(torch, row, product, a_exact @ b_exact)


def _on_grid(torch: Any, row: dict[str, Any], step: float) -> tuple[Any, Any]:
    """Return whole numbers that the dtype can hold, and the values that they stand for."""
    low, high = (-60, 60) if row["torch"].startswith("torch.qint") else (0, 15 if row["bits"] == 4 else 120)
    source = torch.Generator("cpu").manual_seed(1)
    whole = torch.randint(low, high + 1, (8, 64), generator=source)
    return whole, whole.to(torch.float32) * step


def _hold(torch: Any, values: Any, row: dict[str, Any], *, by_channel: bool) -> Any:
    """Return values as a quantized dtype holds them, in steps of 0.125."""
    dtype = _type(torch, row["torch"])
    if not by_channel:
        return torch.quantize_per_tensor(values, 0.125, 0, dtype)
    steps, zeros = (torch.full((8,), value, device=values.device) for value in (0.125, 0.0))
    return torch.quantize_per_channel(values, steps, zeros, 0, dtype)


def _quantize(torch: Any, device: str, row: dict[str, Any]) -> str:
    whole, values = _on_grid(torch, row, 0.125)
    held = _hold(torch, (values + 0.03).to(device), row, by_channel=False)
    return _compare(torch, row, held.int_repr(), whole)


def _quantize_channels(torch: Any, device: str, row: dict[str, Any]) -> str:
    whole, values = _on_grid(torch, row, 0.125)
    held = _hold(torch, (values + 0.03).to(device), row, by_channel=True)
    return _compare(torch, row, held.dequantize() * 8, whole.to(torch.float32))


def _dequantize(torch: Any, device: str, row: dict[str, Any]) -> str:
    _, values = _on_grid(torch, row, 0.125)
    held = _hold(torch, values.to(device), row, by_channel=row["bits"] == 4)
    return _compare(torch, row, torch.dequantize(held), values)


def _view(torch: Any, device: str, row: dict[str, Any]) -> str:
    held = torch.arange(256, dtype=torch.uint8).reshape(4, 64)
    seen = held.to(device).view(_type(torch, row["torch"]))
    return _compare(torch, row, seen.view(torch.uint8), held)


def _scaled_mm(torch: Any, device: str, row: dict[str, Any]) -> str:
    """Scaled products. Blocks all have one scale here: in which order a GPU wants them, does not show."""
    side = 2 * row["multiple"]
    held, exact = zip(*(_elements(torch, row, side, seed) for seed in (1, 2)), strict=True)
    if row["format"] == "mx":
        count = side * _TERMS // row["block"]
        scales = [torch.full((count,), value).to(_type(torch, row["scale"])) for value in (2.0, 0.25)]
        scales = [one.reshape(side, -1) for one in scales]
    else:
        scales = [torch.tensor(value) for value in (2.0, 0.25)]
    a, b = (one.to(device) for one in held)
    scale_a, scale_b = (one.to(device) for one in scales)
    product = _type(torch, row["product"])
    try:
        with as_torch_multiplies(torch, device, row["format"]):
            got = torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=product)
    except (RuntimeError, ValueError) as refused:
        if "Multiplication of two Float8_e5m2" not in str(refused):
            raise
        pytest.skip("torch refuses two factors in float8_e5m2; for ROCm it took that back in pytorch#148228")
    return _compare(torch, row, got, exact[0] @ exact[1].t() * 0.5, sums=True)


def _elements(torch: Any, row: dict[str, Any], side: int, seed: int) -> tuple[Any, Any]:
    """Return one side of a scaled product as it is held, and its values."""
    named = row["torch"] or row["elements"]
    if row["bits"] != 4:
        held = uniform(torch, side, _TERMS, seed=seed).to(_type(torch, named))
        return held, held.to(torch.float64)
    codes = torch.randint(0, 16, (side, _TERMS), generator=torch.Generator("cpu").manual_seed(seed))
    values = torch.tensor(_E2M1, dtype=torch.float64)[codes % 8] * torch.where(codes > 7, -1.0, 1.0)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    return packed.view(_type(torch, named)), values


OPERATIONS: dict[str, Callable[..., str]] = {
    "cast": _cast,
    "add": _elementwise("add"),
    "mul": _elementwise("mul"),
    "sum": _sum,
    "matmul": _matmul,
    "logical": _elementwise("logical_and"),
    "int_mm": _int_mm,
    "quantize": _quantize,
    "quantize_channels": _quantize_channels,
    "dequantize": _dequantize,
    "scaled_mm": _scaled_mm,
    "view": _view,
}
