"""Small files in a torch tree that say what goes with it: one commit, or one version.

Upstream keeps them in ``.github/ci_commit_pins`` and ``.ci/docker``. What cannot be
understood is an error with file and line, never a default. The tree is a folder (``FolderFiles``) or a
commit that nobody has checked out (``lock.look``).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rocm_wheels.errors import DataError

REF_OPTION = "--repo-hashtag"
_UNREADABLE_TIP = f"is it a torch tree? Put the file right, or name the ref that you want with {REF_OPTION}"
_MOST_LETTERS = 160  # letters of a line that cannot be understood
_PIN_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_PIN_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?")


class TreeFiles(Protocol):
    """The files of a source tree, wherever it is."""

    def read_text(self, path: str) -> str | None:
        """Return what a file holds, ``None`` when there is none. Raises DataError when it is no text."""

    def label(self, path: str = "") -> str:
        """Return what a file, or the tree, is called in messages."""


@dataclass(frozen=True)
class FolderFiles:
    """The files of a tree in a folder here."""

    folder: Path

    def read_text(self, path: str) -> str | None:
        """Read a file; a dangling link is one that cannot be read."""
        file = self.folder / path
        return read_pin_file(file, tip=_UNREADABLE_TIP) if os.path.lexists(file) else None

    def label(self, path: str = "") -> str:
        """Return a path."""
        return str(self.folder / path)


def read_pin_file(path: Path, *, tip: str = "put the file right, or name another one") -> str:
    """Read a UTF-8 file, with or without a byte order mark. Raises DataError."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as cause:
        raise DataError(f"cannot read {path}", tip=tip) from cause
    except UnicodeDecodeError as cause:
        raise DataError(f"{path} is not UTF-8 text", tip=tip) from cause


def shorten_line(text: str) -> str:
    """Return what of a file's text is worth repeating in a message."""
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def parse_pin_commit(text: str, *, name: str, option: str = REF_OPTION) -> str:
    """Return the one commit of a pin file, in lower case.

    ``name`` stands for the file in messages, ``option`` is the one that names a ref instead.
    """
    number, line = _read_one_line(text, name, "commit", option)
    if not _PIN_COMMIT.fullmatch(line):
        raise DataError(
            f"{name}:{number}: a pin must be a commit of 40 hex digits, not {shorten_line(line)!r}",
            tip=f"name the ref that you want with {option}",
        )
    return line.lower()


def parse_pin_version(text: str, *, name: str, option: str = REF_OPTION) -> tuple[str, str]:
    """Return major and minor of the one version (``3.7`` or ``3.7.0``) that a file holds."""
    number, line = _read_one_line(text, name, "version", option)
    match = _PIN_VERSION.fullmatch(line)
    if match is None:
        raise DataError(
            f"{name}:{number}: a version of a release is like 3.7.0, this is {shorten_line(line)!r}",
            tip=f"name the release branch with {option}",
        )
    return match[1], match[2]


def _read_one_line(text: str, name: str, noun: str, option: str) -> tuple[int, str]:
    """Return number and content of the only line that is neither blank nor a comment."""
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not lines:
        raise DataError(f"{name}: there is no {noun} in it", tip=f"name the ref that you want with {option}")
    if len(lines) > 1:
        raise DataError(
            f"{name}:{lines[1][0]}: a second {noun}; line {lines[0][0]} has one already",
            tip=f"leave one in the file, or name the ref that you want with {option}",
        )
    return lines[0]
