"""Read and write device code outside of host libraries: archives (``.kpack``), and who refers to them.

Source: ROCm/rocm-systems, ``shared/kpack`` (docs/multi_arch_packaging_with_kpack.md,
python/rocm_kpack/kpack.py, compression.py, elf/kpack_transform.py, coff/kpack_transform.py). An
archive is a header (``KPAK``, version, place of the table), kernels, and a table in MessagePack:
library → target → kernel. A library that was split has a section that names archives, and its
``.hip_fatbin`` is cut, or left over and no longer used.

MessagePack is read as far as these tables use it: maps with text as keys, arrays, numbers, text
(specification: github.com/msgpack/msgpack, spec.md). A count or length that the bytes cannot hold is
refused before anything is made for it.
"""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocm_wheels.binaries import elf, elf_pages, limits
from rocm_wheels.device_code import bundles

if TYPE_CHECKING:
    from rocm_wheels.device_code.code_objects import TargetId

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


def unpack_messagepack(span: elf.BinarySpan) -> object:
    """Return the value that a span begins with; what stands behind it is not looked at.

    DataError when it is cut short, nested deeper than 32 levels, or has a key that is no text; LimitError for
    more values than any table has.
    """
    return _MessagePackReader(span).read_value(0)


class _MessagePackReader:
    def __init__(self, span: elf.BinarySpan) -> None:
        self._span = span
        self._at = 0
        self._values = 0

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
        self._values += least
        self._span.require_limit(self._values, limits.MOST_VALUES, "values in a table")
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


def pack_messagepack(value: object) -> bytes:
    """Return text, numbers that are not negative, arrays and maps of them as MessagePack, as short as can be.

    TypeError for anything else.
    """
    if isinstance(value, str):
        raw = value.encode()
        return _pack_length(len(raw), (0xA0, 32), {1: 0xD9, 2: 0xDA, 4: 0xDB}) + raw
    if isinstance(value, dict):
        head = _pack_length(len(value), (0x80, 16), {2: 0xDE, 4: 0xDF})
        return head + b"".join(pack_messagepack(key) + pack_messagepack(item) for key, item in value.items())
    if isinstance(value, list):
        head = _pack_length(len(value), (0x90, 16), {2: 0xDC, 4: 0xDD})
        return head + b"".join(map(pack_messagepack, value))
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return _pack_length(value, (0, 0x80), {1: 0xCC, 2: 0xCD, 4: 0xCE, 8: 0xCF})
    raise TypeError(f"{value!r} is nothing that a table of kernels has")


def _pack_length(number: int, short: tuple[int, int], widths: Mapping[int, int]) -> bytes:
    """Return a number behind the byte that says what it counts: the first and limit of the short form."""
    first, limit = short
    if number < limit:
        return bytes([first | number])
    width = next(width for width in widths if number < 1 << 8 * width)
    return bytes([widths[width]]) + number.to_bytes(width, "big")


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
_ALIGNMENT = 64
_ZSTD_LEVEL = 3  # as ROCm's own splitter


@dataclass(frozen=True)
class KpackKernel:
    """A kernel of an archive: ``library`` as the table spells it (``lib/libtorch_hip.so#0``).

    ``size`` is in bytes, plain; ``head`` is the kernel's first 64 bytes; ``packing`` is ``plain`` or
    ``zstd``, ``packed`` its bytes in the archive.
    """

    library: str
    target: str
    ordinal: int
    packing: str
    size: int
    head: bytes
    packed: elf.BinarySpan

    def read_content(self) -> bytes:
        """Return the kernel; DataError when it is not what the table says."""
        from rocm_wheels.core import files, zstd

        if self.packing == "plain":
            content = bytes(self.packed.data)
        else:
            try:
                content = zstd.ZstdDecompressor().decompress(self.packed.data, self.size + 1)
            except (zstd.ZstdError, MemoryError) as cause:
                raise self.packed.make_fault("bad zstd stream") from cause
        files.release_mapped_pages(self.packed.data)
        if len(content) != self.size:
            raise self.packed.make_fault(f"does not inflate to the {self.size} bytes that its table says")
        return content


@dataclass(frozen=True)
class PackedKernel:
    """A kernel for an archive, of the record ``number`` of a library: ``library`` is ``lib/libx.so#0``.

    ``size`` is in bytes, plain; its frame is in the file of all frames, ``frame_size`` bytes from ``offset``.
    """

    library: str
    number: int
    target: TargetId
    size: int
    offset: int
    frame_size: int


def compress_kernel(content: elf_pages.FilePiece) -> bytes:
    """Return a kernel as an archive has it: one zstd frame."""
    from rocm_wheels.core import zstd

    return zstd.compress_zstd(content, level=_ZSTD_LEVEL)


def format_archive(
    group: str, family: str, targets: Sequence[str], kernels: Sequence[PackedKernel]
) -> tuple[bytes, list[bytes], bytes]:
    """Return what stands around the frames of kernels: head, what is before each, and the table behind.

    ``family`` is the target or family that the archive is for. The loader goes by ``targets``.
    """
    size = _LENGTH.size + sum(_LENGTH.size + kernel.frame_size for kernel in kernels)
    toc: dict[str, dict[str, object]] = {}
    for ordinal, kernel in enumerate(kernels):
        entry = {"type": "hsaco", "ordinal": ordinal, "original_size": kernel.size}
        toc.setdefault(kernel.library, {})[str(kernel.target)] = entry
    table = {
        "format_version": _VERSION,
        "group_name": group,
        "gfx_arch_family": family,
        "gfx_arches": list(targets),
        "toc": toc,
        "compression_scheme": "zstd-per-kernel",
        "zstd_offset": _ALIGNMENT,
        "zstd_size": size,
    }
    head = _KPACK_HEADER.pack(KPACK_MAGIC, _VERSION, _ALIGNMENT + size).ljust(_ALIGNMENT, b"\0")
    lengths = [_LENGTH.pack(kernel.frame_size) for kernel in kernels]
    return head + _LENGTH.pack(len(kernels)), lengths, pack_messagepack(table)


def format_reference(library: str, paths: Sequence[str]) -> bytes:
    """Return the content of a library's section that names archives, relative to the library."""
    return pack_messagepack({"kpack_search_paths": list(paths), "kernel_name": library})


def read_kpack_reference(marker: elf.BinarySpan) -> tuple[str, ...]:
    """Return the archives that a library's section names, relative to the library.

    ``@GFXARCH@`` in them stands for a target. DataError when the section names none.
    """
    stated = unpack_messagepack(marker)
    paths = stated.get("kpack_search_paths") if isinstance(stated, dict) else None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise marker.make_fault("names no .kpack archives (kpack_search_paths)")
    return tuple(paths)


def read_library_name(marker: elf.BinarySpan) -> str:
    """Return what archives call the library of a section; DataError when it does not say."""
    stated = unpack_messagepack(marker)
    name = stated.get("kernel_name") if isinstance(stated, dict) else None
    if not isinstance(name, str) or not name:
        raise marker.make_fault("does not say what archives call the library (kernel_name)")
    return name


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


def read_kpack_kernels(span: elf.BinarySpan) -> Iterator[KpackKernel]:
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
            packed.require_limit(size, limits.get_plain_limit(len(packed)), f"bytes of {label}")
            head = _read_head(packed, packing, min(size, _KERNEL_HEAD_SIZE), label)
            yield KpackKernel(library, target, ordinal, packing, size, head, packed)


def _locate_kernels(table: Mapping[str, Any], span: elf.BinarySpan) -> list[tuple[str, elf.BinarySpan]]:
    """Return packing and bytes of each kernel, by its ordinal."""
    scheme = table.get("compression_scheme")
    if scheme == "none":
        blobs = table.get("blobs")
        if not isinstance(blobs, list):
            raise span.make_fault("its table lists no blobs")
        span.require_limit(len(blobs), limits.get_object_limit(len(span)), "kernels")
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
    frames.require_limit(count, limits.get_object_limit(len(span)), "kernels")
    at, kernels = _LENGTH.size, []
    for ordinal in range(count):
        (length,) = frames.unpack_numbers(_LENGTH, at, f"the length of kernel {ordinal}")
        kernels.append(("zstd", frames.get_span(at + _LENGTH.size, length, f"kernel {ordinal}")))
        at += _LENGTH.size + length
    return kernels


def _read_head(packed: elf.BinarySpan, packing: str, size: int, label: str) -> bytes:
    if packing == "plain":
        return bytes(packed.get_part(0, size, label))
    read = bundles.make_stream_reader("zstd", packed.data, packed)
    head = b""
    while len(head) < size:
        piece = read(size - len(head))
        if not piece:
            raise packed.make_fault(f"ends before the {size} bytes that {label} begins with")
        head += piece
    return head


def _require_map(value: object, label: str, span: elf.BinarySpan) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise span.make_fault(f"{label} is no map")
    return value


def _require_number(entry: Any, key: str, span: elf.BinarySpan, label: str) -> int:
    value = entry.get(key) if isinstance(entry, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise span.make_fault(f"{label}: {key} is no number of bytes or kernels")
    return value
