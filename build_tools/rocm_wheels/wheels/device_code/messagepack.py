"""MessagePack, as far as tables of device code use it: maps with text as keys, arrays, numbers, text.

Source: the MessagePack specification (github.com/msgpack/msgpack, spec.md). A count or length
that the bytes cannot hold is refused before anything is made for it.
"""

from __future__ import annotations

import struct
from typing import Any

from rocm_wheels.wheels.device_code.span import BinarySpan

_MOST_LEVELS = 32
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBER_FORMS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
# first byte → (bytes of the length, what follows)
_SIZED = {
    0xC4: (1, "bytes"), 0xC5: (2, "bytes"), 0xC6: (4, "bytes"),
    0xD9: (1, "text"), 0xDA: (2, "text"), 0xDB: (4, "text"),
    0xDC: (2, "array"), 0xDD: (4, "array"), 0xDE: (2, "map"), 0xDF: (4, "map"),
}  # fmt: skip


def unpack_messagepack(span: BinarySpan) -> object:
    """Return the value that a span begins with; what stands behind it is not looked at.

    DataError when it is cut short, nested deeper than 32 levels, or has a key that is no text.
    """
    return _MessagePackReader(span).read_value(0)


class _MessagePackReader:
    def __init__(self, span: BinarySpan) -> None:
        self._span = span
        self._at = 0

    def read_value(self, depth: int) -> Any:
        if depth > _MOST_LEVELS:
            raise self._span.make_fault(f"nested deeper than {_MOST_LEVELS} levels at {self._at}")
        first = self._take_bytes(1)[0]
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if form := _NUMBER_FORMS.get(first):
            return struct.unpack(form, self._take_bytes(struct.calcsize(form)))[0]
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        if first in _SIZED:
            width, kind = _SIZED[first]
            length = int.from_bytes(self._take_bytes(width), "big")
        elif first < 0xC0:
            kind, mask = ("map", 15) if first < 0x90 else ("array", 15) if first < 0xA0 else ("text", 31)
            length = first & mask
        else:
            raise self._span.make_fault(
                f"no MessagePack that is known here: byte {first:#x} at {self._at - 1}"
            )
        return self._read_sized(kind, length, depth + 1)

    def _read_sized(self, kind: str, length: int, depth: int) -> Any:
        if kind == "bytes":
            return bytes(self._take_bytes(length))
        if kind == "text":
            return bytes(self._take_bytes(length)).decode("utf-8", "backslashreplace")
        least = 2 * length if kind == "map" else length
        self._span.get_part(self._at, least, f"{kind} of {length}")
        if kind == "array":
            return [self.read_value(depth) for _ in range(length)]
        entries: dict[str, Any] = {}
        for _ in range(length):
            key = self.read_value(depth)
            if not isinstance(key, str):
                raise self._span.make_fault(f"a map with the key {key!r}, which is no text")
            entries[key] = self.read_value(depth)
        return entries

    def _take_bytes(self, size: int) -> memoryview:
        piece = self._span.get_part(self._at, size, "a value")
        self._at += size
        return piece
