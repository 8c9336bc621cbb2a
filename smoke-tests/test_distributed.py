"""Ranks on this machine. RCCL between two GPUs is among the libraries; here is what needs one, or none."""

from __future__ import annotations

from typing import Any

import pytest
from looking import Given
from ranks import all_reduce_with


def test_two_ranks_with_gloo(torch: Any) -> None:
    """all_reduce and broadcast through the CPU."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch was built without gloo")
    all_reduce_with("gloo")


@pytest.mark.gpu
def test_rccl_is_built_in(torch: Any, device: str, given: Given, said: Any) -> None:
    """torch has the back end nccl, which is RCCL here; two ranks use it in test_libraries.py."""
    if not torch.distributed.is_available():
        pytest.skip("torch was built without torch.distributed")
    if reason := _why_not_here(given):
        pytest.skip(reason)
    assert torch.distributed.is_nccl_available(), "torch was built without RCCL"
    said(".".join(map(str, torch.cuda.nccl.version())))


@pytest.mark.quick
@pytest.mark.gpu
def test_reduction_of_one_rank(torch: Any, device: str, given: Given) -> None:
    """The library of collectives loads, and reaches the GPU: a sum over one process."""
    if not device.startswith("cuda"):
        pytest.skip("for GPUs of AMD and NVIDIA")
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_nccl_available():
        pytest.skip("torch was built without it")
    if reason := _why_not_here(given):
        pytest.skip(reason)
    distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        values = torch.arange(1000, dtype=torch.float32, device=device)
        distributed.all_reduce(values)
        assert float(values.sum()) == 499500.0, f"the numbers to 999 add up to {float(values.sum())}"
    finally:
        distributed.destroy_process_group()


def _why_not_here(given: Given) -> str:
    """Say why RCCL is not built for this GPU; nothing, when it is."""
    rows = [row for row in given.data.get("libraries", ()) if row["id"] == "RCCL"]
    return str(rows[0]["not_here"]) if rows else ""
