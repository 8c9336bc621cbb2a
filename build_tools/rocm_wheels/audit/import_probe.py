"""Import one distribution in a clean interpreter and write down what was found.

Run by its path with ``python -I``, never imported: standard library only, because the
environment it runs in holds the wheel and what the wheel requires, and nothing of ours.
Arguments: file for the answer (JSON), module, distribution, then folders to look in first.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import sysconfig
from pathlib import Path
from typing import Any


def main(answer: str, module_name: str, distribution: str, *folders: str) -> None:
    """Import the module; what it says of itself goes to ``answer``."""
    sys.path[:0] = folders
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    # once installed it has ROCm's packages beside it, and its run path may lead there by $ORIGIN
    for place in sys.path if folders and sys.platform == "linux" else ():
        for package in Path(place).glob("_rocm_sdk_*"):
            beside = Path(folders[0], package.name)
            if not beside.exists():
                beside.symlink_to(package)
    module = importlib.import_module(module_name)
    report = {
        "file": getattr(module, "__file__", None),
        "places": places,
        "version": _make_text(getattr(module, "__version__", None)),
        "installed": importlib.metadata.version(distribution),
        "hip": _make_text(getattr(getattr(module, "version", None), "hip", None)),
        "architectures": _read_architectures(module),
    }
    Path(answer).write_text(json.dumps(report), encoding="utf-8")


def _read_architectures(module: Any) -> list[str] | None:
    """Return the targets that torch says it was compiled for, None when it does not say.

    ``torch.cuda.get_arch_list()`` is empty without a GPU; the function below it is not.
    """
    flags = getattr(getattr(module, "_C", None), "_cuda_getArchFlags", None)
    if flags is not None:
        return str(flags() or "").split() or None
    listed = getattr(getattr(module, "cuda", None), "get_arch_list", None)
    return list(listed()) or None if listed is not None else None


def _make_text(value: Any) -> str | None:
    return None if value is None else str(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
