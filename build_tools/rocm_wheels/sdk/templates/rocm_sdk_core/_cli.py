"""Console scripts that start ROCm's programs, from the development tree where there is one."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ._tools import TOOLS


def __getattr__(name: str) -> Callable[[], int]:
    """Return the function of a console script."""
    for function, path, devel in TOOLS.values():
        if function == name:
            return lambda: _start(path, devel)
    raise AttributeError(name)


def _start(path: str, devel: bool) -> int:
    """Become the program (Windows: run it and return its exit code); 1 when there is no tree."""
    try:
        root = _root(devel)
    except (ImportError, OSError) as error:
        sys.stderr.write(f"{Path(sys.argv[0]).name}: {error}\n")
        return 1
    if sys.platform == "win32":
        import subprocess

        # execv would return to the shell before the program ends.
        return subprocess.run([f"{root / path}.exe", *sys.argv[1:]], check=False).returncode
    program = str(root / path)
    return os.execv(program, [program, *sys.argv[1:]])


def _root(devel: bool) -> Path:
    """Return the tree to start from; unpacks the development tree only for tools that want it.

    An unpacked tree is used as it is: `rocm-sdk init` brings in device packages installed later.
    """
    if importlib.util.find_spec("rocm_sdk_devel") and importlib.util.find_spec("rocm_sdk"):
        unpacked = importlib.util.find_spec("_rocm_sdk_devel")
        mark = Path(unpacked.origin).with_name(".unpacked.json") if unpacked and unpacked.origin else None
        if mark is not None and mark.is_file():
            return mark.parent
        if devel:
            return Path(importlib.import_module("rocm_sdk._devel").devel_root())
    core = importlib.util.find_spec("_rocm_sdk_core")
    if core is None or core.origin is None:
        raise ImportError("rocm-sdk-core is damaged: install it again")
    return Path(core.origin).parent
