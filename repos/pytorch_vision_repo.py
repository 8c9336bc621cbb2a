#!/usr/bin/env python3
"""Check out and hipify the sources of torchvision: `pytorch_vision_repo.py {checkout,hipify} --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "build_tools"))
import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.checkout:make_recipe_group", "pytorch_vision")
