"""A plugin of pytest: the smoke tests of the GPU on a torch for the CPU, which takes ``cuda:0`` for itself.

No GPU is imitated: what is shown is that the tests' own lines run, that right results pass, and, with
REHEARSED=wrong, that wrong ones fail (``no tf32``: products that stay those of float32):
``python -m pytest -p rehearsed_gpu --smoke-given=FILE`` in smoke-tests/, with this folder on PYTHONPATH.
"""

from __future__ import annotations

import contextlib
import os
import types
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

WRONG = os.environ.get("REHEARSED") == "wrong"
HAS_TF32 = os.environ.get("REHEARSED") != "no tf32"
_HELD: list[tuple[Any, int]] = []  # storages, weakly, and their sizes
_MOVES = {
    "to",
    "cpu",
    "pin_memory",
    "copy_",
    "detach",
    "clone",
    "reshape",
    "view",
    "t",
    "contiguous",
    "double",
}
_MOVES |= {
    "requires_grad_",
    "backward",
    "__get__",
    "__set__",
    "size",
    "numel",
    "is_contiguous",
    "item",
    "flatten",
}


def _on_cpu(value: Any) -> Any:
    kind = value if isinstance(value, str) else getattr(value, "type", "")
    named = isinstance(value, (str, torch.device)) and str(kind).startswith("cuda")
    return torch.device("cpu") if named else value


def _round_to_tf32(value: Any) -> Any:
    """Return a float32 with the ten digits that tf32 has."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    return (value.view(torch.int32) & ~0x1FFF).view(torch.float32)


def _noted(result: Any, *, wrong: bool) -> Any:
    """Return a part of a result that is on the GPU, wrong if that is asked for."""
    if type(result) in (tuple, list):
        return type(result)(_noted(one, wrong=wrong) for one in result)
    if not isinstance(result, torch.Tensor):
        return result
    if wrong:
        result = result * 1.25 if result.is_floating_point() or result.is_complex() else result + 1
    result.on_gpu = True
    if result.layout == torch.strided:
        _HELD.append((result.untyped_storage()._weak_ref(), result.nbytes))
    return result


class Rehearsal(TorchFunctionMode):
    """Takes the GPU's name for the CPU's, and knows which tensors were meant for it."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch; make its result wrong where that is asked for."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        meant = [*args, *kwargs.values()]
        moved = any(_on_cpu(one) is not one for one in meant)
        if name == "pin_memory":
            return args[0]
        if "matmul" in name and HAS_TF32 and torch.backends.cuda.matmul.allow_tf32:
            args = tuple(map(_round_to_tf32, args))
        try:
            result = func(*map(_on_cpu, args), **{key: _on_cpu(one) for key, one in kwargs.items()})
        except RuntimeError as failure:
            if "can't allocate" in str(failure):
                raise torch.cuda.OutOfMemoryError(str(failure)) from None
            raise
        flat = [one for each in meant for one in (each if isinstance(each, (list, tuple)) else [each])]
        there = moved or any(getattr(one, "on_gpu", False) for one in flat)
        if (moved or name == "cpu") and args and result is args[0]:
            result = result.clone()  # it was where it was to go; a GPU would have one of its own
        if there and name != "cpu":
            several = isinstance(result, (tuple, list))  # torch's named ones as well
            wrong = WRONG and not moved and name not in _MOVES and not name.endswith("_")
            parts = [_noted(one, wrong=wrong) for one in (result if several else [result])]
            return type(result)(parts) if several else parts[0]
        return result


def _allocated() -> int:
    return sum(size for ref, size in _HELD if not torch.UntypedStorage._expired(ref) and size >= 1 << 20)


class _Graph(TorchDispatchMode):
    """Does again what was recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, result in self.calls:
            result.copy_(func(*args, **kwargs))


class _Nothing:
    def __init__(self, *_: Any, **__: Any) -> None: ...
    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0.0


class _Profile(torch.profiler.profile):
    def __init__(self, activities: Any) -> None:
        super().__init__(activities=activities[:1])

    def events(self) -> Any:
        return [*super().events(), types.SimpleNamespace(device_type="DeviceType.CUDA")]


def _instead() -> None:
    cuda, backends = torch.cuda, torch.backends
    cuda.Stream = cuda.Event = _Nothing
    cuda.current_stream = _Nothing
    cuda.stream = contextlib.nullcontext
    cuda.CUDAGraph, cuda.graph = _Graph, lambda graph: graph
    cuda.is_initialized, cuda.synchronize = lambda: True, lambda *_: None
    cuda.memory_allocated = _allocated
    cuda.get_arch_list = lambda: ["gfx90a", "gfx9-4-generic"]
    cuda.device_count = lambda: 1
    cuda.mem_get_info = lambda *_: (0, 0)
    of = types.SimpleNamespace(name="rehearsed", gcnArchName="gfx942:sramecc+", total_memory=1 << 34)
    cuda.get_device_properties = lambda _: of
    cuda.nccl = types.SimpleNamespace(version=lambda: (2, 27, 7))
    torch.distributed.is_nccl_available = lambda: True
    begin = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda _backend, **more: begin("gloo", **more)
    real = torch._C._BlasBackend
    chosen = [real.Cublas]

    def blas(name: Any = None) -> Any:
        if name is not None:
            backends = {"cublas": real.Cublas, "cublaslt": real.Cublaslt, "ck": real.Ck}
            chosen.append(backends.get(name, name))
        return chosen[-1]

    backends.cuda.preferred_blas_library = blas
    backends.cuda.preferred_linalg_library = lambda name=None: name
    torch.profiler.profile = _Profile
    autocast, scaler = torch.autocast, torch.amp.GradScaler
    torch.autocast = lambda kind, **more: autocast("cpu", **more)
    torch.amp.GradScaler = lambda kind, **more: scaler("cpu", **more)
    Rehearsal().__enter__()


def pytest_sessionstart() -> None:
    """Begin, when torch has been imported and no test has."""
    _instead()
