"""Objects of one repository in another, safely: links to the files, never a reference to their folder.

Git never writes into a pack that is there: it makes new ones and removes old names. A hard link keeps
the file when the other name goes, so whatever happens to the mirror afterwards (repacked, pruned,
removed), a checkout keeps what it has. Alternates would not: with them a repository breaks as
soon as the other one loses an object.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import SourceError
from rocm_wheels.workspace import copy_atomically

_LINK_ATTEMPTS = 20
# another file system, one without links, a file of somebody else's, too many names of one file
_NO_LINKS = {
    errno.EXDEV,
    errno.EPERM,
    errno.EACCES,
    errno.EMLINK,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EINVAL,
}


def link_objects(source: Path, target: Path) -> None:
    """Have all objects of a repository in another one; both are ``objects`` folders.

    Each file appears whole, the index of a pack after the pack: a run that is killed leaves nothing
    that git would take for a pack. Raises SourceError when the source changes all the time.
    """
    (target / "pack").mkdir(parents=True, exist_ok=True)
    for _ in range(_LINK_ATTEMPTS):
        try:
            for file in _list_missing_objects(source, target):
                _link_or_copy(file, target / file.relative_to(source))
        except FileNotFoundError as cause:
            last_failure = cause  # somebody repacks; what it held is in another pack now
        else:
            return
    raise SourceError(
        f"the packs in {source} change all the time", tip="wait until it is at rest"
    ) from last_failure


def _list_missing_objects(source: Path, target: Path) -> Iterator[Path]:
    """Yield what the target has not got, loose objects first: one that is packed meanwhile is met again."""
    for folder in sorted(source.glob("[0-9a-f][0-9a-f]")):
        yield from (file for file in sorted(folder.iterdir()) if len(file.name) == 38)
    for index in sorted((source / "pack").glob("pack-*.idx")):
        if not (target / "pack" / index.name).exists():
            yield index.with_suffix(".pack")
            if index.with_suffix(".rev").exists():
                yield index.with_suffix(".rev")
            yield index


def _link_or_copy(file: Path, target: Path) -> None:
    if target.exists():
        return
    target.parent.mkdir(exist_ok=True)
    try:
        os.link(file, target)
    except FileExistsError:
        return
    except OSError as failure:
        if failure.errno not in _NO_LINKS:
            raise
        _note_copied(str(file.parent.parent.parent.parent), failure.strerror or "")
        copy_atomically(file, target)
        target.chmod(0o444)


@functools.cache
def _note_copied(mirrors: str, why: str) -> None:
    log.log_note(
        f"the packs of {mirrors} are copied, not linked ({why}): each checkout takes their whole size"
    )
