"""Tensors and neural networks: a small model of the large project."""

try:
    from . import _rocm_init  # written by a build for ROCm's Python packages
except ImportError:
    pass
else:
    _rocm_init.initialize()
    del _rocm_init

from torch._C import saxpy_hip, relu_cpu
from torch.version import __version__

from torch import __config__, cuda, version

__all__ = ["__version__", "cuda", "saxpy_hip", "relu_cpu", "version"]
