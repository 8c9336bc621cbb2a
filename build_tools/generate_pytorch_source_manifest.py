#!/usr/bin/env python3
"""Write manifests of branches of torch and what belongs to them."""

import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.therock:manifest_script")
