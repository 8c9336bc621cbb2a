#!/usr/bin/env python3
"""Install the ROCm packages and build the wheels of PyTorch and its companions.

build_prod_wheels.py install-rocm --rocm-index URL
build_prod_wheels.py build --install-rocm --rocm-index URL --gfx gfx942 --output-dir dist
"""

import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.build:production")
