#!/usr/bin/env python3
"""Install ROCm into a folder from what a build of it published."""

import _script

_script.run("rocm_wheels.cli.artifacts:install_command")
