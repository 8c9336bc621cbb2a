"""A piece of a file with a name: the one place where bytes become numbers.

Every read is checked against the end, and every fault says which file, member and
section it is in. Nothing is copied.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from rocm_wheels.errors import DataError


@dataclass(frozen=True)
class BinarySpan:
    """Bytes and where they are, as people say it: ``torch.whl: torch/lib/x.so: section .hip_fatbin``."""

    data: memoryview
    place: str

    def __len__(self) -> int:
        return len(self.data)

    def make_fault(self, text: str, *, tip: str | None = None) -> DataError:
        """Return the error that says ``text`` about this place."""
        return DataError(f"{self.place}: {text}", tip=tip)

    def get_part(self, offset: int, size: int, label: str) -> memoryview:
        """Return ``size`` bytes from ``offset``; DataError when ``label`` reaches past the end."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise self.make_fault(
                f"{label} at {offset} with {size} bytes reaches past the end ({len(self.data)} bytes)"
            )
        return self.data[offset : offset + size]

    def unpack_numbers(self, form: struct.Struct, offset: int, label: str) -> tuple[Any, ...]:
        """Unpack ``form`` at ``offset``; DataError when ``label`` reaches past the end."""
        return form.unpack(self.get_part(offset, form.size, label))

    def get_span(self, offset: int, size: int, label: str) -> BinarySpan:
        """Return the part as a span of its own, whose place ends with ``label``."""
        return BinarySpan(self.get_part(offset, size, label), f"{self.place}: {label}")

    def starts_with(self, magic: bytes, offset: int = 0) -> bool:
        """Tell whether ``magic`` stands at ``offset``."""
        return self.data[offset : offset + len(magic)] == magic


@dataclass(frozen=True)
class BinarySection:
    """A named piece of a host binary."""

    name: str
    offset: int
    size: int


def read_text_at(data: memoryview, offset: int) -> str:
    """Return the NUL-terminated text at ``offset`` (up to 4096 bytes of it)."""
    raw = bytes(data[offset : offset + 4096])
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")
