"""Rewrite a wheel with other dist-info files, or a few others of its files; every other member copied as
it is.

The compressed bytes of a member that is not touched go from file to file as one extent with
their neighbours; only METADATA, WHEEL and RECORD are inflated, and only what is new is hashed. The same
input gives the same bytes: what is new has the date of the source's WHEEL and a fixed level.

``copy_file_range`` copies inside the kernel, and shares the blocks instead where the file system has
reflinks and the range is aligned (btrfs, xfs). Where it cannot, or the system has none, the bytes are read
and written. Holes of a sparse file stay holes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from rocm_wheels.core import errors, files, log
from rocm_wheels.wheels import dist_info, sbom, scan, statement, stored_member, zip_format
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import EditPlan, WheelEdit, get_edited_name, make_record_entry, plan_wheel_edit

_MOST_AT_ONCE = 64 << 20  # so that a copy that is no longer wanted ends soon
_READ_PIECE = 1 << 20
# what a kernel or file system answers that does not do it this way: another way can
_UNSUPPORTED_ERRORS = {
    errno.EXDEV,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EINVAL,
    errno.EPERM,
    errno.EBADF,
    errno.ETXTBSY,
    errno.EOVERFLOW,
}


class RangeCopier:
    """Copies ranges from a file to the place where another stands; remembers whether the kernel can do it.

    ``target`` is written through its descriptor only: flush what a buffer holds before.
    """

    def __init__(self, source: int, target: int) -> None:
        self.stopped = False
        self._source = source
        self._target = target
        status = os.fstat(source)
        blocks = getattr(status, "st_blocks", None)  # of 512 bytes, whatever the file system's own are
        self._sparse = blocks is not None and hasattr(os, "SEEK_DATA") and blocks * 512 < status.st_size
        self._copies_inside = hasattr(os, "copy_file_range")

    def copy_range(self, begin: int, end: int) -> None:
        """Copy bytes ``begin`` to ``end`` of the source."""
        while self._sparse and begin < end:
            data = self._seek_next(begin, os.SEEK_DATA, end)
            os.lseek(self._target, data - begin, os.SEEK_CUR)
            begin = self._seek_next(data, os.SEEK_HOLE, end) if data < end else end
            self._copy_bytes(data, begin)
        self._copy_bytes(begin, end)

    def _seek_next(self, begin: int, whence: int, end: int) -> int:
        """Return where the next data or hole begins; ``end`` when there is none before."""
        try:
            return min(os.lseek(self._source, begin, whence), end)
        except OSError as failure:
            if failure.errno != errno.ENXIO:
                raise
            return end  # behind the last data

    def _copy_bytes(self, begin: int, end: int) -> None:
        while begin < end and not self.stopped:
            size = min(end - begin, _MOST_AT_ONCE)
            copied = self._copy_file_range(begin, size) if self._copies_inside else 0
            self._copies_inside = copied > 0  # some file systems answer 0 instead of an error
            begin += copied or self._read_and_write(begin, size)

    def write(self, content: bytes | bytearray | memoryview) -> None:
        """Write all bytes, in as many calls as it takes."""
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(self._target, remaining) :]

    def _copy_file_range(self, begin: int, size: int) -> int:
        try:
            return os.copy_file_range(self._source, self._target, size, offset_src=begin)
        except OSError as failure:
            if failure.errno not in _UNSUPPORTED_ERRORS:
                raise
            return 0

    def _read_and_write(self, begin: int, size: int) -> int:
        os.lseek(self._source, begin, os.SEEK_SET)
        piece = os.read(self._source, min(size, _READ_PIECE))
        if not piece:
            raise OSError(errno.EIO, "the wheel became shorter while it was read")
        self.write(piece)
        return len(piece)


class ArchiveWriter:
    """A file that is written front to back from bytes and from ranges of another file.

    Ranges that follow each other there are joined to one copy, and so are bytes to one write.
    ``position`` is where the next byte goes.
    """

    def __init__(self, source: int, target: int) -> None:
        self.position = 0
        self._copier = RangeCopier(source, target)
        self._target = target
        self._begin = self._end = 0
        self._bytes = bytearray()
        self._ahead: Thread | None = None
        self._copied = 0  # bytes of the source that the target already begins with
        self._failure: OSError | None = None

    @classmethod
    @contextmanager
    def open(cls, source: int, target: int, name: Path) -> Iterator[ArchiveWriter]:
        """Give a writer; at the end nothing is written any more. What the disk refuses has the ``name``."""
        sink = cls(source, target)
        try:
            with errors.name_failed_file(name):
                yield sink
        finally:
            sink._copier.stopped = True
            sink._join_copy_ahead()

    def copy_ahead(self, end: int) -> None:
        """Copy the source up to ``end`` meanwhile: the file will most likely begin with that."""
        if not hasattr(os, "pread") or not end:
            return  # what reads the source meanwhile moves the place where we read

        def copy_in_thread() -> None:
            try:
                self._copier.copy_range(0, end)
                if not self._copier.stopped:
                    os.fsync(self._target)  # the disk needs longer than the copy
            except OSError as failure:
                self._failure = failure

        self._copied = end
        self._ahead = Thread(target=copy_in_thread)
        self._ahead.start()

    def _join_copy_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.join()
            self._ahead = None

    def copy_range(self, begin: int, end: int) -> None:
        """Take over a range of the source."""
        if end == begin:
            return
        if self._bytes or (self._end and begin != self._end):
            self.flush()
        if not self._end:
            self._begin = begin
        self._end = end
        self.position += end - begin

    def copy_from(self, descriptor: int, begin: int, end: int) -> None:
        """Take over a range of another open file."""
        self.flush()
        RangeCopier(descriptor, self._target).copy_range(begin, end)
        self.position += end - begin

    def write_pieces(self, pieces: Iterable[bytes | memoryview]) -> None:
        """Write large pieces, which may be of mapped files."""
        self.flush()
        for piece in pieces:
            self._copier.write(piece)
            files.release_mapped_pages(memoryview(piece))
            self.position += len(piece)

    def write(self, content: bytes) -> None:
        """Write bytes."""
        if self._end:
            self.flush()
        self._bytes += content
        self.position += len(content)

    def flush(self) -> None:
        """Hand on what is waiting."""
        if self._ahead is not None:
            self._join_copy_ahead()
            if self._failure:
                raise self._failure
            if self._begin == 0 and self._copied <= self._end:
                self._begin = self._copied
            else:  # it does not begin with that
                os.lseek(self._target, 0, os.SEEK_SET)
                os.ftruncate(self._target, 0)
        if self._end:
            self._copier.copy_range(self._begin, self._end)
        self._copier.write(self._bytes)
        self._begin = self._end = 0
        self._bytes = bytearray()


_LARGEST_DIST_INFO = 128 << 20


@dataclass(frozen=True)
class PendingWheel:
    """A wheel that is written, and not yet there for others; ``step`` made it of those of ``origins``."""

    path: Path
    hidden: files.HiddenFile
    origins: Sequence[statement.WheelOrigin | None]
    step: str
    contained: Sequence[sbom.PackagePart] = ()

    def commit(self, *, replace: bool = False) -> Path:
        """Give it its name, and its statement; return its path. One that exists with the same bytes is left.

        DataError for other bytes.
        """
        self.hidden.commit(replace=replace, name=self.path.name)
        statement.write_step_statement(self.origins, self.path, self.step, self.contained)
        return self.path


def rewrite_wheel(
    source: Path | WheelArchive,
    folder: Path,
    edit: WheelEdit,
    *,
    replace: bool = False,
    others: Sequence[Path] = (),
) -> Path:
    """Write ``source`` as ``edit`` makes it into ``folder``, under the name that follows; return its path.

    The file is there whole or not at all. One that exists with the same bytes is left, one with
    other bytes only replaced with ``replace``. DataError for a wheel that is damaged, hostile, or whose
    RECORD does not fit; UsageError for an edit that makes no wheel.

    Where the wheel has a statement beside it, and so have the ``others`` that it is made of, the new one gets
    one that names the step (``edit.step``).
    """
    with begin_rewrite(source, folder, edit) as begun:
        return begun.stage(edit, others=others).commit(replace=replace)


@dataclass(frozen=True)
class BegunRewrite:
    """A wheel whose rewriting has begun: what will not change is copied meanwhile (``begin_rewrite``)."""

    archive: WheelArchive
    hidden: files.HiddenFile
    sink: ArchiveWriter
    folder: Path

    def stage(self, edit: WheelEdit, *, others: Sequence[Path] = ()) -> PendingWheel:
        """Write the wheel as ``edit`` makes it, and leave it to the caller to commit it; once only.

        Raises as ``rewrite_wheel``.
        """
        source = self.archive.path
        wheels = () if edit.parts is not None else (source, *others)
        origins = [statement.read_origin(wheel) for wheel in wheels]
        target = self.folder / get_edited_name(source.name, edit)
        try:
            plan = plan_wheel_edit(self.archive, edit)
        except errors.DataError as cause:
            raise errors.DataError(f"{source} cannot be edited") from cause
        scan.require_whole(self.archive)
        members = _list_members(self.archive, plan, edit.stored)
        write_archive(self.sink, members, plain_modes=edit.plain_modes)
        self.archive.require_unchanged()
        signatures = sorted(name for name in plan.dropped if name.endswith(dist_info.SIGNATURE_SUFFIXES))
        if signatures:
            log.log_note(f"{target.name}: left out {', '.join(signatures)}: they sign another RECORD")
        return PendingWheel(target, self.hidden, origins, edit.step or "edit", edit.contained)


@contextmanager
def begin_rewrite(
    source: Path | WheelArchive, folder: Path, edit: WheelEdit | None = None
) -> Iterator[BegunRewrite]:
    """Begin to rewrite a wheel into ``folder``; nothing is there before what is staged is committed.

    ``edit`` tells which members will change, None: none but those of the dist-info folder. An open wheel that
    was hashed is not read again. DataError for a wheel that is damaged or hostile.
    """
    with nullcontext(source) if isinstance(source, WheelArchive) else WheelArchive.open(source) as archive:
        edit = edit or WheelEdit()
        target = folder / get_edited_name(archive.path.name, edit)
        with (
            files.open_hidden_file(target) as hidden,
            ArchiveWriter.open(archive.descriptor, hidden.descriptor, target) as sink,
        ):
            sink.copy_ahead(_find_unchanged_end(archive, edit))
            yield BegunRewrite(archive, hidden, sink, folder)


@contextmanager
def stage_new_wheel(
    target: Path,
    stored: Mapping[str, stored_member.StoredMember],
    texts: Mapping[str, bytes],
    *,
    origins: Sequence[statement.WheelOrigin | None],
    step: str,
) -> Iterator[PendingWheel]:
    """Write a wheel of members and dist-info files (by their whole names) that are at hand; with RECORD.

    ``step`` made it of the wheels of ``origins``. All members have the date of ``DEFAULT_EPOCH``, so that the
    same ones give the same bytes.
    """
    date, time = zip_format.FIXED_DATE
    record = f"{dist_info.list_dist_info_folders(texts)[0]}/RECORD"
    packed = {name: stored[name].entry.with_name(name) for name in sorted(stored)}
    rows = [dist_info.RecordEntry(name, stored[name].digest, entry.size) for name, entry in packed.items()]
    rows += [make_record_entry(name, content) for name, content in sorted(texts.items())]
    rows.append(dist_info.RecordEntry(record, "", None))
    listing = "".join(map(dist_info.format_record_row, rows)).encode()
    members = [NewMember(packed[name]._replace(date=date, time=time), stored[name]) for name in packed]
    for name, content in [*sorted(texts.items()), (record, listing)]:
        members.append(NewMember(*zip_format.make_zip_entry(name, content, date=date, time=time)))
    with files.open_hidden_file(target) as hidden:
        with ArchiveWriter.open(hidden.descriptor, hidden.descriptor, target) as sink:
            write_archive(sink, members)
        yield PendingWheel(target, hidden, origins, step)


def copy_wheel(source: Path, target: Path) -> None:
    """Copy a wheel that stays as it is, with its statement; DataError for one that no command publishes."""
    with WheelArchive.open(source) as archive:
        scan.require_whole(archive)  # else rewriting does
    files.copy_atomically(source, target)
    statement.copy_statement(source, target)


def require_distinct_targets(wheels: Iterable[tuple[Path, Path]]) -> None:
    """Raise UsageError when two wheels, given with the path that each gets, would become one file."""
    source_by_target: dict[Path, Path] = {}
    for source, target in wheels:
        if (other := source_by_target.setdefault(target.resolve(), source)) != source:
            raise errors.UsageError(
                f"{other} and {source} would both become {target}", tip="write them into different folders"
            )


def read_dist_info_files(source: Path) -> Mapping[str, bytes]:
    """Return all files of ``*.dist-info`` by their names without that folder; nothing else is inflated.

    DataError when METADATA, WHEEL or RECORD is not there or cannot be read.
    """
    with WheelArchive.open(source) as archive:
        folder = archive.info_folder
        inside = [entry for entry in archive.members if entry.name.startswith(f"{folder}/")]
        if (size := sum(entry.size for entry in inside)) > _LARGEST_DIST_INFO:
            raise errors.DataError(f"{source}: {folder} has {size} bytes: too many for lists and licences")
        texts = {entry.name: archive.read(entry) for entry in inside}
        judged = dist_info.read_dist_info(source.name, [entry.name for entry in archive.entries], texts)
    if faults := [fault for fault in judged.faults if not dist_info.is_repaired_fault(fault)]:
        raise errors.DataError("\n".join(f"{source}: {fault}" for fault in faults))
    return {name.partition("/")[2]: content for name, content in texts.items()}


def _find_unchanged_end(archive: WheelArchive, edit: WheelEdit) -> int:
    """Return up to where an archive stays as it is, whatever becomes of its dist-info files."""
    end = 0
    for entry in archive.entries:
        top = entry.name.partition("/")[0]
        changed = entry.name in edit.members or entry.name in edit.stored or entry.name in edit.drop_members
        named = changed or top.endswith((".dist-info", ".data"))
        if entry.header != end or not entry.keeps_header or named:
            break
        end = entry.end
    return end


class NewMember(NamedTuple):
    """A member to be written; ``content`` are its packed bytes, None: those of the source.

    ``keeps_header``: it stands there as it is, its own header included.
    """

    entry: zip_format.ZipEntry
    content: bytes | stored_member.StoredMember | None
    keeps_header: bool = False


def _list_members(
    archive: WheelArchive, plan: EditPlan, stored: Mapping[str, stored_member.StoredMember]
) -> Iterator[NewMember]:
    """Yield the members of the new wheel: those elsewhere, those of the dist-info folder, RECORD."""
    folder = archive.info_folder
    wheel, record = (archive.member_by_name[f"{folder}/{name}"] for name in ("WHEEL", "RECORD"))
    kept = [entry for entry in archive.entries if entry.name not in plan.dropped and entry is not record]
    outside = [entry for entry in kept if not entry.name.startswith(f"{folder}/")]
    inside = [entry for entry in kept if entry.name.startswith(f"{folder}/")]
    new_texts = plan.texts.keys() - {plan.get_new_name(entry.name) for entry in [*kept, record]}
    new_stored = stored.keys() - archive.member_by_name.keys()
    order: list[str | zip_format.ZipEntry] = [*outside, *sorted(new_stored), *inside]
    for old in [*order, *sorted(new_texts), record]:
        old_name, entry = (old, None) if isinstance(old, str) else (old.name, old)
        name = plan.get_new_name(old_name)
        if name in plan.texts:
            new, content = zip_format.make_zip_entry(name, plan.texts[name], date=wheel.date, time=wheel.time)
            if entry is not None:
                new = new._replace(external=entry.external, made_by=entry.made_by, system=entry.system)
            yield NewMember(new, content)
        elif old_name in stored:
            yield NewMember(stored[old_name].entry.with_name(name), stored[old_name])
        elif entry is not None:
            is_same = name == entry.name
            yield NewMember(entry if is_same else entry.with_name(name), None, is_same and entry.keeps_header)


def write_archive(sink: ArchiveWriter, members: Iterable[NewMember], *, plain_modes: bool = False) -> None:
    """Write members and directory. ``plain_modes``: as ``WheelEdit`` has it."""
    directory = []
    for entry, content, keeps_header in members:
        listed = entry
        if plain_modes and stat.S_ISREG(entry.mode):
            mode = stat.S_IFREG | (0o755 if entry.mode & 0o100 else 0o644)
            listed = entry._replace(external=mode << 16)
        directory.append(zip_format.pack_central_entry(listed, sink.position))
        if keeps_header:
            sink.copy_range(entry.header, entry.end)
            continue
        sink.write(zip_format.pack_local_header(entry))
        if content is None:
            sink.copy_range(entry.data, entry.data + entry.compressed)
        elif isinstance(content, bytes):
            sink.write(content)
        elif content.pieces:
            sink.write_pieces(content.pieces)
        else:
            sink.copy_from(content.descriptor, content.offset, content.offset + entry.compressed)
    place, listing = sink.position, b"".join(directory)
    sink.write(listing + zip_format.pack_end_records(len(directory), len(listing), place))
    sink.flush()
