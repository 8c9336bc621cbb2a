"""Which sets are in one line: those of a platform, and of a torch line where both ends are of one.

One family has sets of both platforms and of several lines, made night after night. A set of the other
platform cannot be tried, and one of another line says nothing of when this one broke.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rocm_wheels import log
from rocm_wheels.parallel import each
from rocm_wheels.release.layout import Places
from rocm_wheels.release.newest import TORCH, of_torch
from rocm_wheels.release.overview import Row
from rocm_wheels.stores.store import Missing, Store

_JOBS = 8


def of_their_line(store: Store, places: Places, rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the sets of the line that the first and the last are of; all of them where these differ."""
    ends = {_line_of(store, places, one) for one in (rows[0], rows[-1])}
    if len(ends) > 1 or None in ends:
        return tuple(rows)
    lines = each(lambda one: _line_of(store, places, one), rows, jobs=_JOBS)
    return tuple(row for row, line in zip(rows, lines, strict=True) if line in ends)


def _line_of(store: Store, places: Places, row: Row) -> str | None:
    """Return the torch line of a set, as its lock says, else by the version of torch; ``None``: of none."""
    path = places.lock(row.id)
    try:
        said = json.loads(store.read(path).content).get("line")
    except (Missing, ValueError, AttributeError):
        log.warn(f"{store.url_of(path)} is no lock: {row.id} is of the line of its torch")
        said = None
    if said or TORCH not in row.projects:
        return said or None
    return "{}.{}".format(*of_torch(row.version))
