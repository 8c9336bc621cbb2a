#!/usr/bin/env python3
"""Check the wheels of a folder, without a GPU."""

import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.therock:sanity_script")
