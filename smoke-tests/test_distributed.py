"""Ranks on this machine: one and two of them, through the CPU by gloo and through GPUs by RCCL."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from looking import Given
from ranks import check_collectives, run_ranks


@pytest.mark.parametrize("task", ["collectives", "ddp"])
def test_two_ranks_with_gloo(torch: Any, task: str) -> None:
    """Collectives, and a network trained by two processes, through the CPU."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch was built without gloo")
    run_ranks(task, "gloo")


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["collectives", "ddp"])
def test_two_ranks_with_rccl(torch: Any, device: str, given: Given, task: str) -> None:
    """The same between two GPUs."""
    _require_rccl(torch, device, given)
    run_ranks(task, "nccl")


@pytest.mark.gpu
def test_rccl_is_built_in(torch: Any, device: str, given: Given, said: Any) -> None:
    """torch has the back end nccl, which is RCCL here."""
    _require_rccl(torch, device, given)
    said(".".join(map(str, torch.cuda.nccl.version())))


@pytest.mark.quick
def test_collectives_of_one_rank(torch: Any, device: str, given: Given) -> None:
    """The library of collectives loads and calculates on one device: gloo on the CPU, RCCL on a GPU."""
    distributed = torch.distributed
    if device == "cpu":
        if not distributed.is_available() or not distributed.is_gloo_available():
            pytest.skip("torch was built without gloo")
    else:
        _require_rccl(torch, device, given)
    backend = "gloo" if device == "cpu" else "nccl"
    distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)
    try:
        check_collectives(torch, device, 0, 1)
    finally:
        distributed.destroy_process_group()


def _require_rccl(torch: Any, device: str, given: Given) -> None:
    """Skip where there is no RCCL to be built in; fail where torch lacks it all the same."""
    if not device.startswith("cuda"):
        pytest.skip("RCCL is for GPUs of AMD, NCCL for those of NVIDIA")
    if sys.platform == "win32":
        pytest.skip("RCCL is for Linux alone")
    if not torch.distributed.is_available():
        pytest.skip("torch was built without torch.distributed")
    rows = [row for row in given.data.get("libraries", ()) if row["id"] == "RCCL"]
    if rows and rows[0]["not_here"]:
        pytest.skip(str(rows[0]["not_here"]))
    assert torch.distributed.is_nccl_available(), "torch was built without RCCL"
