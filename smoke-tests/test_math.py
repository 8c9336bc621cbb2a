"""Arithmetic: exact where it is exact, else against float64 on the CPU. Each dtype alone: test_dtypes.py."""

from __future__ import annotations

from typing import Any

import pytest
from exact import TOLERANCES, as_far_as_torch_can, assert_close, both

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
    with as_far_as_torch_can(device):
        values, exact = both(torch, device, 37, 1031, dtype=dtype)
        assert_close(torch, values.sum(dim=0), exact.sum(dim=0), "sum")
        assert_close(torch, values.mean(dim=1), exact.mean(dim=1), "mean")
        assert_close(torch, values.amax(dim=0), exact.amax(dim=0), "amax")
        if dtype != "float16":
            assert_close(torch, values.cumsum(dim=1), exact.cumsum(dim=1), "cumsum")
            assert_close(torch, values.var(), exact.var(), "var")


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
    """Functions that have kernels of their own."""
    with as_far_as_torch_can(device):
        values, exact = both(torch, device, 3, 10007, dtype=dtype)
        values, exact = values * 4, exact * 4  # a power of 2 rounds nothing
        for name in ("exp", "sin", "cos", "tanh", "erf", "sigmoid"):
            assert_close(torch, getattr(torch, name)(values), getattr(torch, name)(exact), name)
        assert_close(torch, torch.log1p(values.abs()), torch.log1p(exact.abs()), "log1p")
        assert_close(torch, torch.rsqrt(values.abs() + 1), torch.rsqrt(exact.abs() + 1), "rsqrt")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_matmul(torch: Any, device: str, dtype: str) -> None:
    """Square, odd and very narrow matrices; transposed ones; a batch: each takes another kernel."""

    def matrices(*shapes: tuple[int, ...]) -> list[tuple[Any, Any]]:
        return [both(torch, device, *shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]

    with as_far_as_torch_can(device):
        for rows, inner, columns in ((256, 256, 256), (33, 129, 7), (1, 1000, 513), (512, 64, 1)):
            (a, a64), (b, b64) = matrices((rows, inner), (inner, columns))
            assert_close(torch, a @ b, a64 @ b64, f"{rows}x{inner} @ {inner}x{columns}")
        (a, a64), (b, b64) = matrices((96, 160), (96, 48))
        assert_close(torch, a.T @ b, a64.T @ b64, "a transposed matrix")
        (a, a64), (b, b64), (bias, bias64) = matrices((5, 31, 64), (5, 64, 17), (17,))
        assert_close(torch, torch.bmm(a, b), torch.bmm(a64, b64), "a batch")
        added, added64 = torch.addmm(bias, a[0], b[0]), torch.addmm(bias64, a64[0], b64[0])
        assert_close(torch, added, added64, "addmm")


def test_complex_product(torch: Any, device: str) -> None:
    """Numbers with two parts."""
    with as_far_as_torch_can(device):
        (re, re64), (im, im64) = both(torch, device, 40, 40), both(torch, device, 40, 40, seed=1)
        number, exact = torch.complex(re, im), torch.complex(re64, im64)
        assert_close(torch, number @ number, exact @ exact, "a product")
        assert_close(torch, number.abs(), exact.abs(), "abs")


@pytest.mark.parametrize("length", [1024, 360, 509])
def test_fft(torch: Any, device: str, length: int) -> None:
    """A power of 2, other small factors, and a prime."""
    with as_far_as_torch_can(device):
        values, exact = both(torch, device, 4, length)
        spectrum = torch.fft.rfft(values)
        assert_close(torch, spectrum, torch.fft.rfft(exact), "rfft")
        assert_close(torch, torch.fft.irfft(spectrum, n=length), exact, "and back")
        values, exact = both(torch, device, 3, 30, 32)
        assert_close(torch, torch.fft.fft2(values), torch.fft.fft2(exact), "fft2")


@pytest.mark.parametrize("name", ["solve", "cholesky", "qr", "svd", "eigenvalues"])
def test_linear_algebra(torch: Any, device: str, name: str) -> None:
    """Decompositions are not unique: what they multiply to is compared."""
    linalg = torch.linalg
    with as_far_as_torch_can(device):
        (half, half64), (b, b64) = both(torch, device, 24, 24), both(torch, device, 24, 3, seed=1)
        a, a64 = half @ half.T + 24 * torch.eye(24, device=device), half64 @ half64.T + 24 * torch.eye(24)
        if name == "solve":
            result, expected = linalg.solve(a, b), linalg.solve(a64, b64)
        elif name == "cholesky":
            lower = linalg.cholesky(a)
            result, expected = lower @ lower.T, a64
        elif name == "qr":
            q, r = linalg.qr(half)
            result, expected = q @ r, half64
        elif name == "svd":
            u, s, v = linalg.svd(half)
            result, expected = (u * s) @ v, half64
        else:
            result, expected = linalg.eigvalsh(a), linalg.eigvalsh(a64)
        assert_close(torch, result, expected, name)


def test_sparse_product(torch: Any, device: str) -> None:
    """A matrix with few values, by their coordinates."""
    with as_far_as_torch_can(device):
        (dense, dense64), (b, b64) = both(torch, device, 64, 64), both(torch, device, 64, 9, seed=1)
        thin, thin64 = (values.where(values > 0.5, torch.zeros_like(values)) for values in (dense, dense64))
        assert_close(torch, torch.sparse.mm(thin.to_sparse(), b), thin64 @ b64, "a sparse product")


def test_random(torch: Any, device: str) -> None:
    """A million values: mean and spread, no value twice as often as it may be, the same again by its seed."""
    torch.manual_seed(7)
    first = torch.randn(1_000_000, device=device)
    torch.manual_seed(7)
    assert torch.equal(first, torch.randn(1_000_000, device=device)), "a seed does not repeat"
    mean, spread = float(first.mean()), float(first.std())
    assert abs(mean) < 0.01 and abs(spread - 1) < 0.01, f"randn has mean {mean:.3g}, deviation {spread:.3g}"
    even = torch.rand(1_000_000, device=device)
    lowest, highest = float(even.min()), float(even.max())
    assert lowest >= 0 and highest < 1, f"rand gives {lowest} to {highest}"
    thrown = torch.randint(0, 6, (600_000,), device=device).cpu().bincount(minlength=6)
    assert bool(((thrown - 100_000).abs() < 2_000).all()), f"randint throws {thrown.tolist()}"


def _complex_or_real(torch: Any, device: str, dtype: str, *shape: int, seed: int = 0) -> tuple[Any, Any]:
    """Return numbers of a dtype on a device, and the very same ones in double precision on the CPU."""
    if not dtype.startswith("complex"):
        return both(torch, device, *shape, dtype=dtype, seed=seed)
    (re, _), (im, _) = both(torch, "cpu", *shape, seed=seed), both(torch, "cpu", *shape, seed=seed + 9)
    numbers = torch.complex(re, im)
    return numbers.to(device), numbers.to(torch.complex128)


@pytest.mark.parametrize("size", [7, 150])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_eigenvectors(torch: Any, device: str, dtype: str, size: int) -> None:
    """eigh of three Hermitian matrices: eigenvalues, vectors that are orthonormal, and that are these."""
    with as_far_as_torch_can(device):
        half, half64 = _complex_or_real(torch, device, dtype, 3, size, size)
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
    with as_far_as_torch_can(device):
        half, half64 = _complex_or_real(torch, device, dtype, 4, size, size)
        matrix = half + size * torch.eye(size, device=device)  # far from singular: errors stay small
        matrix64 = half64 + size * torch.eye(size)
        right, right64 = _complex_or_real(torch, device, dtype, 4, size, 3, seed=1)
        solved, solved64 = torch.linalg.solve(matrix, right), torch.linalg.solve(matrix64, right64)
        assert_close(torch, solved, solved64, "the solution")
        other, other64 = right.mT.contiguous(), right64.mT.contiguous()
        solved = torch.linalg.solve(matrix, other, left=False)
        assert_close(
            torch, solved, torch.linalg.solve(matrix64, other64, left=False), "the solution from the right"
        )
