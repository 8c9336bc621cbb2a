"""A language and compiler for GPU kernels: a small model of the large project."""

from triton._C.libtriton import next_power_of_2
from triton.runtime import jit

__all__ = ["__version__", "cdiv", "jit", "next_power_of_2"]
__version__ = "3.7.0"  # as in setup.py; the wheel carries more behind it


def cdiv(number, divisor):
    """Divide and round up."""
    return -(number // -divisor)
