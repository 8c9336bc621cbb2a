"""A language and compiler for GPU kernels: a small model of the large project."""

from importlib.metadata import version

from triton._C.libtriton import next_power_of_2
from triton.runtime import jit

__all__ = ["__version__", "cdiv", "jit", "next_power_of_2"]
__version__ = version("triton")


def cdiv(number, divisor):
    """Divide and round up."""
    return -(number // -divisor)
