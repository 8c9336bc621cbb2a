"""A wheel with other dist-info files, or a few others of its files; every other member copied as it is.

The compressed bytes of a member that is not touched go from file to file as one extent with
their neighbours; only METADATA, WHEEL and RECORD are inflated, and only what is new is hashed. The same
input gives the same bytes: what is new has the date of the source's WHEEL and a fixed level.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.wheels.archive import records
from rocm_wheels.wheels.archive.appearing import beside
from rocm_wheels.wheels.archive.copying import Sink
from rocm_wheels.wheels.archive.edits import Edit, Plan, edited_name, plan_edit
from rocm_wheels.wheels.archive.records import Entry
from rocm_wheels.wheels.dist_info import dist_info_folders
from rocm_wheels.wheels.members import WheelArchive, digest_of_file
from rocm_wheels.wheels.record import SIGNATURES, RecordEntry

_LARGEST_DIST_INFO = 128 << 20
_TEXTS = ("METADATA", "WHEEL", "RECORD")


@dataclass(frozen=True)
class Rewritten:
    """A wheel that was written: where, its size, and all of its RECORD; what it no longer has.

    ``sha256`` (hex) reads the file when it is first asked for, and never again: hashing costs more
    than the copy, which the kernel makes without showing us the bytes.
    """

    path: Path
    size: int
    record: tuple[RecordEntry, ...]
    dropped: tuple[str, ...] = ()

    @cached_property
    def sha256(self) -> str:
        """The digest (hex) of the new file."""
        return digest_of_file(self.path)


def rewrite_wheel(source: Path, folder: Path, edit: Edit, *, replace: bool = False) -> Rewritten:
    """Write ``source`` as ``edit`` makes it into ``folder``, under the name that follows.

    The file is there whole or not at all. One that exists with the same bytes is left, one with
    other bytes only replaced with ``replace``. DataError for a wheel that is damaged, hostile, or whose
    RECORD does not fit; UsageError for an edit that makes no wheel.
    """
    with WheelArchive.open(source) as archive:
        archive.require_sound()
        archive.require_links_inside()
        target = folder / edited_name(source.name, edit)
        with beside(target) as hidden:
            with Sink(archive.descriptor, hidden.number, target) as sink:
                sink.copy_ahead(_lead(archive, edit))  # while we look at METADATA, WHEEL and RECORD
                plan = _plan(archive, edit)
                size = _write(archive, plan, sink)
            archive.require_unchanged()
            hidden.appear(replace=replace)
    signatures = tuple(sorted(name for name in plan.dropped if name.endswith(SIGNATURES)))
    if signatures:
        log.note(f"{target.name}: left out {', '.join(signatures)}: they sign another RECORD")
    return Rewritten(target, size, plan.record, tuple(sorted(plan.dropped)))


def require_apart(wheels: Iterable[tuple[Path, Path]]) -> None:
    """Raise UsageError when two wheels, given with the path that each gets, would become one file."""
    seen: dict[Path, Path] = {}
    for source, target in wheels:
        if (other := seen.setdefault(target.resolve(), source)) != source:
            raise UsageError(
                f"{other} and {source} would both become {target}", tip="write them into different folders"
            )


def read_dist_info_files(source: Path) -> Mapping[str, bytes]:
    """Return all files of ``*.dist-info`` by their names without that folder; nothing else is inflated."""
    with WheelArchive.open(source) as archive:
        archive.require_sound()
        folders = dist_info_folders(entry.name for entry in archive.members)
        if len(folders) != 1:
            raise DataError(f"{source}: {len(folders)} .dist-info folders: a wheel has exactly one")
        inside = [entry for entry in archive.members if entry.name.startswith(folders[0] + "/")]
        if (size := sum(entry.size for entry in inside)) > _LARGEST_DIST_INFO:
            raise DataError(f"{source}: {folders[0]} has {size} bytes: too many for lists and licences")
        return {entry.name.partition("/")[2]: archive.read(entry) for entry in inside}


def _plan(archive: WheelArchive, edit: Edit) -> Plan:
    texts = _texts(archive)
    sizes = {entry.name: entry.size for entry in archive.members}
    try:
        return plan_edit(archive.path.name, sizes, texts, edit)
    except DataError as cause:
        raise DataError(f"{archive.path} cannot be edited") from cause


def _lead(archive: WheelArchive, edit: Edit) -> int:
    """Return up to where an archive stays as it is, whatever becomes of its dist-info files."""
    end = 0
    for entry in archive.entries:
        top = entry.name.partition("/")[0]
        named = entry.name in edit.members or top.endswith((".dist-info", ".data"))
        if entry.header != end or not entry.as_is or named:
            break
        end = entry.end
    return end


def _texts(archive: WheelArchive) -> dict[str, bytes]:
    folders = dist_info_folders(entry.name for entry in archive.members)
    wanted = {f"{folder}/{name}" for folder in folders for name in _TEXTS}
    found = {entry.name: archive.read(entry) for entry in archive.members if entry.name in wanted}
    if len(folders) == 1 and (missing := sorted(wanted - found.keys())):
        raise DataError(f"{archive.path}: {', '.join(missing)} is missing")
    return found


def _order(archive: WheelArchive, plan: Plan) -> Iterator[Entry]:
    """Yield the members of the source that stay: the dist-info folder last, in it RECORD."""
    entries = [entry for entry in archive.entries if entry.name not in plan.dropped]
    folder = dist_info_folders(entry.name for entry in entries)[0] + "/"
    yield from (entry for entry in entries if not entry.name.startswith(folder))
    yield from (e for e in entries if e.name.startswith(folder) and e.name != folder + "RECORD")


def _write(archive: WheelArchive, plan: Plan, sink: Sink) -> int:
    """Write the archive; return its size."""
    directory = []
    left = dict(plan.texts)
    about = {entry.name: entry for entry in archive.members}
    folder = dist_info_folders(about)[0]
    date = about[f"{folder}/WHEEL"]
    record = plan.renamed(f"{folder}/RECORD")

    def put(name: str, content: bytes, old: Entry | None) -> None:
        entry, data = records.new_entry(name, content, date=date.date, time=date.time)
        if old is not None and not stat.S_ISLNK(old.mode):
            entry = entry._replace(external=old.external, made_by=old.made_by, system=old.system)
        directory.append(records.central_entry(entry, sink.place))
        sink.write(records.local_header(entry))
        sink.write(data)

    def keep(entry: Entry) -> None:
        name = plan.renamed(entry.name)
        whole = entry.as_is and name == entry.name
        if name != entry.name:
            entry = entry.renamed(name)
        directory.append(records.central_entry(entry, sink.place))
        if whole:
            sink.copy(entry.header, entry.end)
        else:
            sink.write(records.local_header(entry))
            sink.copy(entry.data, entry.data + entry.compressed)

    for entry in _order(archive, plan):
        name = plan.renamed(entry.name)
        if name in left:
            put(name, left.pop(name), entry)
        else:
            keep(entry)
    last = left.pop(record, None)
    for name in sorted(left):
        put(name, left[name], None)
    if last is not None:
        put(record, last, about[f"{folder}/RECORD"])
    else:
        keep(about[f"{folder}/RECORD"])
    place = sink.place
    listing = b"".join(directory)
    sink.write(listing + records.end_records(len(directory), len(listing), place))
    sink.finish()
    return sink.place
