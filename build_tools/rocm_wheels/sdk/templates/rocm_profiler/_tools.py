"""The programs of this package. Written anew, with its values, into every wheel."""

from __future__ import annotations

SUFFIX: str = ""
"""End of the names of the folders that hold the ROCm trees."""

TOOLS: dict[str, tuple[str, str]] = {}
"""Console script → (function, path in the profiler's tree)."""
