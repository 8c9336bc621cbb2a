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
from functools import partial
from pathlib import Path
from typing import Any

from rocm_wheels.binaries import elf, loader, pe
from rocm_wheels.core import errors, files
from rocm_wheels.device_code import code_objects, fat_library, kernel_databases
from rocm_wheels.wheels import dist_info
from rocm_wheels.wheels.archive import MemberContent, WheelArchive, get_text_limit
from rocm_wheels.wheels.hazards import Hazard, InstalledContents, find_hazards, is_startup_file, list_contents
from rocm_wheels.wheels.leaks import Leak, find_library_leaks, find_text_leaks
from rocm_wheels.wheels.sbom import SBOM_MEMBER

_MOST_SHOWN = 20
_DIST_INFO_FILES = (
    "METADATA",
    "WHEEL",
    "RECORD",
    "entry_points.txt",
    "variant.json",
    "sources.lock.json",
    SBOM_MEMBER,
    dist_info.DEVICE_FILES,
)


@dataclass(frozen=True, slots=True)
class ScannedMember:
    """A file of the wheel; ``digest`` is spelled as in RECORD, ``recorded`` is its line there."""

    name: str
    size: int
    digest: str
    recorded: dist_info.RecordEntry | None


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
    name: dist_info.WheelName | None
    metadata: dist_info.WheelMetadata | None
    format: dist_info.WheelFormat | None
    faults: tuple[str, ...]
    device_code: Mapping[str, tuple[code_objects.CodeObject, ...]] = field(default_factory=dict)
    texts: Mapping[str, bytes] = field(default_factory=dict)
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
        return [*(fault for fault in self.faults if dist_info.get_fault_kind(fault) == "archive"), *hazards]

    @property
    def contents(self) -> InstalledContents:
        """What installers make of it."""
        return list_contents((member.name for member in self.members), self.texts)

    @property
    def breaking_faults(self) -> tuple[str, ...]:
        """The faults but those of spelling alone: right digests in hex, at which no installer looks."""
        return tuple(fault for fault in self.faults if not dist_info.is_spelling_fault(fault))


@dataclass(frozen=True)
class _MemberReading:
    """What the reader of one member returned; its parts have the names of ``WheelScan``'s."""

    texts: bytes | None = None
    device_code: tuple[code_objects.CodeObject, ...] | None = None
    moved_code: tuple[str, ...] | None = None
    split_libraries: fat_library.SplitLibrary | None = None
    binaries: loader.HostBinary | None = None
    imports: tuple[str, ...] | None = None
    machines: str | None = None
    target_lists: tuple[str, ...] | None = None
    kernel_lists: tuple[str, ...] | None = None
    leaks: tuple[Leak, ...] | None = None


_Reader = Callable[[memoryview], _MemberReading]


def _judge_contents(
    archive: WheelArchive,
    contents: Sequence[MemberContent[Any]],
    unread: Mapping[str, str],
    parts: Mapping[str, Any],
    sha256: str = "",
) -> WheelScan:
    """Say what the content of a wheel says together.

    ``unread`` are members whose reader failed, and why; ``parts`` is what the readers returned, by the names
    of ``WheelScan``'s parts and by member.
    """
    path, unsound, texts = archive.path, archive.list_unsound_members(), parts.get("texts", {})
    faults = [f"{path}: {name}: {fault}" if name else f"{path}: {fault}" for name, fault in unsound.items()]
    unreadable = {content.name: content.fault or unread.get(content.name) for content in contents}
    faults += [fault for fault in unreadable.values() if fault]
    info = dist_info.read_dist_info(path.name, [entry.name for entry in archive.entries], texts)
    differences = list(info.faults)
    if info.record is not None:
        # those of a damaged member say nothing more
        broken = {content.name for content in contents if content.sha256 is None}
        intact = {content.name: (content.size, content.sha256) for content in contents if content.sha256}
        listed = (entry for entry in info.record if entry.path not in broken)
        differences += dist_info.compare_wheel_record(listed, intact, record=f"{info.folder}/RECORD")
    project = info.name.name if info.name else ""
    recorded = {entry.path: entry for entry in info.record or ()}
    return WheelScan(
        path=path,
        size=archive.size,
        sha256=sha256,
        members=tuple(
            ScannedMember(c.name, c.size, dist_info.encode_record_digest(c.sha256), recorded.get(c.name))
            for c in contents
            if c.sha256
        ),
        name=info.name,
        metadata=info.metadata,
        format=info.format,
        faults=(*faults, *(f"{path}: {difference}" for difference in differences)),
        repairable=tuple(f"{path}: {fault}" for fault in archive.faults if fault.is_repairable),
        hazards=tuple(find_hazards(archive.entries, texts, project)),
        damaged_members=frozenset({*unsound, *(n for n, fault in unreadable.items() if fault)} - {""}),
        **parts,
    )


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
    scan = _judge_contents(archive, contents, {}, {"texts": texts})
    refusals = [fault for fault in scan.faults if not dist_info.is_repaired_fault(fault)]
    for hazard in scan.hazards:
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
) -> WheelScan:
    """Read a wheel once; ``keep`` are patterns (``*/_rocm_init.py``) of members whose content is wanted.

    Without ``device_code`` no library is read: nothing is said of what it needs and holds. With ``leaks``,
    text files and the data of libraries are searched for credentials and builders' paths. With ``symbols``,
    the dynamic symbols of ELF libraries are read. DataError only when the wheel is not there, is no archive
    at all, or changes meanwhile.
    """

    def choose_kind(name: str, head: bytes) -> _Reader | None:
        place = f"{path}: {name}"
        is_text = _is_dist_info(name) or is_startup_file(name)
        if is_text or any(fnmatchcase(name, pattern) for pattern in keep):
            return lambda data: _read_text(data, place, leaks=leaks)
        if not device_code:
            return None
        if kernel_databases.get_kernel_list_target(name):
            return lambda data: _MemberReading(kernel_lists=kernel_databases.read_kernel_list(data, place))
        if code_objects.may_hold_code(name, head) or head.startswith((elf.ELF_MAGIC, pe.PE_MAGIC)):
            return lambda data: _read_library(data, place, leaks=leaks, symbols=symbols)
        if leaks and b"\0" not in head:
            return lambda data: _MemberReading(leaks=find_text_leaks(data) or None)
        return None

    def choose_reader(name: str, head: bytes) -> Callable[[memoryview], _MemberReading | str] | None:
        read = choose_kind(name, head)
        return partial(_read_or_explain, read) if read is not None else None

    with WheelArchive.open(path, as_it_is=True) as archive:
        contents = archive.read_all(choose_reader, digest=True)
        unread: dict[str, str] = {}
        parts: dict[str, dict[str, Any]] = {}
        for content in contents:
            if isinstance(content.result, str):
                unread[content.name] = content.result
            elif content.result is not None:
                for part, value in vars(content.result).items():
                    if value is not None:
                        parts.setdefault(part, {})[content.name] = value
        scan = _judge_contents(archive, contents, unread, parts, archive.compute_sha256())
        archive.require_unchanged()
    return scan


def _is_dist_info(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder.endswith(".dist-info") and file in _DIST_INFO_FILES


def _read_or_explain(read: _Reader, data: memoryview) -> _MemberReading | str:
    try:
        return read(data)
    except errors.DataError as fault:
        return errors.explain_error(fault)


def _read_text(data: memoryview, place: str, *, leaks: bool) -> _MemberReading:
    if len(data) > get_text_limit(place):
        raise errors.DataError(f"{place}: {len(data)} bytes are too many for such a file")
    return _MemberReading(texts=bytes(data), leaks=(find_text_leaks(data) or None) if leaks else None)


def _read_library(data: memoryview, place: str, *, leaks: bool, symbols: bool) -> _MemberReading:
    binary = loader.read_host_binary(data, place, for_changes=False, symbols=symbols)
    imports = pe.read_pe_imports(data, place)
    files.release_mapped_pages(data)
    targets = _read_target_list(data, place, binary) if binary is not None else ()
    library_leaks: tuple[Leak, ...] = ()
    if leaks and (binary is not None or imports is not None):
        library_leaks = find_library_leaks(data, place, binary.sections if binary is not None else None)
    files.release_mapped_pages(data)
    archives = code_objects.list_named_archives(data, place)
    return _MemberReading(
        device_code=tuple(code_objects.read_code_objects(data, place)) or None,
        moved_code=archives or None,
        split_libraries=fat_library.read_split_library(data, place) if archives else None,
        binaries=binary,
        imports=imports,
        machines=elf.read_narrow_machine(data) or pe.read_pe_architecture(data, place),
        target_lists=targets or None,
        leaks=library_leaks or None,
    )


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
