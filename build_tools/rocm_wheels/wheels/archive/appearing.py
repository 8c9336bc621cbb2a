"""A large file that appears whole or not at all, and of which a killed process leaves nothing.

Where the system has files without a name (Linux, ``O_TMPFILE``), the file gets one when it is complete; a
process that is killed before takes it along. Elsewhere it is a hidden file beside the target until then.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.errors import DataError


class HiddenFile:
    """A file that is written through ``descriptor``, its descriptor, and is not yet there for others."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._name: Path | None = None
        self._open = True
        if hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").is_dir():
            with contextlib.suppress(OSError):  # not every file system has it
                self.descriptor = os.open(target.parent, os.O_TMPFILE | os.O_RDWR, 0o644)
                return
        self.descriptor, name = tempfile.mkstemp(
            prefix=_make_hidden_prefix(target), suffix=".part", dir=target.parent
        )
        self._name = Path(name)

    def commit(self, *, replace: bool) -> None:
        """Give the file its name when it is safe on disk, unless one of the same bytes has it.

        DataError when a file of other bytes has it and is not to be replaced.
        """
        os.fsync(self.descriptor)
        if self._name is None:
            self._name = self._give_hidden_name()
        self._close_descriptor()  # Windows renames no open file
        os.chmod(self._name, 0o644)
        if self._has_same_bytes(self._name):
            return
        if replace:
            os.replace(self._name, self._target)
            return
        try:  # unlike a rename, a link takes no name that another has got first
            os.link(self._name, self._target)
        except OSError:  # also where the file system has no hard links
            if self._has_same_bytes(self._name):
                return  # another run has just made the same
            if os.path.lexists(self._target):
                tip = "name another folder, or ask for it to be replaced"
                raise DataError(f"{self._target} exists with other bytes", tip=tip) from None
            os.replace(self._name, self._target)

    def _has_same_bytes(self, name: Path) -> bool:
        """Tell whether the target has these bytes; files of other sizes are told apart without reading."""
        return self._target.exists() and filecmp.cmp(name, self._target, shallow=False)

    def _give_hidden_name(self) -> Path:
        """Give a file without a name a hidden one."""
        name = self._target.with_name(f"{_make_hidden_prefix(self._target)}{os.urandom(4).hex()}.part")
        folder = os.open(name.parent, os.O_RDONLY)
        try:  # only with a folder that is open does Python follow the link to the file itself
            os.link(f"/proc/self/fd/{self.descriptor}", name.name, dst_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)
        return name

    def discard(self) -> None:
        """Take away what is left of it."""
        self._close_descriptor()
        if self._name is not None:
            with contextlib.suppress(FileNotFoundError):
                self._name.unlink()

    def _close_descriptor(self) -> None:
        if self._open:
            self._open = False
            os.close(self.descriptor)


@contextlib.contextmanager
def open_hidden_file(target: Path) -> Iterator[HiddenFile]:
    """Give a file that can appear as ``target``; folders are made, and taken away when nothing came."""
    folder = target.parent
    new_folders = [new_folder for new_folder in (folder, *folder.parents) if not new_folder.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        hidden = HiddenFile(target)
        try:
            yield hidden
        finally:
            hidden.discard()
    except BaseException:
        with contextlib.suppress(OSError):  # others have put something there
            for new_folder in new_folders:
                new_folder.rmdir()
        raise


def _make_hidden_prefix(target: Path) -> str:
    """Return what a hidden name begins with: short, for that of the target may be as long as names can be."""
    return f".{target.name[:40]}."
