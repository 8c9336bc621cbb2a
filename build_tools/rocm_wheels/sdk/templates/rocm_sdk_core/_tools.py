"""The programs of this package. Written anew, with its values, into every wheel."""

from __future__ import annotations

TOOLS: dict[str, tuple[str, str, bool]] = {}
"""Console script → (function, path in the ROCm tree, wants the development tree)."""
