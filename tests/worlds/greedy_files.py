"""Files of some kilobytes that state more than any real file has: what is made of them fills the memory.

Each is packed to a wheel below 300 KB. ``list_greedy_files`` gives them by what they state.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from audit_wheels import library
from binary_writer import bundle, coff, compress, hip, kpack, kpack_reference, messagepack

_TEXT = b"\0" + b"A" * 4000 + b"\0"
_DYNAMIC_AT = 0x1000
_HIGH = 1 << 31


def _write_elf(entries: bytes, tables: Mapping[int, bytes] = {}, *, text: bytes = _TEXT) -> bytes:
    """Return a library with dynamic entries, a string table, and tables that entries of tags lead to."""
    at = _DYNAMIC_AT + len(entries) + 16 * (len(tables) + 4)
    places = b""
    content = text
    for tag, table in tables.items():
        content += bytes(-len(content) % 8)
        places += struct.pack("<qQ", tag, at + len(content))
        content += table
    dynamic = struct.pack("<qQqQ", 5, at, 10, len(text)) + places + entries + bytes(32)
    dynamic = dynamic.ljust(at - _DYNAMIC_AT, b"\0")
    size = at + len(content)
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, size, size, 0x1000)
    place = struct.pack("<IIQQQQQQ", 2, 6, *[_DYNAMIC_AT] * 3, len(dynamic), len(dynamic), 8)
    return (head + load + place).ljust(_DYNAMIC_AT, b"\0") + dynamic + content


def _write_sections(count: int, name: int, kind: int = 1) -> bytes:
    """Return a library of so many sections, counted in the first, whose names share one text."""
    names_at = 64
    table_at = names_at + 4096
    rows = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, count, 1, 0, 0, 0)
    rows += struct.pack("<IIQQQQIIQQ", name, 3, 0, 0, names_at, len(_TEXT), 0, 0, 0, 0)
    rows += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, 0, 64, 0, 0, 0, 0) * (min(count, 1 << 17) - 2)
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table_at, 0, 64, 56, 0, 64, 0, 0xFFFF)
    return head + _TEXT.ljust(4096, b"\0") + rows


def _write_dll(directory: int, row: bytes, count: int) -> bytes:
    """Return a DLL whose directory leads to so many rows, whose names share one text."""
    content = _TEXT.ljust(4096, b"\0") + row * count + bytes(64)
    header = bytearray(112 + 8 * 16)  # of PE32+, with 16 directories
    header[:2], header[108:112] = b"\x0b\x02", (16).to_bytes(4, "little")
    struct.pack_into("<II", header, 112 + 8 * directory, 0x2000, 64)
    front = b"MZ" + bytes(58) + struct.pack("<I", 128) + bytes(64) + b"PE\0\0"
    front += struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, len(header), 0x2022) + header
    front += struct.pack("<8sIIIIIIHHI", b".idata", len(content), 0x1000, len(content), 0x400, *[0] * 5)
    return front.ljust(0x400, b"\0") + content


def _write_kpack(frames: bytes, count: int) -> bytes:
    """Return an archive that states so many kernels."""
    body = struct.pack("<I", count) + frames
    table = messagepack(
        {"compression_scheme": "zstd-per-kernel", "zstd_offset": 64, "zstd_size": len(body), "toc": {}}
    )
    return struct.pack("<4sIQ", b"KPAK", 1, 64 + len(body)).ljust(64, b"\0") + body + table


def list_greedy_files() -> dict[str, tuple[str, bytes]]:
    """Return the file's name and its bytes by what it states too much of."""
    needed, run_path = struct.pack("<qQ", 1, 1), struct.pack("<qQ", 29, 1)
    # a list of needed versions that each lead to itself one byte on, and two names of 4,000 characters
    version = struct.pack("<HHIII", 1, 0xFFFF, 1, 16, 16) + struct.pack("<IHHII", 0, 0, 2, 1, 16) * 60_000
    symbol = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 1, 1)
    code = compress(bundle(*[hip("gfx942") for _ in range(3000)], align=8), 2, "zstd")
    zeros = bundle(hip("gfx942", bytes(32 << 20)))
    plain = b"__CLANG_OFFLOAD_BUNDLE__"
    lazy = "torch/lib/rocblas/library/TensileLibrary_lazy_gfx942.dat"
    return {
        "needed libraries": ("torch/lib/a.so", _write_elf(needed * 200_000)),
        "needed libraries with long names": ("torch/lib/a.so", _write_elf(needed * 4_000)),
        "run paths": ("torch/lib/a.so", _write_elf(run_path * 3_000)),
        "a long run path": ("torch/lib/a.so", _write_elf(run_path, text=b"\0" + b"a:" * 2_000_000 + b"\0")),
        "needed versions": (
            "torch/lib/a.so",
            _write_elf(struct.pack("<qQ", 0x6FFFFFFF, _HIGH), {0x6FFFFFFE: version}),
        ),
        "symbols in a hash table": (
            "torch/lib/a.so",
            _write_elf(b"", {6: symbol * 8, 4: struct.pack("<II", 1, _HIGH)}),
        ),
        "long names of symbols": (
            "torch/lib/a.so",
            _write_elf(b"", {6: symbol * 100_000, 4: struct.pack("<II", 1, 100_000)}),
        ),
        "sections": ("torch/lib/a.so", _write_sections(1 << 30, 0)),
        "long names of sections": ("torch/lib/a.so", _write_sections(60_000, 1)),
        "imports": ("torch/lib/a.dll", _write_dll(1, struct.pack("<IIIII", 1, 0, 0, 0x1001, 1), 200_000)),
        "long names of imports": (
            "torch/lib/a.dll",
            _write_dll(1, struct.pack("<IIIII", 1, 0, 0, 0x1001, 1), 4_000),
        ),
        "delayed imports": (
            "torch/lib/a.pyd",
            _write_dll(13, struct.pack("<IIIIIIII", 1, 0x1001, *[1] * 6), 200_000),
        ),
        "sections of a DLL": ("torch/lib/a.dll", coff({f".s{i}": b"x" for i in range(3_000)}, image=True)),
        "entries of a bundle": ("torch/lib/a.co", plain + struct.pack("<Q", _HIGH) + bytes(4096)),
        "compressed code objects": ("torch/lib/a.co", code * 40),
        "plain bytes of a bundle": (
            "torch/lib/a.co",
            compress(bundle(hip("gfx942", bytes(32 << 20))), 2, "zstd"),
        ),
        "bundles that zlib packs": (
            "torch/lib/a.so",
            library(fatbin=compress(zeros, 1, "zlib") * 8),
        ),
        "kernels": ("torch/lib/a.kpack", _write_kpack(bytes(4 << 20), 1 << 20)),
        "kernels that are not there": ("torch/lib/a.kpack", _write_kpack(bytes(64), _HIGH)),
        "bytes of a kernel": (
            "torch/lib/a.kpack",
            kpack({("lib/a.so#0", "gfx942"): hip("gfx942")[1]}).replace(
                messagepack(len(hip("gfx942")[1])), messagepack(0x7FFF_FFFF)
            ),
        ),
        "values of a table": (
            "torch/lib/a.so",
            library(sections={b".x": b""}, marker=b"\xdd" + struct.pack(">I", 4 << 20) + b"\x90" * (4 << 20)),
        ),
        "values that are not there": ("torch/lib/a.so", library(marker=b"\xdd" + struct.pack(">I", _HIGH))),
        "values of a list of kernels": (lazy, b"\xdd" + struct.pack(">I", 8 << 20) + b"\x90" * (8 << 20)),
        "records of device code": (
            "torch/lib/a.so",
            library(marker=kpack_reference("../a.kpack"), records=70_000),
        ),
        "parts of names": ("a/" * 32_000 + "b.py", b""),
        "lines of a module": ("torch/version.py", b"a;" * (4 << 20)),
        "lines of a pth": ("torch.pth", b"\n" * (16 << 20)),
    }
