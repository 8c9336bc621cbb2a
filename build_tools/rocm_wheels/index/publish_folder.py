"""Publish files of an index in a folder: all are written beside before the first gets its name.

A full disk is met while nothing is changed yet. Files that would be the same stay untouched. A change
that was cut short, at whatever point, can be carried on.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from pathlib import Path

from rocm_wheels.core import DataError, write_atomically
from rocm_wheels.index.folder import STATE_FOLDER

_SYNC_THREADS = 16  # they wait for the disk


class PublishRank(IntEnum):
    """The order in which files get their names: what is linked before what links to it."""

    WHEEL = 0
    METADATA = 1
    STATE = 2
    VARIANTS = 3
    PROJECT = 4
    ROOT = 5


class FolderPublication:
    """New contents of files, kept in ``folder`` (on the same file system) until ``commit``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._staged: dict[Path, tuple[PublishRank, Path]] = {}
        self._removed: dict[Path, None] = {}
        self._number = 0

    @classmethod
    @contextlib.contextmanager
    def begin(cls, folder: Path) -> Iterator[FolderPublication]:
        """Give a switch; what is not committed at the end is gone."""
        if folder.exists():  # of a writer that was killed
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        try:
            yield cls(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def new_part(self) -> Path:
        """Return a path for a file in the making."""
        self._number += 1
        return self._folder / str(self._number)

    def stage_content(self, path: Path, content: bytes, rank: PublishRank) -> bool:
        """Stage the content of a file, unless it has it already; tell whether it changes."""
        self._removed.pop(path, None)
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            self._staged.pop(path, None)
            return False
        part = self.new_part()
        part.write_bytes(content)
        self._staged[path] = rank, part
        return True

    def stage_part(self, path: Path, part: Path, rank: PublishRank) -> None:
        """Stage a file that was written to ``new_part``, unless it is there already."""
        if path.is_file() and filecmp.cmp(part, path, shallow=False):
            part.unlink()
            return
        self._staged[path] = rank, part

    def stage_removal(self, path: Path) -> None:
        """Have a file removed after all others have got their names."""
        self._removed[path] = None

    def current_path(self, path: Path) -> Path:
        """Return where the content lies that a file will have."""
        return self._staged[path][1] if path in self._staged else path

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing changes."""
        return not self._staged and not self._removed

    def commit(self, note: Path, root: Path) -> None:
        """Give the files their names, by rank; then remove the others. ``note`` says so until it is done.

        Everything is on the disk before the note is, so that what is cut short can be carried on.
        """
        with ThreadPoolExecutor(_SYNC_THREADS) as pool:
            list(pool.map(_sync_file, (part for _, part in self._staged.values())))
        order = sorted(self._staged.items(), key=lambda item: item[1][0])
        names = [[_relative_to_root(root, part), _relative_to_root(root, path)] for path, (_, part) in order]
        plan = {"rename": names, "remove": [_relative_to_root(root, path) for path in self._removed]}
        write_atomically(note, json.dumps(plan, indent=1) + "\n")
        finish_publication(note, root)


def finish_publication(note: Path, root: Path) -> None:
    """Do what is left of an exchange, then remove its note; DataError when that cannot be read."""
    try:
        plan = json.loads(note.read_text(encoding="utf-8"))
        names = [
            (_resolve_in_root(root, part), _resolve_in_root(root, path)) for part, path in plan["rename"]
        ]
        removed = [_resolve_in_root(root, path) for path in plan["remove"]]
    except (ValueError, KeyError, TypeError) as cause:
        tip = f"remove it and run `rocm-wheels index build {root}`"
        raise DataError(f"{note} is damaged", tip=tip) from cause
    for part, path in names:
        if not part.exists():  # it has its name already
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if (mode := part.stat().st_mode) & 0o444 != 0o444:  # a web server is another user
            part.chmod(mode | 0o444)
        os.replace(part, path)
    remove_files(removed)
    note.unlink()


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files, and the folders that are empty then."""
    for path in paths:
        path.unlink(missing_ok=True)
        for folder in list(path.parents)[:3]:  # variants/<digest>, its folder, the project's
            if folder.name == STATE_FOLDER:
                break
            try:
                folder.rmdir()
            except OSError:
                break


def _resolve_in_root(root: Path, written: str) -> Path:
    """Return a path of a note; ValueError for one outside: an index may come from somebody else."""
    _relative_to_root(root, root / written)
    return root / written


def _relative_to_root(root: Path, path: Path) -> str:
    return Path(os.path.normpath(path)).relative_to(root).as_posix()


def _sync_file(path: Path) -> None:
    with open(path, "rb+" if os.name == "nt" else "rb") as file:  # a linked wheel may be read-only
        os.fsync(file.fileno())
