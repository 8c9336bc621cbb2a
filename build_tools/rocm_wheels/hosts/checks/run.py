"""Run cases and write down each result before the next begins, so that a crash tells where it happened.

Started by its path under the Python whose torch is tested. Arguments: a file for the answers (JSON lines),
the cases (JSON: a list of [group, name, device]), and options for them (JSON: {"options": {}}). Standard
library and torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

PROGRESS = "@check "
MODULES = {
    "import": (("basics", "IMPORT_CASES"),),
    "devices": (("basics", "DEVICE_CASES"),),
    "compile": (("basics", "COMPILE_CASES"),),
    "math": (("numerics", "MATH_CASES"),),
    "functions": (("numerics", "LAYER_CASES"), ("numerics", "ATTENTION_CASES")),
}
# The largest difference from float64 on the CPU, by the type of the result, as a part of the largest value
# there: several times what rounding gives in sums of some hundred products (2^-24 for float32, 2^-11 for
# float16, 2^-8 for bfloat16), and what Winograd's convolutions lose. Wrong kernels are off by 0.01 to 1.
TOLERANCES = {
    "float64": 1e-11,
    "complex128": 1e-11,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 5e-3,
    "bfloat16": 4e-2,
}
# what torch says of a type that a device does not have, and of a library that it was built without
_LACKING_MESSAGES = (
    "not implemented for",
    "MPS framework doesn't support float64",
    "Required aspect fp64",
    "PyTorch with MAGMA",
)
# after these, whatever this process asks of the GPU fails as well: the rest is for a new one
_SPOILED_MESSAGES = ("HIP error", "CUDA error", "device-side assert", "hipError", "cudaError")


class CaseSkipped(Exception):
    """There is nothing to check; the message says why."""


class CaseCheck:
    """What a case compares with: values that are the same everywhere, and float64 on the CPU."""

    def __init__(self, torch: Any, device: str, options: dict[str, Any]) -> None:
        self.torch = torch
        self.device = device
        self.options = options
        self.worst = 0.0
        self.allowed = 0.0
        self._seed = 0

    def skip(self, reason: str) -> None:
        """End the case: there is nothing to check."""
        raise CaseSkipped(reason)

    def that(self, right: bool, otherwise: str) -> None:
        """Fail the case with a sentence unless something is right."""
        if not right:
            raise AssertionError(otherwise)

    def values(self, *shape: int, dtype: str = "float32") -> tuple[Any, Any]:
        """Return normally distributed values on the device, and the very same ones as float64 on the CPU."""
        torch = self.torch
        self._seed += 1
        source = torch.Generator("cpu").manual_seed(self._seed)
        exact = torch.randn(*shape, generator=source, dtype=torch.float64).to(getattr(torch, dtype))
        return exact.to(self.device), exact.to(torch.float64)

    def close(
        self, actual: Any, expected: Any, label: str = "the result", *, allowed: float | None = None
    ) -> None:
        """Fail unless a result is close to the float64 one: shape, and ``TOLERANCES``; NaN never is."""
        torch = self.torch
        name = str(actual.dtype).rpartition(".")[2]
        self.that(
            actual.shape == expected.shape,
            f"{label} has the shape {tuple(actual.shape)}, not {tuple(expected.shape)}",
        )
        wide = torch.complex128 if actual.dtype.is_complex else torch.float64
        moved = actual.detach().to("cpu").to(wide)
        scale = float(expected.detach().abs().max()) or 1.0
        error = float((moved - expected.detach()).abs().max()) / scale
        allowed = TOLERANCES[name] if allowed is None else allowed
        message = f"{label} ({name}) differs from float64 on the CPU by {error:.2g} of the largest value"
        self.that(error <= allowed, f"{message}; {allowed:g} is allowed")
        if error / allowed >= (self.worst / self.allowed if self.allowed else -1.0):
            self.worst, self.allowed = error, allowed


def main(answers: str, cases: str, more: str = "{}") -> None:
    """Run the cases in order."""
    options = json.loads(more).get("options", {})
    folder = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    warnings.simplefilter("ignore")
    loaded: dict[str, dict[str, Any]] = {}
    torch: Any = None
    with Path(answers).open("a", encoding="utf-8") as sink:
        for group, name, device in json.loads(cases):
            _write_line(sink, {"begin": [group, name, device]})
            sys.stdout.write(f"{PROGRESS}{group} {name} {device}\n")
            sys.stdout.flush()
            started = time.monotonic()
            try:
                if group not in loaded:
                    loaded[group] = {}
                    for module, table in MODULES[group]:
                        loaded[group].update(getattr(_load_module(folder / f"{module}.py"), table))
                if torch is None and group != "import":
                    torch = importlib.import_module("torch")
                    _require_full_precision(torch)
                answer = _run_case(loaded[group][name], torch, device, options)
            except ImportError as failure:  # of torch, or of what a case needs
                answer = {"state": "fail", "detail": _describe_failure(failure), "missing": failure.name}
            answer["seconds"] = round(time.monotonic() - started, 3)
            _write_line(sink, {"end": [group, name, device], **answer})
            if any(sign in answer["detail"] for sign in _SPOILED_MESSAGES):
                return


def _run_case(case: Any, torch: Any, device: str, options: dict[str, Any]) -> dict[str, Any]:
    check = CaseCheck(torch, device, options)
    try:
        result = case(torch, device, check)
        if torch is not None and device.startswith("cuda"):
            torch.cuda.synchronize(device)
    except CaseSkipped as reason:
        return {"state": "skip", "detail": str(reason)}
    except AssertionError as failed:
        return {"state": "fail", "detail": _describe_failure(failed)}
    except ImportError:
        raise
    except Exception as failure:
        result = _describe_failure(failure)
        lacking = isinstance(failure, NotImplementedError) or any(
            sign in result for sign in _LACKING_MESSAGES
        )
        return {"state": "skip" if lacking else "fail", "detail": result}
    if isinstance(result, dict):
        return {"state": "pass", "detail": result["detail"], "facts": result}
    measured = f"off by {check.worst:.1e}, allowed {check.allowed:g}" if check.allowed else ""
    return {"state": "pass", "detail": "; ".join(part for part in (result, measured) if part)}


def _require_full_precision(torch: Any) -> None:
    """Compute float32 in float32: some GPUs round it to 10 bits in convolutions unless told not to."""
    for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
        if hasattr(backend, "allow_tf32"):
            backend.allow_tf32 = False


def _describe_failure(failure: BaseException) -> str:
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    text = lines[0] if lines else "without a word"
    return text if isinstance(failure, AssertionError) else f"{type(failure).__name__}: {text}"


def _load_module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"rocm_wheels_check_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    written, sys.dont_write_bytecode = (
        sys.dont_write_bytecode,
        True,
    )  # nothing of this Python beside our files
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module


def _write_line(sink: Any, answer: dict[str, Any]) -> None:
    sink.write(json.dumps(answer) + "\n")
    sink.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
