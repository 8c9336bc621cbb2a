"""Bytes on their way into a store and out of it: how many, which, and whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rocm_wheels.errors import ReleaseError, named
from rocm_wheels.stores.store import AGAIN

_PIECE = 1 << 20


def content_size(content: bytes | Path) -> int:
    """Return how many bytes are to be written."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def content_digest(content: bytes | Path) -> str:
    """Return the sha256 (hex) of what is to be written."""
    from rocm_wheels.wheels.members import digest_of_file

    return digest_of_file(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def copied(source: BinaryIO, target: BinaryIO) -> str:
    """Copy what is left of a file, piece by piece, and return its sha256 (hex)."""
    hasher = hashlib.sha256()
    while piece := source.read(_PIECE):
        hasher.update(piece)
        target.write(piece)
    return hasher.hexdigest()


def require_digest(found: str, sha256: str | None, content: bytes | Path) -> None:
    """Raise ReleaseError where the bytes that were read are not those that were meant."""
    if sha256 is not None and found != sha256:
        raise changed_meanwhile(content if isinstance(content, Path) else f"what has the sha256 {found}")


def changed_meanwhile(what: object) -> ReleaseError:
    """Return the error of a file that somebody writes to while it is sent."""
    tip = f"let nothing write to it meanwhile, then {AGAIN}"
    return ReleaseError(f"{what} has other bytes than when it was looked at; nothing was sent of it", tip=tip)


@contextlib.contextmanager
def arriving(target: Path) -> Iterator[BinaryIO]:
    """Give a file to write to, which is at ``target``, whole, when the block has ended well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o644)
        part.replace(target)
    except OSError as failure:
        named(failure, target)
        raise
    finally:
        part.unlink(missing_ok=True)
