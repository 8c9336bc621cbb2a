"""What a benchmark's figures come to, and what it refuses."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from rocm_wheels.hosts.benchmark.benchmark import _devices
from rocm_wheels.hosts.benchmark.measures import _measure

from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.main import cli
from rocm_wheels.core import UsageError
from rocm_wheels.hosts import (
    CaseCheck,
    Figure,
    Measured,
    SelfTestCase,
    Wanted,
    benchmark,
    beside_cpu,
    choose_devices,
    lines,
    list_cases,
    parse_groups,
)

GPU = Figure("matmul", "float16", "cuda:0", "4096x4096", 50, 0.001, 0.02, 137.4)
CPU = Figure("matmul", "float16", "cpu", "512x512", 5, 0.344, 0.27, 0.5)
FACTS = {"version": "2.9.0+rocm7.2", "devices": [{"device": "cuda:0", "name": "Radeon RX 7900 XTX"}]}


def test_rates_are_compared_with_what_was_measured_alone() -> None:
    other = Figure("attention", "float16", "cuda:0", "2x16x1024x64", 9, 0.01, 0.1, 5.0)
    failed = Figure("matmul", "float16", "cuda:1", state="crash", fault="crashed with SIGSEGV\n  | trace")
    found = beside_cpu([GPU, other, failed, CPU])
    assert [one.times_cpu for one in found] == [pytest.approx(274.8), None, None, None]
    printed = lines(Measured("/env/bin/python", FACTS, ("cuda:0", "cpu"), found))
    assert printed[:2] == ["torch 2.9.0+rocm7.2 in /env/bin/python", "cuda:0: Radeon RX 7900 XTX"]
    assert printed[3].split() == [
        "matmul",
        "float16",
        "cuda:0",
        "4096x4096",
        "1",
        "ms",
        "2",
        "%",
        "137",
        "275",
    ]
    assert printed[5].split(maxsplit=3)[3] == "crash: crashed with SIGSEGV"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(["matmult"]), "there is no workload matmult; did you mean matmul?"),
        (Wanted(dtypes=["half"]), "there is no dtype half"),
        (Wanted(["attention"], ["float64"]), "attention is not measured in float64"),
        (Wanted(device="cpu", baseline=False), "nothing is left"),
    ],
)
def test_what_is_not_measured(wanted: Wanted, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        benchmark(wanted, {})
    assert said in caught.value.message


class Result:
    """What a stand-in for torch computes: finite or not."""

    def __init__(self, finite: bool) -> None:
        self.finite = finite

    def all(self) -> bool:
        return self.finite


def measure(free: int, *, finite: bool = True) -> dict[str, Any]:
    torch = SimpleNamespace(no_grad=nullcontext, isfinite=lambda value: value, cpu=SimpleNamespace())
    check = CaseCheck(torch, "cpu", {"seconds": 0.01, "memory": free})
    return _measure(
        torch,
        "cpu",
        check,
        make=lambda step: (lambda: Result(finite), 1e9, f"size {step}"),
        needs=lambda step: 100 << step,
        steps=6,
    )


def test_a_quarter_of_the_memory_at_most() -> None:
    assert measure(100 * 8 * 4 + 1)["size"] == "size 3"
    assert measure(1 << 40)["size"] == "size 5"
    found = measure(0)
    assert found["size"] == "size 0" and found["runs"] >= 5
    assert found["tflops"] == pytest.approx(1e9 / found["median_seconds"] / 1e12)
    with pytest.raises(AssertionError, match="not finite"):
        measure(0, finite=False)


def test_the_cpu_is_measured_beside_gpus_unless_it_shall_not_be() -> None:
    assert _devices(Wanted(), FACTS) == _devices(Wanted(device="all"), FACTS) == ("cuda:0", "cpu")
    assert _devices(Wanted(device="all", baseline=False), FACTS) == ("cuda:0",)
    assert _devices(Wanted(), {}) == ("cpu",)
    with pytest.raises(UsageError, match="torch sees no GPU, and the CPU is not to be measured"):
        _devices(Wanted(baseline=False), {})


def test_groups_and_devices() -> None:
    assert parse_groups([]) == parse_groups(["all"]) == ("import", "devices", "compile", "math", "functions")
    assert parse_groups(["math", "IMPORT"]) == ("import", "math")
    assert choose_devices("auto", FACTS) == ("cuda:0",)
    assert choose_devices("all", FACTS) == ("cpu", "cuda:0")
    assert choose_devices("auto", {}) == ("cpu",)
    with pytest.raises(UsageError, match="torch sees no device cuda:1"):
        choose_devices("cuda:1", FACTS)
    cases = list_cases(["import", "math"], ["cuda:0", "cuda:1"])
    assert SelfTestCase("import", "numpy") in cases and SelfTestCase("import", "torch") not in cases
    assert len([case for case in cases if case.device == "cuda:0"]) == len(list_cases(["math"], ["cpu"]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["test", "maths"], "there are no checks maths; did you mean math?"),
        (["test", "--python", ""], "the path is empty; is a variable not set?"),
        (["benchmark", "--dtype", "bf16"], "there is no dtype bf16; did you mean bfloat16?"),
        (["test", "--python", "/nowhere"], "there is no Python /nowhere"),
        (["test", "--timeout", "0"], "0.0 is not in the range x>0"),
        (["test", "--device", "cpu", "--require-gpu"], "a GPU is required, and only the CPU is to be tested"),
        (["benchmark", "matmull"], "there is no workload matmull; did you mean matmul?"),
        (["benchmark", "--dtype", "int3"], "there is no dtype int3"),
        (["benchmark", "--seconds", "0"], "0.0 is not in the range"),
        (["benchmark", "--python", "/nowhere"], "there is no Python /nowhere"),
    ],
)
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(cli, words) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.out == ""
