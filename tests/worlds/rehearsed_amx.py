"""A plugin of pytest: torch takes this CPU for one with AMX, and hands scaled products to oneDNN.

torch looks that up in a table of its own (``cpuinfo_isa`` of pytorch/cpuinfo, bytes of 0 and 1); which byte
is AMX's for int8 is found by trying. oneDNN itself looks at the CPU, so only what it refuses can be shown.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

REFUSAL = "expects float/bfloat16/half/int8/fp8 tensor input"


def pytest_sessionstart() -> None:
    """Begin, when torch has been imported and no test has."""
    import torch

    def refuses() -> bool:
        factor, scale = torch.ones(16, 16).to(torch.float8_e4m3fnuz), torch.tensor(1.0)
        try:
            torch._scaled_mm(factor, factor.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
        except RuntimeError as refused:
            return REFUSAL in str(refused)
        return False

    assert not refuses(), "this CPU has AMX: there is nothing to rehearse"
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libc10.so"))
    table = (ctypes.c_ubyte * 64).in_dll(library, "cpuinfo_isa")
    for index in range(len(table)):
        if table[index] == 0:
            table[index] = 1
            if refuses():
                return
            table[index] = 0
    raise AssertionError("no switch makes torch call oneDNN for scaled products")
