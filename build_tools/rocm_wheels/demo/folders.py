"""Folders that are made from something, once: whole or not at all, and not again from the same input."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from rocm_wheels.core import DataError, hash_file

_MARK_NAME = ".made-from"


def list_files(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted by their relative path. What Python left there is left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def fingerprint_folders(folders: Iterable[Path], *facts: str) -> str:
    """Return a sha256 (hex) over names and contents of all files of ``folders`` and over ``facts``."""
    total = hashlib.sha256(repr(facts).encode())
    for folder in folders:
        for path in list_files(folder):
            total.update(f"{path.relative_to(folder).as_posix()}\0{hash_file(path)}\n".encode())
    return total.hexdigest()


def mark_folder(folder: Path, source: str) -> None:
    """Say that a folder is whole, and made from the fingerprint ``source``."""
    (folder / _MARK_NAME).write_text(f"{source}\n", encoding="utf-8")


def read_mark(folder: Path) -> str | None:
    """Return the fingerprint that a folder was made from, ``None`` when it was not made here."""
    mark = folder / _MARK_NAME
    return mark.read_text(encoding="utf-8").strip() if mark.is_file() else None


def make_folder(folder: Path, source: str, fill: Callable[[Path], None]) -> bool:
    """Make ``folder`` by ``fill(beside)``, unless it was made from the fingerprint ``source`` already.

    Returns whether it was made now. ``fill`` gets an empty folder beside the final one, which takes
    its place at the end; whatever stops us leaves the old one. Raises DataError rather than
    replace a folder with files that was not made here.
    """
    if read_mark(folder) == source:
        return False
    if read_mark(folder) is None and folder.is_dir() and any(folder.iterdir()):
        raise DataError(
            f"{folder} holds files that were not made here",
            tip="move them away, or give another folder",
        )
    beside, old = (folder.with_name(f".{folder.name}.{word}") for word in ("part", "old"))
    for leftover in (beside, old):
        shutil.rmtree(leftover, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        fill(beside)
        mark_folder(beside, source)
        if folder.exists():
            os.replace(folder, old)
        os.replace(beside, folder)
    finally:
        for leftover in (beside, old):
            shutil.rmtree(leftover, ignore_errors=True)
    return True
