"""Measure the torch of one Python on its GPUs and on the CPU, and set them side by side.

Nothing is compared but what was measured here, one after the other.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import ChecksError, UsageError
from rocm_wheels.hosts.benchmark.measures import CASES
from rocm_wheels.hosts.installed.environment import find_interpreter
from rocm_wheels.hosts.selftest.cases import choose_devices
from rocm_wheels.hosts.selftest.outcome import SelfTestCase, SelfTestOutcome
from rocm_wheels.hosts.selftest.running import run_cases
from rocm_wheels.hosts.selftest.selftest import inspect_torch
from rocm_wheels.machine import measure_machine
from rocm_wheels.records import suggest_name

GROUP = "benchmark"
LIMIT = 600.0  # seconds a measurement: the first run of a convolution may compile kernels for minutes
_MEASURES = Path(__file__).with_name("measures.py")
WORKLOADS = tuple(dict.fromkeys(name.partition(" ")[0] for name in CASES))
DTYPES = tuple(dict.fromkeys(name.partition(" ")[2] for name in CASES))


@dataclass(frozen=True)
class Figure:
    """A measurement: ``tflops`` and ``median_seconds`` of ``runs`` runs; ``spread`` is the distance of the
    quartiles as a part of the median.

    ``times_cpu`` is its rate as a multiple of the CPU's, where that was measured too (with its own size).
    ``fault`` says why there is no figure.
    """

    workload: str
    dtype: str
    device: str
    size: str = ""
    runs: int = 0
    median_seconds: float | None = None
    spread: float | None = None
    tflops: float | None = None
    times_cpu: float | None = None
    state: str = "pass"
    fault: str = ""


@dataclass(frozen=True)
class Measured:
    """All figures of a benchmark, and what torch says of itself and its devices."""

    python: str
    torch: Mapping[str, object]
    devices: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Wanted:
    """What is to be measured. Nothing named is everything. ``seconds`` are spent on each measurement.

    ``device`` is ``auto`` (every GPU, and the CPU beside them), ``cpu`` or torch's name of one; ``baseline``
    says whether the CPU is measured beside GPUs.
    """

    workloads: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    device: str = "auto"
    baseline: bool = True
    python: Path | None = None
    seconds: float = 1.0
    limit: float = LIMIT


def benchmark(
    wanted: Wanted, env: Mapping[str, str], *, done: Callable[[SelfTestOutcome], None] = lambda outcome: None
) -> Measured:
    """Measure. UsageError for what cannot be measured, and when nothing is left to measure; HostError without
    torch, ChecksError when it does not start."""
    names = _names(wanted)
    if wanted.device == "cpu" and not wanted.baseline:
        raise UsageError("only the CPU, and not the CPU: nothing is left", tip="leave out --no-cpu")
    python = Path(sys.executable) if wanted.python is None else find_interpreter(wanted.python)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-benchmark-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        looked, facts = inspect_torch(python, env, scratch, limit=wanted.limit, device=wanted.device)
        if looked[-1].state != "pass":
            raise ChecksError(f"{looked[-1].case} fails: {looked[-1].detail}", tip="rocm-wheels test")
        devices = _devices(wanted, facts)
        more = {
            "modules": {GROUP: [str(_MEASURES)]},
            "options": {"seconds": wanted.seconds, "memory": measure_machine(env).free_memory},
        }
        cases = [SelfTestCase(GROUP, one, device) for device in devices for one in names]
        outcomes = run_cases(cases, python, env, scratch, limit=wanted.limit, done=done, more=more)
    return Measured(str(python), facts, devices, beside_cpu(map(_figure, outcomes)))


def _devices(wanted: Wanted, facts: Mapping[str, object]) -> tuple[str, ...]:
    found = choose_devices(wanted.device, facts)
    gpus = tuple(device for device in found if device != "cpu")
    if wanted.baseline:
        return (*gpus, "cpu")
    if not gpus:
        raise UsageError("torch sees no GPU, and the CPU is not to be measured", tip="leave out --no-cpu")
    return gpus


def beside_cpu(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """Return the figures with the rate of each GPU as a multiple of the CPU's, where there is one."""
    from dataclasses import replace

    found = tuple(figures)
    cpu = {(one.workload, one.dtype): one.tflops for one in found if one.device == "cpu"}

    def one_beside(one: Figure) -> Figure:
        base = cpu.get((one.workload, one.dtype))
        known = one.device != "cpu" and base and one.tflops is not None
        return replace(one, times_cpu=one.tflops / base) if known and base and one.tflops else one

    return tuple(map(one_beside, found))


def _names(wanted: Wanted) -> list[str]:
    for given, known, what in (
        (wanted.workloads, WORKLOADS, "workload"),
        (wanted.dtypes, DTYPES, "dtype"),
    ):
        for word in given:
            if word not in known:
                near = suggest_name(word, known)
                raise UsageError(f"there is no {what} {word}{near}", tip=f"{what}s: {', '.join(known)}")
    chosen = [
        name
        for name in CASES
        if (not wanted.workloads or name.partition(" ")[0] in wanted.workloads)
        and (not wanted.dtypes or name.partition(" ")[2] in wanted.dtypes)
    ]
    if not chosen:
        raise UsageError(f"{', '.join(wanted.workloads)} is not measured in {', '.join(wanted.dtypes)}")
    return chosen


def _figure(outcome: SelfTestOutcome) -> Figure:
    workload, _, dtype = outcome.case.name.partition(" ")
    facts = outcome.facts
    if outcome.state != "pass":
        return Figure(workload, dtype, outcome.case.device, state=outcome.state, fault=outcome.detail)
    return Figure(
        workload,
        dtype,
        outcome.case.device,
        size=str(facts["size"]),
        runs=int(str(facts["runs"])),
        median_seconds=float(str(facts["median_seconds"])),
        spread=float(str(facts["spread"])),
        tflops=float(str(facts["tflops"])),
    )
