"""Check that torch and its companions load, that every device takes data and gives it back, that it compiles.

Standard library and torch only: this file is loaded by its path under the Python that is tested.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

_COMPANIONS = ("torchvision", "torchaudio", "triton", "torchao")


def _check_torch_import(_torch: Any, _device: str, _check: Any) -> dict[str, Any]:
    """Import torch and write down what it says of itself."""
    torch = importlib.import_module("torch")
    version = torch.version
    hip, cuda = getattr(version, "hip", None), getattr(version, "cuda", None)
    xpu = getattr(version, "xpu", None)
    kind = "rocm" if hip else "cuda" if cuda else "xpu" if xpu else "cpu"
    facts = {
        "version": torch.__version__,
        "kind": kind,
        "of": hip or cuda or xpu or "",
        "file": torch.__file__,
    }
    runtime = f" for {kind} {facts['of']}".rstrip() if kind != "cpu" else ", a CPU build"
    return {**facts, "detail": f"torch {torch.__version__}{runtime}"}


def _check_companion(_torch: Any, _device: str, check: Any, *, name: str) -> str:
    if importlib.util.find_spec(name) is None:
        check.skip("not installed")
    torch = importlib.import_module("torch")
    module = importlib.import_module(name)
    version = str(getattr(module, "__version__", "of no stated version"))
    required_torch = _find_required_torch(name)
    check.that(
        required_torch is None or required_torch == _strip_local(torch.__version__),
        f"{name} {version} is made for torch {required_torch}, and this is torch {torch.__version__}",
    )
    if name == "torchvision":
        boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
        indices = module.ops.nms(
            boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5
        )  # its own code, in its own library
        check.that(indices.tolist() == [0, 2], f"torchvision.ops.nms kept {indices.tolist()}, not [0, 2]")
    return f"{name} {version}"


def _check_numpy(_torch: Any, _device: str, check: Any) -> str:
    if importlib.util.find_spec("numpy") is None:
        check.skip("numpy is not installed")
    torch = importlib.import_module("torch")
    numpy = importlib.import_module("numpy")
    back = torch.from_numpy(numpy.arange(6).reshape(2, 3)).numpy()
    check.that(bool((back == numpy.arange(6).reshape(2, 3)).all()), "numbers change on the way through numpy")
    return f"numpy {numpy.__version__}"


def _find_required_torch(name: str) -> str | None:
    """Return the one torch that a distribution requires, None when it does not insist on one."""
    try:
        required = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for requirement in required:
        if match := re.match(r"torch\s*\(?==\s*([0-9][\w.]*)", requirement):
            return match[1]
    return None


def _strip_local(version: str) -> str:
    return str(version).partition("+")[0]


IMPORT_CASES: dict[str, Callable[..., Any]] = {
    "torch": _check_torch_import,
    **{name: partial(_check_companion, name=name) for name in _COMPANIONS},
    "numpy": _check_numpy,
}


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
    return (
        f"{properties.name}, {arch or f'{properties.major}.{properties.minor}'}, "
        f"{properties.total_memory / 2**30:.1f} GiB"
    )


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


def _require_compiler(device: str, check: Any) -> None:
    """Skip, or fail, where what compiles is missing: a C++ compiler for the CPU, triton for a GPU."""
    if device == "cpu":
        if not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))):
            check.skip("torch.compile needs a C++ compiler for the CPU, and none is on PATH")
    elif device.startswith("mps"):
        check.skip("not checked on mps")
    else:
        has_triton = importlib.util.find_spec("triton") is not None
        check.that(has_triton, "torch.compile needs triton for GPUs, and it is not installed")


def _check_pointwise(torch: Any, device: str, check: Any) -> str:
    _require_compiler(device, check)

    def line(x: Any) -> Any:
        return torch.sin(x) * 2 + 1

    values, exact = check.values(1024)
    check.close(torch.compile(line, fullgraph=True)(values), torch.sin(exact) * 2 + 1)
    return ""


def _check_reduction(torch: Any, device: str, check: Any) -> str:
    _require_compiler(device, check)

    def normalised(x: Any) -> Any:
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()

    values, exact = check.values(33, 257)
    check.close(torch.compile(normalised, fullgraph=True)(values), normalised(exact))
    return ""


def _check_backward(torch: Any, device: str, check: Any) -> str:
    _require_compiler(device, check)

    def layer(x: Any, w: Any) -> Any:
        return torch.nn.functional.gelu(x @ w).sum()

    (x, x64), (w, w64) = check.values(64, 96), check.values(96, 32)
    for tensor in (x, w, x64, w64):
        tensor.requires_grad_()
    compiled = torch.compile(layer, fullgraph=True)(x, w)
    compiled.backward()
    layer(x64, w64).backward()
    check.close(x.grad, x64.grad, "the gradient of the input")
    check.close(w.grad, w64.grad, "the gradient of the weights")
    return ""


COMPILE_CASES: dict[str, Callable[..., Any]] = {
    "pointwise": _check_pointwise,
    "reduction": _check_reduction,
    "backward": _check_backward,
}
