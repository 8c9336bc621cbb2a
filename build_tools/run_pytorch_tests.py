#!/usr/bin/env python3
"""Run torch's own tests, of the commit that the installed torch was built from, on each kind of GPU here.

run_pytorch_tests.py [--family gfx94X-dcgpu] [--lock FILE | --pytorch-dir DIR] [--include test_nn]
    [--gpu-policy all] [--shard 1 --num-shards 4] [-k EXPR] [--dry-run]
    [-- PYTEST ARGS]
"""

import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.torch_tests:tests_script")
