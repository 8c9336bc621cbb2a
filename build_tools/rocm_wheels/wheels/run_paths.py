"""DT_RUNPATH and DT_RPATH of an ELF library. Layout: System V ABI, chapter "Dynamic Section"."""

from __future__ import annotations

import struct

from rocm_wheels.wheels import elf
from rocm_wheels.wheels.span import Span, text_at

_ENTRY = struct.Struct("<qQ")
_DT_NULL, _DT_RPATH, _DT_RUNPATH = 0, 15, 29


def run_paths(data: memoryview, name: str) -> tuple[str, ...]:
    """Return the folders that a library tells the loader to look into; () when ``data`` is no host ELF.

    ``name`` stands for the file in messages. DataError when its tables reach past its end.
    """
    if not elf.is_readable(data):
        return ()
    span = Span(data, name)
    header = elf.read_header(span)
    if header.machine == elf.EM_AMDGPU:
        return ()
    sections = {section.name: section for section in elf.read_sections(span, header)}
    dynamic, strings = sections.get(".dynamic"), sections.get(".dynstr")
    if dynamic is None or strings is None:
        return ()
    names = span.part(strings.offset, strings.size, "section .dynstr")
    size = dynamic.size - dynamic.size % _ENTRY.size
    found: list[str] = []
    for tag, value in _ENTRY.iter_unpack(span.part(dynamic.offset, size, "section .dynamic")):
        if tag == _DT_NULL:
            break
        if tag in (_DT_RPATH, _DT_RUNPATH):
            found += [entry for entry in text_at(names, value).split(":") if entry]
    return tuple(found)
