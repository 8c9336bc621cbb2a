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

from rocm_wheels.wheels.device_code.inflate import make_zstd_reader
from rocm_wheels.wheels.device_code.messagepack import unpack_messagepack
from rocm_wheels.wheels.device_code.span import BinarySpan

KPACK_MAGIC = b"KPAK"
KPACK_SUFFIX = ".kpack"
KPACK_SECTIONS = (".rocm_kpack_ref", ".kpackrf")
"""Sections of ELF and PE libraries whose device code is in archives."""

ANY_TARGET = "@GFXARCH@"
"""Stands for a target in the name of an archive."""

_KPACK_HEADER = struct.Struct("<4sIQ")
_VERSION = 1
_LENGTH = struct.Struct("<I")
_LARGEST_TABLE = 16 << 20
_KERNEL_HEAD_SIZE = 64


@dataclass(frozen=True)
class KpackKernel:
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


def read_kpack_reference(marker: BinarySpan) -> tuple[str, ...]:
    """Return the archives that a library's section names, relative to the library.

    ``@GFXARCH@`` in them stands for a target. DataError when the section names none.
    """
    stated = unpack_messagepack(marker)
    paths = stated.get("kpack_search_paths") if isinstance(stated, dict) else None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise marker.make_fault("names no .kpack archives (kpack_search_paths)")
    return tuple(paths)


def find_kpack_archives(library: str, names: Iterable[str], files: Iterable[str]) -> list[str]:
    """Return those of ``files`` that a library names as archives; all are paths from one root, with ``/``."""
    folder = posixpath.dirname(library)
    paths = [posixpath.normpath(posixpath.join(folder, name)) for name in names]
    shapes = [re.escape(path).replace(re.escape(ANY_TARGET), "[^/]+") for path in paths]
    return [file for file in files if any(re.fullmatch(shape, file) for shape in shapes)]


def is_kernel_of(kernel: str, library: str) -> bool:
    """Tell whether a kernel's library in an archive (``lib/libtorch_hip.so#0``) is the one at a path."""
    name = kernel.partition("#")[0]
    return library == name or library.endswith(f"/{name}")


def read_kpack_kernels(span: BinarySpan) -> Iterator[KpackKernel]:
    """Yield the kernels of an archive in the order of its table; DataError when it is damaged."""
    magic, version, at = span.unpack_numbers(_KPACK_HEADER, 0, "the header of a .kpack archive")
    if magic != KPACK_MAGIC:
        raise span.make_fault(f"is called {KPACK_SUFFIX}, but does not begin with {KPACK_MAGIC.decode()}")
    if version != _VERSION:
        raise span.make_fault(f".kpack archive of version {version}; known is {_VERSION}")
    if not _KPACK_HEADER.size <= at < len(span):
        raise span.make_fault(f"its table is said to be at {at} of {len(span)} bytes: cut short")
    if len(span) - at > _LARGEST_TABLE:
        raise span.make_fault(f"a table of {len(span) - at} bytes is more than an archive can need")
    table_span = span.get_span(at, len(span) - at, "table")
    table = _require_map(unpack_messagepack(table_span), "the table", table_span)
    kernels = _locate_kernels(table, span)
    for library, targets in _require_map(table.get("toc"), "toc", table_span).items():
        for target, entry in _require_map(targets, library, table_span).items():
            label = f"{library} for {target}"
            if _require_map(entry, label, table_span).get("type") != "hsaco":
                raise table_span.make_fault(
                    f"{label}: a kernel of type {entry.get('type')!r}; known is 'hsaco'"
                )
            ordinal, size = (
                _require_number(entry, key, table_span, label) for key in ("ordinal", "original_size")
            )
            if ordinal >= len(kernels):
                raise table_span.make_fault(f"{label}: kernel {ordinal} of {len(kernels)}")
            packing, packed = kernels[ordinal]
            head = _read_head(packed, packing, min(size, _KERNEL_HEAD_SIZE), label)
            yield KpackKernel(library, target, ordinal, packing, size, head)


def _locate_kernels(table: Mapping[str, Any], span: BinarySpan) -> list[tuple[str, BinarySpan]]:
    """Return packing and bytes of each kernel, by its ordinal."""
    scheme = table.get("compression_scheme")
    if scheme == "none":
        blobs = table.get("blobs")
        if not isinstance(blobs, list):
            raise span.make_fault("its table lists no blobs")
        extents = [
            (_require_number(blob, "offset", span, "blob"), _require_number(blob, "size", span, "blob"))
            for blob in blobs
        ]
        return [("plain", span.get_span(at, size, f"kernel {i}")) for i, (at, size) in enumerate(extents)]
    if scheme != "zstd-per-kernel":
        raise span.make_fault(f"compressed by {scheme!r}; known are 'none' and 'zstd-per-kernel'")
    start, size = (_require_number(table, key, span, "table") for key in ("zstd_offset", "zstd_size"))
    frames = span.get_span(start, size, "kernels")
    (count,) = frames.unpack_numbers(_LENGTH, 0, "the number of kernels")
    at, kernels = _LENGTH.size, []
    for ordinal in range(count):
        (length,) = frames.unpack_numbers(_LENGTH, at, f"the length of kernel {ordinal}")
        kernels.append(("zstd", frames.get_span(at + _LENGTH.size, length, f"kernel {ordinal}")))
        at += _LENGTH.size + length
    return kernels


def _read_head(packed: BinarySpan, packing: str, size: int, label: str) -> bytes:
    if packing == "plain":
        return bytes(packed.get_part(0, size, label))
    read = make_zstd_reader(packed.data, packed)
    head = b""
    while len(head) < size:
        piece = read(size - len(head))
        if not piece:
            raise packed.make_fault(f"ends before the {size} bytes that {label} begins with")
        head += piece
    return head


def _require_map(value: object, label: str, span: BinarySpan) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise span.make_fault(f"{label} is no map")
    return value


def _require_number(entry: Any, key: str, span: BinarySpan, label: str) -> int:
    value = entry.get(key) if isinstance(entry, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise span.make_fault(f"{label}: {key} is no number of bytes or kernels")
    return value
