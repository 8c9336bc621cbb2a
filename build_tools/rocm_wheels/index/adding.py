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
from rocm_wheels.index.changing import PATIENCE, Change, changing, require_index
from rocm_wheels.index.entries import Entry, name_parts
from rocm_wheels.index.taking import Taken, take_file
from rocm_wheels.index.views import View, checked_family, families, refuse_family_name, refuse_other_bytes
from rocm_wheels.parallel import each
from rocm_wheels.shell import hide_credentials
from rocm_wheels.wheels.members import digest_of_file

_PLACE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^ /]|/|\.\./")  # how a URL of --files-url begins


@dataclass(frozen=True)
class Added:
    """What became of the wheels: names that are new in the index, and those that it had."""

    new: tuple[str, ...]
    had: tuple[str, ...]


def add_wheels(
    root: Path,
    wheels: Sequence[Path],
    *,
    now: str,
    family: str = "",
    link: bool = False,
    files_url: str | None = None,
    digests: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> Added:
    """Add wheels; they are copied (reflink where the system can), or hard-linked with ``link``.

    With ``files_url`` they are not copied: the pages link to ``<files_url>/<file name>``. The same bytes
    again are left. DataError for a wheel that is damaged or of other bytes than the index has.
    """
    require_index(root, create=True)
    if family:
        checked_family(root, family)
    view = View(root, family)
    _require_different(wheels)
    place = "" if files_url is None else checked_url(files_url)
    known = digests or {}

    def take(path: Path) -> Taken:
        digest = known.get(path.name)
        return _from_state(view, path) or take_file(path, now=now, digest=digest, place=place)

    for path in wheels:
        name_parts(path.name)  # before anything is hashed
    taken = each(take, wheels, jobs=os.cpu_count() or 1)
    new: list[str] = []
    with changing(root, what="index add", create=True, patience=patience) as change:
        for project in dict.fromkeys(wheel.project for wheel in taken):
            refuse_family_name(root, project, families(root))
            entries = change.read(view, project)
            for path, wheel in zip(wheels, taken, strict=True):
                if wheel.project == project and _add(change, view, wheel, path, entries, link=link):
                    new.append(wheel.entry.name)
            change.settle(view, project, entries)
    return Added(tuple(new), tuple(wheel.entry.name for wheel in taken if wheel.entry.name not in new))


def _require_different(wheels: Sequence[Path]) -> None:
    seen: dict[str, Path] = {}
    for path in wheels:
        other = seen.setdefault(path.name, path)
        if other.resolve() != path.resolve() and digest_of_file(other) != digest_of_file(path):
            raise DataError(f"{other} and {path} have the same name and different bytes")


def checked_url(url: str) -> str:
    """Return the URL of a folder of wheels with a slash at its end; UsageError when it is none.

    It is whole, or begins with a slash or ``../``, and has no password, which the pages would tell everybody.
    """
    if (shown := hide_credentials(url)) != url:
        raise UsageError(
            f"--files-url {shown} has credentials, and the pages would show them", tip="leave them out"
        )
    place = url.rstrip("/") + "/"
    inside = posixpath.normpath(place) == ".."  # the folder of the index, where wheels are copied to
    if not _PLACE.match(url) or any(sign in url for sign in "?#\"'<> \\") or not url.isprintable() or inside:
        raise UsageError(
            f"--files-url {url!r} is not the URL of a folder elsewhere",
            tip="for example: https://host/wheels/, /wheels/ or, from a project page, ../../wheels/",
        )
    return place


def _from_state(view: View, path: Path) -> Taken | None:
    """Return a wheel that lies in the index and is known: its size and time are as they were."""
    project = name_parts(path.name)[0]
    entry = view.read(project).get(path.name)
    if entry is None:
        return None
    file = view.file_of(project, entry)
    found = path.stat()
    same = (found.st_size, found.st_mtime_ns) == (entry.size, entry.changed)
    return Taken(project, entry) if file and same and path.resolve() == file.resolve() else None


def _add(
    change: Change, view: View, wheel: Taken, source: Path, entries: dict[str, Entry], *, link: bool
) -> bool:
    """Put a wheel among the entries of its project; tell whether it is new there."""
    entry = wheel.entry
    known = entries.get(entry.name)
    if known is not None:
        refuse_other_bytes(entry.name, known.sha256, entry.sha256, where=view.family or "for all")
        file = view.file_of(wheel.project, known)
        kept = entry if file is not None and not file.is_file() else known  # of a file that was lost
        entry = replace(known, size=kept.size, changed=kept.changed)
    file = view.file_of(wheel.project, entry)
    if file is not None and not (known and file.is_file()):
        _bring(change, source, file, wheel.entry, link=link)
    if wheel.metadata is not None:
        change.put_metadata(view.sidecar_of(wheel.project, entry), wheel.metadata)
    entries[entry.name] = entry
    return known is None


def _bring(change: Change, source: Path, target: Path, entry: Entry, *, link: bool) -> None:
    """Stage a wheel for its place, unless these bytes lie there already."""
    if target.exists():
        if not source.samefile(target):
            there = digest_of_file(target)
            refuse_other_bytes(entry.name, there, entry.sha256, where="there already, not listed yet")
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
        _copy(source, part)
        os.utime(part, ns=(entry.changed, entry.changed))
    found = source.stat()
    if (found.st_size, found.st_mtime_ns) != (entry.size, entry.changed):
        raise DataError(f"{source} changed while it was added")
    change.place(target, part)


def _copy(source: Path, target: Path) -> None:
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
