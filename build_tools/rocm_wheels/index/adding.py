"""Adding wheels to an index: all of them or none."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.index.changing import LOCK_PATIENCE, IndexChange, change_index, require_index
from rocm_wheels.index.entries import IndexEntry, parse_file_name
from rocm_wheels.index.taking import IndexedFile, read_wheel_file
from rocm_wheels.index.views import (
    IndexFolder,
    check_family_name,
    list_families,
    refuse_family_name,
    refuse_other_bytes,
)
from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.shell import hide_credentials
from rocm_wheels.wheels.members import hash_file

_FILES_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^ /]|/|\.\./")  # how a URL of --files-url begins


@dataclass(frozen=True)
class AddedWheels:
    """What became of the wheels: names that are new in the index, and those that it had."""

    new: tuple[str, ...]
    unchanged: tuple[str, ...]


def add_wheels(
    root: Path,
    wheels: Sequence[Path],
    *,
    now: str,
    family: str = "",
    link: bool = False,
    files_url: str | None = None,
    digests: Mapping[str, str] | None = None,
    patience: float = LOCK_PATIENCE,
) -> AddedWheels:
    """Add wheels; they are copied (reflink where the system can), or hard-linked with ``link``.

    With ``files_url`` they are not copied: the pages link to ``<files_url>/<file name>``. The same bytes
    again are left. DataError for a wheel that is damaged or of other bytes than the index has.
    """
    require_index(root, create=True)
    if family:
        check_family_name(root, family)
    view = IndexFolder(root, family)
    _refuse_same_names(wheels)
    place = "" if files_url is None else check_files_url(files_url)
    known_digests = digests or {}

    def take(path: Path) -> IndexedFile:
        digest = known_digests.get(path.name)
        return _find_unchanged(view, path) or read_wheel_file(path, now=now, digest=digest, place=place)

    for path in wheels:
        parse_file_name(path.name)  # before anything is hashed
    wheels_read = run_in_parallel(take, wheels, jobs=os.cpu_count() or 1)
    new: list[str] = []
    with change_index(root, action="index add", create=True, patience=patience) as change:
        for project in dict.fromkeys(wheel.project for wheel in wheels_read):
            refuse_family_name(root, project, list_families(root))
            entries = change.read_entries(view, project)
            for path, wheel in zip(wheels, wheels_read, strict=True):
                if wheel.project == project and _add_wheel(change, view, wheel, path, entries, link=link):
                    new.append(wheel.entry.name)
            change.set_entries(view, project, entries)
    return AddedWheels(
        tuple(new), tuple(wheel.entry.name for wheel in wheels_read if wheel.entry.name not in new)
    )


def _refuse_same_names(wheels: Sequence[Path]) -> None:
    paths: dict[str, Path] = {}
    for path in wheels:
        other = paths.setdefault(path.name, path)
        if other.resolve() != path.resolve() and hash_file(other) != hash_file(path):
            raise DataError(f"{other} and {path} have the same name and different bytes")


def check_files_url(url: str) -> str:
    """Return the URL of a folder of wheels with a slash at its end; UsageError when it is none.

    It is whole, or begins with a slash or ``../``, and has no password, which the pages would tell everybody.
    """
    if (redacted := hide_credentials(url)) != url:
        raise UsageError(
            f"--files-url {redacted} has credentials, and the pages would show them", tip="leave them out"
        )
    folder_url = url.rstrip("/") + "/"
    is_index_folder = (
        posixpath.normpath(folder_url) == ".."
    )  # the folder of the index, where wheels are copied to
    if (
        not _FILES_URL.match(url)
        or any(sign in url for sign in "?#\"'<> \\")
        or not url.isprintable()
        or is_index_folder
    ):
        raise UsageError(
            f"--files-url {url!r} is not the URL of a folder elsewhere",
            tip="for example: https://host/wheels/, /wheels/ or, from a project page, ../../wheels/",
        )
    return folder_url


def _find_unchanged(view: IndexFolder, path: Path) -> IndexedFile | None:
    """Return a wheel that lies in the index and is known: its size and time are as they were."""
    project = parse_file_name(path.name)[0]
    entry = view.read_entries(project).get(path.name)
    if entry is None:
        return None
    file = view.file_of(project, entry)
    status = path.stat()
    is_unchanged = (status.st_size, status.st_mtime_ns) == (entry.size, entry.changed)
    return IndexedFile(project, entry) if file and is_unchanged and path.resolve() == file.resolve() else None


def _add_wheel(
    change: IndexChange,
    view: IndexFolder,
    wheel: IndexedFile,
    source: Path,
    entries: dict[str, IndexEntry],
    *,
    link: bool,
) -> bool:
    """Put a wheel among the entries of its project; tell whether it is new there."""
    entry = wheel.entry
    listed = entries.get(entry.name)
    if listed is not None:
        refuse_other_bytes(entry.name, listed.sha256, entry.sha256, where=view.family or "for all")
        file = view.file_of(wheel.project, listed)
        file_entry = entry if file is not None and not file.is_file() else listed  # of a file that was lost
        entry = replace(listed, size=file_entry.size, changed=file_entry.changed)
    file = view.file_of(wheel.project, entry)
    if file is not None and not (listed and file.is_file()):
        _stage_wheel(change, source, file, wheel.entry, link=link)
    if wheel.metadata is not None:
        change.put_metadata(view.sidecar_of(wheel.project, entry), wheel.metadata)
    entries[entry.name] = entry
    return listed is None


def _stage_wheel(change: IndexChange, source: Path, target: Path, entry: IndexEntry, *, link: bool) -> None:
    """Stage a wheel for its place, unless these bytes lie there already."""
    if target.exists():
        if not source.samefile(target):
            present_sha256 = hash_file(target)
            refuse_other_bytes(
                entry.name, present_sha256, entry.sha256, where="there already, not listed yet"
            )
        return
    part = change.new_part()
    if link:
        try:
            os.link(source.resolve(), part)  # a link to a symbolic link would lead nowhere from here
        except OSError as cause:
            raise UsageError(
                f"{source} cannot be hard-linked into {target.parent}", tip="leave out --link"
            ) from cause
    else:
        _copy_wheel(source, part)
        os.utime(part, ns=(entry.changed, entry.changed))
    status = source.stat()
    if (status.st_size, status.st_mtime_ns) != (entry.size, entry.changed):
        raise DataError(f"{source} changed while it was added")
    change.place_wheel(target, part)


def _copy_wheel(source: Path, target: Path) -> None:
    """Copy a file inside the kernel where it can: on some file systems that shares the blocks."""
    if not hasattr(os, "copy_file_range"):
        shutil.copyfile(source, target)
        return
    try:
        with open(source, "rb") as read, open(target, "wb") as write:
            while os.copy_file_range(read.fileno(), write.fileno(), 1 << 30):
                continue
    except OSError as cause:
        if cause.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        shutil.copyfile(source, target)
