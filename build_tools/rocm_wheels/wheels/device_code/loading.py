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
from rocm_wheels.wheels.device_code.span import Span, text_at

_HEADER = struct.Struct("<16sHHIQQQIHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 14, 15, 29


@dataclass(frozen=True)
class Loading:
    """A 64-bit ELF program or shared library for the host.

    ``search`` has the entries of DT_RPATH and DT_RUNPATH as written, ``$ORIGIN`` included.
    """

    program: bool
    soname: str | None
    needed: tuple[str, ...]
    search: tuple[str, ...]


def read_loading(data: memoryview, name: str) -> Loading | None:
    """Read what the loader would; ``None`` when ``data`` is no 64-bit little-endian host ELF.

    ``name`` stands for the file in messages. DataError when its tables reach past its end.
    """
    if not elf.is_readable(data):
        return None
    span = Span(data, name)
    _, kind, machine, _, _, offset, _, _, _, size, count = span.numbers(_HEADER, 0, "the ELF header")
    if kind not in (_ET_EXEC, _ET_DYN) or machine == elf.EM_AMDGPU or size != _PROGRAM.size:
        return None
    segments = list(_PROGRAM.iter_unpack(span.part(offset, size * count, "the program headers")))
    dynamic = next((s for s in segments if s[0] == _PT_DYNAMIC), None)
    entries = _dynamic(span, dynamic[2], dynamic[5]) if dynamic else []
    names = _names(span, segments, entries)
    soname = next((text_at(names, value) for tag, value in entries if tag == _DT_SONAME), None)
    interpreted = any(s[0] == _PT_INTERP for s in segments)
    paths = [text_at(names, value) for tag, value in entries if tag in (_DT_RPATH, _DT_RUNPATH)]
    return Loading(
        program=kind == _ET_EXEC or (interpreted and soname is None),
        soname=soname,
        needed=tuple(text_at(names, value) for tag, value in entries if tag == _DT_NEEDED),
        search=tuple(part for path in paths for part in path.split(":") if part),
    )


def read_loading_of(path: Path) -> Loading | None:
    """Read a file; one that says it is ELF and then breaks off is data: the loader will not take it."""
    with path.open("rb") as file:
        if not elf.is_readable(file.read(8)):
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            try:
                return read_loading(data, str(path))
            except DataError:
                return None


def _dynamic(span: Span, offset: int, size: int) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    part = span.part(offset, size - size % _DYNAMIC.size, "the dynamic section")
    for tag, value in _DYNAMIC.iter_unpack(part):
        if tag == _DT_NULL:
            break
        entries.append((tag, value))
    return entries


def _names(span: Span, segments: list[tuple[int, ...]], entries: list[tuple[int, int]]) -> memoryview:
    """Return the file from the dynamic string table on, which is found through the loaded segments."""
    address = next((value for tag, value in entries if tag == _DT_STRTAB), None)
    for kind, _, offset, virtual, _, in_file, *_ in segments:
        if address is not None and kind == _PT_LOAD and virtual <= address < virtual + in_file:
            start = address - virtual + offset
            return span.part(start, len(span) - start, "the dynamic string table")
    return span.data[:0]
