"""What the smoke tests measure: the best of several rounds, in TFLOP/s, of a call that computes numbers."""

from __future__ import annotations

import importlib
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SMOKE_TESTS = Path(__file__).resolve().parents[2] / "smoke-tests"


@pytest.fixture
def speed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    for line in ("gpu: of the smoke tests", "limit(seconds): likewise"):
        request.config.addinivalue_line("markers", line)
    monkeypatch.syspath_prepend(str(SMOKE_TESTS))
    module = importlib.import_module("test_speed")
    monkeypatch.setattr(module, "_LIMIT", 0.2)
    return module


def torch_that_waits(waits: list[float]) -> Any:
    """A torch whose GPU works behind the caller: the time passes where somebody waits for it."""

    def synchronize() -> None:
        time.sleep(sum(waits))
        waits.clear()

    return SimpleNamespace(inference_mode=nullcontext, cuda=SimpleNamespace(synchronize=synchronize))


def answer(*, numbers: bool = True) -> Any:
    return SimpleNamespace(isfinite=lambda: SimpleNamespace(all=lambda: numbers))


def test_the_time_of_a_gpu_counts_and_not_that_of_the_call_that_starts_it(speed: Any) -> None:
    found = {}
    for seconds in (0.002, 0.04):
        waits: list[float] = []

        def call(seconds: float = seconds, waits: list[float] = waits) -> Any:
            waits.append(seconds)
            return answer()

        found[seconds] = speed._measure(torch_that_waits(waits), "cuda:0", call, 10**9)
    assert 0.2 < found[0.002] / (1e9 / 0.002 / 1e12) <= 1
    assert 0.2 < found[0.04] / (1e9 / 0.04 / 1e12) <= 1
    assert found[0.04] < 0.5 * found[0.002], "twenty times as slow is seen, on a busy machine, too"


def test_the_best_round_counts_and_the_first_call_does_not(speed: Any) -> None:
    pauses = iter([0.3, 0.02, 0.02, 0.1])  # the first call chooses a kernel; one of the rounds is disturbed

    def call() -> Any:
        time.sleep(next(pauses, 0.02))
        return answer()

    assert speed._measure(torch_that_waits([]), "cpu", call, 10**9) > 1e9 / 0.1 / 1e12


def test_what_computes_no_numbers_has_no_speed(speed: Any) -> None:
    with pytest.raises(AssertionError, match="no numbers"):
        speed._measure(torch_that_waits([]), "cpu", lambda: answer(numbers=False), 1)


def test_a_number_is_named_by_all_that_it_depends_on(speed: Any) -> None:
    assert speed._name("cuda:0", "gemm", "float16", (4096, 64)) == "tflops:gemm-float16-4096x64"
    assert speed._name("cpu", "conv2d", "float32", (1, 2)) == "tflops:cpu-conv2d-float32-1x2"
