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
from rocm_wheels.release.layout import Area, Layout, Places
from rocm_wheels.release.overview import Row, overviews, row_of
from rocm_wheels.release.promotion.channel import read_channel
from rocm_wheels.release.sets import SetDocument, find_set, read_set
from rocm_wheels.release.stores.store import Store
from rocm_wheels.shell import hide_credentials, shell_line


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
    """How each set is tried. ``targets`` are the GPUs that it must be for, "" of ``served`` the store's own.

    ``python`` is the program whose environments are made, ``python_version`` as wheels name it (``3.12``).
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

    Raises ReleaseError for sets that are not there or have no line between them, and UsageError where the
    good one is not the older.
    """
    ends = [find_set(store, one, family=family, layout=layout) for one in (good, bad)]
    old, new = ends
    if old.id == new.id and old.family == new.family:
        raise UsageError(f"{old.id} cannot be both good and bad", tip="name two sets")
    if (old.family, old.layout) != (new.family, new.layout):
        what = " and ".join(f"{one.id} is of {one.family} ({one.layout})" for one in ends)
        raise ReleaseError(
            f"there is no line between them: {what}", tip="name two sets of one family and layout"
        )
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
    rows = [row for row in overview.rows if row.layout == old.layout]
    return Line(store, layout, old.family, "staging", _cut(rows, ends))


def key_of(line: Line, asked: Asked) -> str:
    """Return what stands for a question: the same sets, tried in the same way by the same command.

    Files that the command names are part of it, by their content.
    """
    said = {
        "store": line.store.url,
        "area": line.area,
        "family": line.family,
        "sets": line.ids,
        **asdict(asked),
        "files": [_digest(asked.cwd / word) for word in asked.command],
    }
    return hashlib.sha256(json.dumps(said, default=str, sort_keys=True).encode()).hexdigest()[:16]


def _on_channel(store: Store, layout: Layout, channel: str, ends: Sequence[SetDocument]) -> tuple[Row, ...]:
    family = ends[0].family
    held = read_channel(store, Places(layout, family, "release"), channel)
    if held.tag is None:
        raise ReleaseError(f"nothing was promoted to {channel} of {family} in {store.url}")
    promoted = [one for event in held.channel.history if event.action == "promote" for one in event.sets]
    ids = tuple(dict.fromkeys([*promoted, *held.channel.shown]))
    for end in ends:
        if end.id not in ids:
            what = f"{end.id} was never on {channel} of {family}{did_you_mean(end.id, ids)}"
            raise ReleaseError(
                what, tip=f"it showed {', '.join(ids)}; without --channel all staged sets count"
            )
    documents = [read_set(store, family, one, area="release", layout=layout) for one in ids]
    return _cut([row_of(one) for one in documents if one.layout == ends[0].layout], ends)


def _cut(rows: Sequence[Row], ends: Sequence[SetDocument]) -> tuple[Row, ...]:
    first, last = ((one.created, one.id) for one in ends)
    ordered = sorted(rows, key=lambda row: (row.created, row.id))
    return tuple(row for row in ordered if first <= (row.created, row.id) <= last)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
