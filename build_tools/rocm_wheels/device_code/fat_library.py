"""Take device code out of a host library, or put it in: what the library tells the HIP runtime about it.

A library hands the runtime a record of ``.hipFatBinSegment`` for each of its bundles: magic, version, the
address of the bundle, a number (clang, ``__CudaFatBinaryWrapper``). In a library whose code is elsewhere the
magic is another, the address is that of the section that names archives, and the number counts the records:
the runtime then asks the archives for ``<library>#<number>``. The address is written where the loader takes
it from: in the relocation (R_X86_64_RELATIVE and its like), or in the place itself (DT_RELR, PE).

Source: ROCm/rocm-systems, ``shared/kpack`` (elf/kpack_transform.py, coff/kpack_transform.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rocm_wheels.binaries import elf, elf_pages, limits, loader, pe
from rocm_wheels.core import errors
from rocm_wheels.device_code import kpack
from rocm_wheels.device_code.bundles import COMPRESSED_BUNDLE_MAGIC, PLAIN_BUNDLE_MAGIC

_RECORD = struct.Struct("<IIQQ")
_MAGIC, _ADDRESS = struct.Struct("<I"), struct.Struct("<Q")
_FAT_MAGIC, _MOVED_MAGIC = 0x48495046, 0x4B504948
_BUNDLE_ALIGNMENT = 4096
_BUNDLE_MAGICS = (PLAIN_BUNDLE_MAGIC, COMPRESSED_BUNDLE_MAGIC)
_RELOCATION = struct.Struct("<QQq")
_RELATIVE_KINDS = {62: 8, 183: 1027}  # by machine: R_X86_64_RELATIVE, R_AARCH64_RELATIVE

ExchangeSection = Callable[..., list[elf_pages.FilePiece]]
# addresses of some pointers, and an area → address, value and place of these, and of those into the area
FindPointers = Callable[[Collection[int], range], Iterator[tuple[int, int, int]]]


@dataclass(frozen=True)
class SectionNames:
    """How a format calls the sections: of bundles, of records, and that which names archives."""

    code: str
    records: str
    marker: str


_ELF_NAMES = SectionNames(".hip_fatbin", ".hipFatBinSegment", ".rocm_kpack_ref")
_DLL_NAMES = SectionNames(".hip_fat", ".hipFatB", ".kpackrf")  # 8 characters are all that a DLL has
_WINDOWS_ID = "host-x86_64-pc-windows-msvc-"


@dataclass(frozen=True)
class CodeRecord:
    """A record at ``place`` in the file; ``pointer_places`` are where its address is written."""

    place: int
    pointer: int
    number: int
    is_moved: bool
    pointer_places: tuple[int, ...]


@dataclass(frozen=True)
class FatLibrary:
    """A library with records of device code.

    ``code`` is the section of its bundles, ``marker`` that which names archives; ``host_id`` is the ID that
    bundles have for the host.
    """

    span: elf.BinarySpan
    names: SectionNames
    host_id: str
    exchange: ExchangeSection
    code: elf.BinarySection | None = None
    marker: elf.BinarySection | None = None
    records: tuple[CodeRecord, ...] = ()

    def read_kernel_name(self) -> str:
        """Return what archives call this library; DataError when the marker does not say."""
        if self.marker is None:
            raise self.span.make_fault("has no section that names archives")
        label = f"section {self.marker.name}"
        return kpack.read_library_name(self.span.get_span(self.marker.offset, self.marker.size, label))

    def list_bundle_places(self) -> list[int]:
        """Return where in the section each record's bundle begins; DataError when one is not in there."""
        places = []
        for record in self.records:
            at = record.pointer - self.code.address if self.code else -1
            if self.code is None or not 0 <= at < self.code.size:
                number = record.number
                raise self.span.make_fault(f"record {number} of {self.names.records} refers to no bundle")
            places.append(at)
        return places

    def remove_code(self, marker: bytes) -> list[elf_pages.FilePiece]:
        """Return the library without device code, and with a section that names archives."""
        assert self.code is not None

        def patch(address: int) -> list[tuple[int, bytes]]:
            rows = [(record, address, number) for number, record in enumerate(self.records)]
            return _rewrite_records(rows, _MOVED_MAGIC)

        added = elf_pages.AddedSection(self.names.marker, [marker])
        emptied = (self.code.offset, self.code.size)
        return self.exchange(self.span.data, self.span.place, emptied, added, patch=patch)

    def insert_code(self, bundles: Mapping[int, elf_pages.FilePiece]) -> list[elf_pages.FilePiece]:
        """Return the library with bundles, by the numbers of its records, and without the other section."""
        places: dict[int, int] = {}
        pieces: list[elf_pages.FilePiece] = []
        size = 0
        for number, bundle in bundles.items():
            padding = bytes(-size % _BUNDLE_ALIGNMENT)
            places[number] = size + len(padding)
            size += len(padding) + len(bundle)
            pieces += [padding, bundle]

        def patch(address: int) -> list[tuple[int, bytes]]:
            rows = [(record, address + places[record.number], 0) for record in self.records]
            return _rewrite_records(rows, _FAT_MAGIC)

        added = elf_pages.AddedSection(self.names.code, pieces, _BUNDLE_ALIGNMENT)
        emptied = (self.code.offset, self.code.size) if self.code else (0, 0)
        removed = (self.names.code, self.names.marker)
        return self.exchange(self.span.data, self.span.place, emptied, added, removed=removed, patch=patch)


def read_fat_library(data: memoryview, name: str) -> FatLibrary:
    """Read the records of a library with device code, here or elsewhere.

    ``name`` stands for the file in messages. DataError for one without records, or where something else than
    the records refers to its device code.
    """
    span = elf.BinarySpan(data, name)
    if elf.is_elf(data):
        file = elf.ElfFile(span)
        host_id = f"host-{loader.ELF_ARCHITECTURES.get(file.header.machine, 'unknown')}-unknown-linux-gnu-"
        library = FatLibrary(span, _ELF_NAMES, host_id, elf_pages.exchange_section)
        return _read_records(library, file.read_sections(), partial(_find_pointers, file), file.is_fixed)
    if span.starts_with(pe.PE_MAGIC):
        dll = pe.read_dll(span)
        sections = [replace(section, address=section.address + dll.image_base) for section in dll.sections]
        library = FatLibrary(span, _DLL_NAMES, _WINDOWS_ID, pe.exchange_dll_section)
        return _read_records(library, sections, partial(_find_dll_pointers, dll), False)
    raise span.make_fault("neither an ELF library nor a DLL")


def _read_records(
    library: FatLibrary, sections: Sequence[elf.BinarySection], find_pointers: FindPointers, is_fixed: bool
) -> FatLibrary:
    """Return a library with its sections and records; ``is_fixed``: its pointers need no relocation."""
    span, names = library.span, library.names
    named: dict[str, elf.BinarySection] = {}
    for section in sections:
        if section.name in (names.code, names.records, names.marker):
            if section.name in named:
                raise span.make_fault(f"several sections {section.name}")
            named[section.name] = section
    code, segment = named.get(names.code), named.get(names.records)
    begin, size = (segment.address, segment.size) if segment else (0, 0)
    pointers = range(begin + 8, begin + size, _RECORD.size)
    area = range(code.address, code.address + code.size) if code else range(0)
    written: dict[int, tuple[int, int]] = {}
    for address, value, place in find_pointers(pointers, area):
        if address not in pointers:
            raise span.make_fault(f"the address at {address:#x} refers to its device code, and is no record")
        written[address] = value, place

    if segment is None or not size:
        raise span.make_fault(f"no section {names.records}: nothing tells the HIP runtime of its device code")
    if size % _RECORD.size:
        raise span.make_fault(f"section {names.records} of {size} bytes is no list of records")
    label = f"section {names.records}"
    rows = span.unpack_table(_RECORD, segment.offset, size // _RECORD.size, limits.MOST_RECORDS, label)
    records = []
    for i, (magic, _, value, number) in enumerate(rows):
        if magic not in (_FAT_MAGIC, _MOVED_MAGIC):
            raise span.make_fault(f"record {i} of {names.records} has an unknown magic: {magic:#x}")
        record, address = segment.offset + i * _RECORD.size, pointers[i]
        if address not in written and not is_fixed:
            raise span.make_fault(f"no relocation sets the address at {address:#x} in {names.records}")
        own_place = record + 8
        pointer, place = written.get(address, (value, own_place))
        places = (place, own_place) if value and place != own_place else (place,)
        is_moved = magic == _MOVED_MAGIC
        records.append(CodeRecord(record, pointer, number if is_moved else i, is_moved, places))
    return replace(library, code=code, marker=named.get(names.marker), records=tuple(records))


def _rewrite_records(rows: Iterable[tuple[CodeRecord, int, int]], magic: int) -> list[tuple[int, bytes]]:
    """Return the changes that give records another magic, address and number."""
    changes: list[tuple[int, bytes]] = []
    for record, address, number in rows:
        changes.append((record.place, _MAGIC.pack(magic)))
        changes.append((record.place + 16, _ADDRESS.pack(number)))
        changes += [(place, _ADDRESS.pack(address)) for place in record.pointer_places]
    return changes


def _find_pointers(
    file: elf.ElfFile, pointers: Collection[int], area: range
) -> Iterator[tuple[int, int, int]]:
    """Yield address, value and place in the file of some pointers, and of others that lead into an area."""
    relative = _RELATIVE_KINDS.get(file.header.machine)
    for place, row in file.iterate_relocations("rela", _RELOCATION):
        address, info, value = row
        is_relative = info & 0xFFFFFFFF == relative
        if address in pointers and not is_relative:
            raise file.span.make_fault(f"the address at {address:#x} is set by a relocation of another kind")
        if address in pointers or (is_relative and value in area):
            yield address, value, place + 16
    addresses = _unfold_addresses(row[0] for _, row in file.iterate_relocations("relr", _ADDRESS))
    for number, address in enumerate(addresses):
        file.span.require_limit(number, limits.MOST_RELOCATIONS, "relocations")
        place = file.get_offset(address)
        (value,) = file.span.unpack_numbers(_ADDRESS, place, "a pointer")
        if address in pointers or value in area:
            yield address, value, place


def _find_dll_pointers(
    dll: pe.PeFile, pointers: Collection[int], area: range
) -> Iterator[tuple[int, int, int]]:
    """Yield the same of a DLL: pointers count from the image's base, and are relocated in their places."""
    base = dll.image_base
    for offset, value, place in dll.list_pointers():
        if offset + base in pointers or value in area:
            yield offset + base, value, place


def _unfold_addresses(words: Iterable[int]) -> Iterator[int]:
    """Yield the addresses of DT_RELR: an even word is one, an odd one the bits of the 63 behind it."""
    at = 0
    for word in words:
        if not word & 1:
            yield word
            at = word + 8
            continue
        for bit in range(63):
            if word >> (bit + 1) & 1:
                yield at + 8 * bit
        at += 63 * 8


@dataclass(frozen=True)
class SplitLibrary:
    """A library whose code is in archives: what those call it, and the numbers of its records.

    ``is_moved``: every record says so. ``has_bundles``: its old section still has some. ``fault``: why its
    records cannot be read, and nothing else is known then.
    """

    name: str = ""
    numbers: tuple[int, ...] = ()
    is_moved: bool = False
    has_bundles: bool = False
    fault: str = ""


def read_split_library(data: memoryview, name: str) -> SplitLibrary:
    """Read a library that names archives; with the fault where its records cannot be read."""
    try:
        library = read_fat_library(data, name)
        kernel_name = library.read_kernel_name()
    except limits.LimitError:
        raise
    except errors.DataError as fault:
        return SplitLibrary(fault=str(fault).removeprefix(f"{name}: "))
    numbers = tuple(record.number for record in library.records)
    has_bundles = library.code is not None and _find_bundle_magic(data, library.code)
    return SplitLibrary(kernel_name, numbers, all(record.is_moved for record in library.records), has_bundles)


def _find_bundle_magic(data: memoryview, code: elf.BinarySection) -> bool:
    """Tell whether a bundle begins in a section, at any page of it."""
    for at in range(code.offset, min(code.offset + code.size, len(data)), _BUNDLE_ALIGNMENT):
        if bytes(data[at : at + len(PLAIN_BUNDLE_MAGIC)]).startswith(_BUNDLE_MAGICS):
            return True
    return False
