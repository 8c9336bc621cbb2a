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
        print("usage: require_variables.py NAME...", file=sys.stderr)
        return 2
    if missing := list_missing(names, env):
        print(f"error: this repository does not set {' and '.join(missing)}", file=sys.stderr)
        print(
            "  tip: set it in Settings, Secrets and variables, Actions, Variables; or give it to a run by hand",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
