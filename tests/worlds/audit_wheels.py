"""Small real wheels for tests of audits, written byte by byte: nothing of the product writes them."""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

MACHINES = {
    "gfx90a": 0x3F,
    "gfx942": 0x4C,
    "gfx1100": 0x41,
    "gfx1101": 0x46,
    "gfx1102": 0x47,
    "gfx1103": 0x44,
    "gfx1201": 0x4E,
    "gfx11-generic": 0x54,
}
INIT = """def initialize():
    import rocm_sdk
    rocm_sdk.initialize_process(preload_shortnames=["amdhip64"], check_version="7.1.0")
"""
VERSION = "__version__ = '2.9.0+rocm7.1.0'\ncuda: str | None = None\nhip: str | None = '7.1.25424'\n"


def elf_header(
    machine: int, flags: int = 0, *, sections_at: int = 0, sections: int = 0, programs: int = 0, abi: int = 0
) -> bytes:
    """Return the header of a 64-bit ELF library whose last section holds the names."""
    ident = b"\x7fELF\x02\x01\x01\0" + bytes([abi]) + bytes(7)
    names = max(0, sections - 1)
    fields = (
        3,
        machine,
        1,
        0,
        64 if programs else 0,
        sections_at,
        flags,
        64,
        56,
        programs,
        64,
        sections,
        names,
    )
    return ident + struct.pack("<HHIQQQIHHHHHH", *fields)


def bundle(*targets: str, empty: tuple[str, ...] = (), lies: bool = False, abi: int = 3) -> bytes:
    """Return a plain offload bundle with one code object a target; ``abi`` 3 is code object V5."""
    entries = [("host-x86_64-unknown-linux-gnu-", b"")]
    for target in targets:
        processor, *features = target.split(":")
        flags = 0x20 if lies else MACHINES[processor]
        for feature in features:
            flags |= (3 if feature[-1] == "+" else 2) << {"xnack": 8, "sramecc": 10}[feature[:-1]]
        code = b"" if target in empty else elf_header(224, flags, abi=abi) + b"kernel code"
        entries.append((f"hipv4-amdgcn-amd-amdhsa--{target}", code))
    at = 32 + sum(24 + len(name) for name, _ in entries)
    table, body = b"", b""
    for name, code in entries:
        table += struct.pack("<QQQ", at + len(body), len(code), len(name)) + name.encode()
        body += code
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table + body


def library(
    *targets: str,
    run_path: str | None = None,
    fatbin: bytes | None = None,
    soname: str = "",
    needed: tuple[str, ...] = (),
    machine: int = 62,
    stack: int | None = 6,
    flags: int = 0,
    sections: dict[bytes, bytes] | None = None,
    marker: bytes = b"",
    records: int = 1,
) -> bytes:
    """Return a shared library with device code for targets; ``stack`` are the flags of PT_GNU_STACK, if any.

    ``flags`` are DT_FLAGS; ``sections`` are added, with their content. With ``marker``, which names archives,
    it is a split library: each of its ``records`` says that the code was moved.
    """
    strings, entries = b"\0", b""
    for tag, text in [(29, run_path), (14, soname or None), *((1, name) for name in needed)]:
        if text is not None:
            entries += struct.pack("<qQ", tag, len(strings))
            strings += text.encode() + b"\0"
    entries += struct.pack("<qQ", 30, flags) * bool(flags)
    content = bundle(*targets) if fatbin is None and targets else fatbin or b""
    front = 64 + 3 * 56  # the header and three program headers: all is loaded at its offset
    moved = _make_records(front + len(content), marker, records) if marker else {}
    before = {b".hip_fatbin": content, **moved}
    strings_at = front + sum(map(len, before.values()))
    if relocations := moved.get(b".rela.dyn", b""):
        entries += struct.pack("<qQqQ", 7, strings_at - len(relocations), 8, len(relocations))
    dynamic = struct.pack("<qQ", 5, strings_at) + entries + bytes(16)
    parts = {**before, b".dynstr": strings, b".dynamic": dynamic, **(sections or {})}
    parts[b".shstrtab"] = b"\0" + b"\0".join(parts) + b"\0.shstrtab\0"
    names = parts[b".shstrtab"]
    body, rows = b"", [bytes(64)]
    for name, data in parts.items():
        where = names.index(b"\0" + name + b"\0") + 1
        at = front + len(body)
        rows.append(struct.pack("<IIQQQQIIQQ", where, 1, 0, at, at, len(data), 0, 0, 1, 0))
        body += data
    size = front + len(body)
    programs = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 4096)
    programs += struct.pack("<IIQQQQQQ", 2, 4, strings_at + len(strings), 0, 0, len(dynamic), len(dynamic), 8)
    programs += struct.pack("<IIQQQQQQ", 0 if stack is None else 0x6474E551, stack or 0, *[0] * 5, 16)
    header = elf_header(machine, sections_at=size, sections=len(rows), programs=3)
    return header + programs + body + b"".join(rows)


def _make_records(at: int, marker: bytes, count: int) -> dict[bytes, bytes]:
    """Return the sections of a library whose code was moved, the first of them at a place: HIPK records."""
    records_at = at + len(marker)
    records = b"".join(struct.pack("<IIQQ", 0x4B504948, 1, 0, number) for number in range(count))
    relocations = (struct.pack("<QQq", records_at + 24 * number + 8, 8, at) for number in range(count))
    return {b".rocm_kpack_ref": marker, b".hipFatBinSegment": records, b".rela.dyn": b"".join(relocations)}


@dataclass
class Draft:
    """A wheel that is right until a test breaks something; ``write`` lists in RECORD what is there."""

    distribution: str = "torch"
    version: str = "2.9.0+rocm7.1.0"
    tag: str = "cp311-cp311-linux_x86_64"
    wheel_tag: str = ""
    pure: str = ""
    file_name: str = ""
    members: dict[str, bytes] = field(default_factory=dict)
    requires: list[str] = field(default_factory=list)
    python: str = ">=3.10"
    fields: list[str] = field(default_factory=list)
    metadata: bytes | None = None
    unlisted: dict[str, bytes] = field(default_factory=dict)
    record: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The ``.dist-info`` folder."""
        return f"{self.distribution}-{self.version}.dist-info"

    def write(self, place: Path) -> Path:
        """Write the wheel into a folder and return its path."""
        lines = [
            "Metadata-Version: 2.4",
            f"Name: {self.distribution}",
            f"Version: {self.version}",
            *self.fields,
        ]
        lines += [f"Requires-Python: {self.python}"] if self.python else []
        lines += [f"Requires-Dist: {line}" for line in self.requires]
        text = "\n".join(lines).encode() + b"\n"
        pure = self.pure or ("true" if self.tag.endswith("any") else "false")
        tag = self.wheel_tag or self.tag
        wheel = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
        members = {
            **self.members,
            f"{self.folder}/METADATA": text if self.metadata is None else self.metadata,
            f"{self.folder}/WHEEL": wheel.encode(),
        }
        record = "".join(
            self.record.get(name, f"{name},sha256={_digest(data)},{len(data)}") + "\n"
            for name, data in members.items()
        )
        path = place / (self.file_name or f"{self.distribution}-{self.version}-{self.tag}.whl")
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in {**members, **self.unlisted}.items():
                archive.writestr(date_member(name), data)
            archive.writestr(date_member(f"{self.folder}/RECORD"), f"{record}{self.folder}/RECORD,,\n")
        return path


def date_member(name: str) -> zipfile.ZipInfo:
    """Return a member that has the same date whenever the wheel is written."""
    member = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
    member.external_attr = 0o100600 << 16  # as writestr gives to a name
    return member


def torch_draft() -> Draft:
    """Return a torch for gfx942 and gfx1100 in which nothing is wrong."""
    return Draft(
        members={
            "torch/__init__.py": b"from . import _rocm_init\n",
            "torch/version.py": VERSION.encode(),
            "torch/_rocm_init.py": INIT.encode(),
            "torch/lib/libtorch_hip.so": library(
                "gfx942:sramecc+:xnack-", "gfx1100", run_path="$ORIGIN:/usr/lib64"
            ),
            "torch/lib/libc10.so": library(),
            "torch/lib/libaotriton_v2.so.0.11.0": library("gfx942"),
        },
        requires=["filelock", "rocm[libraries]==7.1.0", "triton==3.5.0; platform_system == 'Linux'"],
    )


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def dll(*imports: str, delayed: tuple[str, ...] = ()) -> bytes:
    """Return a PE image for x86_64 that imports DLLs, at once and when they are first called."""
    tables, names = b"", b""
    names_at = 0x1000 + 20 * (len(imports) + 1) + 32 * (len(delayed) + 1)
    for name in imports:
        tables += struct.pack("<IIIII", 0, 0, 0, names_at + len(names), 0)
        names += name.encode() + b"\0"
    delayed_at = 0x1000 + 20 * (len(imports) + 1)
    tables += bytes(20)
    for name in delayed:
        tables += struct.pack("<IIIIIIII", 1, names_at + len(names), *[0] * 6)
        names += name.encode() + b"\0"
    content = tables + bytes(32) + names
    directories = [(0, 0)] * 16
    directories[1] = (0x1000, 20 * (len(imports) + 1))
    directories[13] = (delayed_at, 32 * (len(delayed) + 1)) if delayed else (0, 0)
    optional = struct.pack("<H", 0x20B).ljust(108, b"\0") + struct.pack("<I", 16)
    optional += b"".join(struct.pack("<II", *row) for row in directories)
    header = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, 1, 0, 0, 0, len(optional), 0x2022)
    section = struct.pack("<8sIIIIIIHHI", b".rdata", len(content), 0x1000, len(content), 0x400, *[0] * 4, 0)
    front = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64)
    return (front + header + optional + section).ljust(0x400, b"\0") + content
