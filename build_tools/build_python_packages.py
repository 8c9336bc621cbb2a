#!/usr/bin/env python3
"""Make ROCm's Python packages from the artifacts of a ROCm build."""

import _door

_door.enter("rocm_wheels.cli.artifacts:packages_command")
