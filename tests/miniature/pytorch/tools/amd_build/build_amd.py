#!/usr/bin/env python3
"""Translate the CUDA sources of this tree, and of its submodule, to HIP.

New files appear beside the old ones: `native/cuda/Reduce.cu` gives `native/hip/Reduce.hip`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "torch" / "utils"))  # hipify alone: torch is not built yet

from hipify import hipify_python  # noqa: E402

TRANSLATED = {
    ROOT: ["aten/src/ATen/cuda/*", "aten/src/ATen/native/cuda/*", "aten/src/ATen/test/*", "c10/cuda/*"],
    ROOT / "third_party/minigemm": ["csrc/*", "include/*"],
}

for folder, patterns in TRANSLATED.items():
    hipify_python.hipify(
        project_directory=str(folder),
        output_directory=str(folder),
        includes=[str(folder / pattern) for pattern in patterns],
        ignores=["*/hip/*"],
    )
