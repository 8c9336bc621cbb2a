"""Names that differ only in case: two files of a commit, one file on some file systems."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from rocm_wheels.errors import SourceError


def find_case_clash(paths: Iterable[str]) -> tuple[str, str] | None:
    """Return two paths that are one where case does not count; a file may clash with a folder."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        folded = path.casefold()
        if (other := files.setdefault(folded, path)) != path:
            return other, path
        for parent in PurePosixPath(path).parents:
            if parent.parts:
                folders.setdefault(str(parent).casefold(), path)
    for folded in files.keys() & folders.keys():
        return files[folded], folders[folded]
    return None


def refuse_case_clash(paths: Iterable[str], subject: str) -> None:
    """Raise SourceError when ``subject`` (a commit, in words) cannot be written without losing a file."""
    if (pair := find_case_clash(paths)) is not None:
        raise SourceError(
            f"{subject} has {pair[0]!r} and {pair[1]!r}, which are one file where case does not count, as here",
            tip="check out on a file system that tells them apart",
        )
