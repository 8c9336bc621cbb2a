"""What this distribution is. Written anew, with its values, into every wheel."""

from __future__ import annotations

__version__: str = "0"
"""The version that all packages of the distribution share."""

SUFFIX: str = ""
"""End of the names of the folders that hold the ROCm tree."""
