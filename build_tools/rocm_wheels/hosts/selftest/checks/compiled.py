"""torch.compile: code that is generated, compiled and run here, against the same lines run eagerly."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from typing import Any


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
