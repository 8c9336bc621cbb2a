#!/usr/bin/env python3
"""Translate the CUDA sources of this tree, and of its submodule, to HIP.

New files appear beside the old ones: `native/cuda/Reduce.cu` gives `native/hip/Reduce.hip`. Below `torch` they are
translated where they lie.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "torch" / "utils"))  # hipify alone: torch is not built yet

from hipify import hipify_python  # noqa: E402

TRANSLATED = {
    ROOT: [
        "aten/src/ATen/cuda/*",
        "aten/src/ATen/native/cuda/*",
        "aten/src/ATen/test/*",
        "c10/cuda/*",
        "torch/csrc/cuda/*",
    ],
    ROOT / "third_party/minigemm": ["csrc/*", "include/*"],
}

for folder, patterns in TRANSLATED.items():
    hipify_python.hipify(
        project_directory=str(folder),
        output_directory=str(folder),
        includes=[str(folder / pattern) for pattern in patterns],
        ignores=["*/hip/*"],
    )

# hipify up to torch 2.6 at least makes the path of a header in a comment longer with each run
# (hip/driver_types.h, hip/hip/driver_types.h, ...); the one used here does not any more.
header = ROOT / "torch/csrc/cuda/Module.h"
header.write_text(header.read_text().replace("cuda.h", "rocm/cuda.h"))
