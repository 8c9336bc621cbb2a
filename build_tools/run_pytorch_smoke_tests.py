#!/usr/bin/env python3
"""Test an installed torch on the CPU and on each kind of GPU here, by the tests in smoke-tests/.

run_pytorch_smoke_tests.py [--family gfx94X-dcgpu] [-- PYTEST ARGS]
"""

import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.torch_tests:smoke_script")
