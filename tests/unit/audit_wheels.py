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
}
INIT = """def initialize():
    import rocm_sdk
    rocm_sdk.initialize_process(preload_shortnames=["amdhip64"], check_version="7.1.0")
"""
VERSION = "__version__ = '2.9.0+rocm7.1.0'\ncuda: str | None = None\nhip: str | None = '7.1.25424'\n"


def elf_header(
    machine: int, flags: int = 0, *, sections_at: int = 0, sections: int = 0, programs: int = 0
) -> bytes:
    """Return the header of a 64-bit ELF library whose last section holds the names."""
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
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


def bundle(*targets: str, empty: tuple[str, ...] = (), lies: bool = False) -> bytes:
    """Return a plain offload bundle with one code object a target."""
    entries = [("host-x86_64-unknown-linux-gnu-", b"")]
    for target in targets:
        machine = 0x20 if lies else MACHINES[target.partition(":")[0]]
        code = b"" if target in empty else elf_header(224, machine) + b"kernel code"
        entries.append((f"hipv4-amdgcn-amd-amdhsa--{target}", code))
    at = 32 + sum(24 + len(name) for name, _ in entries)
    table, body = b"", b""
    for name, code in entries:
        table += struct.pack("<QQQ", at + len(body), len(code), len(name)) + name.encode()
        body += code
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table + body


def library(*targets: str, run_path: str = "", fatbin: bytes | None = None) -> bytes:
    """Return a shared library with device code for targets and a DT_RUNPATH."""
    strings = b"\0" + run_path.encode() + b"\0"
    content = bundle(*targets) if fatbin is None and targets else fatbin or b""
    front = 64 + 2 * 56  # the header and two program headers: all is loaded at its offset
    strings_at = front + len(content)
    dynamic = struct.pack("<qQqQ", 5, strings_at, 29, 1) * bool(run_path) + bytes(16)
    parts = {b".hip_fatbin": content, b".dynstr": strings, b".dynamic": dynamic}
    parts[b".shstrtab"] = b"\0" + b"\0".join(parts) + b"\0.shstrtab\0"
    names = parts[b".shstrtab"]
    body, rows = b"", [bytes(64)]
    for name, data in parts.items():
        where = names.index(b"\0" + name + b"\0") + 1
        rows.append(struct.pack("<IIQQQQIIQQ", where, 1, 0, 0, front + len(body), len(data), 0, 0, 1, 0))
        body += data
    size = front + len(body)
    programs = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 4096)
    programs += struct.pack("<IIQQQQQQ", 2, 4, strings_at + len(strings), 0, 0, len(dynamic), len(dynamic), 8)
    header = elf_header(62, sections_at=size, sections=len(rows), programs=2)
    return header + programs + body + b"".join(rows)


@dataclass
class Draft:
    """A wheel that is right until a test breaks something; ``write`` lists in RECORD what is there."""

    distribution: str = "torch"
    version: str = "2.9.0+rocm7.1.0"
    tag: str = "cp311-cp311-linux_x86_64"
    wheel_tag: str = ""
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
        pure = "true" if self.tag.endswith("any") else "false"
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
                archive.writestr(name, data)
            archive.writestr(f"{self.folder}/RECORD", f"{record}{self.folder}/RECORD,,\n")
        return path


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
