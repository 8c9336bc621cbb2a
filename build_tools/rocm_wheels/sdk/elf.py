"""What packaging needs to know of an ELF file: program or library, its name, where it looks.

Reads headers and the dynamic section only, never the whole file. Device code objects
(machine AMDGPU) are data here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_ET_EXEC, _ET_DYN = 2, 3
_EM_AMDGPU = 224
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 14, 15, 29


@dataclass(frozen=True)
class Elf:
    """A 64-bit ELF program or shared library for the host."""

    program: bool
    soname: str | None
    needed: tuple[str, ...]
    search: tuple[str, ...]
    """RPATH and RUNPATH entries as written, ``$ORIGIN`` included."""


def read_elf(path: Path) -> Elf | None:
    """Read a file's ELF facts; ``None`` when it is no 64-bit little-endian host ELF.

    A file that says it is ELF and then breaks off is data, too: the loader will not take it.
    """
    with path.open("rb") as file:
        try:
            return _read(file)
        except (struct.error, UnicodeDecodeError):
            return None


def _read(file: BinaryIO) -> Elf | None:
    start = file.read(_HEADER.size)
    if len(start) < _HEADER.size or start[:6] != b"\x7fELF\x02\x01":
        return None
    _, kind, machine, _, _, offset, _, _, _, size, count, *_ = _HEADER.unpack(start)
    if kind not in (_ET_EXEC, _ET_DYN) or machine == _EM_AMDGPU or size != _PROGRAM.size:
        return None
    file.seek(offset)
    table = file.read(size * count)
    segments = [_PROGRAM.unpack_from(table, size * index) for index in range(count)]
    dynamic = next((s for s in segments if s[0] == _PT_DYNAMIC), None)
    entries = _dynamic(file, dynamic[2], dynamic[5]) if dynamic else []
    strings = _Strings(file, segments, entries)
    soname = next((strings.at(value) for tag, value in entries if tag == _DT_SONAME), None)
    interpreted = any(s[0] == _PT_INTERP for s in segments)
    paths = [strings.at(value) for tag, value in entries if tag in (_DT_RPATH, _DT_RUNPATH)]
    return Elf(
        program=kind == _ET_EXEC or (interpreted and soname is None),
        soname=soname,
        needed=tuple(strings.at(value) for tag, value in entries if tag == _DT_NEEDED),
        search=tuple(part for path in paths for part in path.split(":") if part),
    )


def _dynamic(file: BinaryIO, offset: int, size: int) -> list[tuple[int, int]]:
    file.seek(offset)
    data = file.read(size)
    entries: list[tuple[int, int]] = []
    for tag, value in _DYNAMIC.iter_unpack(data[: len(data) // _DYNAMIC.size * _DYNAMIC.size]):
        if tag == _DT_NULL:
            break
        entries.append((tag, value))
    return entries


class _Strings:
    """The dynamic string table, reached through the loaded segments."""

    def __init__(
        self, file: BinaryIO, segments: list[tuple[int, ...]], entries: list[tuple[int, int]]
    ) -> None:
        self._file = file
        address = next((value for tag, value in entries if tag == _DT_STRTAB), 0)
        self._offset = 0
        for kind, _, offset, virtual, _, in_file, *_ in segments:
            if kind == _PT_LOAD and virtual <= address < virtual + in_file:
                self._offset = address - virtual + offset

    def at(self, index: int) -> str:
        self._file.seek(self._offset + index)
        text = b""
        while b"\0" not in text:
            more = self._file.read(256)
            if not more:
                raise struct.error("string table breaks off")
            text += more
        return text.split(b"\0", 1)[0].decode("utf-8")
