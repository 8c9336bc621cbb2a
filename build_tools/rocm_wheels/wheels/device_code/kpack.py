"""Device code that was moved out of host libraries: archives (``.kpack``), and who refers to them.

Source: ROCm/rocm-systems, ``shared/kpack`` (docs/multi_arch_packaging_with_kpack.md,
python/rocm_kpack/kpack.py, compression.py, elf/kpack_transform.py, coff/kpack_transform.py). An
archive is a header (``KPAK``, version, place of the table), kernels, and a table in MessagePack:
library → target → kernel. A library that was split has a section that names archives, and its
``.hip_fatbin`` is cut, or left over and no longer used.
"""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rocm_wheels.wheels.device_code.inflate import zstd_reader
from rocm_wheels.wheels.device_code.messagepack import unpack
from rocm_wheels.wheels.device_code.span import Span

MAGIC = b"KPAK"
SUFFIX = ".kpack"
REFERENCES = (".rocm_kpack_ref", ".kpackrf")
"""Sections of ELF and PE libraries whose device code is in archives."""

ANY_TARGET = "@GFXARCH@"
"""Stands for a target in the name of an archive."""

_HEADER = struct.Struct("<4sIQ")
_VERSION = 1
_LENGTH = struct.Struct("<I")
_LARGEST_TABLE = 16 << 20
_HEAD = 64


@dataclass(frozen=True)
class Kernel:
    """A kernel of an archive: ``library`` as the table spells it (``lib/libtorch_hip.so#0``).

    ``size`` is in bytes, plain; ``head`` is the kernel's first 64 bytes; ``packing`` is ``plain`` or
    ``zstd``.
    """

    library: str
    target: str
    ordinal: int
    packing: str
    size: int
    head: bytes


def read_reference(marker: Span) -> tuple[str, ...]:
    """Return the archives that a library's section names, relative to the library.

    ``@GFXARCH@`` in them stands for a target. DataError when the section names none.
    """
    stated = unpack(marker)
    paths = stated.get("kpack_search_paths") if isinstance(stated, dict) else None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise marker.fault("names no .kpack archives (kpack_search_paths)")
    return tuple(paths)


def find_archives(library: str, names: Iterable[str], files: Iterable[str]) -> list[str]:
    """Return those of ``files`` that a library names as archives; all are paths from one root, with ``/``."""
    folder = posixpath.dirname(library)
    paths = [posixpath.normpath(posixpath.join(folder, name)) for name in names]
    shapes = [re.escape(path).replace(re.escape(ANY_TARGET), "[^/]+") for path in paths]
    return [file for file in files if any(re.fullmatch(shape, file) for shape in shapes)]


def is_taken_from(kernel: str, library: str) -> bool:
    """Tell whether a kernel's library in an archive (``lib/libtorch_hip.so#0``) is the one at a path."""
    name = kernel.partition("#")[0]
    return library == name or library.endswith(f"/{name}")


def read_kernels(span: Span) -> Iterator[Kernel]:
    """Yield the kernels of an archive in the order of its table; DataError when it is damaged."""
    magic, version, at = span.numbers(_HEADER, 0, "the header of a .kpack archive")
    if magic != MAGIC:
        raise span.fault(f"is called {SUFFIX}, but does not begin with {MAGIC.decode()}")
    if version != _VERSION:
        raise span.fault(f".kpack archive of version {version}; known is {_VERSION}")
    if not _HEADER.size <= at < len(span):
        raise span.fault(f"its table is said to be at {at} of {len(span)} bytes: cut short")
    if len(span) - at > _LARGEST_TABLE:
        raise span.fault(f"a table of {len(span) - at} bytes is more than an archive can need")
    here = span.within(at, len(span) - at, "table")
    table = _map(unpack(here), "the table", here)
    kernels = _kernels(table, span)
    for library, targets in _map(table.get("toc"), "toc", here).items():
        for target, entry in _map(targets, library, here).items():
            place = f"{library} for {target}"
            if _map(entry, place, here).get("type") != "hsaco":
                raise here.fault(f"{place}: a kernel of type {entry.get('type')!r}; known is 'hsaco'")
            ordinal, size = (_number(entry, key, here, place) for key in ("ordinal", "original_size"))
            if ordinal >= len(kernels):
                raise here.fault(f"{place}: kernel {ordinal} of {len(kernels)}")
            packing, packed = kernels[ordinal]
            head = _head(packed, packing, min(size, _HEAD), place)
            yield Kernel(library, target, ordinal, packing, size, head)


def _kernels(table: Mapping[str, Any], span: Span) -> list[tuple[str, Span]]:
    """Return packing and bytes of each kernel, by its ordinal."""
    scheme = table.get("compression_scheme")
    if scheme == "none":
        blobs = table.get("blobs")
        if not isinstance(blobs, list):
            raise span.fault("its table lists no blobs")
        places = [
            (_number(blob, "offset", span, "blob"), _number(blob, "size", span, "blob")) for blob in blobs
        ]
        return [("plain", span.within(at, size, f"kernel {i}")) for i, (at, size) in enumerate(places)]
    if scheme != "zstd-per-kernel":
        raise span.fault(f"compressed by {scheme!r}; known are 'none' and 'zstd-per-kernel'")
    start, size = (_number(table, key, span, "table") for key in ("zstd_offset", "zstd_size"))
    frames = span.within(start, size, "kernels")
    (count,) = frames.numbers(_LENGTH, 0, "the number of kernels")
    at, found = _LENGTH.size, []
    for ordinal in range(count):
        (length,) = frames.numbers(_LENGTH, at, f"the length of kernel {ordinal}")
        found.append(("zstd", frames.within(at + _LENGTH.size, length, f"kernel {ordinal}")))
        at += _LENGTH.size + length
    return found


def _head(packed: Span, packing: str, size: int, place: str) -> bytes:
    if packing == "plain":
        return bytes(packed.part(0, size, place))
    read = zstd_reader(packed.data, packed)
    head = b""
    while len(head) < size:
        piece = read(size - len(head))
        if not piece:
            raise packed.fault(f"ends before the {size} bytes that {place} begins with")
        head += piece
    return head


def _map(value: object, what: str, here: Span) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise here.fault(f"{what} is no map")
    return value


def _number(entry: Any, key: str, here: Span, place: str) -> int:
    value = entry.get(key) if isinstance(entry, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise here.fault(f"{place}: {key} is no number of bytes or kernels")
    return value
