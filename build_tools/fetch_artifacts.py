#!/usr/bin/env python3
"""Fetch artifacts of a ROCm build."""

import _door

_door.enter("rocm_wheels.cli.artifacts:fetch_command")
