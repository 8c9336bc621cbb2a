"""What the loader reads of an ELF program or library: its name, what it needs, where it looks.

Through the program headers, as the loader does: a file without a section table is read, too.
Layout: System V ABI, chapters "Program Header" and "Dynamic Section". Device code objects
(machine AMDGPU) are data here.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import DataError
from rocm_wheels.wheels.device_code import elf
from rocm_wheels.wheels.device_code.span import BinarySpan, read_text_at

_LOADER_HEADER = struct.Struct("<16sHHIQQQIHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC_ENTRY = struct.Struct("<qQ")
_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 14, 15, 29


@dataclass(frozen=True)
class LoaderInfo:
    """A 64-bit ELF program or shared library for the host.

    ``search_paths`` has the entries of DT_RPATH and DT_RUNPATH as written, ``$ORIGIN`` included.
    """

    program: bool
    soname: str | None
    needed: tuple[str, ...]
    search_paths: tuple[str, ...]


def read_loader_info(data: memoryview, name: str) -> LoaderInfo | None:
    """Read what the loader would; ``None`` when ``data`` is no 64-bit little-endian host ELF.

    ``name`` stands for the file in messages. DataError when its tables reach past its end.
    """
    if not elf.is_elf(data):
        return None
    span = BinarySpan(data, name)
    _, kind, machine, _, _, offset, _, _, _, size, count = span.unpack_numbers(
        _LOADER_HEADER, 0, "the ELF header"
    )
    if kind not in (_ET_EXEC, _ET_DYN) or machine == elf.EM_AMDGPU or size != _PROGRAM_HEADER.size:
        return None
    segments = list(_PROGRAM_HEADER.iter_unpack(span.get_part(offset, size * count, "the program headers")))
    dynamic = next((s for s in segments if s[0] == _PT_DYNAMIC), None)
    entries = _read_dynamic_entries(span, dynamic[2], dynamic[5]) if dynamic else []
    names = _find_dynamic_strings(span, segments, entries)
    soname = next((read_text_at(names, value) for tag, value in entries if tag == _DT_SONAME), None)
    interpreted = any(s[0] == _PT_INTERP for s in segments)
    paths = [read_text_at(names, value) for tag, value in entries if tag in (_DT_RPATH, _DT_RUNPATH)]
    return LoaderInfo(
        program=kind == _ET_EXEC or (interpreted and soname is None),
        soname=soname,
        needed=tuple(read_text_at(names, value) for tag, value in entries if tag == _DT_NEEDED),
        search_paths=tuple(part for path in paths for part in path.split(":") if part),
    )


def read_loader_info_of_file(path: Path) -> LoaderInfo | None:
    """Read a file; one that says it is ELF and then breaks off is data: the loader will not take it."""
    with path.open("rb") as file:
        if not elf.is_elf(file.read(8)):
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            try:
                return read_loader_info(data, str(path))
            except DataError:
                return None


def _read_dynamic_entries(span: BinarySpan, offset: int, size: int) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    part = span.get_part(offset, size - size % _DYNAMIC_ENTRY.size, "the dynamic section")
    for tag, value in _DYNAMIC_ENTRY.iter_unpack(part):
        if tag == _DT_NULL:
            break
        entries.append((tag, value))
    return entries


def _find_dynamic_strings(
    span: BinarySpan, segments: list[tuple[int, ...]], entries: list[tuple[int, int]]
) -> memoryview:
    """Return the file from the dynamic string table on, which is found through the loaded segments."""
    address = next((value for tag, value in entries if tag == _DT_STRTAB), None)
    for kind, _, offset, virtual, _, in_file, *_ in segments:
        if address is not None and kind == _PT_LOAD and virtual <= address < virtual + in_file:
            start = address - virtual + offset
            return span.get_part(start, len(span) - start, "the dynamic string table")
    return span.data[:0]
