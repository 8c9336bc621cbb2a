"""The device itself: data to it and back; of GPUs also streams, graphs, memory."""

from __future__ import annotations

import importlib
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
