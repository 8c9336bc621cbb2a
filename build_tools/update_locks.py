#!/usr/bin/env python3
"""Write the hash-locked requirements of a clone and of the build image anew: ``update_locks.py [--upgrade]``.

Pins that are there stay, but for what pyproject.toml no longer allows; ``--upgrade`` takes the newest. It
takes uv on PATH and the network. Upkeep of the repository, not a part of the product.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from _arguments import OnceParser

CLONE = Path(__file__).resolve().parents[1]
EVERYWHERE = "--universal --python-version 3.10"
IMAGE = "--python-version 3.12 --python-platform x86_64-manylinux_2_28"
TESTS = "-c build_tools/requirements-test.lock"
LOCKS = {  # each after those whose pins it takes
    "build_tools/requirements.lock": f"pyproject.toml --extra clone {EVERYWHERE}",
    "build_tools/requirements-test.lock": "pyproject.toml --extra clone --extra test "
    f"-c build_tools/requirements.lock {EVERYWHERE}",
    "build_tools/requirements-store.lock": "pyproject.toml --extra clone --extra s3 --extra sigstore "
    f"{TESTS} {EVERYWHERE}",
}
WITH_EXTRAS = re.compile(r"^([\w.-]+)\[[^]]*\](==.*(?:\n    --hash=.*)+)\n", re.MULTILINE)


def pin_without_extras(text: str) -> str:
    """Return a lock in which each pin that has extras stands without them too.

    For pip before 24 a pin of ``name[extra]`` is none of ``name``, which others require: as soon as there is
    a newer release, it ends with "all requirements must have their versions pinned with ==".
    """
    return WITH_EXTRAS.sub(lambda pin: f"{pin.group(1)}{pin.group(2)}\n{pin.group()}", text)


def main() -> None:
    """Write all locks."""
    parser = OnceParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    options = parser.parse_args()
    for lock, words in LOCKS.items():
        argv = ["uv", "pip", "compile", "--quiet", *words.split(), "--generate-hashes", "--no-strip-extras"]
        argv += ["--custom-compile-command", "python3 build_tools/update_locks.py", "-o", lock]
        subprocess.run(
            [*argv, *(["--upgrade"] if options.upgrade else [])],
            cwd=CLONE,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        path = CLONE / lock
        path.write_text(pin_without_extras(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
