#!/usr/bin/env python3
"""Run torch's own tests as torch's run_test.py lists them, in shards."""

import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.torch_tests:full_tests_script")
