#!/usr/bin/env python3
"""Fetch artifacts of a ROCm build."""

import _script

_script.run("rocm_wheels.cli.artifacts:fetch_command")
