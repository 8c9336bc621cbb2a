"""Two ranks that add up what each has: started by a test, each rank a process of this file.

python ranks.py BACKEND RANK PORT
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

RANKS = 2


def all_reduce_with(backend: str) -> None:
    """Have two ranks do an all_reduce; fail with what they printed. RCCL wants a GPU for each."""
    env = dict(os.environ)
    if backend == "nccl":
        env |= _two_gpus()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), backend, str(rank), str(port)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    said = [child.communicate()[0] for child in children]
    for rank, child in enumerate(children):
        assert child.returncode == 0, f"rank {rank} ended with {child.returncode}:\n{said[rank]}"


def _two_gpus() -> dict[str, str]:
    """Return the variables that show two GPUs to the ranks: those that are named, else all there are."""
    named = os.environ.get("ROCM_SMOKE_PAIR")
    if named:
        return {"HIP_VISIBLE_DEVICES": named}
    import torch

    if torch.cuda.device_count() < RANKS:
        pytest.skip(f"RCCL needs a GPU for each of {RANKS} ranks; there is {torch.cuda.device_count()}")
    return {}


def main(backend: str, rank: int, port: str) -> None:
    """Be one rank: broadcast, then add up."""
    import torch

    here = f"cuda:{rank}" if backend == "nccl" else "cpu"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    place = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group(backend, init_method=place, rank=rank, world_size=RANKS)
    values = torch.arange(1000, dtype=torch.float32, device=here) + rank
    torch.distributed.all_reduce(values)
    wanted = 2 * torch.arange(1000, dtype=torch.float32) + 1
    assert torch.equal(values.cpu(), wanted), "the sum is wrong"
    told = torch.full((10,), float(rank), device=here)
    torch.distributed.broadcast(told, src=1)
    assert told.cpu().tolist() == [1.0] * 10, "the broadcast is wrong"
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
