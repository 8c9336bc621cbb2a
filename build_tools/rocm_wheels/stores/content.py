"""Bytes on their way into a store and out of it: how many, which, and whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rocm_wheels.errors import ReleaseError, name_failed_file
from rocm_wheels.stores.store import RUN_AGAIN_TIP

_PIECE_SIZE = 1 << 20


def size_of_content(content: bytes | Path) -> int:
    """Return how many bytes are to be written."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def digest_of_content(content: bytes | Path) -> str:
    """Return the sha256 (hex) of what is to be written."""
    from rocm_wheels.wheels.members import hash_file

    return hash_file(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def copy_and_hash(source: BinaryIO, target: BinaryIO) -> str:
    """Copy what is left of a file, piece by piece, and return its sha256 (hex)."""
    hasher = hashlib.sha256()
    while piece := source.read(_PIECE_SIZE):
        hasher.update(piece)
        target.write(piece)
    return hasher.hexdigest()


def require_digest(actual: str, sha256: str | None, content: bytes | Path) -> None:
    """Raise ReleaseError where the bytes that were read are not those that were meant."""
    if sha256 is not None and actual != sha256:
        raise make_changed_error(content if isinstance(content, Path) else f"what has the sha256 {actual}")


def make_changed_error(source: object) -> ReleaseError:
    """Return the error of a file that somebody writes to while it is sent."""
    tip = f"let nothing write to it meanwhile, then {RUN_AGAIN_TIP}"
    return ReleaseError(
        f"{source} has other bytes than when it was looked at; nothing was sent of it", tip=tip
    )


@contextlib.contextmanager
def write_part_then_rename(target: Path) -> Iterator[BinaryIO]:
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
        name_failed_file(failure, target)
        raise
    finally:
        part.unlink(missing_ok=True)
