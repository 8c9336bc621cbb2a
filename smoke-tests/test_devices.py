"""The device itself: data to it and back; of GPUs also streams, graphs, memory."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from exact import assert_close, both


@pytest.mark.quick
def test_data_there_and_back(torch: Any, device: str) -> None:
    """Numbers do not change on the way, and the device adds 1."""
    exact = torch.arange(1 << 20, dtype=torch.int32)
    moved = exact.to(device)
    assert torch.equal(moved.cpu(), exact)
    assert torch.equal((moved + 1).cpu(), exact + 1)


@pytest.fixture
def cuda(device: str) -> Any:
    """torch.cuda, for what only GPUs of AMD and NVIDIA have."""
    if not device.startswith("cuda"):
        pytest.skip("for GPUs of AMD and NVIDIA")
    return importlib.import_module("torch").cuda


@pytest.mark.quick
@pytest.mark.gpu
def test_pinned_memory(torch: Any, device: str, cuda: Any) -> None:
    """Numbers do not change on the way from pinned memory."""
    exact = torch.arange(1 << 20, dtype=torch.int32)
    moved = exact.pin_memory().to(device, non_blocking=True)
    cuda.synchronize()
    assert torch.equal(moved.cpu(), exact)


@pytest.mark.quick
@pytest.mark.gpu
def test_copies_to_other_gpus(torch: Any, device: str, cuda: Any, said: Any) -> None:
    """Numbers do not change on the way from one GPU to another."""
    others = [f"cuda:{index}" for index in range(cuda.device_count()) if f"cuda:{index}" != device]
    if not others:
        pytest.skip("there is no other GPU")
    exact = torch.arange(1 << 18, dtype=torch.int32)
    moved = exact.to(device)
    for other in others:
        assert torch.equal(moved.to(other).cpu(), exact), f"numbers change on the way to {other}"
    said(f"to {len(others)} others")


@pytest.mark.quick
@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
def test_streams_and_events(torch: Any, device: str) -> None:
    """Work on another stream is done when its event says so."""
    stream = torch.cuda.Stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        begin.record()
        total = torch.ones(1 << 20, device=device).sum()
        end.record()
    end.synchronize()
    assert float(total) == 1 << 20
    assert begin.elapsed_time(end) >= 0


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
def test_graph_replays_with_new_input(torch: Any, device: str) -> None:
    """A captured HIP graph calculates again with what its input holds now."""
    weights, weights64 = both(torch, device, 64, 64)
    held = torch.zeros(32, 64, device=device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # once outside: libraries set themselves up when first called
        torch.relu(held @ weights)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = torch.relu(held @ weights)
    for seed in (1, 2):
        values, exact = both(torch, device, 32, 64, seed=seed)
        held.copy_(values)
        graph.replay()
        assert_close(torch, result, torch.relu(exact @ weights64), "the replayed product")


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
def test_memory_is_given_back(torch: Any, device: str) -> None:
    """What is freed can be allocated again, and too much is an error that leaves the GPU usable."""
    before = torch.cuda.memory_allocated()
    block = torch.empty(1 << 26, dtype=torch.uint8, device=device)
    assert torch.cuda.memory_allocated() >= before + (1 << 26)
    del block
    assert torch.cuda.memory_allocated() == before
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    assert float(torch.ones(10, device=device).sum()) == 10


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
def test_profiler_sees_kernels(torch: Any, device: str) -> None:
    """The profiler attributes time to the GPU."""
    values, _ = both(torch, device, 256, 256)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        (values @ values).sum().item()
    assert any(str(event.device_type).endswith("CUDA") for event in profile.events()), "no event of the GPU"


_SIDE = 1 << 16  # a square of it has 4 GiB of bytes


@pytest.mark.limit(300)
def test_tensor_over_4_gib(torch: Any, device: str, said: Any) -> None:
    """Copies, sums, largest values and single elements behind byte 2^32: no index has 32 bits only."""
    needed, free = 3 * _SIDE * (_SIDE + 1), _find_free_bytes(torch, device)
    if free < needed:
        pytest.skip(f"it takes {needed >> 30} GiB, and {free >> 30} GiB are free")
    marks = torch.arange(1, 100, dtype=torch.uint8)
    flat = torch.zeros(_SIDE * (_SIDE + 1), dtype=torch.uint8, device=device)
    flat[:10] = 7
    flat[-99:] = marks.to(device)
    border = 1 << 32
    flat[border - 3 : border + 3] = 50
    assert torch.equal(flat[-99:].cpu(), marks), "the last elements are not what was written"
    assert flat[border - 4 : border + 4].tolist() == [0, 50, 50, 50, 50, 50, 50, 0], "across byte 2^32"
    assert int(flat.argmax()) == flat.numel() - 1, "argmax is another element than the last"
    picked = flat[torch.tensor([0, border, flat.numel() - 2], device=device)]
    assert picked.tolist() == [7, 50, 98], "elements picked by their index are wrong"
    wanted = torch.zeros(_SIDE + 1, dtype=torch.uint8)
    wanted[0], wanted[-2], wanted[-1] = 7, 50, 99
    raised = (flat + 1).view(_SIDE + 1, _SIDE)
    assert torch.equal(raised.amax(1).cpu(), wanted + 1), "the largest values of rows are wrong"
    assert torch.equal(raised.amin(1).cpu(), torch.ones_like(wanted)), "the smallest values of rows are wrong"
    rows = raised.index_select(0, torch.tensor([_SIDE, 0], device=device))
    assert rows[:, 0].tolist() == [51, 8] and int(rows[0, -1]) == 100, "rows picked by their index are wrong"
    said(f"{flat.numel()} bytes")


def _find_free_bytes(torch: Any, device: str) -> int:
    """Return the bytes that are free on a device; 0 where nothing states them."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info()[0])
    if device != "cpu":
        return 0
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return free if sys.platform == "linux" else 0
    return min(free, int(limit)) if limit.isdecimal() else free
