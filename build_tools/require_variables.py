#!/usr/bin/env python3
"""Fail where a repository on GitHub does not set what its workflows need, before machines work for them.

``require_variables.py NAME...``: exit 2 when a variable is unset or blank, with what to do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence


def list_missing(names: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the names that ``env`` does not set, or sets to blanks."""
    return [name for name in names if not env.get(name, "").strip()]


def main(names: Sequence[str], env: Mapping[str, str]) -> int:
    """Return the exit code."""
    if not names:
        sys.stderr.write("usage: require_variables.py NAME...\n")
        return 2
    if missing := list_missing(names, env):
        sys.stderr.write(
            f"error: this repository does not set {' and '.join(missing)}\n"
            "tip: set it in Settings, Secrets and variables, Actions; or pass it to a run by hand\n"
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
