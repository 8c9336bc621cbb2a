"""Every device: does it take data and give it back, by itself and from its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _list_devices(torch: Any, _device: str, _check: Any) -> dict[str, Any]:
    """List every GPU that torch sees; this touches the driver for the first time."""
    gpus = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            arch = getattr(properties, "gcnArchName", "") or f"{properties.major}.{properties.minor}"
            gpus.append(
                {
                    "device": f"cuda:{index}",
                    "name": properties.name,
                    "arch": arch,
                    "memory": properties.total_memory,
                }
            )
    elif getattr(getattr(torch, "xpu", None), "is_available", bool)():
        for index in range(torch.xpu.device_count()):
            properties = torch.xpu.get_device_properties(index)
            gpus.append(
                {
                    "device": f"xpu:{index}",
                    "name": properties.name,
                    "arch": "",
                    "memory": properties.total_memory,
                }
            )
    elif getattr(getattr(torch.backends, "mps", None), "is_available", bool)():
        gpus.append({"device": "mps", "name": "Apple GPU", "arch": "", "memory": 0})
    names = ", ".join(f"{gpu['device']} {gpu['name']}" for gpu in gpus)
    return {"devices": gpus, "detail": names or "torch sees no GPU"}


def _check_properties(torch: Any, device: str, check: Any) -> str:
    if not device.startswith("cuda"):
        check.skip("only GPUs have them")
    properties = torch.cuda.get_device_properties(device)
    arch = getattr(properties, "gcnArchName", "")
    if arch and getattr(torch.version, "hip", None):
        compiled = torch.cuda.get_arch_list()
        base = arch.split(":")[0]
        generic = f"gfx{base[3:-2]}-"  # gfx11-generic for gfx1151: the runtime decides which of them fit
        has_kernels = any(target.split(":")[0] == base or target.startswith(generic) for target in compiled)
        check.that(
            has_kernels, f"torch has kernels for {' '.join(compiled) or 'nothing'}, and this is {base}"
        )
    return f"{properties.name}, {arch or f'{properties.major}.{properties.minor}'}, {properties.total_memory / 2**30:.1f} GiB"


def _check_round_trip(torch: Any, device: str, check: Any) -> str:
    exact = torch.arange(1 << 20, dtype=torch.int32)
    moved = exact.to(device)
    check.that(moved.device.type == device.partition(":")[0], f"the tensor is on {moved.device}")
    check.that(bool(torch.equal(moved.cpu(), exact)), "numbers change on the way to the device and back")
    check.that(bool(torch.equal((moved + 1).cpu(), exact + 1)), "the device does not add 1")
    return "4 MiB, exactly"


def _check_pinned_memory(torch: Any, device: str, check: Any) -> str:
    if not device.startswith("cuda"):
        check.skip("only GPUs copy from pinned memory")
    exact = torch.arange(1 << 20, dtype=torch.int32).pin_memory()
    moved = exact.to(device, non_blocking=True)
    torch.cuda.synchronize(device)
    check.that(bool(torch.equal(moved.cpu(), exact)), "numbers change on the way from pinned memory")
    return ""


def _check_streams(torch: Any, device: str, check: Any) -> str:
    if not device.startswith("cuda"):
        check.skip("only GPUs have streams")
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            begin.record()
            total = torch.ones(1 << 20, device=device).sum()
            end.record()
        end.synchronize()
        check.that(float(total) == float(1 << 20), f"a sum on another stream is {float(total)}")
        check.that(begin.elapsed_time(end) >= 0, "events run backwards")
    return ""


def _check_neighbours(torch: Any, device: str, check: Any) -> str:
    if not device.startswith("cuda") or torch.cuda.device_count() < 2:
        check.skip("there is no other GPU")
    own_index = torch.device(device).index
    exact = torch.arange(1 << 18, dtype=torch.int32)
    moved = exact.to(device)
    other_indices = [index for index in range(torch.cuda.device_count()) if index != own_index]
    for index in other_indices:
        came = moved.to(f"cuda:{index}")
        check.that(bool(torch.equal(came.cpu(), exact)), f"numbers change on the way to cuda:{index}")
    return f"to {len(other_indices)} others"


def _check_collectives(torch: Any, device: str, check: Any) -> str:
    """A reduction by RCCL (NCCL) among one process: the library loads, and reaches the GPU."""
    if not device.startswith("cuda"):
        check.skip("only GPUs reduce by RCCL")
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_nccl_available():
        check.skip("this torch is built without it")
    with torch.cuda.device(device):
        distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
        try:
            values = torch.arange(1000, dtype=torch.float32, device=device)
            distributed.all_reduce(values)
            check.that(float(values.sum()) == 499500.0, f"the numbers to 999 add up to {float(values.sum())}")
        finally:
            distributed.destroy_process_group()
    return ""


DEVICE_CASES: dict[str, Callable[..., Any]] = {
    "listing": _list_devices,
    "properties": _check_properties,
    "there and back": _check_round_trip,
    "pinned memory": _check_pinned_memory,
    "streams": _check_streams,
    "neighbours": _check_neighbours,
    "collectives": _check_collectives,
}
