"""Arithmetic on one device: exact where it is exact, else against float64 on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def _check_integers(torch: Any, device: str, check: Any) -> str:
    added = (torch.arange(3, device=device) + 10).tolist()
    check.that(added == [10, 11, 12], f"0, 1, 2 and 10 each make {added}")
    return "exact"


def _check_ordering(torch: Any, device: str, check: Any) -> str:
    """Sort, select, count, index: all exact."""
    values, exact = check.values(5000)
    host = exact.to(torch.float32)
    check.that(bool(torch.equal(values.sort().values.cpu(), host.sort().values)), "sort is wrong")
    best = values.topk(10).values.cpu()
    check.that(bool(torch.equal(best, host.topk(10).values)), "topk is wrong")
    chosen = values[values > 0].cpu()
    check.that(bool(torch.equal(chosen, host[host > 0])), "a mask selects the wrong values")
    small = (torch.arange(4000, device=device) * 7919) % 97
    check.that(small.unique().cpu().tolist() == list(range(97)), "unique is wrong")
    counts = torch.bincount(small.cpu(), minlength=97)
    added = torch.zeros(97, dtype=torch.int64, device=device)
    added.scatter_add_(0, small, torch.ones_like(small))
    check.that(bool(torch.equal(added.cpu(), counts)), "scatter_add_ loses some")
    return "exact"


def _check_reductions(torch: Any, device: str, check: Any, *, dtype: str) -> str:
    values, exact = check.values(37, 1031, dtype=dtype)
    check.close(values.sum(dim=0), exact.sum(dim=0), "sum")
    check.close(values.mean(dim=1), exact.mean(dim=1), "mean")
    check.close(values.amax(dim=0), exact.amax(dim=0), "amax")
    if dtype in {"float32", "float64"}:
        check.close(values.cumsum(dim=1), exact.cumsum(dim=1), "cumsum")
        check.close(values.var(), exact.var(), "var")
    return ""


def _check_norms(torch: Any, device: str, check: Any) -> str:
    """Ten norms of 48 MB, a single one and by rows: one wrong wave in many thousands shows.

    The single one may be off by 0.002: the CPU itself adds 12 million squares in float32, off by 0.0005.
    """
    values, exact = check.values(4, 1024, 1024, 3)
    expected = torch.linalg.vector_norm(exact)
    norms = [torch.linalg.vector_norm(values) for _ in range(10)]
    for norm in norms:
        check.close(norm, expected, "the norm", allowed=2e-3)
    rows = torch.linalg.vector_norm(values, dim=2)
    check.close(rows, torch.linalg.vector_norm(exact, dim=2), "the norms of the rows")
    different = {float(norm) for norm in norms}
    check.that(len(different) == 1, f"the same norm comes out as {sorted(different)}")
    return ""


def _check_pointwise(torch: Any, device: str, check: Any, *, dtype: str) -> str:
    values, exact = check.values(3, 10007, dtype=dtype)
    for name in ("exp", "sin", "cos", "tanh", "erf", "sigmoid"):
        # of values that are not large: exp of a rounded 10 is rounded 10 times as much
        check.close(getattr(torch, name)(values.clamp(-4, 4)), getattr(torch, name)(exact.clamp(-4, 4)), name)
    check.close(torch.log1p(values.abs()), torch.log1p(exact.abs()), "log1p")
    check.close(torch.rsqrt(values.abs() + 1), torch.rsqrt(exact.abs() + 1), "rsqrt")
    return ""


def _check_matmul(torch: Any, device: str, check: Any, *, dtype: str) -> str:
    """Square, odd and very narrow matrices; transposed ones; a batch: each takes another kernel."""
    for rows, inner, columns in ((256, 256, 256), (33, 129, 7), (1, 1000, 513), (512, 64, 1)):
        (a, a64), (b, b64) = check.values(rows, inner, dtype=dtype), check.values(inner, columns, dtype=dtype)
        check.close(a @ b, a64 @ b64, f"{rows}x{inner} @ {inner}x{columns}")
    (a, a64), (b, b64) = check.values(96, 160, dtype=dtype), check.values(96, 48, dtype=dtype)
    check.close(a.T @ b, a64.T @ b64, "a transposed matrix")
    (a, a64), (b, b64) = check.values(5, 31, 64, dtype=dtype), check.values(5, 64, 17, dtype=dtype)
    check.close(torch.bmm(a, b), torch.bmm(a64, b64), "a batch")
    bias, bias64 = check.values(17, dtype=dtype)
    check.close(torch.addmm(bias, a[0], b[0]), torch.addmm(bias64, a64[0], b64[0]), "addmm")
    return ""


def _check_complex(torch: Any, device: str, check: Any) -> str:
    (re, re64), (im, im64) = check.values(40, 40), check.values(40, 40)
    number, exact = torch.complex(re, im), torch.complex(re64, im64)
    check.close(number @ number, exact @ exact, "a product")
    check.close(number.abs(), exact.abs(), "abs")
    return ""


def _check_fft(torch: Any, device: str, check: Any) -> str:
    """Lengths that are powers of 2, have other small factors, and are prime."""
    for length in (1024, 360, 509):
        values, exact = check.values(4, length)
        check.close(torch.fft.rfft(values), torch.fft.rfft(exact), f"rfft of {length}")
        check.close(torch.fft.irfft(torch.fft.rfft(values), n=length), exact, f"and back, of {length}")
    values, exact = check.values(3, 30, 32)
    check.close(torch.fft.fft2(values), torch.fft.fft2(exact), "fft2")
    return ""


def _check_linear_algebra(torch: Any, device: str, check: Any, *, name: str) -> str:
    """Decompositions are not unique: what they multiply to is compared."""
    half, half64 = check.values(24, 24)
    a = half @ half.T + 24 * torch.eye(24, device=device)
    a64 = half64 @ half64.T + 24 * torch.eye(24, dtype=torch.float64)
    b, b64 = check.values(24, 3)
    if name == "solve":
        check.close(torch.linalg.solve(a, b), torch.linalg.solve(a64, b64))
    elif name == "cholesky":
        lower = torch.linalg.cholesky(a)
        check.close(lower @ lower.T, a64)
    elif name == "qr":
        q, r = torch.linalg.qr(half)
        check.close(q @ r, half64)
    elif name == "svd":
        u, s, v = torch.linalg.svd(half)
        check.close((u * s) @ v, half64)
    else:
        check.close(torch.linalg.eigvalsh(a), torch.linalg.eigvalsh(a64))
    return ""


def _check_sparse(torch: Any, device: str, check: Any) -> str:
    (dense, dense64), (b, b64) = check.values(64, 64), check.values(64, 9)
    thin = torch.where(dense > 1, dense, torch.zeros_like(dense)).to_sparse()
    thin64 = torch.where(dense64 > 1, dense64, torch.zeros_like(dense64))
    check.close(torch.sparse.mm(thin, b), thin64 @ b64, "a sparse product")
    return ""


def _check_random(torch: Any, device: str, check: Any) -> str:
    """A million values: mean and spread, no value twice as often as it may be, the same again by its seed."""
    torch.manual_seed(7)
    first = torch.randn(1_000_000, device=device)
    torch.manual_seed(7)
    check.that(bool(torch.equal(first, torch.randn(1_000_000, device=device))), "a seed does not repeat")
    mean, spread = float(first.mean()), float(first.std())
    check.that(
        abs(mean) < 0.01 and abs(spread - 1) < 0.01, f"randn has mean {mean:.3g}, deviation {spread:.3g}"
    )
    even = torch.rand(1_000_000, device=device)
    lowest, highest = float(even.min()), float(even.max())
    check.that(lowest >= 0 and highest < 1, f"rand gives {lowest} to {highest}")
    thrown = torch.randint(0, 6, (600_000,), device=device).cpu().bincount(minlength=6)
    check.that(bool(((thrown - 100_000).abs() < 2_000).all()), f"randint throws {thrown.tolist()}")
    return ""


MATH_CASES: dict[str, Callable[..., Any]] = {
    "integers": _check_integers,
    "ordering": _check_ordering,
    **{
        f"reductions {case}": partial(_check_reductions, dtype=case)
        for case in ("float64", "float32", "float16")
    },
    "norms": _check_norms,
    **{
        f"pointwise {case}": partial(_check_pointwise, dtype=case)
        for case in ("float32", "float16", "bfloat16")
    },
    **{
        f"matmul {case}": partial(_check_matmul, dtype=case)
        for case in ("float64", "float32", "float16", "bfloat16")
    },
    "complex": _check_complex,
    "fft": _check_fft,
    **{
        case: partial(_check_linear_algebra, name=case)
        for case in ("solve", "cholesky", "qr", "svd", "eigenvalues")
    },
    "sparse": _check_sparse,
    "random": _check_random,
}
