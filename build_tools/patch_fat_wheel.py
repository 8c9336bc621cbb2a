#!/usr/bin/env python3
"""Put ROCm into a wheel of torch: `patch_fat_wheel.py TORCH.whl FOLDER`, the folder with ROCm's wheels."""

import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.packaging:patch_command")
