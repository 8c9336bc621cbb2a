"""Read what the loader reads of an ELF library: dynamic section, symbols, flags; change what it finds there.

Changes are pieces of bytes at places of the file (``BytePatch``), of the same length as what they replace:
nothing moves, and device code stays where it is. What does not fit is for ``patchelf``.

Sources: System V ABI, "Dynamic Section"; Linux Standard Base, "Symbol Versioning"; ld.so(8).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from rocm_wheels.binaries import elf, limits
from rocm_wheels.core import deflate, files

_SYMBOL = struct.Struct("<IBBHQQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_VERDEF = struct.Struct("<HHHHIII")
_VERDAUX = struct.Struct("<II")
_HASH = struct.Struct("<II")
_GNU_HASH = struct.Struct("<IIII")
_WORD = struct.Struct("<I")
_PF_X = 1
_DT_HASH, _DT_SYMTAB, _DT_STRSZ, _DT_TEXTREL, _DT_FLAGS = 4, 6, 10, 22, 30
_DT_GNU_HASH, _DT_VERSYM = 0x6FFFFEF5, 0x6FFFFFF0
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_DF_TEXTREL = 4
# entries whose value is a place in the string table; the last ones are of filters, audits and dependencies
_DT_NAMES = {elf.DT_NEEDED, elf.DT_SONAME, elf.DT_RPATH, elf.DT_RUNPATH}
_DT_NAMES |= {0x6FFFFEFC, 0x6FFFFEFB, 0x6FFFFEFA, 0x7FFFFFFD, 0x7FFFFFFF}
_DEBUG_SECTIONS = (".debug_", ".zdebug_")
_RELEASE_AFTER = 1 << 16  # symbols, whose names have some megabytes
_READ_NAME = 256
_NAMES_A_BLOCK = 1 << 12
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
    """Names of symbols, in compressed blocks of some thousand: libtensorflow_cc has 264,000, 41 MB long.

    Compressed, for those of all libraries of a wheel are held at once, and names may share a text: what they
    take together is no part of the wheel's bytes.
    """

    blocks: tuple[bytes, ...]

    def iterate_blocks(self) -> Iterator[list[bytes]]:
        """Yield the names, some thousand at a time."""
        for block in self.blocks:
            yield deflate.load_codec().decompress(block).split(b"\0")

    def __iter__(self) -> Iterator[bytes]:
        """Yield the names one by one."""
        return chain.from_iterable(self.iterate_blocks())


@dataclass(frozen=True)
class DynamicSymbols:
    """What a library has for others, and what it must find: the names of its dynamic symbols.

    ``exported`` has them by version ("" without one), ``undefined`` by the version that is needed: without
    weak ones, which may stay so. ``versions`` are those that the library defines (.gnu.version_d),
    ``needed`` those without which the loader refuses it.
    """

    exported: Mapping[str, SymbolNames] = field(default_factory=dict)
    undefined: Mapping[SymbolVersion, SymbolNames] = field(default_factory=dict)
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

    ``versions``: by library, the symbol versions that it must have (.gnu.version_r). ``dynamic`` is the table
    of DT entries, from ``dynamic_at`` on. ``symbols`` are None where they were not asked for.
    """

    machine: int
    loader: elf.LoaderInfo
    versions: Mapping[str, frozenset[str]]
    run_paths: tuple[RunPath, ...]
    has_executable_stack: bool
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
    file = elf.ElfFile(elf.BinarySpan(data, name)) if elf.is_elf(data) else None
    if file is None or not file.is_loadable:
        return None
    reader = _DynamicReader(file)
    dynamic_at, dynamic = 0, b""
    if file.dynamic is not None:
        dynamic_at, size = file.dynamic.offset, file.dynamic.file_size
        size -= size % elf.DYNAMIC_FORM.size
        dynamic = bytes(file.span.get_part(dynamic_at, size, "the dynamic section"))
    # without such a header the kernel gives an executable one
    stack_flags = next((row.flags for row in file.segments if row.kind == elf.PT_GNU_STACK), _PF_X)
    return HostBinary(
        machine=file.header.machine,
        loader=elf.describe_loading(file),
        versions=reader.read_versions(),
        run_paths=reader.read_run_paths(for_changes=for_changes),
        has_executable_stack=bool(stack_flags & _PF_X) and file.dynamic is not None,
        dynamic_at=dynamic_at,
        dynamic=dynamic,
        sections=tuple(file.read_sections()) if file.section_rows else (),
        has_text_relocations=any(
            tag == _DT_TEXTREL or (tag == _DT_FLAGS and value & _DF_TEXTREL) for tag, value in file.entries
        ),
        symbols=reader.read_symbols() if symbols else None,
    )


def read_host_binary_file(path: Path, *, symbols: bool = False) -> HostBinary | None:
    """Read a file as ``read_host_binary`` does; None for one that breaks off: the loader will not take it.

    LimitError as there: the loader may well take such a file.
    """
    return elf.read_mapped(path, lambda data, name: read_host_binary(data, name, symbols=symbols))


def list_own_names(binaries: Mapping[str, HostBinary]) -> set[str]:
    """Return the names that others can need the libraries of a wheel by."""
    sonames = {binary.loader.soname for binary in binaries.values() if binary.loader.soname}
    return sonames | {member.rpartition("/")[2] for member in binaries}


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
        rows = list(elf.DYNAMIC_FORM.iter_unpack(binary.dynamic))
        kept = [row for number, row in enumerate(rows) if number not in removed]
        content = b"".join(elf.DYNAMIC_FORM.pack(*row) for row in kept)
        patches.append(BytePatch(binary.dynamic_at, content.ljust(len(binary.dynamic), b"\0")))
    return patches


def apply_patches(path: Path, patches: Sequence[BytePatch]) -> None:
    """Write patches into a file."""
    with path.open("r+b") as file:
        for patch in patches:
            file.seek(patch.offset)
            file.write(patch.content)


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


_NO_VERSION = SymbolVersion("", "")
_VersionT = TypeVar("_VersionT")


class _NamePacker:
    """Collects names by the index of their version; of each no more than a block is not compressed yet."""

    def __init__(self) -> None:
        self._names = defaultdict[int, list[bytes]](list)
        self._blocks = defaultdict[int, list[bytes]](list)

    def add_name(self, index: int, name: bytes) -> None:
        names = self._names[index]
        names.append(name)
        if len(names) == _NAMES_A_BLOCK:
            self._close_block(index)

    def pack_names(
        self, versions: Mapping[int, _VersionT], default: _VersionT
    ) -> dict[_VersionT, SymbolNames]:
        """Return names by version in place of its index; ``default`` has those of an index that none has."""
        for index in list(self._names):
            self._close_block(index)
        blocks = defaultdict[_VersionT, list[bytes]](list)
        for index, closed in self._blocks.items():
            blocks[versions.get(index, default)] += closed
        return {version: SymbolNames(tuple(closed)) for version, closed in blocks.items()}

    def _close_block(self, index: int) -> None:
        self._blocks[index].append(deflate.load_codec().compress(b"\0".join(self._names.pop(index)), 1))


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

    def __init__(self, file: elf.ElfFile) -> None:
        self._file = file
        self._span = file.span
        self._links = 0  # of lists in the file, so that those that lead back to themselves end
        self._name_bytes = 0  # of versions, and of libraries that have them

    def _find_table(self, tag: int) -> int | None:
        return self._file.find_offset(self._file.values.get(tag))

    def read_versions(self) -> dict[str, frozenset[str]]:
        """Return .gnu.version_r: by library, the versions."""
        versions: dict[str, set[str]] = {}
        for need in self._read_needs():
            versions.setdefault(self._read_name(need.library), set()).add(self._read_name(need.name))
        return {library: frozenset(names) for library, names in versions.items()}

    def read_symbols(self) -> DynamicSymbols:
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
        exported, undefined = _NamePacker(), _NamePacker()
        size, most = 0, max(limits.MOST_SYMBOL_NAME_BYTES, self._file.values.get(_DT_STRSZ, 0))
        for number, (index, name, info, section, value) in enumerate(self._iterate_symbols(), 1):
            size += len(name)
            if number % _RELEASE_AFTER == 0:
                files.release_mapped_pages(self._span.data)
            self._span.require_limit(size, most, "bytes in names of dynamic symbols")
            if not section and info >> 4 != _STB_WEAK:
                undefined.add_name(index, name)
            elif section and (value or section == _SHN_ABS or info & 0xF == _STT_TLS):
                exported.add_name(index, name)
        return DynamicSymbols(
            exported.pack_names(definitions, ""),
            undefined.pack_names(needs, _NO_VERSION),
            frozenset(definitions.values()),
            frozenset(needed),
        )

    def _iterate_symbols(self) -> Iterator[tuple[int, bytes, int, int, int]]:
        """Yield version index, name, info, section and value of the dynamic symbols but local ones."""
        symbols_at, names_at = self._find_table(_DT_SYMTAB), self._file.names_at
        if symbols_at is None or names_at is None:
            return
        count, size = self._count_symbols(symbols_at), self._file.values.get(_DT_STRSZ, 0)
        self._span.require_limit(count, limits.MOST_SYMBOLS, "dynamic symbols")
        self._span.require_limit(size, limits.MOST_SYMBOL_TEXT, "bytes in names of dynamic symbols")
        table = self._span.get_part(symbols_at, count * _SYMBOL.size, "the dynamic symbol table")
        names = self._span.get_part(names_at, size, "the dynamic string table")
        versions_at = self._find_table(_DT_VERSYM)
        versions = (0,) * count
        if versions_at is not None:
            versions = self._span.unpack_numbers(struct.Struct(f"<{count}H"), versions_at, "symbol versions")
        for version, row in zip(versions, _SYMBOL.iter_unpack(table), strict=True):
            at, info, _, section, value, _ = row
            if info >> 4 != _STB_LOCAL and (name := _read_bytes_at(names, at)):
                yield version & _VERSION_INDEX, name, info, section, value

    def _count_symbols(self, symbols_at: int) -> int:
        """Return how many dynamic symbols there are: nothing but tables beside theirs says so.

        DT_HASH has one place for each; DT_GNU_HASH ends with the last one that is defined, and does not count
        any others where none is; the section table, which no loader needs, says it outright.
        """
        if (hash_at := self._find_table(_DT_HASH)) is not None:
            return int(self._span.unpack_numbers(_HASH, hash_at, "the hash table")[1])
        sizes = [row.size for row in self._symbol_rows if row.offset == symbols_at]
        hash_at = self._find_table(_DT_GNU_HASH)
        counted = self._count_hashed_symbols(hash_at) if hash_at is not None else 0
        return max([counted, *(size // _SYMBOL.size for size in sizes)])

    @property
    def _symbol_rows(self) -> list[elf.SectionRow]:
        return [row for row in self._file.section_rows if row.kind == elf.SHT_DYNSYM]

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

    def read_run_paths(self, *, for_changes: bool) -> tuple[RunPath, ...]:
        """Return DT_RPATH and DT_RUNPATH; ``for_changes`` also whether other names share their text.

        That costs a look at all names.
        """
        names_at, span = self._file.names_at, self._span
        entries = list(enumerate(self._file.entries))
        paths = [row for row in entries if row[1][0] in (elf.DT_RPATH, elf.DT_RUNPATH)]
        if not paths or names_at is None:
            return ()
        places = self._list_name_places() if for_changes else None
        run_paths = []
        for number, (tag, place) in paths:
            offset = names_at + place
            raw = _read_bytes_at(span.data[: offset + limits.LONGEST_RUN_PATH + 1], offset)
            text = _decode(raw)
            span.require_limit(len(text), limits.LONGEST_RUN_PATH, "characters of a run path")
            is_shared = places is None
            if places is not None:  # another name may begin in the text that holds it, before or within it
                start = place
                while start and span.data[names_at + start - 1]:
                    start -= 1
                    most, label = limits.LONGEST_RUN_PATH, "characters before a run path"
                    span.require_limit(place - start, most, label)
                others = {value for n, (kind, value) in entries if kind in _DT_NAMES and n != number}
                is_shared = any(at in places or at in others for at in range(start, place + len(raw)))
            run_paths.append(RunPath(text, tag == elf.DT_RPATH, offset, number, is_shared))
        return tuple(run_paths)

    def _list_name_places(self) -> set[int] | None:
        """Return where symbols' and versions' names begin; None when nobody can say how many there are."""
        symbols = self._symbol_rows
        if len(symbols) != 1:
            return None
        count = symbols[0].size // _SYMBOL.size
        self._span.require_limit(count, limits.MOST_SYMBOLS, "dynamic symbols")
        table = self._span.get_part(symbols[0].offset, count * _SYMBOL.size, ".dynsym")
        places = {row[0] for row in _SYMBOL.iter_unpack(table)}
        for need in self._read_needs():
            places |= {need.library, need.name}
        return places.union(*(definition.names for definition in self._read_definitions()))

    def _read_needs(self) -> Iterator[_NeededVersion]:
        """Yield the versions that libraries must have."""
        for at, (_, count, library, first, _) in self._walk_table(_DT_VERNEED, _DT_VERNEEDNUM, _VERNEED):
            for _, (_, flags, index, name, _) in self._walk_links(at + first, count, _VERNAUX):
                yield _NeededVersion(library, name, index, flags)

    def _read_definitions(self) -> Iterator[_DefinedVersion]:
        """Yield the versions that the library itself defines."""
        for at, (_, flags, index, count, _, first, _) in self._walk_table(_DT_VERDEF, _DT_VERDEFNUM, _VERDEF):
            names = tuple(name for _, (name, _) in self._walk_links(at + first, count, _VERDAUX))
            yield _DefinedVersion(index, flags, names)

    def _walk_table(
        self, table: int, number: int, form: struct.Struct
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        at, count = self._find_table(table), self._file.values.get(number, 0)
        self._links = self._name_bytes = 0
        if at is not None:
            yield from self._walk_links(at, count, form)

    def _walk_links(self, at: int, count: int, form: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the entries of a list that each say last how far off the next is, with where they are."""
        for _ in range(count):
            self._links += 1
            self._span.require_limit(self._links, limits.MOST_VERSIONS, "symbol versions")
            entry: tuple[int, ...] = self._span.unpack_numbers(form, at, "the table of symbol versions")
            yield at, entry
            if not entry[-1]:
                break
            at += entry[-1]

    def _read_name(self, place: int) -> str:
        if self._file.names_at is None:
            return ""
        name = elf.read_text_at(self._span.data, self._file.names_at + place)
        self._name_bytes += len(name)
        most, label = limits.MOST_LIBRARY_NAME_BYTES, "characters in names of symbol versions"
        self._span.require_limit(self._name_bytes, most, label)
        return name
