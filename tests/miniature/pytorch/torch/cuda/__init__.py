"""GPUs. The name is CUDA's on ROCm too."""

from torch import _C


def device_count():
    """Return the number of GPUs."""
    return _C._cuda_getDeviceCount()


def is_available():
    """Tell whether there is a GPU."""
    return device_count() > 0


def get_arch_list():
    """Return the GPU targets of this build; nothing where there is no GPU."""
    return _C._cuda_getArchFlags().split() if is_available() else []
