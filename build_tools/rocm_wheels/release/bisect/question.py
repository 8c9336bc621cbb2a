"""What is asked: which sets, of which one the first is bad; and what tells one question from another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.records import suggest_name
from rocm_wheels.release.bisect.lines import select_torch_line
from rocm_wheels.release.gate.needed import find_set_platform
from rocm_wheels.release.gate.policy import CHANNEL_NAMES
from rocm_wheels.release.layout import Area, StoreLayout, FamilyPaths
from rocm_wheels.release.overview import SetRow, list_sets, make_set_row
from rocm_wheels.release.promotion.channel import read_channel
from rocm_wheels.release.sets import SetDocument, list_families, find_set, read_set
from rocm_wheels.shell import hide_credentials, format_command
from rocm_wheels.stores.store import Store

_LARGE_FILE_BYTES = 64 << 20  # bytes


@dataclass(frozen=True)
class SetLine:
    """Sets in the order in which they were made, from the good one to the bad one; ``area`` is where."""

    store: Store
    layout: StoreLayout
    family: str
    area: Area
    rows: tuple[SetRow, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Their ids, the oldest first."""
        return tuple(row.id for row in self.rows)

    @property
    def paths(self) -> FamilyPaths:
        """Where they are."""
        return FamilyPaths(self.layout, self.family, self.area)

    def read_document(self, number: int) -> SetDocument:
        """Return a set."""
        return read_set(self.store, self.family, self.ids[number], area=self.area, layout=self.layout)


@dataclass(frozen=True)
class ProbeRequest:
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
        return hide_credentials(format_command(self.command))


def find_line(
    store: Store, layout: StoreLayout, good: str, bad: str, *, family: str | None, channel: str | None
) -> SetLine:
    """Return the sets between two: those that a channel ever showed, or all staged ones of their layout.

    They are of the platform of the two, and where both are of one torch line, of that. Raises ReleaseError
    for sets that are not there or have no line between them, and UsageError where the good one is not older.
    """
    ends = [_find_end(store, layout, end, family=family, channel=channel) for end in (good, bad)]
    old, new = ends
    if old.id == new.id and old.family == new.family:
        raise UsageError(f"{old.id} cannot be both good and bad", tip="name two sets")
    if (old.family, old.layout) != (new.family, new.layout):
        message = " and ".join(f"{end.id} is of {end.family} ({end.layout})" for end in ends)
        raise ReleaseError(
            f"there is no line between them: {message}", tip="name two sets of one family and layout"
        )
    if find_set_platform(old) != find_set_platform(new):
        message = " and ".join(f"{end.id} is for {find_set_platform(end)}" for end in ends)
        tip = "name two sets of one platform: `rocm-wheels releases STORE` says which set is for which"
        raise ReleaseError(f"there is no line between them: {message}", tip=tip)
    if old.layout == "variants":
        tip = "bisect the plain wheels that they were made of"
        raise ReleaseError(
            "sets of variants cannot be tried: which wheel is taken is up to the machine", tip=tip
        )
    if (new.created, new.id) < (old.created, old.id):
        message = f"{old.id} is good and was made on {old.created}, after {new.id} ({new.created})"
        raise UsageError(message, tip="the good set must be the older one: it is searched where it broke")
    if channel is not None:
        return SetLine(store, layout, old.family, "release", _list_channel_rows(store, layout, channel, ends))
    (overview,) = list_sets(store, layout, family=old.family)
    for fault in overview.damaged:
        log.log_warning(f"left out: {fault}")
    return SetLine(
        store,
        layout,
        old.family,
        "staging",
        _select_between(store, FamilyPaths(layout, old.family), overview.rows, ends),
    )


def compute_bisect_key(line: SetLine, request: ProbeRequest) -> str:
    """Return what stands for a question: the same sets, tried in the same way by the same command.

    Files that the command names are part of it.
    """
    content = {
        "store": line.store.url,
        "area": line.area,
        "family": line.family,
        "sets": line.ids,
        **asdict(request),
        "files": [_fingerprint_file(request.cwd / word) for word in request.command],
    }
    return hashlib.sha256(json.dumps(content, default=str, sort_keys=True).encode()).hexdigest()[:16]


def _find_end(
    store: Store, layout: StoreLayout, beginning: str, *, family: str | None, channel: str | None
) -> SetDocument:
    """Return a set by how its id begins: a staged one, or one that a channel showed, in the release area."""
    if channel is None:
        return find_set(store, beginning, family=family, layout=layout)
    candidates = [
        (family_name, name)
        for family_name in list_families(store, area="release", layout=layout)
        if family in {None, family_name}
        for name in _list_ever_on_channel(store, layout, family_name, channel)
    ]
    of = f"{channel} of {family}" if family else channel
    if not candidates:
        raise ReleaseError(
            f"nothing was promoted to {of} in {store.url}", tip=f"channels are {', '.join(CHANNEL_NAMES)}"
        )
    matches = [pair for pair in candidates if pair[1].startswith(beginning)]
    exact = [pair for pair in matches if pair[1] == beginning] or matches
    if len(exact) == 1:
        return read_set(store, *exact[0], area="release", layout=layout)
    ids = [name for _, name in candidates]
    tip = f"it showed {', '.join(ids)}; without --channel all staged sets count"
    if not exact:
        raise ReleaseError(f"{beginning} was never on {of}{suggest_name(beginning, ids)}", tip=tip)
    raise ReleaseError(
        f"{beginning} could be {', '.join(f'{name} of {family_name}' for family_name, name in exact)}",
        tip=tip,
    )


def _list_ever_on_channel(store: Store, layout: StoreLayout, family: str, channel: str) -> tuple[str, ...]:
    record = read_channel(store, FamilyPaths(layout, family, "release"), channel).channel
    promoted = [set_id for event in record.history if event.action == "promote" for set_id in event.sets]
    return tuple(dict.fromkeys([*promoted, *record.shown]))


def _list_channel_rows(
    store: Store, layout: StoreLayout, channel: str, ends: Sequence[SetDocument]
) -> tuple[SetRow, ...]:
    family = ends[0].family
    ids = _list_ever_on_channel(store, layout, family, channel)
    documents = [read_set(store, family, item, area="release", layout=layout) for item in ids]
    return _select_between(
        store, FamilyPaths(layout, family, "release"), [make_set_row(item) for item in documents], ends
    )


def _select_between(
    store: Store, paths: FamilyPaths, rows: Sequence[SetRow], ends: Sequence[SetDocument]
) -> tuple[SetRow, ...]:
    """Return the sets between the ends that are as they are: of their layout, platform and torch line."""
    first, last = ((end.created, end.id) for end in ends)
    ordered = sorted(rows, key=lambda row: (row.created, row.id))
    between = [row for row in ordered if first <= (row.created, row.id) <= last]
    kind = ends[0].layout, find_set_platform(ends[0])
    return select_torch_line(store, paths, [row for row in between if (row.layout, row.os) == kind])


def _fingerprint_file(path: Path) -> str:
    """Return what tells a file from what it was before: its content, or of a large one size and time."""
    if not path.is_file():
        return ""
    status = path.stat()
    if status.st_size > _LARGE_FILE_BYTES:
        return f"{status.st_size} {status.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()
