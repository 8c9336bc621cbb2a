"""Measure matmul, convolution and attention on one device: the standard library and torch, nothing else.

Loaded by the runner of the checks under the Python whose torch is measured; ``CASES`` are as there. A size
grows until one run takes long enough to be timed, or memory is short. Then it runs until the time is up; the
median of the runs counts, and the quartiles say how far they spread. GPUs are timed by their own events.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_LONG_ENOUGH = {"cpu": 0.1}  # seconds of one run
_LONG_ENOUGH_GPU = 0.005
_WARM_UPS = 3
_FEWEST, _MOST = 5, 200
_SHARE = 0.25  # of the memory that is free, at most


def _matmul(torch: Any, device: str, check: Any, *, dtype: str) -> dict[str, Any]:
    """A product of square matrices: 2 n³ operations."""

    def make(step: int) -> tuple[Callable[[], Any], float, str]:
        n = 256 << step
        a, b = (_values(torch, device, dtype, n, n) for _ in range(2))
        return partial(torch.matmul, a, b), 2.0 * n**3, f"{n}x{n}"

    def needs(step: int) -> int:
        return 3 * (256 << step) ** 2 * _bytes(torch, dtype)

    return _measure(torch, device, check, make=make, needs=needs, steps=6)


def _convolution(torch: Any, device: str, check: Any, *, dtype: str) -> dict[str, Any]:
    """A 3x3 convolution of 64 channels of 56x56, as ResNet has; the batch grows."""

    def make(step: int) -> tuple[Callable[[], Any], float, str]:
        batch = 1 << step
        x = _values(torch, device, dtype, batch, 64, 56, 56)
        weight = _values(torch, device, dtype, 64, 64, 3, 3)
        work = 2.0 * batch * 64 * 64 * 9 * 56 * 56
        return partial(torch.nn.functional.conv2d, x, weight, padding=1), work, f"{batch}x64x56x56, 64 3x3"

    def needs(step: int) -> int:
        return 4 * (1 << step) * 64 * 56 * 56 * _bytes(torch, dtype)

    return _measure(torch, device, check, make=make, needs=needs, steps=10)


def _attention(torch: Any, device: str, check: Any, *, dtype: str) -> dict[str, Any]:
    """Attention of 16 heads of 64, not causal, by torch's choice of back end; the length grows."""

    def make(step: int) -> tuple[Callable[[], Any], float, str]:
        length = 128 << step
        q, k, v = (_values(torch, device, dtype, 2, 16, length, 64) for _ in range(3))
        work = 4.0 * 2 * 16 * length**2 * 64
        attend = torch.nn.functional.scaled_dot_product_attention
        return partial(attend, q, k, v), work, f"2x16x{length}x64"

    def needs(step: int) -> int:
        length = 128 << step  # a back end without tricks keeps length² scores, more than once
        return 2 * 16 * (4 * length * 64 + 2 * length**2) * _bytes(torch, dtype)

    return _measure(torch, device, check, make=make, needs=needs, steps=7)


def _measure(
    torch: Any,
    device: str,
    check: Any,
    *,
    make: Callable[[int], tuple[Callable[[], Any], float, str]],
    needs: Callable[[int], int],
    steps: int,
) -> dict[str, Any]:
    """Find the size, warm up, repeat; return the figures: seconds of a run, and operations a second."""
    enough = _LONG_ENOUGH.get(device, _LONG_ENOUGH_GPU)
    free = _free_memory(torch, device, check)
    with torch.no_grad():
        for step in range(steps):
            run, work, size = make(step)
            last = run()
            took = min(_timed(torch, device, run) for _ in range(2))
            larger = step + 1 < steps and needs(step + 1) < _SHARE * free
            if took >= enough or not larger:
                break
        for _ in range(_WARM_UPS):
            last = run()
        check.that(bool(torch.isfinite(last).all()), "the result is not finite: there is no use in timing it")
        times: list[float] = []
        end = time.monotonic() + float(check.options.get("seconds", 1.0))
        while len(times) < _FEWEST or (time.monotonic() < end and len(times) < _MOST):
            times.append(_timed(torch, device, run))
    median = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4)
    spread = (high - low) / median
    return {
        "size": size,
        "runs": len(times),
        "median_seconds": median,
        "quartiles_seconds": [low, high],
        "spread": spread,
        "tflops": work / median / 1e12,
        "detail": f"{size}: {work / median / 1e12:.3g} TFLOP/s",
    }


def _timed(torch: Any, device: str, run: Callable[[], Any]) -> float:
    """Return the seconds that one run takes: between two events of the GPU, or until it has answered."""
    kind = device.partition(":")[0]
    if kind == "cuda":
        with torch.cuda.device(device):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1e3
    wait = getattr(getattr(torch, kind), "synchronize", None) or (lambda: None)
    wait()
    started = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - started


def _free_memory(torch: Any, device: str, check: Any) -> float:
    if device.startswith("cuda"):
        return float(torch.cuda.mem_get_info(device)[0])
    return float(check.options["memory"])


def _values(torch: Any, device: str, dtype: str, *shape: int) -> Any:
    return torch.randn(*shape, device=device, dtype=torch.float32).to(getattr(torch, dtype))


def _bytes(torch: Any, dtype: str) -> int:
    return int(getattr(torch, dtype).itemsize)


_DTYPES = ("float32", "float16", "bfloat16")
CASES: dict[str, Callable[..., Any]] = {
    **{f"matmul {dtype}": partial(_matmul, dtype=dtype) for dtype in ("float64", *_DTYPES)},
    **{f"convolution {dtype}": partial(_convolution, dtype=dtype) for dtype in _DTYPES},
    **{f"attention {dtype}": partial(_attention, dtype=dtype) for dtype in _DTYPES},
}
