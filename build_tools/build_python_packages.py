#!/usr/bin/env python3
"""Make ROCm's Python packages from the artifacts of a ROCm build."""

import _script

_script.run("rocm_wheels.cli.artifacts:packages_script")
