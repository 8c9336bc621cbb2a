"""Scan a wheel in one pass that serves every check: digests, RECORD, METADATA, WHEEL, device code.

Each member is inflated once; what is wrong with one is a fault in the result, so that
a report can name all of them. Memory: about 64 MiB a thread, whatever the wheel's size (a
larger member with device code goes through a temporary file).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from rocm_wheels.core import DataError, explain_error
from rocm_wheels.wheels.archive import WheelArchive, get_text_limit
from rocm_wheels.wheels.device_code.code_objects import (
    CodeObject,
    list_named_archives,
    may_hold_code,
    read_code_objects,
)
from rocm_wheels.wheels.dist_info import (
    RecordEntry,
    WheelFormat,
    WheelMetadata,
    WheelName,
    compare_wheel_record,
    encode_record_digest,
    is_spelling_fault,
    read_dist_info,
)
from rocm_wheels.wheels.elf import read_loader_info

_DIST_INFO_FILES = ("METADATA", "WHEEL", "RECORD")


@dataclass(frozen=True)
class ScannedMember:
    """A file of the wheel; ``digest`` is spelled as in RECORD, ``recorded`` is its line there."""

    name: str
    size: int
    digest: str
    recorded: RecordEntry | None


@dataclass(frozen=True)
class WheelScan:
    """What one pass found.

    ``device_code`` has the members that hold some, ``moved_code`` those whose code was moved out, with
    the ``.kpack`` archives that they name, ``run_paths`` the ELF libraries with entries of DT_RUNPATH or
    DT_RPATH, ``needed`` what ELF libraries are linked to, ``texts`` the members that were asked for with
    ``keep``. A part that could not be read is None, and ``faults`` says why; ``damaged_members`` are the
    members that cannot be relied on. No faults means: every member is whole and listed, and name, METADATA,
    WHEEL and folder agree. ``repairable`` is what PyPI refuses beyond that, and what a rewritten wheel no
    longer has.
    """

    path: Path
    size: int
    sha256: str
    members: tuple[ScannedMember, ...]
    name: WheelName | None
    metadata: WheelMetadata | None
    format: WheelFormat | None
    device_code: Mapping[str, tuple[CodeObject, ...]]
    texts: Mapping[str, bytes]
    faults: tuple[str, ...]
    run_paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    moved_code: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    damaged_members: frozenset[str] = frozenset()
    repairable: tuple[str, ...] = ()

    @property
    def breaking_faults(self) -> tuple[str, ...]:
        """The faults but those of spelling alone: right digests in hex, at which no installer looks."""
        return tuple(fault for fault in self.faults if not is_spelling_fault(fault))


@dataclass(frozen=True)
class _MemberReading:
    """What the reader of one member returned."""

    text: bytes | None = None
    code: tuple[CodeObject, ...] = ()
    moved_code: tuple[str, ...] = ()
    run_paths: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    fault: str | None = None


def scan_wheel(path: Path, *, keep: tuple[str, ...] = (), device_code: bool = True) -> WheelScan:
    """Read a wheel once; ``keep`` are patterns (``*/_rocm_init.py``) of members whose content is wanted.

    Without ``device_code`` none is looked for, and nothing is said of run paths and of code elsewhere.
    DataError only when it is not there or is no archive at all.
    """

    def choose_reader(name: str, head: bytes) -> Callable[[memoryview], _MemberReading] | None:
        if _is_dist_info(name) or any(fnmatchcase(name, pattern) for pattern in keep):
            return lambda data: _read_text(data, name, path)
        if device_code and may_hold_code(name, head):
            return lambda data: _read_code(data, f"{path}: {name}")
        return None

    with WheelArchive.open(path) as archive:
        unsound = archive.list_unsound_members()
        repairable = tuple(f"{path}: {fault}" for fault in archive.faults if fault.is_repairable)
        contents = archive.read_all(choose_reader, digest=True)
        size, file_digest = archive.size, archive.compute_sha256()
    faults = [f"{path}: {name}: {fault}" if name else f"{path}: {fault}" for name, fault in unsound.items()]
    unreadable = {c.name: c.fault or (c.result.fault if c.result else None) for c in contents}
    faults += [fault for fault in unreadable.values() if fault]
    texts = {c.name: c.result.text for c in contents if c.result and c.result.text is not None}
    dist_info = read_dist_info(path.name, [content.name for content in contents], texts)
    intact = {c.name: (c.size, c.sha256) for c in contents if c.sha256 is not None}
    broken = {content.name for content in contents} - intact.keys()
    if dist_info.record is not None:
        listed = [entry for entry in dist_info.record if entry.path not in broken]
        dist_info.faults.extend(compare_wheel_record(listed, intact, record=f"{dist_info.folder}/RECORD"))
    recorded = {entry.path: entry for entry in dist_info.record or ()}
    return WheelScan(
        path=path,
        size=size,
        sha256=file_digest,
        members=tuple(
            ScannedMember(member, length, encode_record_digest(sha256), recorded.get(member))
            for member, (length, sha256) in intact.items()
        ),
        name=dist_info.name,
        metadata=dist_info.metadata,
        format=dist_info.format,
        device_code={c.name: c.result.code for c in contents if c.result and c.result.code},
        texts=texts,
        run_paths={c.name: c.result.run_paths for c in contents if c.result and c.result.run_paths},
        needed={c.name: c.result.needed for c in contents if c.result and c.result.needed},
        moved_code={c.name: c.result.moved_code for c in contents if c.result and c.result.moved_code},
        faults=(*faults, *(f"{path}: {fault}" for fault in dist_info.faults)),
        repairable=repairable,
        damaged_members=frozenset(unsound.keys() - {""})
        | {name for name, fault in unreadable.items() if fault},
    )


def _is_dist_info(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder.endswith(".dist-info") and file in _DIST_INFO_FILES


def _read_text(data: memoryview, name: str, wheel: Path) -> _MemberReading:
    if len(data) > get_text_limit(name):
        return _MemberReading(fault=f"{wheel}: {name}: {len(data)} bytes are too many for such a file")
    return _MemberReading(text=bytes(data))


def _read_code(data: memoryview, name: str) -> _MemberReading:
    try:
        loading = read_loader_info(data, name)
        return _MemberReading(
            code=tuple(read_code_objects(data, name)),
            moved_code=list_named_archives(data, name),
            run_paths=loading.search_paths if loading else (),
            needed=loading.needed if loading else (),
        )
    except DataError as fault:
        return _MemberReading(fault=explain_error(fault))
