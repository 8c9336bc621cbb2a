"""Two ranks that add up what each has: started by a test, each rank a process of this file.

python ranks.py BACKEND RANK PORT
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

RANKS = 2
_SHOWN_LINES = 6


def all_reduce_with(backend: str) -> None:
    """Have two ranks do an all_reduce; fail with what they printed. RCCL wants a GPU for each."""
    env = dict(os.environ)
    if backend == "nccl":
        env |= _two_gpus()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        printed = [Path(name, str(rank)) for rank in range(RANKS)]
        codes = _codes([backend, str(port)], env, printed)
        said = [path.read_text(encoding="utf-8", errors="replace") for path in printed]
    faults = [
        "\n".join([f"rank {rank} ended with {code}:", *said[rank].splitlines()[-_SHOWN_LINES:]])
        for rank, code in enumerate(codes)
        if code not in (0, None)  # one that fails often takes the other along: both are shown
    ]
    assert not faults, "\n".join(faults)


def _codes(words: list[str], env: dict[str, str], printed: list[Path]) -> list[int | None]:
    """Run all ranks; return their exit codes, None of one that waited for a rank that had failed."""
    children = []
    for rank, path in enumerate(printed):
        argv = [sys.executable, str(Path(__file__).resolve()), *words, str(rank)]
        with path.open("wb") as sink:
            children.append(subprocess.Popen(argv, env=env, stdout=sink, stderr=subprocess.STDOUT))
    while any(child.poll() is None for child in children):
        if any(child.returncode for child in children):
            break
        time.sleep(0.05)
    codes = [child.returncode for child in children]
    for child in children:
        child.kill()
        child.wait()
    return codes


def _two_gpus() -> dict[str, str]:
    """Return the variables that show two GPUs to the ranks: those that are named, else all there are."""
    named = os.environ.get("ROCM_SMOKE_PAIR")
    if named:
        return {"HIP_VISIBLE_DEVICES": named}
    import torch

    if torch.cuda.device_count() < RANKS:
        pytest.skip(f"RCCL needs a GPU for each of {RANKS} ranks; there is {torch.cuda.device_count()}")
    return {}


def main(backend: str, port: str, rank: int) -> None:
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
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
