"""Moving build trees away and back: by renaming, in an order that a kill at any point can be mended from."""

from __future__ import annotations

import errno
import filecmp
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.errors import BuildError
from rocm_wheels.workspace import write_json_file

_RETURN_JOURNAL = "returning.json"  # in a waiting tree: the moves that bring it back

TreeMove = tuple[Path, Path]  # relative to the waiting tree, relative to the source


def park_files(source: Path, parking: Path, moves: Sequence[TreeMove]) -> None:
    """Move files and folders of a source to a waiting place, in this order."""
    for parked, home in moves:
        _rename_path(source / home, parking / parked)


def undo_departure(source: Path, parking: Path) -> None:
    """Bring back what a kill left at the waiting place of a tree that is still in its source.

    What the source has again by now is newer, and stays.
    """
    for part in ("generated", "trees"):
        for path in list_files_below(parking / part):
            home = source / path.relative_to(parking / part)
            if not os.path.lexists(home):
                _rename_path(path, home)
    if parking.is_dir():
        shutil.rmtree(parking)


def return_files(source: Path, parking: Path, moves: Sequence[TreeMove]) -> None:
    """Move a waiting tree into its source. A file that is there already stays, and must be the same."""
    write_json_file(parking / _RETURN_JOURNAL, [[str(parked), str(home)] for parked, home in moves])
    for parked, home in moves:
        _rename_path(parking / parked, source / home)
    shutil.rmtree(parking)


def undo_returns(source: Path, parking: Path) -> None:
    """Finish, backwards, a return that a kill cut: half a tree must not pass for another's files."""
    for journal in sorted(parking.glob(f"*/{_RETURN_JOURNAL}")):
        parked_tree = journal.parent
        for name, home in reversed(json.loads(journal.read_text(encoding="utf-8"))):
            if os.path.lexists(source / home) and not os.path.lexists(parked_tree / name):
                (parked_tree / name).parent.mkdir(parents=True, exist_ok=True)
                (source / home).rename(parked_tree / name)
        journal.unlink()


def list_files_below(folder: Path) -> list[Path]:
    """Return all files and links of a folder; a link to a folder is one, and not followed."""
    files = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(files)


def _rename_path(old: Path, new: Path) -> None:
    if new.is_dir() and not new.is_symlink() and not any(new.iterdir()):
        new.rmdir()
    if os.path.lexists(new):
        if new.is_file() and old.is_file() and filecmp.cmp(old, new, shallow=False):
            return
        raise BuildError(f"{old} cannot be moved: {new} is there already", tip=f"move {new} away")
    new.parent.mkdir(parents=True, exist_ok=True)
    try:
        old.rename(new)
    except OSError as fault:
        if fault.errno != errno.EXDEV:
            raise
        raise BuildError(
            f"{old} is on another file system than {new.parent}, and a build tree is moved by renaming",
            tip=f"let {old.name} be an ordinary folder of its source, no mount and no link",
        ) from fault
