#!/usr/bin/env python3
"""The same under the name that TheRock's script for Windows has."""

import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.packaging:patch_command")
