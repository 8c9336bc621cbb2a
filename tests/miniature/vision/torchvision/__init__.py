"""Images for PyTorch: a small model of the large project."""

import torch  # noqa: F401  (its libraries must be loaded before ours)
from torchvision._C import nms_hip
from torchvision.version import __version__

__all__ = ["__version__", "nms_hip"]
