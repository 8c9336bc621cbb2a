"""Ranks on this machine: one and two of them, through the CPU by gloo and through GPUs by RCCL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inspect_torch import Given
from ranks import check_one_rank, require_rccl, run_ranks


@pytest.mark.parametrize("task", ["collectives", "ddp"])
def test_two_ranks_with_gloo(torch: Any, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectives, and a network trained by two processes, through the CPU."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch was built without gloo")
    run_ranks(task, "gloo", tmp_path, monkeypatch)


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["collectives", "ddp"])
def test_two_ranks_with_rccl(  # noqa: PLR0917 - pytest passes them by name
    torch: Any, device: str, given: Given, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same between two GPUs."""
    _skip_without_rccl(given)
    require_rccl(torch, device)
    run_ranks(task, "nccl", tmp_path, monkeypatch)


@pytest.mark.gpu
def test_rccl_is_built_in(torch: Any, device: str, given: Given, said: Any) -> None:
    """torch has the back end nccl, which is RCCL here."""
    _skip_without_rccl(given)
    require_rccl(torch, device)
    said(".".join(map(str, torch.cuda.nccl.version())))


@pytest.mark.quick
def test_collectives_of_one_rank(torch: Any, device: str, given: Given) -> None:
    """The library of collectives loads and calculates on one device."""
    if device != "cpu":
        _skip_without_rccl(given)
    check_one_rank(torch, device)


def _skip_without_rccl(given: Given) -> None:
    """Skip where the data say that RCCL is not built for this GPU."""
    for row in given.data.get("libraries", ()):
        if row["id"] == "RCCL" and row["not_here"]:
            pytest.skip(str(row["not_here"]))
