"""Scan a wheel in one pass that serves every check: digests, RECORD, METADATA, WHEEL, libraries, device code.

Each member is inflated once, and everything that checks look at is read from it then: what the loader reads
of a library, its sections, its device code, text that should not be there. What is wrong with a member is a
fault in the result, so that a report can name all of them. Memory: about 64 MiB a thread, whatever the
wheel's size (a larger member with device code goes through a temporary file).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rocm_wheels.binaries import elf, loader, pe
from rocm_wheels.core import errors, files
from rocm_wheels.device_code import code_objects, fat_library, kernel_databases
from rocm_wheels.wheels.archive import MemberContent, WheelArchive, get_text_limit
from rocm_wheels.wheels.dist_info import (
    DEVICE_FILES,
    DistInfo,
    RecordEntry,
    WheelFormat,
    WheelMetadata,
    WheelName,
    compare_wheel_record,
    encode_record_digest,
    get_fault_kind,
    is_repaired_fault,
    is_spelling_fault,
    read_dist_info,
)
from rocm_wheels.wheels.hazards import Hazard, InstalledContents, find_hazards, is_startup_file, list_contents
from rocm_wheels.wheels.leaks import Leak, find_library_leaks, find_text_leaks

_MOST_SHOWN = 20
_DIST_INFO_FILES = (
    "METADATA",
    "WHEEL",
    "RECORD",
    "entry_points.txt",
    "variant.json",
    "sources.lock.json",
    DEVICE_FILES,
)


@dataclass(frozen=True, slots=True)
class ScannedMember:
    """A file of the wheel; ``digest`` is spelled as in RECORD, ``recorded`` is its line there."""

    name: str
    size: int
    digest: str
    recorded: RecordEntry | None


@dataclass(frozen=True)
class WheelScan:
    """What one pass found.

    ``device_code`` has the members that hold some, ``moved_code`` those whose code was moved out, with the
    ``.kpack`` archives that they name, ``split_libraries`` what their records say, ``binaries`` the ELF
    programs and libraries for the host, ``imports`` the PE files with the DLLs that they import, ``machines``
    what PE files, and ELF files that are not 64-bit little-endian, are for, ``texts`` the members that were
    asked for with ``keep``. ``target_lists``: the targets that a library of torch
    states as text; ``kernel_lists``: the files of a kernel database that its list for a target names;
    ``leaks``: what ``find_text_leaks`` and ``find_library_leaks`` found, where it was asked for. A part that
    could not be read is None, and ``faults`` says why; ``damaged_members`` are the members that cannot be
    relied on. No faults means: every member is whole and listed, and name, METADATA, WHEEL and folder agree.
    ``repairable`` is what PyPI refuses beyond that, and what a rewritten wheel no longer has. ``hazards``:
    what is dangerous, however whole the wheel is.
    """

    path: Path
    size: int
    sha256: str
    members: tuple[ScannedMember, ...]
    name: WheelName | None
    metadata: WheelMetadata | None
    format: WheelFormat | None
    device_code: Mapping[str, tuple[code_objects.CodeObject, ...]]
    texts: Mapping[str, bytes]
    faults: tuple[str, ...]
    binaries: Mapping[str, loader.HostBinary] = field(default_factory=dict)
    imports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    machines: Mapping[str, str] = field(default_factory=dict)
    target_lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kernel_lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    leaks: Mapping[str, tuple[Leak, ...]] = field(default_factory=dict)
    moved_code: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    split_libraries: Mapping[str, fat_library.SplitLibrary] = field(default_factory=dict)
    damaged_members: frozenset[str] = frozenset()
    repairable: tuple[str, ...] = ()
    hazards: tuple[Hazard, ...] = ()

    def list_refusals(self, startup_files: Collection[str]) -> list[str]:
        """Return why no command publishes or installs it: faults that make it another wheel, and hazards.

        ``startup_files``: globs of those ``.pth`` (their names) that may be inside.
        """
        hazards = [
            f"{self.path}: {hazard.member}: {hazard.text}"
            for hazard in self.hazards
            if hazard.severity == "error"
            or not any(fnmatchcase(hazard.member.rpartition("/")[2], name) for name in startup_files)
        ]
        return [*(fault for fault in self.faults if get_fault_kind(fault) == "archive"), *hazards]

    @property
    def contents(self) -> InstalledContents:
        """What installers make of it."""
        return list_contents((member.name for member in self.members), self.texts)

    @property
    def breaking_faults(self) -> tuple[str, ...]:
        """The faults but those of spelling alone: right digests in hex, at which no installer looks."""
        return tuple(fault for fault in self.faults if not is_spelling_fault(fault))


@dataclass(frozen=True)
class _MemberReading:
    """What the reader of one member returned."""

    text: bytes | None = None
    code: tuple[code_objects.CodeObject, ...] = ()
    moved_code: tuple[str, ...] = ()
    split_library: fat_library.SplitLibrary | None = None
    binary: loader.HostBinary | None = None
    imports: tuple[str, ...] | None = None
    machine: str | None = None
    targets: tuple[str, ...] = ()
    kernels: tuple[str, ...] | None = None
    leaks: tuple[Leak, ...] = ()
    fault: str | None = None


@dataclass(frozen=True)
class _Judgement:
    """What the content of a wheel says together: dist-info files, faults, hazards, and what is damaged."""

    dist_info: DistInfo
    faults: tuple[str, ...]
    hazards: tuple[Hazard, ...]
    damaged_members: frozenset[str]


def _judge_contents(
    archive: WheelArchive, contents: Sequence[MemberContent[_MemberReading]], texts: Mapping[str, bytes]
) -> _Judgement:
    path, unsound = archive.path, archive.list_unsound_members()
    faults = [f"{path}: {name}: {fault}" if name else f"{path}: {fault}" for name, fault in unsound.items()]
    unreadable = {c.name: c.fault or (c.result.fault if c.result else None) for c in contents}
    faults += [fault for fault in unreadable.values() if fault]
    dist_info = read_dist_info(path.name, [entry.name for entry in archive.entries], texts)
    differences = list(dist_info.faults)
    if dist_info.record is not None:
        # those of a damaged member say nothing more
        broken = {content.name for content in contents if content.sha256 is None}
        intact = {content.name: (content.size, content.sha256) for content in contents if content.sha256}
        listed = (entry for entry in dist_info.record if entry.path not in broken)
        differences += compare_wheel_record(listed, intact, record=f"{dist_info.folder}/RECORD")
    faults += [f"{path}: {difference}" for difference in differences]
    project = dist_info.name.name if dist_info.name else ""
    hazards = find_hazards(archive.entries, texts, project)
    damaged = {*unsound, *(name for name, fault in unreadable.items() if fault)} - {""}
    return _Judgement(dist_info, tuple(faults), tuple(hazards), frozenset(damaged))


def require_whole(archive: WheelArchive) -> None:
    """Raise DataError for a wheel that no command publishes, but for what rewriting puts right in it.

    All is inflated for that, unless ``read_all`` has hashed it: what is not as RECORD says would be listed
    anew, as if it were right.
    """
    contents = archive.hashed or archive.read_all(lambda _name, _head: None, digest=True)
    broken = {content.name for content in contents if content.fault}
    texts = {
        entry.name: archive.read(entry)
        for entry in archive.members
        if entry.name not in broken and (_is_dist_info(entry.name) or is_startup_file(entry.name))
    }
    judgement = _judge_contents(archive, contents, texts)
    refusals = [fault for fault in judgement.faults if not is_repaired_fault(fault)]
    for hazard in judgement.hazards:
        # what installers refuse, or put where it does harm; other texts harm only who prints them
        is_placed = hazard.kind != "metadata-text" or hazard.member.endswith("/entry_points.txt")
        if hazard.severity == "error" and is_placed:
            refusals.append(f"{archive.path}: {hazard.member}: {hazard.text}")
    if refusals:
        raise errors.DataError("\n".join(refusals[:_MOST_SHOWN]), tip="build it, or fetch it, again")


def scan_wheel(
    path: Path,
    *,
    keep: tuple[str, ...] = (),
    device_code: bool = True,
    leaks: bool = False,
    symbols: bool = False,
    sha256: str | None = None,
) -> WheelScan:
    """Read a wheel once; ``keep`` are patterns (``*/_rocm_init.py``) of members whose content is wanted.

    Without ``device_code`` no library is read: nothing is said of what it needs and holds. With ``leaks``,
    text files and the data of libraries are searched for credentials and builders' paths. With ``symbols``,
    the dynamic symbols of ELF libraries are read. ``sha256`` of the file is taken at its word where it is
    given. DataError only when the wheel is not there, is no archive at all, or changes meanwhile.
    """

    def choose_reader(name: str, head: bytes) -> Callable[[memoryview], _MemberReading] | None:
        is_text = _is_dist_info(name) or is_startup_file(name)
        if is_text or any(fnmatchcase(name, pattern) for pattern in keep):
            return lambda data: _read_text(data, name, path, leaks)
        if not device_code:
            return None
        if kernel_databases.get_kernel_list_target(name):
            return lambda data: _read_kernels(data, f"{path}: {name}")
        if code_objects.may_hold_code(name, head) or head.startswith((elf.ELF_MAGIC, pe.PE_MAGIC)):
            return lambda data: _read_library(data, f"{path}: {name}", leaks=leaks, symbols=symbols)
        if leaks and b"\0" not in head:
            return lambda data: _MemberReading(leaks=find_text_leaks(data))
        return None

    with WheelArchive.open(path, as_it_is=True) as archive:
        contents = archive.read_all(choose_reader, digest=True)
        readings = {content.name: content.result for content in contents if content.result is not None}
        texts = {name: reading.text for name, reading in readings.items() if reading.text is not None}
        judgement = _judge_contents(archive, contents, texts)
        file_digest = sha256 or archive.compute_sha256()
        archive.require_unchanged()

    def select(part: str, *, empty: bool = False) -> dict[str, Any]:
        """Return a part of what was read, by member, of those that have it; ``empty``: or an empty one."""
        values = {name: getattr(reading, part) for name, reading in readings.items()}
        return {name: value for name, value in values.items() if value or (empty and value is not None)}

    dist_info = judgement.dist_info
    recorded = {entry.path: entry for entry in dist_info.record or ()}
    return WheelScan(
        path=path,
        size=archive.size,
        sha256=file_digest,
        members=tuple(
            ScannedMember(c.name, c.size, encode_record_digest(c.sha256), recorded.get(c.name))
            for c in contents
            if c.sha256
        ),
        name=dist_info.name,
        metadata=dist_info.metadata,
        format=dist_info.format,
        device_code=select("code"),
        texts=texts,
        binaries=select("binary"),
        imports=select("imports", empty=True),
        machines=select("machine"),
        target_lists=select("targets"),
        kernel_lists=select("kernels", empty=True),
        leaks=select("leaks"),
        moved_code=select("moved_code"),
        split_libraries=select("split_library"),
        faults=judgement.faults,
        repairable=tuple(f"{path}: {fault}" for fault in archive.faults if fault.is_repairable),
        hazards=judgement.hazards,
        damaged_members=judgement.damaged_members,
    )


def _is_dist_info(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder.endswith(".dist-info") and file in _DIST_INFO_FILES


def _read_text(data: memoryview, name: str, wheel: Path, leaks: bool) -> _MemberReading:
    if len(data) > get_text_limit(name):
        return _MemberReading(fault=f"{wheel}: {name}: {len(data)} bytes are too many for such a file")
    return _MemberReading(text=bytes(data), leaks=find_text_leaks(data) if leaks else ())


def _read_kernels(data: memoryview, name: str) -> _MemberReading:
    try:
        return _MemberReading(kernels=kernel_databases.read_kernel_list(data, name))
    except errors.DataError as fault:
        return _MemberReading(fault=errors.explain_error(fault))


def _read_library(data: memoryview, name: str, *, leaks: bool, symbols: bool) -> _MemberReading:
    try:
        binary = loader.read_host_binary(data, name, for_changes=False, symbols=symbols)
        imports = pe.read_pe_imports(data, name)
        files.release_mapped_pages(data)
        targets = _read_target_list(data, name, binary) if binary is not None else ()
        library_leaks: tuple[Leak, ...] = ()
        if leaks and (binary is not None or imports is not None):
            sections = binary.sections if binary is not None else None
            library_leaks = find_library_leaks(data, name, sections)
        files.release_mapped_pages(data)
        archives = code_objects.list_named_archives(data, name)
        return _MemberReading(
            code=tuple(code_objects.read_code_objects(data, name)),
            moved_code=archives,
            split_library=fat_library.read_split_library(data, name) if archives else None,
            binary=binary,
            imports=imports,
            machine=elf.read_narrow_machine(data) or pe.read_pe_architecture(data, name),
            targets=targets,
            leaks=library_leaks,
        )
    except errors.DataError as fault:
        return _MemberReading(fault=errors.explain_error(fault))


_STATING_LIBRARY = re.compile(r"(?:^|/)libtorch_python\.so$")
_LONGEST_LIST = 1 << 12  # of the targets that torch was configured for
_TARGET_ID = rb"gfx[0-9a-f]+(?::[a-z]+[+-])*"
_TARGET_LIST = re.compile(rb"(?<![^\0])%s(?:[ ;,]+%s)*(?=\0)" % (_TARGET_ID, _TARGET_ID))


def _read_target_list(data: memoryview, name: str, binary: loader.HostBinary) -> tuple[str, ...]:
    """Return the targets that torch was configured for: PYTORCH_ROCM_ARCH, a text of libtorch_python.

    Source: pytorch, torch/CMakeLists.txt (``CUDA_ARCH_FLAGS``).
    """
    if not _STATING_LIBRARY.search(name):
        return ()
    span, searched = elf.BinarySpan(data, name), 0
    for section in binary.sections:
        if section.name.startswith(".rodata"):
            part = span.get_part(section.offset, section.size, f"section {section.name}")
            searched += section.size
            span.require_limit(searched, len(span), "bytes in its sections .rodata")
            text = max((match[0] for match in _TARGET_LIST.finditer(part)), key=len, default=b"")
            span.require_limit(len(text), _LONGEST_LIST, "characters in a list of targets")
            if text:
                return tuple(re.split("[ ;,]+", text.decode("ascii")))
    return ()
