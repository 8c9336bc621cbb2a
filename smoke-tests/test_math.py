"""Arithmetic: exact where it is exact, else against float64 on the CPU. Each dtype alone: test_dtypes.py."""

from __future__ import annotations

from typing import Any

import pytest
from exact import TOLERANCES, as_far_as_torch_can, assert_close, both, compare

pytestmark = pytest.mark.quick


def test_integers(torch: Any, device: str, said: Any) -> None:
    """The simplest there is."""
    with as_far_as_torch_can(device):
        added = (torch.arange(3, device=device) + 10).tolist()
    assert added == [10, 11, 12], f"0, 1, 2 and 10 each make {added}"
    said("exact")


def test_ordering(torch: Any, device: str, said: Any) -> None:
    """Sort, select, count, index: all exact."""
    values, exact = both(torch, device, 5000)
    host = exact.to(torch.float32)
    assert torch.equal(values.sort().values.cpu(), host.sort().values), "sort is wrong"
    assert torch.equal(values.topk(10).values.cpu(), host.topk(10).values), "topk is wrong"
    assert torch.equal(values[values > 0].cpu(), host[host > 0]), "a mask selects the wrong values"
    small = (torch.arange(4000, device=device) * 7919) % 97
    assert small.unique().cpu().tolist() == list(range(97)), "unique is wrong"
    added = torch.zeros(97, dtype=torch.int64, device=device)
    added.scatter_add_(0, small, torch.ones_like(small))
    assert torch.equal(added.cpu(), torch.bincount(small.cpu(), minlength=97)), "scatter_add_ loses some"
    said("exact")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_reductions(torch: Any, device: str, dtype: str) -> None:
    """Over rows, over columns, over all."""
    reductions = {
        "sum": lambda values: values.sum(dim=0),
        "mean": lambda values: values.mean(dim=1),
        "amax": lambda values: values.amax(dim=0),
    }
    if dtype != "float16":
        reductions |= {"cumsum": lambda values: values.cumsum(dim=1), "var": lambda values: values.var()}
    with as_far_as_torch_can(device):
        for name, reduce in reductions.items():
            compare(torch, device, reduce, (37, 1031), dtype=dtype, what=name)


def test_norms(torch: Any, device: str) -> None:
    """Ten norms of 48 MB, a single one and by rows: one wrong wave in many thousands shows.

    The single one may be off by 0.002: the CPU itself adds 12 million squares in float32, off by 0.0005.
    """
    values, exact = both(torch, device, 4, 1024, 1024, 3)
    expected = torch.linalg.vector_norm(exact)
    norms = [torch.linalg.vector_norm(values) for _ in range(10)]
    for norm in norms:
        assert_close(torch, norm, expected, "the norm", allowed=2e-3)
    rows, rows64 = torch.linalg.vector_norm(values, dim=2), torch.linalg.vector_norm(exact, dim=2)
    assert_close(torch, rows, rows64, "the norms of the rows")
    different = {float(norm) for norm in norms}
    assert len(different) == 1, f"the same norm comes out as {sorted(different)}"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_pointwise(torch: Any, device: str, dtype: str) -> None:
    """Functions that have kernels of their own; a factor that is a power of 2 rounds nothing."""
    functions = {
        name: lambda values, name=name: getattr(torch, name)(values * 4)
        for name in ("exp", "sin", "cos", "tanh", "erf", "sigmoid")
    }
    functions["log1p"] = lambda values: torch.log1p((values * 4).abs())
    functions["rsqrt"] = lambda values: torch.rsqrt((values * 4).abs() + 1)
    with as_far_as_torch_can(device):
        for name, function in functions.items():
            compare(torch, device, function, (3, 10007), dtype=dtype, what=name)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_matmul(torch: Any, device: str, dtype: str) -> None:
    """Square, odd and very narrow matrices; transposed ones; a batch: each takes another kernel."""
    cases = [
        (f"{rows}x{inner} @ {inner}x{columns}", torch.matmul, (rows, inner), (inner, columns))
        for rows, inner, columns in ((256, 256, 256), (33, 129, 7), (1, 1000, 513), (512, 64, 1))
    ]
    cases += [
        ("a transposed matrix", lambda a, b: a.T @ b, (96, 160), (96, 48)),
        ("a batch", torch.bmm, (5, 31, 64), (5, 64, 17)),
        ("addmm", torch.addmm, (17,), (31, 64), (64, 17)),
    ]
    with as_far_as_torch_can(device):
        for what, function, *shapes in cases:
            compare(torch, device, function, *shapes, dtype=dtype, what=what)


def test_complex_product(torch: Any, device: str) -> None:
    """Numbers with two parts."""
    with as_far_as_torch_can(device):
        compare(torch, device, lambda z: z @ z, (40, 40), dtype="complex64", what="a product")
        compare(torch, device, lambda re, im: torch.complex(re, im).abs(), (40, 40), (40, 40), what="abs")


@pytest.mark.parametrize("length", [1024, 360, 509])
def test_fft(torch: Any, device: str, length: int) -> None:
    """A power of 2, other small factors, and a prime."""
    with as_far_as_torch_can(device):
        compare_fft(torch, device, length)
        compare(torch, device, torch.fft.fft2, (3, 30, 32), what="fft2")


def compare_fft(torch: Any, device: str, length: int) -> float:
    """Compare rfft, and what irfft makes of it; return how far they are off."""

    def there_and_back(values: Any) -> Any:
        return torch.fft.irfft(torch.fft.rfft(values), n=length)

    shape = (4, length)
    off = compare(torch, device, torch.fft.rfft, shape, what="rfft")
    return max(off, compare(torch, device, there_and_back, shape, like=lambda x: x, what="and back"))


@pytest.mark.parametrize("name", ["cholesky", "qr", "svd"])
def test_linear_algebra(torch: Any, device: str, name: str) -> None:
    """Decompositions are not unique: what they multiply to is compared."""
    linalg = torch.linalg

    def calculate(half: Any) -> Any:
        if name == "cholesky":
            lower = linalg.cholesky(half @ half.T + 24 * torch.eye(24).to(half))
            return lower @ lower.T
        if name == "qr":
            q, r = linalg.qr(half)
            return q @ r
        u, s, v = linalg.svd(half)
        return (u * s) @ v

    with as_far_as_torch_can(device):
        compare(torch, device, calculate, (24, 24), what=name)


def test_sparse_product(torch: Any, device: str) -> None:
    """A matrix with few values, by their coordinates."""
    with as_far_as_torch_can(device):
        compare_sparse_product(torch, device, "to_sparse")


def compare_sparse_product(torch: Any, device: str, layout: str) -> float:
    """Compare the product of a matrix with few values, in a layout; return how far it is off."""

    def thin(dense: Any) -> Any:
        return dense.where(dense > 0.5, torch.zeros_like(dense))

    def multiply(dense: Any, b: Any) -> Any:
        return torch.sparse.mm(getattr(thin(dense), layout)(), b)

    return compare(torch, device, multiply, (64, 80), (80, 24), like=lambda dense, b: thin(dense) @ b)


def test_random(torch: Any, device: str) -> None:
    """A million values: mean and spread, no value twice as often as it may be, the same again by its seed."""
    torch.manual_seed(7)
    first = torch.randn(1_000_000, device=device)
    torch.manual_seed(7)
    assert torch.equal(first, torch.randn(1_000_000, device=device)), "a seed does not repeat"
    torch.manual_seed(8)
    assert not torch.equal(first, torch.randn(1_000_000, device=device)), (
        "another seed gives the same numbers"
    )
    mean, spread = float(first.mean()), float(first.std())
    assert abs(mean) < 0.01 and abs(spread - 1) < 0.01, f"randn has mean {mean:.3g}, deviation {spread:.3g}"
    even = torch.rand(1_000_000, device=device)
    lowest, highest = float(even.min()), float(even.max())
    assert lowest >= 0 and highest < 1, f"rand gives {lowest} to {highest}"
    thrown = torch.randint(0, 6, (600_000,), device=device).cpu().bincount(minlength=6)
    assert bool(((thrown - 100_000).abs() < 2_000).all()), f"randint throws {thrown.tolist()}"


@pytest.mark.parametrize("size", [7, 150])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_eigenvectors(torch: Any, device: str, dtype: str, size: int) -> None:
    """eigh of three Hermitian matrices: eigenvalues, vectors that are orthonormal, and that are these."""
    with as_far_as_torch_can(device):
        half, half64 = both(torch, device, 3, size, size, dtype=dtype)
        values, vectors = torch.linalg.eigh(half + half.mH)
        matrix64 = half64 + half64.mH
        assert_close(torch, values, torch.linalg.eigvalsh(matrix64), "the eigenvalues")
        vectors64 = vectors.cpu().to(matrix64.dtype)
        unit = torch.eye(size, dtype=matrix64.dtype).expand(3, size, size)
        assert_close(torch, vectors.mH @ vectors, unit, "the product of eigenvectors")
        scaled = vectors64 * values.cpu().to(matrix64.dtype)[:, None, :]
        largest = float(matrix64.abs().sum(-1).max())
        off = float((matrix64 @ vectors64 - scaled).abs().max()) / largest
        assert off <= TOLERANCES[dtype], f"A v and v λ differ by {off:.2g} of the norm of A"


@pytest.mark.parametrize("size", [5, 120])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_solutions(torch: Any, device: str, dtype: str, size: int) -> None:
    """solve for four matrices, several right-hand sides, from the left and from the right."""

    def solve(half: Any, right: Any) -> Any:
        matrix = half + size * torch.eye(size).to(half)  # far from singular: errors stay small
        return torch.linalg.solve(matrix, right)

    def solve_from_the_right(half: Any, right: Any) -> Any:
        matrix = half + size * torch.eye(size).to(half)
        return torch.linalg.solve(matrix, right.mT.contiguous(), left=False)

    with as_far_as_torch_can(device):
        for function in (solve, solve_from_the_right):
            compare(torch, device, function, (4, size, size), (4, size, 3), dtype=dtype, what="the solution")
