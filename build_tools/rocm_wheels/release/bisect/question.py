"""What is asked: which sets, of which one the first is bad; and what tells one question from another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.records import did_you_mean
from rocm_wheels.release.bisect.lines import of_their_line
from rocm_wheels.release.gate.needed import platform_of
from rocm_wheels.release.gate.policy import CHANNELS
from rocm_wheels.release.layout import Area, Layout, Places
from rocm_wheels.release.overview import Row, overviews, row_of
from rocm_wheels.release.promotion.channel import read_channel
from rocm_wheels.release.sets import SetDocument, families, find_set, read_set
from rocm_wheels.shell import hide_credentials, shell_line
from rocm_wheels.stores.store import Store

_LARGE = 64 << 20  # bytes


@dataclass(frozen=True)
class Line:
    """Sets in the order in which they were made, from the good one to the bad one; ``area`` is where."""

    store: Store
    layout: Layout
    family: str
    area: Area
    rows: tuple[Row, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Their ids, the oldest first."""
        return tuple(row.id for row in self.rows)

    @property
    def places(self) -> Places:
        """Where they are."""
        return Places(self.layout, self.family, self.area)

    def document(self, number: int) -> SetDocument:
        """Return a set."""
        return read_set(self.store, self.family, self.ids[number], area=self.area, layout=self.layout)


@dataclass(frozen=True)
class Asked:
    """How each set is tried. ``targets`` are the GPUs of which it must be for one.

    ``served`` is where the store is given out to installers, "" where nobody said. ``python`` is the program
    whose environments are made, ``python_version`` as wheels name it (``3.12``).
    """

    command: tuple[str, ...]
    cwd: Path
    projects: tuple[str, ...]
    python: Path
    python_version: str
    targets: tuple[str, ...] = ()
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    served: str = ""
    pre: bool = False

    def __str__(self) -> str:
        """Return the command for people."""
        return hide_credentials(shell_line(self.command))


def line_between(
    store: Store, layout: Layout, good: str, bad: str, *, family: str | None, channel: str | None
) -> Line:
    """Return the sets between two: those that a channel ever showed, or all staged ones of their layout.

    They are of the platform of the two, and where both are of one torch line, of that. Raises ReleaseError
    for sets that are not there or have no line between them, and UsageError where the good one is not older.
    """
    ends = [_find(store, layout, one, family=family, channel=channel) for one in (good, bad)]
    old, new = ends
    if old.id == new.id and old.family == new.family:
        raise UsageError(f"{old.id} cannot be both good and bad", tip="name two sets")
    if (old.family, old.layout) != (new.family, new.layout):
        what = " and ".join(f"{one.id} is of {one.family} ({one.layout})" for one in ends)
        raise ReleaseError(
            f"there is no line between them: {what}", tip="name two sets of one family and layout"
        )
    if platform_of(old) != platform_of(new):
        what = " and ".join(f"{one.id} is for {platform_of(one)}" for one in ends)
        tip = "name two sets of one platform: `rocm-wheels releases STORE` says which set is for which"
        raise ReleaseError(f"there is no line between them: {what}", tip=tip)
    if old.layout == "variants":
        tip = "bisect the plain wheels that they were made of"
        raise ReleaseError(
            "sets of variants cannot be tried: which wheel is taken is up to the machine", tip=tip
        )
    if (new.created, new.id) < (old.created, old.id):
        what = f"{old.id} is good and was made on {old.created}, after {new.id} ({new.created})"
        raise UsageError(what, tip="the good set must be the older one: it is searched where it broke")
    if channel is not None:
        return Line(store, layout, old.family, "release", _on_channel(store, layout, channel, ends))
    (overview,) = overviews(store, layout, family=old.family)
    for fault in overview.damaged:
        log.warn(f"left out: {fault}")
    return Line(
        store, layout, old.family, "staging", _cut(store, Places(layout, old.family), overview.rows, ends)
    )


def key_of(line: Line, asked: Asked) -> str:
    """Return what stands for a question: the same sets, tried in the same way by the same command.

    Files that the command names are part of it.
    """
    said = {
        "store": line.store.url,
        "area": line.area,
        "family": line.family,
        "sets": line.ids,
        **asdict(asked),
        "files": [_mark(asked.cwd / word) for word in asked.command],
    }
    return hashlib.sha256(json.dumps(said, default=str, sort_keys=True).encode()).hexdigest()[:16]


def _find(
    store: Store, layout: Layout, given: str, *, family: str | None, channel: str | None
) -> SetDocument:
    """Return a set by how its id begins: a staged one, or one that a channel showed, in the release area."""
    if channel is None:
        return find_set(store, given, family=family, layout=layout)
    known = [
        (one, name)
        for one in families(store, area="release", layout=layout)
        if family in {None, one}
        for name in _ever_on(store, layout, one, channel)
    ]
    of = f"{channel} of {family}" if family else channel
    if not known:
        raise ReleaseError(
            f"nothing was promoted to {of} in {store.url}", tip=f"channels are {', '.join(CHANNELS)}"
        )
    found = [pair for pair in known if pair[1].startswith(given)]
    exact = [pair for pair in found if pair[1] == given] or found
    if len(exact) == 1:
        return read_set(store, *exact[0], area="release", layout=layout)
    ids = [name for _, name in known]
    tip = f"it showed {', '.join(ids)}; without --channel all staged sets count"
    if not exact:
        raise ReleaseError(f"{given} was never on {of}{did_you_mean(given, ids)}", tip=tip)
    raise ReleaseError(f"{given} could be {', '.join(f'{name} of {one}' for one, name in exact)}", tip=tip)


def _ever_on(store: Store, layout: Layout, family: str, channel: str) -> tuple[str, ...]:
    held = read_channel(store, Places(layout, family, "release"), channel).channel
    promoted = [one for event in held.history if event.action == "promote" for one in event.sets]
    return tuple(dict.fromkeys([*promoted, *held.shown]))


def _on_channel(store: Store, layout: Layout, channel: str, ends: Sequence[SetDocument]) -> tuple[Row, ...]:
    family = ends[0].family
    ids = _ever_on(store, layout, family, channel)
    documents = [read_set(store, family, one, area="release", layout=layout) for one in ids]
    return _cut(store, Places(layout, family, "release"), [row_of(one) for one in documents], ends)


def _cut(store: Store, places: Places, rows: Sequence[Row], ends: Sequence[SetDocument]) -> tuple[Row, ...]:
    """Return the sets between the ends that are as they are: of their layout, platform and torch line."""
    first, last = ((one.created, one.id) for one in ends)
    ordered = sorted(rows, key=lambda row: (row.created, row.id))
    between = [row for row in ordered if first <= (row.created, row.id) <= last]
    kind = ends[0].layout, platform_of(ends[0])
    return of_their_line(store, places, [row for row in between if (row.layout, row.os) == kind])


def _mark(path: Path) -> str:
    """Return what tells a file from what it was before: its content, or of a large one size and time."""
    if not path.is_file():
        return ""
    found = path.stat()
    if found.st_size > _LARGE:
        return f"{found.st_size} {found.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()
