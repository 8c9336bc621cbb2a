"""Read what loaders read of a library: ELF's dynamic section and flags, PE's import tables; change the first.

Changes are pieces of bytes at places of the file (``BytePatch``), of the same length as what they replace:
nothing moves, and device code stays where it is. What does not fit is for ``patchelf``.

Sources: System V ABI, "Dynamic Section"; Linux Standard Base, "Symbol Versioning"; ld.so(8); Microsoft, "PE
Format", "Import Directory Table" and "Delay-Load Directory Table".
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rocm_wheels.binaries import elf, limits
from rocm_wheels.core import deflate, errors, files

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC_ENTRY = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_VERDEF = struct.Struct("<HHHHIII")
_VERDAUX = struct.Struct("<II")
_HASH = struct.Struct("<II")
_GNU_HASH = struct.Struct("<IIII")
_WORD = struct.Struct("<I")
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_PF_X = 1
_SHT_DYNSYM = 11
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_RPATH = 4, 5, 6, 10, 15
_DT_TEXTREL, _DT_RUNPATH, _DT_FLAGS, _DT_GNU_HASH, _DT_VERSYM = 22, 29, 30, 0x6FFFFEF5, 0x6FFFFFF0
_DF_TEXTREL = 4
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
# entries whose value is a place in the string table
_DT_NAMES = {1, 14, _DT_RPATH, _DT_RUNPATH, 0x6FFFFEFC, 0x6FFFFEFB, 0x6FFFFEFA, 0x7FFFFFFD, 0x7FFFFFFF}
_DEBUG_SECTIONS = (".debug_", ".zdebug_")
_READ_PIECE = 1 << 20
_NAMES_A_BLOCK = 1 << 12
_RELEASE_AFTER = 1 << 16  # symbols, whose names have some megabytes
_READ_NAME = 256
_STB_LOCAL, _STB_WEAK, _STT_TLS, _SHN_ABS = 0, 2, 6, 0xFFF1
_VERSION_IS_BASE, _VERSION_IS_WEAK, _VERSION_INDEX = 1, 2, 0x7FFF

ELF_ARCHITECTURES: Mapping[int, str] = {62: "x86_64", 183: "aarch64"}
"""Machines that HIP has hosts for, as platform tags spell them."""


@dataclass(frozen=True)
class BytePatch:
    """Bytes that stand at a place of a file from now on; the file keeps its length."""

    offset: int
    content: bytes


@dataclass(frozen=True)
class RunPath:
    """DT_RPATH or DT_RUNPATH as written; ``is_shared``: other names are, or may be, kept in its text."""

    text: str
    is_rpath: bool
    text_at: int
    entry: int
    is_shared: bool

    @property
    def entries(self) -> tuple[str, ...]:
        """What stands between the colons. An empty one means the current folder to the loader."""
        return tuple(self.text.split(":")) if self.text else ()


class SymbolVersion(NamedTuple):
    """A version of symbols that a library must have; both are "" for symbols without one."""

    library: str
    name: str


@dataclass(frozen=True)
class SymbolNames:
    """Names of symbols, in compressed blocks of some thousand: libtensorflow_cc has 264,000, 41 MB long."""

    blocks: tuple[bytes, ...]

    def iterate_blocks(self) -> Iterator[list[bytes]]:
        """Yield the names, some thousand at a time."""
        for block in self.blocks:
            yield deflate.inflate_block(block).split(b"\0")

    def __iter__(self) -> Iterator[bytes]:
        """Yield the names one by one."""
        return chain.from_iterable(self.iterate_blocks())


@dataclass(frozen=True)
class DynamicSymbols:
    """What a library has for others, and what it must find: the names of its dynamic symbols.

    ``exported`` has them by version ("" without one), ``undefined`` and ``weak`` (which may stay undefined)
    by the version that is needed. ``versions`` are those that the library defines (.gnu.version_d),
    ``needed`` those without which the loader refuses it.
    """

    exported: Mapping[str, SymbolNames] = field(default_factory=dict)
    undefined: Mapping[SymbolVersion, SymbolNames] = field(default_factory=dict)
    weak: Mapping[SymbolVersion, SymbolNames] = field(default_factory=dict)
    versions: frozenset[str] = frozenset()
    needed: frozenset[SymbolVersion] = frozenset()

    def list_exported(self) -> set[tuple[str, str]]:
        """Return name and version ("" without one) of each symbol that it defines for others."""
        return {(_decode(name), version) for version, names in self.exported.items() for name in names}

    def select_undefined(self, versions: Iterable[SymbolVersion]) -> set[tuple[bytes, str]]:
        """Return name and version ("" without one) of each symbol of these versions that it must find."""
        return {(name, version.name) for version in versions for name in self.undefined[version]}


@dataclass(frozen=True)
class HostBinary:
    """A program or library for the host, as the loader sees it.

    ``versions``: by library, the symbol versions that it must have (.gnu.version_r). ``stack_flags_at``:
    where the flags of PT_GNU_STACK are, None without one: its stack is executable then, too. ``dynamic`` is
    the table of DT entries, from ``dynamic_at`` on. ``has_debug``: it has sections that
    stripping debug information takes away. ``symbols`` are None where they were not asked for.
    """

    machine: int
    loader: elf.LoaderInfo
    versions: Mapping[str, frozenset[str]]
    run_paths: tuple[RunPath, ...]
    has_executable_stack: bool
    stack_flags_at: int | None
    stack_flags: int
    dynamic_at: int
    dynamic: bytes
    sections: tuple[elf.BinarySection, ...] = ()
    has_text_relocations: bool = False
    symbols: DynamicSymbols | None = None

    @property
    def debug_size(self) -> int:
        """How many bytes are in sections that stripping debug information takes away."""
        return sum(section.size for section in self.sections if section.name.startswith(_DEBUG_SECTIONS))

    @property
    def has_debug(self) -> bool:
        """Tell whether it has such sections."""
        return any(section.name.startswith(_DEBUG_SECTIONS) for section in self.sections)

    @property
    def architecture(self) -> str:
        """The machine as platform tags spell it; its number where they have no name."""
        return ELF_ARCHITECTURES.get(self.machine, f"machine {self.machine}")


def read_host_binary(
    data: memoryview, name: str, *, for_changes: bool = True, symbols: bool = False
) -> HostBinary | None:
    """Read what the loader would; None for what it would not take: objects, device code, other files.

    Without ``for_changes``, symbols are not looked at for names that share the text of a run path: all are
    taken to. With ``symbols``, dynamic symbols are read. DataError when a table reaches past the end,
    LimitError when it is larger than any real one; ``name`` stands for the file.
    """
    loader = elf.read_loader_info(data, name)
    if loader is None:
        return None
    span = elf.BinarySpan(data, name)
    header = span.unpack_numbers(_HEADER, 0, "the ELF header")
    machine, programs_at, count = header[1], header[4], header[9]
    if machine == elf.EM_AMDGPU:
        return None
    segments = span.unpack_table(_PROGRAM_HEADER, programs_at, count, count, "the program headers")
    dynamic_segment = next((segment for segment in segments if segment[0] == _PT_DYNAMIC), None)
    entries: list[tuple[int, int]] = []
    dynamic_at, dynamic = 0, b""
    if dynamic_segment is not None:
        dynamic_at, size = dynamic_segment[2], dynamic_segment[5]
        entries = elf.read_dynamic_entries(span, dynamic_at, size)
        dynamic = bytes(span.get_part(dynamic_at, size - size % _DYNAMIC_ENTRY.size, "the dynamic section"))
    reader = _DynamicReader(span, segments, entries)
    stack = next((number for number, row in enumerate(segments) if row[0] == _PT_GNU_STACK), None)
    flags = _PF_X if stack is None else segments[stack][1]
    return HostBinary(
        machine=machine,
        loader=loader,
        versions=reader.read_versions(),
        run_paths=reader.read_run_paths(header if for_changes else None),
        has_executable_stack=bool(flags & _PF_X) and dynamic_segment is not None,
        stack_flags_at=None if stack is None else programs_at + stack * _PROGRAM_HEADER.size + 4,
        stack_flags=flags,
        dynamic_at=dynamic_at,
        dynamic=dynamic,
        sections=_read_named_sections(span, header),
        has_text_relocations=any(
            tag == _DT_TEXTREL or (tag == _DT_FLAGS and value & _DF_TEXTREL) for tag, value in entries
        ),
        symbols=reader.read_symbols(header) if symbols else None,
    )


def read_host_binary_file(path: Path, *, symbols: bool = False) -> HostBinary | None:
    """Read a file as ``read_host_binary`` does; None for one that breaks off: the loader will not take it.

    LimitError as there: the loader may well take such a file.
    """
    with path.open("rb") as file:
        if not elf.is_elf(file.read(8)):
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            try:
                return read_host_binary(data, str(path), symbols=symbols)
            except limits.LimitError:
                raise
            except errors.DataError:
                return None


def list_own_names(binaries: Mapping[str, HostBinary]) -> set[str]:
    """Return the names that others can need the libraries of a wheel by."""
    sonames = {binary.loader.soname for binary in binaries.values() if binary.loader.soname}
    return sonames | {member.rpartition("/")[2] for member in binaries}


def digest_loaded_bytes(path: Path) -> tuple[tuple[int, ...], ...]:
    """Return what the loader maps of a library: place, address, sizes and digest of each segment.

    The file's own header, which also says where the section table is, is left out. A file in which these
    are the same is loaded the same, device code included.
    """
    with path.open("rb") as file:
        header = _HEADER.unpack(file.read(_HEADER.size))
        file.seek(header[4])
        segments = [_PROGRAM_HEADER.unpack(file.read(_PROGRAM_HEADER.size)) for _ in range(header[9])]
        digests = []
        for kind, flags, offset, virtual, _, size, in_memory, _ in segments:
            if kind != _PT_LOAD:
                continue
            start = max(offset, _HEADER.size)
            digest = hashlib.sha256()
            file.seek(start)
            remaining = offset + size - start
            while remaining > 0 and (piece := file.read(min(remaining, _READ_PIECE))):
                digest.update(piece)
                remaining -= len(piece)
            value = int.from_bytes(digest.digest(), "big")
            digests.append((flags, offset, virtual, size, in_memory, value))
    return tuple(digests)


def plan_run_path(binary: HostBinary, texts: Sequence[str]) -> list[BytePatch] | None:
    """Return the patches that give each of ``run_paths`` a text ("": none); None when one does not fit."""
    patches: list[BytePatch] = []
    removed: set[int] = set()
    for run_path, text in zip(binary.run_paths, texts, strict=True):
        if text == run_path.text:
            continue
        content, size = _encode(text), len(_encode(run_path.text))
        if text and (len(content) > size or run_path.is_shared):
            return None
        if not text:
            removed.add(run_path.entry)
        if not run_path.is_shared:
            patches.append(BytePatch(run_path.text_at, content.ljust(size, b"\0")))
    if removed:
        rows = list(_DYNAMIC_ENTRY.iter_unpack(binary.dynamic))
        kept = [row for number, row in enumerate(rows) if number not in removed]
        content = b"".join(_DYNAMIC_ENTRY.pack(*row) for row in kept)
        patches.append(BytePatch(binary.dynamic_at, content.ljust(len(binary.dynamic), b"\0")))
    return patches


def plan_clear_stack(binary: HostBinary) -> list[BytePatch] | None:
    """Return the patch that takes PF_X from PT_GNU_STACK; None when there is no such header to change."""
    if binary.stack_flags_at is None:
        return None
    return [BytePatch(binary.stack_flags_at, struct.pack("<I", binary.stack_flags & ~_PF_X))]


def apply_patches(path: Path, patches: Sequence[BytePatch]) -> None:
    """Write patches into a file."""
    with path.open("r+b") as file:
        for patch in patches:
            file.seek(patch.offset)
            file.write(patch.content)


_PE_HEADER = struct.Struct("<4sHHIIIHH")
_PE_SECTION = struct.Struct("<8sIIIIIIHHI")
_PE_DIRECTORIES = {0x10B: 96, 0x20B: 112}  # by the magic of the optional header: where the directories begin
_PE_IMPORTS, _PE_DELAY_IMPORTS = 1, 13
_IMPORT = struct.Struct("<IIIII")
_DELAY_IMPORT = struct.Struct("<IIIIIIII")


def read_pe_imports(data: memoryview, name: str) -> tuple[str, ...] | None:
    """Return the DLLs that a PE file imports, at once or delayed, as spelled; None for another file.

    DataError when a table reaches past the end, LimitError when it is larger than any real one; ``name``
    stands for the file.
    """
    span = elf.BinarySpan(data, name)
    signature = elf.find_pe_signature(span) if span.starts_with(elf.PE_MAGIC) else None
    if signature is None:
        return None
    header = span.unpack_numbers(_PE_HEADER, signature, "the PE header")
    optional = signature + _PE_HEADER.size
    if not header[6]:
        return ()  # without an optional header it is no image that anything loads
    (magic,) = span.unpack_numbers(struct.Struct("<H"), optional, "the optional header")
    if magic not in _PE_DIRECTORIES:
        raise span.make_fault(f"an optional header of the unknown kind {magic:#x}")
    (count,) = span.unpack_numbers(struct.Struct("<I"), optional + _PE_DIRECTORIES[magic] - 4, "a count")
    rows_at, label = optional + header[6], "the section table"
    table = span.unpack_table(_PE_SECTION, rows_at, header[2], limits.MOST_IMAGE_SECTIONS, label)
    sections: list[tuple[int, int, int]] = [(row[2], max(row[1], row[3]), row[4]) for row in table]

    def find_offset(address: int) -> int:
        for virtual, size, offset in sections:
            if virtual <= address < virtual + size:
                return address - virtual + offset
        raise span.make_fault(f"the address {address:#x} is in no section")

    places: list[int] = []
    for directory, form, column in ((_PE_IMPORTS, _IMPORT, 3), (_PE_DELAY_IMPORTS, _DELAY_IMPORT, 1)):
        if directory >= count:
            continue
        place = optional + _PE_DIRECTORIES[magic] + 8 * directory
        address, size = span.unpack_numbers(struct.Struct("<II"), place, "a data directory")
        if not address or not size:
            continue
        at = find_offset(address)
        while (row := span.unpack_numbers(form, at, "the import table"))[column]:
            places.append(find_offset(row[column]))
            span.require_limit(len(places), limits.MOST_IMPORTS, "imported libraries")
            at += form.size
    names = span.read_names(data, places, limits.MOST_LIBRARY_NAME_BYTES, "names of imported libraries")
    return tuple(dict.fromkeys(names))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _read_bytes_at(data: memoryview, offset: int) -> bytes:
    """Return a NUL-terminated text however long it is: run paths of some kilobytes have been published."""
    size = _READ_NAME
    while True:
        piece = bytes(data[offset : offset + size])
        end = piece.find(b"\0")
        if end >= 0 or len(piece) < size:
            return piece[:end] if end >= 0 else piece
        size *= 4


def _read_named_sections(span: elf.BinarySpan, header: tuple[int, ...]) -> tuple[elf.BinarySection, ...]:
    """Return the sections that have bytes in the file; () without a section table, which no loader needs."""
    rows, names_index = _read_section_rows(span, header), header[12]
    if names_index >= len(rows):
        return ()
    return tuple(elf.make_elf_sections(span, rows, names_index))


def _read_section_rows(span: elf.BinarySpan, header: tuple[int, ...]) -> list[Any]:
    """Return the rows of the section table; [] without one."""
    sections_at, size, count = header[5], header[10], header[11]
    if not sections_at or size != _SECTION_HEADER.size:
        return []
    return span.unpack_table(_SECTION_HEADER, sections_at, count, limits.MOST_SECTIONS, "the section table")


_NO_VERSION = SymbolVersion("", "")
_VersionT = TypeVar("_VersionT")


class _NamePacker:
    """Collects names by the index of their version; of each no more than a block is not compressed yet."""

    def __init__(self) -> None:
        self._names: dict[int, list[bytes]] = {}
        self._blocks: dict[int, list[bytes]] = {}

    def add_name(self, index: int, name: bytes) -> None:
        names = self._names.setdefault(index, [])
        names.append(name)
        if len(names) == _NAMES_A_BLOCK:
            self._close_block(index)

    def pack_names(
        self, versions: Mapping[int, _VersionT], default: _VersionT
    ) -> dict[_VersionT, SymbolNames]:
        """Return names by version in place of its index; ``default`` has those of an index that none has."""
        for index in list(self._names):
            self._close_block(index)
        packed: dict[_VersionT, SymbolNames] = {}
        for index, blocks in self._blocks.items():
            version = versions.get(index, default)
            before = packed[version].blocks if version in packed else ()
            packed[version] = SymbolNames((*before, *blocks))
        return packed

    def _close_block(self, index: int) -> None:
        block = deflate.deflate_block(b"\0".join(self._names.pop(index)))
        self._blocks.setdefault(index, []).append(block)


class _NeededVersion(NamedTuple):
    """A version that a library must have; names are places in the string table."""

    library: int
    name: int
    number: int
    flags: int


class _DefinedVersion(NamedTuple):
    """A version that the library itself defines; names are places in the string table."""

    number: int
    flags: int
    names: tuple[int, ...]


class _DynamicReader:
    """Reads what the dynamic section points to."""

    def __init__(
        self, span: elf.BinarySpan, segments: Sequence[tuple[int, ...]], entries: Sequence[tuple[int, int]]
    ) -> None:
        self._span = span
        self._segments = segments
        self._entries = entries
        self._values = dict(reversed(entries))  # the first of each
        self._names_at = self._find_offset(self._values.get(_DT_STRTAB))
        self._links = 0  # of lists in the file, so that those that lead back to themselves end
        self._name_bytes = 0  # of versions, and of libraries that have them

    def read_versions(self) -> dict[str, frozenset[str]]:
        """Return .gnu.version_r: by library, the versions."""
        versions: dict[str, set[str]] = {}
        for need in self._read_needs():
            versions.setdefault(self._read_name(need.library), set()).add(self._read_name(need.name))
        return {library: frozenset(names) for library, names in versions.items()}

    def read_symbols(self, header: tuple[int, ...]) -> DynamicSymbols:
        """Return the dynamic symbols but local ones, as far as there are any that can be counted."""
        needs: dict[int, SymbolVersion] = {}
        needed: set[SymbolVersion] = set()
        for need in self._read_needs():
            version = SymbolVersion(self._read_name(need.library), self._read_name(need.name))
            needs[need.number & _VERSION_INDEX] = version
            if not need.flags & _VERSION_IS_WEAK:
                needed.add(version)
        # a definition has its own name first, then those of the versions that it succeeds
        definitions = {
            row.number & _VERSION_INDEX: self._read_name(row.names[0])
            for row in self._read_definitions()
            if row.names and not row.flags & _VERSION_IS_BASE
        }
        exported, undefined, weak = _NamePacker(), _NamePacker(), _NamePacker()
        size = 0
        for number, (index, name, info, section, value) in enumerate(self._iterate_symbols(header), 1):
            size += len(name)
            if number % _RELEASE_AFTER == 0:
                files.release_mapped_pages(self._span.data)
            self._span.require_limit(size, limits.MOST_SYMBOL_NAME_BYTES, "bytes in names of dynamic symbols")
            if not section:
                (weak if info >> 4 == _STB_WEAK else undefined).add_name(index, name)
            elif value or section == _SHN_ABS or info & 0xF == _STT_TLS:
                exported.add_name(index, name)
        return DynamicSymbols(
            exported.pack_names(definitions, ""),
            undefined.pack_names(needs, _NO_VERSION),
            weak.pack_names(needs, _NO_VERSION),
            frozenset(definitions.values()),
            frozenset(needed),
        )

    def _iterate_symbols(self, header: tuple[int, ...]) -> Iterator[tuple[int, bytes, int, int, int]]:
        """Yield version index, name, info, section and value of the dynamic symbols but local ones."""
        symbols_at = self._find_offset(self._values.get(_DT_SYMTAB))
        if symbols_at is None or self._names_at is None:
            return
        count = self._count_symbols(symbols_at, header)
        size = self._values.get(_DT_STRSZ, 0)
        self._span.require_limit(count, limits.MOST_SYMBOLS, "dynamic symbols")
        self._span.require_limit(size, limits.MOST_SYMBOL_NAME_BYTES, "bytes in names of dynamic symbols")
        table = self._span.get_part(symbols_at, count * _SYMBOL.size, "the dynamic symbol table")
        names = self._span.get_part(self._names_at, size, "the dynamic string table")
        versions_at = self._find_offset(self._values.get(_DT_VERSYM))
        versions = (0,) * count
        if versions_at is not None:
            versions = self._span.unpack_numbers(struct.Struct(f"<{count}H"), versions_at, "symbol versions")
        for version, (at, info, _, section, value, _) in zip(
            versions, _SYMBOL.iter_unpack(table), strict=True
        ):
            name = _read_bytes_at(names, at) if info >> 4 != _STB_LOCAL else b""
            if name:
                yield version & _VERSION_INDEX, name, info, section, value

    def _count_symbols(self, symbols_at: int, header: tuple[int, ...]) -> int:
        """Return how many dynamic symbols there are: nothing but tables beside theirs says so.

        DT_HASH has one place for each; DT_GNU_HASH ends with the last one that is defined, and does not count
        any others where none is; the section table, which no loader needs, says it outright.
        """
        hash_at = self._find_offset(self._values.get(_DT_HASH))
        if hash_at is not None:
            return int(self._span.unpack_numbers(_HASH, hash_at, "the hash table")[1])
        rows = _read_section_rows(self._span, header)
        sizes: list[int] = [row[5] for row in rows if row[1] == _SHT_DYNSYM and row[4] == symbols_at]
        hash_at = self._find_offset(self._values.get(_DT_GNU_HASH))
        counted = self._count_hashed_symbols(hash_at) if hash_at is not None else 0
        return max([counted, *(size // _SYMBOL.size for size in sizes)])

    def _count_hashed_symbols(self, hash_at: int) -> int:
        """Return the number behind the last symbol of DT_GNU_HASH, in whose chains an odd word is the end."""
        label = "the hash table"
        bucket_count, first, bloom_words, _ = self._span.unpack_numbers(_GNU_HASH, hash_at, label)
        buckets_at = hash_at + _GNU_HASH.size + 8 * bloom_words
        buckets = self._span.get_part(buckets_at, 4 * bucket_count, label)
        last = max((row[0] for row in _WORD.iter_unpack(buckets)), default=0)
        if last < first:
            return int(first)
        chain_at = buckets_at + 4 * bucket_count + 4 * (last - first)
        rest = self._span.data[chain_at : chain_at + 4 * (limits.MOST_SYMBOLS + 1)]
        for number, (word,) in enumerate(_WORD.iter_unpack(rest[: len(rest) - len(rest) % 4]), last + 1):
            if word & 1:
                return number
        raise self._span.make_fault(f"{label} of symbols has no end")

    def read_run_paths(self, header: tuple[int, ...] | None) -> tuple[RunPath, ...]:
        """Return DT_RPATH and DT_RUNPATH; with the file's header also whether other names share their text.

        That costs a look at all names.
        """
        paths = [(n, tag, v) for n, (tag, v) in enumerate(self._entries) if tag in (_DT_RPATH, _DT_RUNPATH)]
        if not paths or self._names_at is None:
            return ()
        places = self._list_name_places(header) if header is not None else None
        run_paths = []
        for number, tag, value in paths:
            offset = self._names_at + value
            text = _decode(_read_bytes_at(self._span.data[: offset + limits.LONGEST_RUN_PATH + 1], offset))
            self._span.require_limit(len(text), limits.LONGEST_RUN_PATH, "characters of a run path")
            shared = places is None or self._is_shared(number, value, len(_encode(text)), places)
            run_paths.append(RunPath(text, tag == _DT_RPATH, offset, number, shared))
        return tuple(run_paths)

    def _is_shared(self, number: int, value: int, size: int, places: set[int]) -> bool:
        """Tell whether another name begins in the text that holds a run path, before or within it."""
        assert self._names_at is not None
        data = self._span.data
        start = value
        while start and data[self._names_at + start - 1]:
            start -= 1
            self._span.require_limit(value - start, limits.LONGEST_RUN_PATH, "characters before a run path")
        others = {v for n, (tag, v) in enumerate(self._entries) if tag in _DT_NAMES and n != number}
        return any(place in places or place in others for place in range(start, value + size))

    def _list_name_places(self, header: tuple[int, ...]) -> set[int] | None:
        """Return where symbols' and versions' names begin; None when nobody can say how many there are."""
        symbols = [row for row in _read_section_rows(self._span, header) if row[1] == _SHT_DYNSYM]
        if len(symbols) != 1:
            return None
        at, count = symbols[0][4], symbols[0][5] // _SYMBOL.size
        self._span.require_limit(count, limits.MOST_SYMBOLS, "dynamic symbols")
        table = self._span.get_part(at, count * _SYMBOL.size, ".dynsym")
        places = {row[0] for row in _SYMBOL.iter_unpack(table)}
        for need in self._read_needs():
            places |= {need.library, need.name}
        return places.union(*(definition.names for definition in self._read_definitions()))

    def _read_needs(self) -> Iterator[_NeededVersion]:
        """Yield the versions that libraries must have."""
        for at, (_, count, library, first, _) in self._walk(_DT_VERNEED, _DT_VERNEEDNUM, _VERNEED):
            place = at + first
            for _ in range(count):
                _, flags, index, name, following = self._unpack(_VERNAUX, place)
                yield _NeededVersion(library, name, index, flags)
                if not following:
                    break
                place += following

    def _read_definitions(self) -> Iterator[_DefinedVersion]:
        """Yield the versions that the library itself defines."""
        for at, (_, flags, index, count, _, first, _) in self._walk(_DT_VERDEF, _DT_VERDEFNUM, _VERDEF):
            place = at + first
            names: list[int] = []
            for _ in range(count):
                name, following = self._unpack(_VERDAUX, place)
                names.append(name)
                if not following:
                    break
                place += following
            yield _DefinedVersion(index, flags, tuple(names))

    def _walk(self, table: int, number: int, form: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the entries of a list that each say how far off the next is, with where they are."""
        at, count = self._find_offset(self._values.get(table)), self._values.get(number, 0)
        self._links = self._name_bytes = 0
        for _ in range(count if at is not None else 0):
            assert at is not None
            entry = self._unpack(form, at)
            yield at, entry
            if not entry[-1]:
                break
            at += entry[-1]

    def _unpack(self, form: struct.Struct, offset: int) -> tuple[int, ...]:
        self._links += 1
        self._span.require_limit(self._links, limits.MOST_VERSIONS, "symbol versions")
        row: tuple[int, ...] = self._span.unpack_numbers(form, offset, "the table of symbol versions")
        return row

    def _read_name(self, value: int) -> str:
        if self._names_at is None:
            return ""
        name = elf.read_text_at(self._span.data, self._names_at + value)
        self._name_bytes += len(name)
        self._span.require_limit(
            self._name_bytes, limits.MOST_LIBRARY_NAME_BYTES, "characters in names of symbol versions"
        )
        return name

    def _find_offset(self, address: int | None) -> int | None:
        """Return where in the file an address is loaded from."""
        for kind, _, offset, virtual, _, in_file, *_ in self._segments:
            if address is not None and kind == _PT_LOAD and virtual <= address < virtual + in_file:
                return address - virtual + offset
        return None
