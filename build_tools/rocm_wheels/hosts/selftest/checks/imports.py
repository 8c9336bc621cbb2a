"""torch and what is installed beside it: do they load, and do they belong together."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
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
