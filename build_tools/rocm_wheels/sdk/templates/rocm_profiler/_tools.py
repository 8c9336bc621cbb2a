"""The programs of this package. Written anew, with its values, into every wheel."""

from __future__ import annotations

TOOLS: dict[str, tuple[str, str]] = {}
"""Console script → (function, path in the profiler's tree)."""
