#!/usr/bin/env python3
"""Check out the sources of triton: `pytorch_triton_repo.py {checkout,hipify} --help`.

There is nothing to hipify in them; `hipify` leaves the variables of the build in build_env.json.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "build_tools"))
import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.checkout:make_recipe_group", "triton", "release")
