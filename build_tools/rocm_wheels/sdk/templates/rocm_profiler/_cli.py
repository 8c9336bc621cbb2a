"""Console scripts that start ROCm's profilers, which find their libraries and modules by variables."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ._tools import TOOLS

_MODULES = "libexec/rocprofiler-compute"


def __getattr__(name: str) -> Callable[[], int]:
    """Return the function of a console script."""
    for function, path in TOOLS.values():
        if function == name:
            return lambda: _start(path)
    raise AttributeError(name)


def _start(path: str) -> int:
    """Become the program; 1 when a package is damaged."""
    try:
        root, core = _root("_rocm_profiler"), _root("_rocm_sdk_core")
    except ImportError as error:
        sys.stderr.write(f"{Path(sys.argv[0]).name}: {error}\n")
        return 1
    program = str(root / path)
    libraries = (root / "lib", core / "lib" / "rocm_sysdeps" / "lib")
    env = {
        **os.environ,
        # programs that are instrumented load the libraries as well
        "LD_LIBRARY_PATH": _joined(libraries, os.environ, "LD_LIBRARY_PATH"),
        "PYTHONPATH": _joined((root / _MODULES,), os.environ, "PYTHONPATH"),
    }
    return os.execve(program, [program, *sys.argv[1:]], {name: value for name, value in env.items() if value})


def _joined(folders: Sequence[Path], env: Mapping[str, str], variable: str) -> str:
    before = [part for part in env.get(variable, "").split(os.pathsep) if part]
    ours = [str(folder) for folder in folders if folder.is_dir() and str(folder) not in before]
    return os.pathsep.join([*ours, *before])


def _root(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(f"{package} is damaged: install rocm-profiler and rocm-sdk-core again")
    return Path(spec.origin).parent
