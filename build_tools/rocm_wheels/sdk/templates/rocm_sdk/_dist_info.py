"""What this distribution is. Written anew, with its values, into every wheel."""

from __future__ import annotations

__version__: str = "0"
"""The version that all packages of the distribution share."""
