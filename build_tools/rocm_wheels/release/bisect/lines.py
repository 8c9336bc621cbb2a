"""Which sets are in one line: those of a platform, and of a torch line where both ends are of one.

One family has sets of both platforms and of several lines, made night after night. A set of the other
platform cannot be tried, and one of another line says nothing of when this one broke.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rocm_wheels import log
from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.newest import TORCH_PROJECT, parse_torch_line
from rocm_wheels.release.overview import SetRow
from rocm_wheels.stores.store import NotInStoreError, Store

_LOCK_JOBS = 8


def select_torch_line(store: Store, paths: FamilyPaths, rows: Sequence[SetRow]) -> tuple[SetRow, ...]:
    """Return the sets of the line that the first and the last are of; all of them where these differ."""
    ends = {_read_torch_line(store, paths, row) for row in (rows[0], rows[-1])}
    if len(ends) > 1 or None in ends:
        return tuple(rows)
    lines = run_in_parallel(lambda row: _read_torch_line(store, paths, row), rows, jobs=_LOCK_JOBS)
    return tuple(row for row, line in zip(rows, lines, strict=True) if line in ends)


def _read_torch_line(store: Store, paths: FamilyPaths, row: SetRow) -> str | None:
    """Return the torch line of a set, as its lock says, else by the version of torch; ``None``: of none."""
    path = paths.set_lock(row.id)
    try:
        line = json.loads(store.read(path).content).get("line")
    except (NotInStoreError, ValueError, AttributeError):
        log.log_warning(f"{store.url_of(path)} is no lock: {row.id} is of the line of its torch")
        line = None
    if line or TORCH_PROJECT not in row.projects:
        return line or None
    return "{}.{}".format(*parse_torch_line(row.version))
