"""Files in a source tree that git ignores: what builds leave outside their build folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.process import capture

_STAY = ("__pycache__", "dist")


def ignored_files(source: Path, env: Mapping[str, str]) -> frozenset[str]:
    """Return the ignored files below a git checkout, relative to it; empty for a plain folder.

    Bytecode, ``dist`` and everything hidden (environments, editors) is left out.
    """
    question = ["git", "ls-files", "-z", "--others", "--ignored", "--exclude-standard"]
    try:
        listing = capture(question, env=env, cwd=source)
    except RocmWheelsError as fault:
        if "not a git repository" in str(fault):
            return frozenset()
        raise
    return frozenset(name for name in listing.split("\0") if name and _matters(PurePosixPath(name)))


def _matters(path: PurePosixPath) -> bool:
    return not any(part in _STAY or part.startswith(".") for part in path.parts)
