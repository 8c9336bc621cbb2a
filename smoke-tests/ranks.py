"""Ranks on this machine, each a process of its own, that exchange what each has: started by a test."""

from __future__ import annotations

import datetime
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RANKS = 2
_DDP_STEPS = 3
_DDP_ALLOWED = 1e-4  # of the largest value: sums of float32 in another order, three steps of them
_LIMIT = datetime.timedelta(seconds=60)  # that a rank waits for another one


def run_ranks(task: str, backend: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ranks do a task of this file together. The first that fails ends all, and its error is raised.

    They meet by a file in ``folder``. RCCL (``nccl``) wants a GPU for each: skipped where one is in sight.
    """
    if backend == "nccl":
        for name, value in _show_two_gpus().items():
            monkeypatch.setenv(name, value)
    meeting = (folder / "ranks").as_uri()
    multiprocessing = importlib.import_module("torch.multiprocessing")
    multiprocessing.spawn(_be_rank, (task, backend, meeting), nprocs=RANKS)


def _be_rank(rank: int, task: str, backend: str, meeting: str) -> None:
    torch = importlib.import_module("torch")
    device = f"cuda:{rank}" if backend == "nccl" else "cpu"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        backend, init_method=meeting, rank=rank, world_size=RANKS, timeout=_LIMIT
    )
    TASKS[task](torch, device, rank, RANKS)
    torch.distributed.destroy_process_group()


def _show_two_gpus() -> dict[str, str]:
    """Return the variables that show two GPUs to the ranks: those that are named, else all there are."""
    named = os.environ.get("ROCM_SMOKE_PAIR")
    if named:
        return {"HIP_VISIBLE_DEVICES": named}
    import torch

    if torch.cuda.device_count() < RANKS:
        pytest.skip(f"RCCL needs a GPU for each of {RANKS} ranks; there is {torch.cuda.device_count()}")
    return {}


def check_one_rank(torch: Any, device: str) -> None:
    """Load the library of collectives and calculate on one device: gloo on the CPU, RCCL on a GPU.

    Skip where it is not there to be built in; fail where torch lacks RCCL all the same.
    """
    distributed, is_on_gpu = torch.distributed, device != "cpu"
    if is_on_gpu:
        require_rccl(torch, device)
    elif not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("torch was built without gloo")
    backend = "nccl" if is_on_gpu else "gloo"
    distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)
    try:
        check_collectives(torch, device, 0, 1)
    finally:
        distributed.destroy_process_group()


def require_rccl(torch: Any, device: str) -> None:
    """Skip where there is no RCCL to be built in; fail where torch lacks it all the same."""
    if not device.startswith("cuda"):
        pytest.skip("RCCL is for GPUs of AMD, NCCL for those of NVIDIA")
    if sys.platform == "win32":
        pytest.skip("RCCL is for Linux alone")
    if not torch.distributed.is_available():
        pytest.skip("torch was built without torch.distributed")
    assert torch.distributed.is_nccl_available(), "torch was built without RCCL"


def check_collectives(torch: Any, device: str, rank: int, ranks: int) -> None:
    """Add up, send to all, collect from all, and share out: whole numbers, so that all of it is exact."""
    distributed = torch.distributed
    values = torch.arange(1000, dtype=torch.float32, device=device) + rank
    distributed.all_reduce(values)
    summed = ranks * torch.arange(1000, dtype=torch.float32) + sum(range(ranks))
    assert torch.equal(values.cpu(), summed), "the sum of all_reduce is wrong"
    sent = torch.full((10,), float(rank), device=device)
    distributed.broadcast(sent, src=ranks - 1)
    assert sent.cpu().tolist() == [float(ranks - 1)] * 10, "broadcast is wrong"
    parts = [torch.empty(5, device=device) for _ in range(ranks)]
    distributed.all_gather(parts, torch.full((5,), float(rank), device=device))
    assert [part.cpu().tolist() for part in parts] == [[float(n)] * 5 for n in range(ranks)], (
        "all_gather is wrong"
    )


def check_ddp(torch: Any, device: str, rank: int, ranks: int) -> None:
    """Train a network on a part of the data in each rank: as one process on all of it, in float64."""

    def make_network() -> Any:
        torch.manual_seed(3)
        layers = torch.nn.Linear(20, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)
        return torch.nn.Sequential(*layers)

    source = torch.Generator("cpu").manual_seed(5)
    inputs = torch.rand(ranks * 16, 20, dtype=torch.float64, generator=source) * 2 - 1
    targets = torch.rand(ranks * 16, 4, dtype=torch.float64, generator=source) * 2 - 1
    exact = make_network().double()
    network = torch.nn.parallel.DistributedDataParallel(make_network().to(device))
    rows = slice(rank * 16, (rank + 1) * 16)
    batches = [
        (exact, inputs, targets),
        (network, inputs[rows].float().to(device), targets[rows].float().to(device)),
    ]
    for model, model_inputs, model_targets in batches:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(_DDP_STEPS):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(model_inputs), model_targets).backward()
            optimizer.step()
    for parameter, exact_parameter in zip(network.parameters(), exact.parameters(), strict=True):
        error = float((parameter.detach().cpu().double() - exact_parameter).abs().max())
        largest = float(exact_parameter.abs().max())
        assert error <= _DDP_ALLOWED * largest, f"after {_DDP_STEPS} steps a weight is off by {error:.2g}"
        others = [torch.empty_like(parameter) for _ in range(ranks)]
        torch.distributed.all_gather(others, parameter.detach())
        assert all(torch.equal(other, others[0]) for other in others), "the ranks have different weights"


TASKS: dict[str, Callable[[Any, str, int, int], None]] = {"collectives": check_collectives, "ddp": check_ddp}
