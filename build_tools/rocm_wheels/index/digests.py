"""Digests that somebody has already taken: a file as ``sha256sum`` writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.errors import DataError

_SHA256SUM_LINE = re.compile(r"(?P<digest>[0-9a-fA-F]{64}) [ *](?P<name>.+)")


def read_digests_file(path: Path) -> Mapping[str, str]:
    """Return digests (hex) by file name without folders; DataError with the line that is none.

    They are taken at their word; ``verify --full`` compares them with the files.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"cannot read {path}") from cause
    digests: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        match = _SHA256SUM_LINE.fullmatch(line)
        if not match:
            raise DataError(
                f"{path}:{number}: {line[:80]!r} is not a line of sha256sum",
                tip="for example: sha256sum *.whl > SHA256SUMS",
            )
        name = match["name"].rpartition("/")[2]
        digest = match["digest"].lower()
        if digests.setdefault(name, digest) != digest:
            raise DataError(f"{path}:{number}: {name} is listed with two digests: {digests[name]}, {digest}")
    return digests
