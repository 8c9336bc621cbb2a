"""``python -m rocm_wheels``: the same as ``rocm-wheels``."""

from __future__ import annotations

from rocm_wheels.cli import main

if __name__ == "__main__":
    main.main()
