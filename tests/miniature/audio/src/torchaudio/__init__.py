"""Audio for PyTorch: a small model of the large project."""

import torch  # noqa: F401  (its libraries must be loaded before ours)
from torchaudio.lib._torchaudio import overdrive, overdrive_hip

__all__ = ["overdrive", "overdrive_hip"]
