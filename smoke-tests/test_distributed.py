"""Two ranks on this machine. RCCL is among the libraries; here is what works without a GPU."""

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
    rows = [one for one in given.data.get("libraries", ()) if one["id"] == "RCCL"]
    if rows and rows[0]["not_here"]:
        pytest.skip(rows[0]["not_here"])
    assert torch.distributed.is_nccl_available(), "torch was built without RCCL"
    said(".".join(map(str, torch.cuda.nccl.version())))
