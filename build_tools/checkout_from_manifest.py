#!/usr/bin/env python3
"""Check out what a manifest of TheRock's scripts names."""

import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.therock:checkout_script")
