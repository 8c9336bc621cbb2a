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
from rocm_wheels.wheels.archive.appearing import open_hidden_file
from rocm_wheels.wheels.archive.copying import ArchiveWriter
from rocm_wheels.wheels.archive.edits import WheelEdit, EditPlan, get_edited_name, plan_wheel_edit
from rocm_wheels.wheels.archive.records import ZipEntry
from rocm_wheels.wheels.dist_info import list_dist_info_folders
from rocm_wheels.wheels.members import WheelArchive, hash_file
from rocm_wheels.wheels.record import SIGNATURE_SUFFIXES, RecordEntry

_LARGEST_DIST_INFO = 128 << 20
_EDITED_TEXTS = ("METADATA", "WHEEL", "RECORD")


@dataclass(frozen=True)
class RewrittenWheel:
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
        return hash_file(self.path)


def rewrite_wheel(source: Path, folder: Path, edit: WheelEdit, *, replace: bool = False) -> RewrittenWheel:
    """Write ``source`` as ``edit`` makes it into ``folder``, under the name that follows.

    The file is there whole or not at all. One that exists with the same bytes is left, one with
    other bytes only replaced with ``replace``. DataError for a wheel that is damaged, hostile, or whose
    RECORD does not fit; UsageError for an edit that makes no wheel.
    """
    with WheelArchive.open(source) as archive:
        archive.require_sound()
        archive.require_links_inside()
        target = folder / get_edited_name(source.name, edit)
        with open_hidden_file(target) as hidden:
            with ArchiveWriter(archive.descriptor, hidden.descriptor, target) as sink:
                sink.copy_ahead(
                    _find_unchanged_end(archive, edit)
                )  # while we look at METADATA, WHEEL and RECORD
                plan = _plan_rewrite(archive, edit)
                size = _write_archive(archive, plan, sink)
            archive.require_unchanged()
            hidden.commit(replace=replace)
    signatures = tuple(sorted(name for name in plan.dropped if name.endswith(SIGNATURE_SUFFIXES)))
    if signatures:
        log.log_note(f"{target.name}: left out {', '.join(signatures)}: they sign another RECORD")
    return RewrittenWheel(target, size, plan.record, tuple(sorted(plan.dropped)))


def require_distinct_targets(wheels: Iterable[tuple[Path, Path]]) -> None:
    """Raise UsageError when two wheels, given with the path that each gets, would become one file."""
    source_by_target: dict[Path, Path] = {}
    for source, target in wheels:
        if (other := source_by_target.setdefault(target.resolve(), source)) != source:
            raise UsageError(
                f"{other} and {source} would both become {target}", tip="write them into different folders"
            )


def read_dist_info_files(source: Path) -> Mapping[str, bytes]:
    """Return all files of ``*.dist-info`` by their names without that folder; nothing else is inflated."""
    with WheelArchive.open(source) as archive:
        archive.require_sound()
        folders = list_dist_info_folders(entry.name for entry in archive.members)
        if len(folders) != 1:
            raise DataError(f"{source}: {len(folders)} .dist-info folders: a wheel has exactly one")
        inside = [entry for entry in archive.members if entry.name.startswith(folders[0] + "/")]
        if (size := sum(entry.size for entry in inside)) > _LARGEST_DIST_INFO:
            raise DataError(f"{source}: {folders[0]} has {size} bytes: too many for lists and licences")
        return {entry.name.partition("/")[2]: archive.read(entry) for entry in inside}


def _plan_rewrite(archive: WheelArchive, edit: WheelEdit) -> EditPlan:
    texts = _read_texts(archive)
    sizes = {entry.name: entry.size for entry in archive.members}
    try:
        return plan_wheel_edit(archive.path.name, sizes, texts, edit)
    except DataError as cause:
        raise DataError(f"{archive.path} cannot be edited") from cause


def _find_unchanged_end(archive: WheelArchive, edit: WheelEdit) -> int:
    """Return up to where an archive stays as it is, whatever becomes of its dist-info files."""
    end = 0
    for entry in archive.entries:
        top = entry.name.partition("/")[0]
        named = entry.name in edit.members or top.endswith((".dist-info", ".data"))
        if entry.header != end or not entry.keeps_header or named:
            break
        end = entry.end
    return end


def _read_texts(archive: WheelArchive) -> dict[str, bytes]:
    folders = list_dist_info_folders(entry.name for entry in archive.members)
    names = {f"{folder}/{name}" for folder in folders for name in _EDITED_TEXTS}
    texts = {entry.name: archive.read(entry) for entry in archive.members if entry.name in names}
    if len(folders) == 1 and (missing := sorted(names - texts.keys())):
        raise DataError(f"{archive.path}: {', '.join(missing)} is missing")
    return texts


def _order_members(archive: WheelArchive, plan: EditPlan) -> Iterator[ZipEntry]:
    """Yield the members of the source that stay: the dist-info folder last, in it RECORD."""
    entries = [entry for entry in archive.entries if entry.name not in plan.dropped]
    folder = list_dist_info_folders(entry.name for entry in entries)[0] + "/"
    yield from (entry for entry in entries if not entry.name.startswith(folder))
    yield from (e for e in entries if e.name.startswith(folder) and e.name != folder + "RECORD")


def _write_archive(archive: WheelArchive, plan: EditPlan, sink: ArchiveWriter) -> int:
    """Write the archive; return its size."""
    directory = []
    remaining = dict(plan.texts)
    entry_by_name = {entry.name: entry for entry in archive.members}
    folder = list_dist_info_folders(entry_by_name)[0]
    date = entry_by_name[f"{folder}/WHEEL"]
    record = plan.get_new_name(f"{folder}/RECORD")

    def put_member(name: str, content: bytes, old: ZipEntry | None) -> None:
        entry, data = records.make_zip_entry(name, content, date=date.date, time=date.time)
        if old is not None and not stat.S_ISLNK(old.mode):
            entry = entry._replace(external=old.external, made_by=old.made_by, system=old.system)
        directory.append(records.pack_central_entry(entry, sink.position))
        sink.write(records.pack_local_header(entry))
        sink.write(data)

    def keep_member(entry: ZipEntry) -> None:
        name = plan.get_new_name(entry.name)
        is_unchanged = entry.keeps_header and name == entry.name
        if name != entry.name:
            entry = entry.with_name(name)
        directory.append(records.pack_central_entry(entry, sink.position))
        if is_unchanged:
            sink.copy_range(entry.header, entry.end)
        else:
            sink.write(records.pack_local_header(entry))
            sink.copy_range(entry.data, entry.data + entry.compressed)

    for entry in _order_members(archive, plan):
        name = plan.get_new_name(entry.name)
        if name in remaining:
            put_member(name, remaining.pop(name), entry)
        else:
            keep_member(entry)
    last = remaining.pop(record, None)
    for name in sorted(remaining):
        put_member(name, remaining[name], None)
    if last is not None:
        put_member(record, last, entry_by_name[f"{folder}/RECORD"])
    else:
        keep_member(entry_by_name[f"{folder}/RECORD"])
    place = sink.position
    listing = b"".join(directory)
    sink.write(listing + records.pack_end_records(len(directory), len(listing), place))
    sink.flush()
    return sink.position
