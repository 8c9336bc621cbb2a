"""Wheels and what is in them, sound or not, and sets of them to audit."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import Any

from binaries import code_object, kpack, kpack_reference
from filelock import FileLock

from rocm_wheels.audit import audited_set, audited_wheel, verify
from rocm_wheels.index import update
from rocm_wheels.package import sbom
from rocm_wheels.wheels import rewrite
from rocm_wheels.wheels.sbom import WheelParts

# ---- What an archive holds, as zipfile reads it.


def read_members(path: Path) -> dict[str, bytes]:
    """Return the members, each of which has the CRC that the archive states."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def read_packed(path: Path, name: str) -> bytes:
    """Return the compressed bytes of a member as they lie in the archive."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    data, at = path.read_bytes(), info.header_offset
    lengths = data[at + 26 : at + 30]
    start = at + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    return data[start : start + info.compress_size]


# ---- Zip archives put together byte by byte, so that each field can be given a wrong value.


Values = dict[str, Any]


@dataclass
class Member:
    """A member; ``local`` and ``central`` are values that its two headers have instead of the right ones."""

    name: bytes
    content: bytes = b"x = 1\n"
    method: int = 8
    flags: int = 0
    mode: int = 0o100644
    extra: bytes = b""
    packed: bytes | None = None
    before: bytes = b""
    behind: bytes = b""
    local: Values = field(default_factory=dict)
    central: Values = field(default_factory=dict)

    def values(self) -> Values:
        """The right values of both headers."""
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        deflated = packer.compress(self.content) + packer.flush()
        data = self.packed if self.packed is not None else deflated if self.method == 8 else self.content
        return {
            "name": self.name,
            "flags": self.flags,
            "needed": 20,
            "method": self.method,
            "crc": zlib.crc32(self.content),
            "compressed": len(data),
            "size": len(self.content),
            "extra": self.extra,
            "external": self.mode << 16,
            "comment": b"",
            "disk": 0,
            "data": data,
        }


@dataclass
class Archive:
    """An archive; ``end`` and ``wide`` are values instead of the right ones, ``wide`` None means no ZIP64."""

    members: list[Member]
    prefix: bytes = b""
    between: bytes = b""  # in front of the directory
    after: bytes = b""  # behind the directory
    comment: bytes = b""
    tail: bytes = b""
    end: Values = field(default_factory=dict)
    wide: Values | None = None

    def __getitem__(self, number: int) -> Member:
        return self.members[number]

    def bytes(self) -> bytes:
        """The archive."""
        made, directory = bytearray(self.prefix), bytearray()
        for member in self.members:
            made += member.before
            right = member.values()
            offset = len(made)
            v = {**right, **member.local}
            made += pack("<4sHHHHHLLLHH", b"PK\3\4", 20, v["flags"], v["method"], 0, 33, v["crc"],
                         v["compressed"], v["size"], len(v["name"]), len(v["extra"]))  # fmt: skip
            made += v["name"] + v["extra"] + right["data"] + member.behind
            v = {"offset": offset, **right, **member.central}
            directory += pack("<4sBBHHHHHLLLHHHHHLL", b"PK\1\2", 20, 3, v["needed"], v["flags"], v["method"],
                              0, 33, v["crc"], v["compressed"], v["size"], len(v["name"]), len(v["extra"]),
                              len(v["comment"]), v["disk"], 0, v["external"], v["offset"])  # fmt: skip
            directory += v["name"] + v["extra"] + v["comment"]
        made += self.between
        at, count = len(made), len(self.members)
        made += directory + self.after
        right = {"disk": 0, "first": 0, "here": count, "count": count, "size": len(directory), "offset": at}
        if self.wide is not None:
            w = {"mark": b"PK\6\6", "length": 44, "at": len(made), "disks": 1, **right, **self.wide}
            made += pack("<4sQHHLLQQQQ", w["mark"], w["length"], 45, 45, w["disk"], w["first"], w["here"],
                         w["count"], w["size"], w["offset"])  # fmt: skip
            made += pack("<4sLQL", b"PK\6\7", 0, w["at"], w["disks"])
        e = {**right, "comment": len(self.comment), **self.end}
        made += pack("<4sHHHHLLH", b"PK\5\6", e["disk"], e["first"], e["here"], e["count"], e["size"],
                     e["offset"], e["comment"])  # fmt: skip
        return bytes(made + self.comment + self.tail)

    def write(self, folder: Path, name: str = "demo-1.0-py3-none-any.whl") -> Path:
        """Write the archive."""
        path = folder / name
        path.write_bytes(self.bytes())
        return path


def extra(number: int, content: bytes) -> bytes:
    """A field of an extra area."""
    return pack("<HH", number, len(content)) + content


def descriptor(member: Member, **wrong: int) -> bytes:
    """The data descriptor of a member."""
    v = {**member.values(), **wrong}
    return pack("<4sLLL", b"PK\7\10", v["crc"], v["compressed"], v["size"])


# ---- Wheels with a lock and a bill of materials inside, as packaging leaves them.


def embed_parts(wheel: Path, lock: bytes | None, parts: WheelParts) -> Path:
    """Put both into a wheel, in its place."""
    return rewrite.rewrite_wheel(wheel, wheel.parent, sbom.make_provenance_edit(lock, parts), replace=True)


def list_steps(bill: bytes) -> list[str]:
    """Return what was done to a wheel since it was built, as its bill of materials says."""
    properties = json.loads(bill)["metadata"]["component"]["properties"]
    return [entry["value"] for entry in properties if entry["name"] == "rocm-wheels:step"]


# ---- Small real wheels for tests of audits, written byte by byte: nothing of the product writes them.


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


# ---- Tiny real wheels for tests of indexes.


NOW = "2026-11-21T12:00:00Z"
SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
Properties = dict[str, dict[str, list[str]]]


def wheel(
    folder: Path,
    name: str = "torch",
    version: str = "2.9.1+rocm7.1.0",
    tag: str = "py3-none-any",
    *,
    build: str = "",
    requires: tuple[str, ...] = (),
    python: str = ">=3.10",
    text: str = "",
) -> Path:
    """Write a wheel with one module; ``text`` is what makes its bytes differ."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = Draft(name, version, tag, requires=list(requires), python=python)
    draft.members = {f"{name}/__init__.py": f"__version__ = '{version}'  # {text}\n".encode()}
    draft.file_name = f"{name}-{version}{build and '-' + build}-{tag}.whl"
    return draft.write(folder)


def variant(
    folder: Path,
    label: str,
    properties: Properties,
    *,
    name: str = "torch",
    version: str = "2.9.1",
    tag: str = "py3-none-any",
    namespaces: tuple[str, ...] = ("rocm",),
) -> Path:
    """Write a variant wheel whose properties have static providers."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"rocm": {"version": ["7.2", "7.1"]}, "amd": {"gfx_arch": ["gfx942", "gfx1100"]}}
    document = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": list(namespaces)},
        "providers": {namespace: {"static-properties": values[namespace]} for namespace in namespaces},
        "variants": {label: properties},
    }
    draft = Draft(name, version, tag)
    draft.members = {
        f"{name}/__init__.py": f"label = '{label}'\n".encode(),
        f"{draft.folder}/variant.json": json.dumps(document).encode(),
    }
    draft.file_name = f"{name}-{version}-{tag}-{label}.whl"
    return draft.write(folder)


def files(root: Path) -> dict[str, bytes]:
    """Return what lies in an index, but for its lock and who held it."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in (".lock", ".owner", ".groups")
    }


def drop(root: Path, *paths: Path) -> None:
    """Take wheels out of an index: the files, then what it knows of them."""
    for path in paths:
        path.unlink()
    assert update.build_index(root, now=NOW, drop_missing=True).missing == tuple(sorted(map(str, paths)))


def make_object(path: Path, **changed: object) -> bytes:
    """Return a provenance object as PyPI has them: made up, but for the file that it is about.

    ``changed`` are other values of the subject (``name``, ``sha256``), of the predicate's type (``kind``), or
    of the object itself (``version``).
    """
    subject = {
        "name": changed.get("name", path.name),
        "digest": {"sha256": changed.get("sha256", hashlib.sha256(path.read_bytes()).hexdigest())},
    }
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [subject],
        "predicateType": changed.get("kind", "https://docs.pypi.org/attestations/publish/v1"),
        "predicate": None,
    }
    entry = {"logIndex": "1", "kindVersion": {"kind": "dsse", "version": "0.0.1"}}
    attestation = {
        "version": 1,
        "verification_material": {
            "certificate": base64.b64encode(b"0 certificate").decode(),
            "transparency_entries": [entry],
        },
        "envelope": {
            "statement": base64.b64encode(json.dumps(statement).encode()).decode(),
            "signature": base64.b64encode(b"a signature").decode(),
        },
    }
    publisher = {"kind": "GitHub", "claims": None, "repository": "o/r", "workflow": "release.yml"}
    bundle = {"publisher": publisher, "attestations": [attestation]}
    return json.dumps({"version": changed.get("version", 1), "attestation_bundles": [bundle]}).encode()


# ---- A small set of real wheels in which nothing is wrong: two Pythons, ROCm's packages, a split
# torchaudio.


ROCM = "7.1.0"
TORCH = f"2.9.0+rocm{ROCM}"
TARGETS = ("gfx942", "gfx1100")
PYTHONS = ("311", "312")


def set_drafts() -> dict[str, Draft]:
    """Return the wheels of a set, by a short name: ``torch-311``, ``rocm``, ``rocm-sdk-device-gfx942``."""
    drafts = {
        f"{draft.distribution.replace('_', '-')}-{python}": draft
        for python in PYTHONS
        for draft in _draft_projects(python)
    }
    for draft in _draft_rocm():
        drafts[draft.distribution.replace("_", "-")] = draft
    return drafts


def _draft_projects(python: str) -> Iterable[Draft]:
    tag = f"cp{python}-cp{python}-linux_x86_64"
    torch = torch_draft()
    torch.tag = tag
    torch.members["torch/lib/libaotriton_v2.so.0.11.0"] = library(*TARGETS)
    yield torch
    triton = {"triton/__init__.py": b"", "triton/_C/libtriton.so": library()}
    yield Draft("triton", "3.5.0", tag, members=triton)
    vision = {"torchvision/__init__.py": b"", "torchvision/_C.so": library(*TARGETS)}
    yield Draft("torchvision", f"0.24.0+rocm{ROCM}", tag, members=vision, requires=[f"torch=={TORCH}"])
    yield from split_audio(tag)


def split_audio(tag: str) -> list[Draft]:
    """Return a torchaudio whose device code is in device wheels, as ROCm's splitter writes them."""
    version = f"2.9.0+rocm{ROCM}"
    reference = kpack_reference("../.kpack/torchaudio_@GFXARCH@.kpack", kernel_name="lib/_audio.so")
    host = Draft("torchaudio", version, tag, requires=[f"torch=={TORCH}"])
    host.members = {
        "torchaudio/__init__.py": b"# import says: install torchaudio[device-gfx942]\n",
        "torchaudio/lib/_audio.so": library(marker=reference),
    }
    parts = []
    for target in TARGETS:
        host.fields.append(f"Provides-Extra: device-{target}")
        host.requires.append(f'amd-torchaudio-device-{target}=={version}; extra == "device-{target}"')
        code = {("lib/_audio.so#0", target): code_object(target)}
        members = {f"torchaudio/.kpack/torchaudio_{target}.kpack": kpack(code)}
        requires = [f"torchaudio=={version}", f"rocm-sdk-device-{target}=={ROCM}"]
        parts.append(
            Draft(f"amd_torchaudio_device_{target}", version, tag, members=members, requires=requires)
        )
    return [host, *parts]


def _draft_rocm() -> Iterable[Draft]:
    platform = "py3-none-linux_x86_64"
    rocm = Draft("rocm", ROCM, "py3-none-any", members={"rocm_sdk/__init__.py": b""})
    extras = {"libraries": "rocm-sdk-libraries", **{f"device-{t}": f"rocm-sdk-device-{t}" for t in TARGETS}}
    rocm.fields = [f"Provides-Extra: {extra}" for extra in extras]
    rocm.requires = [f"rocm-sdk-core=={ROCM}"]
    rocm.requires += [f'{package}=={ROCM}; extra == "{extra}"' for extra, package in extras.items()]
    yield rocm
    yield Draft("rocm_sdk_core", ROCM, platform, members={"core.txt": b""})
    yield Draft("rocm_sdk_libraries", ROCM, platform, members={"libraries.txt": b""})
    for target in TARGETS:
        requires = [f"rocm-sdk-libraries=={ROCM}"]
        members = {f"{target}.txt": b""}
        yield Draft(f"rocm_sdk_device_{target}", ROCM, platform, members=members, requires=requires)


def write_set(drafts: dict[str, Draft], folder: Path) -> list[Path]:
    """Write wheels into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [draft.write(folder) for draft in drafts.values()]


def audit_set(drafts: dict[str, Draft], folder: Path, **facts: object) -> audited_set.SetReport:
    """Return what the checks of sets say; ``facts`` are those of ``SetFiles``."""
    wheels = tuple(write_set(copy.deepcopy(drafts), folder))
    files = audited_set.SetFiles(str(folder), "folder", wheels, **facts)  # type: ignore[arg-type]
    expected = {
        wheel: audited_wheel.WheelExpectation(None, "windows" if "-win" in wheel.name else "linux")
        for wheel in wheels
    }
    return verify.check_set(audited_set.AuditedSet(files, verify.read_wheels(expected, together=True).wheels))


# ---- The strict schema of CycloneDX 1.6, as an oracle. Its validator is imported when it is used: 2 s.


def require_valid(content: bytes) -> dict[str, Any]:
    """Return a document that the schema accepts."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(content.decode())
    assert error is None, error
    document: dict[str, Any] = json.loads(content)
    return document


# ---- Published wheels by digest, downloaded once into the user's cache.


def download(requirement: str, digest: str, platform: str, *words: str) -> Path:
    """Download a wheel once; pip compares its digest."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "rocm-wheels-tests" / digest[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if not list(folder.glob("*.whl")):
            (folder / "requirements.txt").write_text(f"{requirement} --hash=sha256:{digest}\n")
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps"]
            pip += ["--only-binary=:all:", "--platform", platform, *words, "--dest", str(folder)]
            subprocess.run([*pip, "-r", str(folder / "requirements.txt")], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel
