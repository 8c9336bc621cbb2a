"""rocm-wheels: from pinned PyTorch sources to tested ROCm wheels that a machine can choose from."""

from __future__ import annotations

__version__ = "0.1.0"
