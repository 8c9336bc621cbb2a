"""Libraries, objects and archives of kernels, written byte by byte."""

from __future__ import annotations

import base64
import hashlib
import struct
import sys
import zipfile
import zlib
from pathlib import Path

# ---- The zstd that the product reads with: the standard library's, or its backport.


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]


# ---- Writes the files that the readers read: an independent second hand, from the formats' documents.


MACH = {
    "gfx906": 0x2F,
    "gfx90a": 0x3F,
    "gfx942": 0x4C,
    "gfx1030": 0x36,
    "gfx1100": 0x41,
    "gfx1101": 0x46,
    "gfx9-4-generic": 0x5F,
}
HOST = ("host-x86_64-unknown-linux-gnu-", b"")
XNACK = {"": 0x100, "-": 0x200, "+": 0x300}
SRAMECC = {"": 0x400, "-": 0x800, "+": 0xC00}


def code_object(
    processor: str | int, *, xnack: str = "", sramecc: str = "", size: int = 256, abi: int | None = None
) -> bytes:
    """An AMDGPU ELF header with that processor (or number), and filler; generic ones are of version 6."""
    if abi is None:
        abi = 4 if str(processor).endswith("-generic") else 2
    number = processor if isinstance(processor, int) else MACH[processor]
    flags = number | (XNACK[xnack] | SRAMECC[sramecc] if abi >= 2 else 0)
    ident = b"\x7fELF\x02\x01\x01\x40" + bytes([abi]) + bytes(7)
    head = ident + struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, 0, flags, 64, 0, 0, 64, 0, 0)
    return head + hashlib.sha256(head).digest() * ((size - 64) // 32)


def hip(target: str, content: bytes | None = None, kind: str = "hipv4") -> tuple[str, bytes]:
    """A bundle entry for a target ID, its code object made to agree with it."""
    processor, *features = target.split(":")
    signs = {f[:-1]: f[-1] for f in features}
    made = code_object(processor, **signs) if content is None else content
    return f"{kind}-amdgcn-amd-amdhsa--{target}", made


def bundle(*entries: tuple[str, bytes], align: int = 4096) -> bytes:
    """A plain bundle with these entries, the first one after the table at the alignment."""
    table_size = 32 + sum(24 + len(name) for name, _ in entries)
    at, table, body = -(-table_size // align) * align, b"", b""
    start = at
    for name, content in entries:
        at = -(-at // align) * align
        table += struct.pack("<QQQ", at, len(content), len(name)) + name.encode()
        body += bytes(at - start - len(body)) + content
        at += len(content)
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table
    return head + bytes(start - len(head)) + body


def compress(plain: bytes, version: int, method: str, *, declared: int | None = None) -> bytes:
    """A CCOB of that version around ``plain``."""

    packed = zlib.compress(plain) if method == "zlib" else zstd.compress(plain)
    size = len(plain) if declared is None else declared
    digest = hashlib.md5(plain).digest()[:8]
    lead = b"CCOB" + struct.pack("<HH", version, {"zlib": 0, "zstd": 1}[method])
    middle = {1: "<I", 2: "<II", 3: "<QQ"}[version]
    total = len(lead) + struct.calcsize(middle) + 8 + len(packed)
    numbers = (size,) if version == 1 else (total, size)
    return lead + struct.pack(middle, *numbers) + digest + packed


def messagepack(value: object) -> bytes:
    """A value as MessagePack: the shortest form of maps, arrays, text, numbers, nil and booleans."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return bytes([value]) if value < 128 else b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, str):
        raw = value.encode()
        return (bytes([0xA0 | len(raw)]) if len(raw) < 32 else b"\xd9" + bytes([len(raw)])) + raw
    if isinstance(value, dict):
        body = b"".join(messagepack(key) + messagepack(item) for key, item in value.items())
        return (
            bytes([0x80 | len(value)]) if len(value) < 16 else b"\xde" + struct.pack(">H", len(value))
        ) + body
    assert isinstance(value, list)
    body = b"".join(map(messagepack, value))
    return (bytes([0x90 | len(value)]) if len(value) < 16 else b"\xdc" + struct.pack(">H", len(value))) + body


def kpack(kernels: dict[tuple[str, str], bytes], scheme: str = "zstd-per-kernel", **changes: object) -> bytes:
    """An archive of kernels by (library, target); ``changes`` replace or add keys of its table."""

    toc: dict[str, dict[str, object]] = {}
    body, blobs = struct.pack("<I", len(kernels)) * (scheme == "zstd-per-kernel"), []
    for ordinal, ((library, target), code) in enumerate(kernels.items()):
        entry = {"type": "hsaco", "ordinal": ordinal, "original_size": len(code)}
        toc.setdefault(library, {})[target] = entry
        blobs.append({"offset": 64 + len(body), "size": len(code)})
        frame = zstd.compress(code)
        body += code if scheme == "none" else struct.pack("<I", len(frame)) + frame
    where = {"blobs": blobs} if scheme == "none" else {"zstd_offset": 64, "zstd_size": len(body)}
    table = {"format_version": 1, "compression_scheme": scheme, **where, "toc": toc, **changes}
    head = b"KPAK" + struct.pack("<IQ", 1, 64 + len(body))
    return head + bytes(64 - len(head)) + body + messagepack(table)


def kpack_reference(*paths: str, kernel_name: str = "lib/libdemo.so") -> bytes:
    """What a library that was split says about the place of its code."""
    return messagepack({"kpack_search_paths": list(paths), "kernel_name": kernel_name})


def pad(content: bytes, to: int = 4096) -> bytes:
    """Fill up with zeros to a multiple."""
    return content + bytes(-len(content) % to)


def elf(sections: dict[str, bytes], *, extended: bool = False) -> bytes:
    """A host library with these sections; ``extended`` counts them in section 0 as files with 65280 do."""
    names, body, rows = b"\0", b"", [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    for name in [*sections, ".shstrtab"]:
        at = 64 + len(body)
        name_at, names = len(names), names + name.encode() + b"\0"
        content = sections.get(name, names)
        rows.append(struct.pack("<IIQQQQIIQQ", name_at, 1, 0, 0, at, len(content), 0, 0, 1, 0))
        body += content
    count, index = len(rows), len(rows) - 1
    if extended:
        rows[0] = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, count, index, 0, 0, 0)
        count, index = 0, 0xFFFF
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, index)
    return head + body + b"".join(rows)


def coff(sections: dict[str, bytes], *, image: bool) -> bytes:
    """A DLL (``image``) or object; long names are cut in one and in a string table in the other."""
    strings, rows, body = b"", b"", b""
    front = 128 + 4 if image else 0
    start = front + 20 + 40 * len(sections)
    for name, given in sections.items():
        raw = name.encode()[:8]
        if len(name) > 8 and not image:
            raw, strings = f"/{4 + len(strings)}".encode(), strings + name.encode() + b"\0"
        content = pad(given, 512) if image else given
        rows += struct.pack(
            "<8sIIIIIIHHI", raw, len(content) if image else 0, 0, len(content), start + len(body), *[0] * 5
        )
        body += content
    table_at = start + len(body)
    header = struct.pack("<HHIIIHH", 0x8664, len(sections), 0, 0 if image else table_at, 0, 0, 0)
    tail = b"" if image else struct.pack("<I", 4 + len(strings)) + strings
    dos = b"MZ" + bytes(58) + struct.pack("<I", 128) + bytes(64) + b"PE\0\0" if image else b""
    return dos + header + rows + body + tail


def ar(members: dict[str, bytes], *, style: str) -> bytes:
    """A static library; names as GNU (``//`` table) or BSD (``#1/n``) tools write them."""

    def member(name: bytes, content: bytes) -> bytes:
        head = b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, 0, 0, 0, b"644", len(content))
        return head + content + b"\n" * (len(content) % 2)

    made, table = b"!<arch>\n", b""
    if style == "gnu":
        places = {}
        for name in members:
            places[name], table = len(table), table + name.encode() + b"/\n"
        made += member(b"/", b"\0\0\0\0") + member(b"//", table)
        return made + b"".join(member(b"/%d" % places[n], c) for n, c in members.items())
    for name, content in {"__.SYMDEF": b"\0" * 8, **members}.items():
        long = name.encode() + bytes(-len(name) % 4)
        made += member(b"#1/%d" % len(long), long + content)
    return made


def digest_of(content: bytes) -> str:
    """A digest as RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def wheel(
    folder: Path,
    files: dict[str, bytes],
    *,
    name: str = "demo-1.0-py3-none-any.whl",
    record: str | None = None,
    method: int = zipfile.ZIP_DEFLATED,
    metadata: str = "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    tags: tuple[str, ...] = ("py3-none-any",),
    pure: str = "true",
) -> Path:
    """A wheel with these files and a right ``demo-1.0.dist-info``, or what is given instead."""
    info = "demo-1.0.dist-info"
    about = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {pure}\n" + "".join(
        f"Tag: {t}\n" for t in tags
    )
    files = {**files, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": about.encode()}
    lines = [f'"{path}",{digest_of(content)},{len(content)}' for path, content in files.items()]
    made = "\n".join([*lines, f"{info}/RECORD,,", ""]) if record is None else record
    path = folder / name
    with zipfile.ZipFile(path, "w", method) as archive:
        for member, content in {**files, f"{info}/RECORD": made.encode()}.items():
            archive.writestr(member, content)
    return path
