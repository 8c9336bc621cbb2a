"""Fused optimizers: a small model of the large project."""

import torch  # noqa: F401  (its libraries must be loaded before those of the extensions)

from apex import optimizers

__all__ = ["optimizers"]
