"""The log of a set: a numbered, chained entry for its document and for each result, only ever added to.

``log/<set>/000001.json`` is written when the set is staged and states the digest of ``set.json`` as a
whole. Each later entry names a result and the digest of its file. Each but the first names the digest of
the entry before: what was written down cannot be changed, exchanged or left out without a break that all
who read see. Of several who add at once each creates the next number that is free; nothing is replaced,
so whoever tests needs no right to overwrite or delete.

The last entries can be cut off together with their results. So a log is copied to the release area, and a
channel states its head (``LogHead``), where those who stage and test have no rights: a log that is shorter
than what was stated, or another one, has a fault.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels.core import errors, parallel, records, tables
from rocm_wheels.models import lock
from rocm_wheels.release import layout
from rocm_wheels.stores.store import (
    RUN_AGAIN_TIP,
    AlreadyInStoreError,
    NotInStoreError,
    Store,
    create_or_read,
)

_ENTRY_NAME = re.compile(r"([0-9]{6})\.json")
_READ_JOBS = 8
_MOST_RIVALS = 200  # entries that others add before ours


class LogHead(records.Record):
    """How many entries a log has, and the digest of the last: what a copy of it can be compared with."""

    count: int = Field(ge=1)
    digest: lock.Sha256Digest


class LogEntry(records.Record):
    """An entry. ``previous`` is the sha256 of the entry before, "" in the first.

    The first has ``document``, the digest of the set's; others ``evidence``, the id of a result, ``digest``,
    that of its file, and ``about``, what it says of what: ``smoke on gfx942: fail``.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    set: str
    number: int = Field(ge=1)
    previous: lock.Sha256Digest | Literal[""] = ""
    document: lock.Sha256Digest | Literal[""] = ""
    evidence: str = ""
    digest: lock.Sha256Digest | Literal[""] = ""
    about: str = ""

    def to_json(self) -> bytes:
        """Return its file: the same entry is the same bytes."""
        values = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return (json.dumps({"schema": 1, **values}, sort_keys=True) + "\n").encode()


@dataclass(frozen=True)
class LoggedResult:
    """A result to be written down: its id, the digest of its file, and what it says of what."""

    id: str
    digest: str
    about: str


@dataclass(frozen=True)
class SetLog:
    """A log as it was read; without entries there is none. ``digests`` are those of the entries.

    ``faults`` say what is wrong with it: what is gone, was changed, or is not what was stated elsewhere.
    """

    entries: tuple[LogEntry, ...] = ()
    digests: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def head(self) -> LogHead | None:
        """What it is at; None where there is no log."""
        return LogHead(count=len(self.entries), digest=self.digests[-1]) if self.entries else None

    @property
    def document(self) -> str:
        """The digest of the set's document as it was staged; "" where the log does not say it."""
        return self.entries[0].document if self.entries else ""

    @cached_property
    def results(self) -> dict[str, LogEntry]:
        """The entries of results, by the ids of those."""
        return {entry.evidence: entry for entry in self.entries if entry.evidence}

    def compare_head(self, head: LogHead | None, where: str) -> SetLog:
        """Return it, with a fault where it does not begin with what was stated of it."""
        if head is None or head.digest in self.digests[head.count - 1 : head.count]:
            return self
        lost = head.count - len(self.entries)
        fault = f"{where} states {tables.format_count(head.count, 'entry', 'entries')}, and "
        fault += f"{lost} of them {'is' if lost == 1 else 'are'} gone" if lost > 0 else "they were others"
        return replace(self, faults=(*self.faults, fault))


def start_set_log(store: Store, paths: layout.FamilyPaths, set_id: str, document_digest: str) -> None:
    """Write the first entry. Raises ReleaseError where it states another document already."""
    content = LogEntry(set=set_id, number=1, document=document_digest).to_json()
    path = paths.log_entry(set_id, 1)
    present = create_or_read(store, path, content)
    if present not in {None, content}:
        raise errors.ReleaseError(
            f"{store.url_of(path)} states another document of {set_id}",
            tip="put set.json and the log back from a copy of the store, or build another set",
        )


def read_set_log(
    store: Store, paths: layout.FamilyPaths, set_id: str, names: Sequence[str] | None = None
) -> SetLog:
    """Return the log of a set in an area, with what is wrong with it; ``names``: of its files, if listed."""
    folder = paths.log_folder(set_id)
    if names is None:
        names = [listed.path.rpartition("/")[2] for listed in store.listing(folder)]
    faults = [f"{folder}/{name} is no entry of a log" for name in names if not _ENTRY_NAME.fullmatch(name)]
    numbers = [int(name[:6]) for name in names if _ENTRY_NAME.fullmatch(name)]
    contents = parallel.run_in_parallel(
        lambda number: _read_entry(store, paths.log_entry(set_id, number)), numbers, jobs=_READ_JOBS
    )
    entries, digests = list[LogEntry](), list[str]()
    for number, content in zip(numbers, contents, strict=True):
        if number != len(entries) + 1:
            faults.append(f"entry {len(entries) + 1} is gone")
            break
        entry = _parse_entry(content, set_id, number)
        if entry is None:
            faults.append(f"entry {number} cannot be read")
            break
        if entry.previous != (digests[-1] if digests else ""):
            faults.append(f"entry {number} does not follow entry {number - 1}: one of them was changed")
            break
        entries.append(entry)
        digests.append(hashlib.sha256(content).hexdigest())
    return SetLog(tuple(entries), tuple(digests), tuple(faults))


def _read_entry(store: Store, path: str) -> bytes:
    try:
        return store.read(path).content
    except NotInStoreError:  # removed since
        return b""


def _parse_entry(content: bytes, set_id: str, number: int) -> LogEntry | None:
    """Return an entry; None where it is not the one that its place says, or says nothing."""
    try:
        entry = LogEntry.model_validate_json(content)
    except ValidationError:
        return None
    says_one_thing = bool(entry.document) == (number == 1) and bool(entry.evidence) == (number > 1)
    is_own = (entry.set, entry.number) == (set_id, number) and content == entry.to_json()
    return entry if is_own and says_one_thing else None


def join_set_logs(staged: SetLog, released: SetLog, *, staging_cleared: bool = False) -> SetLog:
    """Return the log of a set that has one where it is staged and, perhaps, one where it was released.

    The longer one, with the faults of both: what was released must be in staging, too, entry by entry, unless
    the set is not staged any more (``staging_cleared``).
    """
    faults = [*staged.faults, *(f"in the release area {fault}" for fault in released.faults)]
    if staging_cleared and not staged.entries:
        return replace(released, faults=tuple(faults))
    pairs = enumerate(zip(staged.digests, released.digests, strict=False), 1)
    changed = [number for number, (here, there) in pairs if here != there]
    if changed:
        faults.append(f"entry {changed[0]} is another one in the release area")
    elif (lost := len(released.entries) - len(staged.entries)) > 0 and not staged.faults:
        count = tables.format_count(lost, "entry", "entries")
        faults.append(f"staging has lost {count} that the release area has")
    longer = released if len(released.entries) > len(staged.entries) else staged
    return SetLog(longer.entries, longer.digests, tuple(faults))


def require_usable_log(log: SetLog, set_id: str) -> None:
    """Raise ReleaseError for a log that is damaged, or not there: no entry can follow its last."""
    if log.faults:
        raise errors.ReleaseError(f"the log of {set_id} is damaged: {log.faults[0]}", tip=LOST_LOG_TIP)
    if not log.entries:
        raise errors.ReleaseError(f"{set_id} has no log", tip=NO_LOG_TIP)


def append_to_log(store: Store, paths: layout.FamilyPaths, set_id: str, result: LoggedResult) -> None:
    """Write a result down, unless it is there. Its file must be in the store already.

    Raises ReleaseError where the log is damaged or not there, or others write all the time.
    """
    for _ in range(_MOST_RIVALS):
        log = read_set_log(store, paths, set_id)
        if (entry := log.results.get(result.id)) is not None and entry.digest == result.digest:
            return
        require_usable_log(log, set_id)
        number = len(log.entries) + 1
        entry = LogEntry(
            set=set_id,
            number=number,
            previous=log.digests[-1],
            evidence=result.id,
            digest=result.digest,
            about=result.about,
        )
        try:
            store.create(paths.log_entry(set_id, number), entry.to_json())
        except AlreadyInStoreError:
            continue  # another was first: ours is the next
        return
    raise errors.ReleaseError(f"the log of {set_id} is written by others all the time", tip=RUN_AGAIN_TIP)


NO_LOG_TIP = "stage its wheels once more, which sends none again, then add its results once more"
LOST_LOG_TIP = (
    "put it back from a copy of the store; where there is none, build the wheels again, as another set"
)


def require_stated_document(store: Store, paths: layout.FamilyPaths, set_id: str, digest: str) -> None:
    """Raise DataError for a document of a set that is not the one that its log states.

    Of a set without a log nothing is known: the gate says so.
    """
    content = _read_entry(store, paths.log_entry(set_id, 1))
    if not content:
        return
    entry = _parse_entry(content, set_id, 1)
    if entry is None or entry.document != digest:
        raise errors.DataError(
            f"{store.url_of(paths.set_document(set_id))} was changed after the set was staged: "
            f"its log states {entry.document if entry else 'nothing that can be read'}, and this is {digest}",
            tip="put it back from a copy of the store; nothing of the set is shown or installed until then",
        )


def copy_log_entries(
    store: Store,
    staging: layout.FamilyPaths,
    release: layout.FamilyPaths,
    set_id: str,
    numbers: Sequence[int],
) -> int:
    """Copy entries to the release area, in their order, and return how many were new there."""
    new = 0
    for number in sorted(numbers):
        source, target = staging.log_entry(set_id, number), release.log_entry(set_id, number)
        try:
            store.copy(source, target)
        except AlreadyInStoreError:
            if store.read(source).content != store.read(target).content:
                raise errors.ReleaseError(
                    f"{store.url_of(target)} is not {source}", tip=LOST_LOG_TIP
                ) from None
        else:
            new += 1
    return new


def list_log_numbers(store: Store, paths: layout.FamilyPaths, only: str = "") -> dict[str, set[int]]:
    """Return the numbers of the entries of all logs of an area, by set, or of one: one listing."""
    folder = f"{paths.family_folder}/{paths.layout.log}/"
    numbers_by_set: dict[str, set[int]] = {}
    for listed in store.listing(f"{folder}{only}".rstrip("/")):
        set_id, _, name = listed.path.removeprefix(folder).partition("/")
        if match := _ENTRY_NAME.fullmatch(name):
            numbers_by_set.setdefault(set_id, set()).add(int(match[1]))
    return numbers_by_set
