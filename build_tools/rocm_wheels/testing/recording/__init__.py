"""What runs inside the pytest that is tested, on its search path: nothing here imports rocm-wheels."""

from __future__ import annotations
