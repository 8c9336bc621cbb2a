"""Wheels that mean harm."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from binaries import bundle, coff, compress, hip, kpack, kpack_reference, messagepack
from wheels import Draft, library

# ---- Files of some kilobytes that state more than any real file has: what is made of them fills the
# memory.
#
# Each is packed to a wheel below 300 KB. ``list_greedy_files`` gives them by what they state.


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


# ---- Hostile wheels, one attack each, made of a torch in which nothing is wrong.


Change = Callable[[Draft], object]
Damage = Callable[[Path], object]
_CODE = b"import os; os.system('id')\n"
_COMPOSED, _DECOMPOSED = "torch/caf\u00e9", "torch/cafe\u0301"


@dataclass(frozen=True)
class Attack:
    """A change of a wheel's members, or of the file. ``needs_recipe``: only a recipe forbids it."""

    kind: str
    name: str
    change: Change | None = None
    damage: Damage | None = None
    needs_recipe: bool = False

    def write(self, draft: Draft, folder: Path) -> Path:
        """Write the hostile form of a wheel into a folder, under its usual name."""
        hostile = replace(
            draft, members=dict(draft.members), unlisted=dict(draft.unlisted), record=dict(draft.record)
        )
        if self.change is not None:
            self.change(hostile)
        path = hostile.write(folder)
        if self.damage is not None:
            self.damage(path)
        return path


def put(name: str, content: bytes = _CODE) -> Change:
    """Add a member; ``{info}`` and ``{data}`` stand for the folders of the wheel."""

    def change(draft: Draft) -> None:
        stem = draft.folder.removesuffix(".dist-info")
        draft.members[name.format(info=draft.folder, data=f"{stem}.data")] = content

    return change


def hide(name: str, content: bytes = _CODE) -> Change:
    """Add a member that RECORD does not list."""
    return lambda draft: draft.unlisted.update({name: content})


def list_wrongly(line: str) -> Change:
    """Give the module of the package another line in RECORD."""
    return lambda draft: draft.record.update({"torch/__init__.py": line})


def state(line: bytes) -> Change:
    """Write METADATA with a line more in its head."""

    def change(draft: Draft) -> None:
        head = f"Metadata-Version: 2.4\nName: {draft.distribution}\nVersion: {draft.version}\n".encode()
        needs = "".join(f"Requires-Dist: {name}\n" for name in draft.requires).encode()
        draft.metadata = head + b"Requires-Python: >=3.10\n" + needs + line + b"\n"

    return change


def rewrite(
    change: Callable[[list[tuple[zipfile.ZipInfo, bytes]]], object], method: int = zipfile.ZIP_STORED
) -> Damage:
    """Write the archive again with other members or modes."""

    def damage(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
        change(members)
        with zipfile.ZipFile(path, "w") as archive:
            for info, content in members:
                archive.writestr(info, content, method)

    return damage


def chmod(mode: int, name: str = "torch/__init__.py") -> Damage:
    """Give a member another mode, type included."""

    def change(members: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        next(info for info, _ in members if info.filename == name).external_attr = mode << 16

    return rewrite(change)


def add_folder(mode: int) -> Damage:
    """Add a folder of a mode."""

    def change(members: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        folder = zipfile.ZipInfo("torch/spool/", (2020, 1, 1, 0, 0, 0))
        folder.external_attr = mode << 16
        members.insert(0, (folder, b""))

    return rewrite(change)


def link(target: bytes) -> Attack:
    """Return a wheel with a symbolic link."""
    name = "torch/link"
    return Attack("file-types", f"link to {target.decode()}", put(name, target), chmod(0o120777, name))


def leave_out(file: str) -> Damage:
    """Take a file of the dist-info folder out."""

    def change(members: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        members[:] = [each for each in members if not each[0].filename.endswith(f".dist-info/{file}")]

    return rewrite(change)


def replace_record(content: bytes) -> Damage:
    """Put another RECORD into the place of the right one."""

    def change(members: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        at = next(i for i, (info, _) in enumerate(members) if info.filename.endswith("/RECORD"))
        members[at] = (members[at][0], content)

    return rewrite(change)


def patch(change: Callable[[bytes], bytes]) -> Damage:
    """Change the bytes of the file."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def _flip_content(data: bytes) -> bytes:
    at = data.index(b"torch/__init__.py") + len(b"torch/__init__.py")
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def _rename_locally(data: bytes) -> bytes:
    return data.replace(b"torch/__init__.py", b"torch/__evil__.py", 1)


def _mark_encrypted(data: bytes) -> bytes:
    at = data.rindex(b"PK\x01\x02")
    return data[: at + 8] + b"\x01\x00" + data[at + 10 :]


def list_attacks() -> list[Attack]:
    """Return every attack; names are unique within a kind."""
    return [
        *_list_startup(),
        *_list_environment(),
        *_list_types(),
        *_list_names(),
        *_list_texts(),
        *_list_damage(),
    ]


def _list_startup() -> Iterator[Attack]:
    contents = {
        "import": b"import os; os.system('id')\n",
        "import and tab": b"import\tos\n",
        "byte order mark": b"\xef\xbb\xbfimport os\n",
        "carriage return": b"# nothing\rimport os\r",
        "form feed": b"# nothing\x0cimport os\n",
        "last line": b"torch\n" * 1000 + b"import os",
    }
    for name, content in contents.items():
        yield Attack("startup-files", f"pth, {name}", put("evil.pth", content))
    for place in ("Evil.PTH", "{data}/purelib/evil.pth", "{data}/platlib/evil.pth"):
        yield Attack("startup-files", place, put(place))
    for name, line in {"absolute": b"/tmp\n", "upward": b"../../..\n", "drive": b"C:\\temp\n"}.items():
        yield Attack("startup-files", f"pth with a path, {name}", put("evil.pth", line))
    for module in ("sitecustomize.py", "usercustomize.py", "sitecustomize/__init__.py", "SiteCustomize.py"):
        yield Attack("startup-files", module, put(module))
    yield Attack("startup-files", "library", put("sitecustomize.cpython-311-x86_64-linux-gnu.so", library()))
    yield Attack("startup-files", "in purelib", put("{data}/purelib/usercustomize.py"))


def _list_environment() -> Iterator[Attack]:
    for script in (
        "python", "python3", "python3.11", "python3.13t", "python3-config", "PYTHON3", "pythonw.exe", "pip",
        "pip3", "pip3.12", "activate", "activate.fish", "Activate.ps1", "activate_this.py", "python3.bat",
        "sh", "sudo",
    ):  # fmt: skip
        yield Attack("environment-files", f"script {script}", put(f"{{data}}/scripts/{script}"))
    for place in (
        "data/bin/python3", "data/Scripts/python.exe", "data/pyvenv.cfg", "data/lib/python3.11/os.py",
        "data/lib/python3.11/site-packages/evil.pth", "data/Lib/site-packages/evil.pth",
        "data/include/python3.11/Python.h", "data/lib64/python3.11/ssl.py",
        "purelib/requests-2.0.dist-info/RECORD", "platlib/pip/__init__.py", "elsewhere/evil.py",
    ):  # fmt: skip
        yield Attack("environment-files", place, put(f"{{data}}/{place}"))
    yield Attack("environment-files", "folder of another wheel", put("pip-25.0.data/scripts/run"))
    yield Attack("environment-files", "egg-info", put("requests-2.0.egg-info/PKG-INFO"))
    for package in ("pip", "setuptools", "_distutils_hack", "pkg_resources"):
        yield Attack("environment-files", package, put(f"{package}/__init__.py"))
    for name in ("python3", "pip", "activate", "../../evil", "a/b", "a\\b", "C:evil", "-rf", ".."):
        entry = f"[console_scripts]\n{name} = torch:main\n".encode()
        yield Attack("environment-files", f"entry point {name}", put("{info}/entry_points.txt", entry))
    entry = b"[gui_scripts]\npythonw = torch:main\n"
    yield Attack("environment-files", "entry point with a window", put("{info}/entry_points.txt", entry))
    for name, change in {
        "module": put("numpy/__init__.py"),
        "file at the top": put("os.py"),
        "top in purelib": put("{data}/purelib/numpy.py"),
        "script": put("{data}/scripts/helper"),
        "data": put("{data}/data/share/helper.txt"),
        "header": put("{data}/headers/evil.h"),
        "console entry point": put("{info}/entry_points.txt", b"[console_scripts]\nhelper = torch:main\n"),
        "plugin": put("{info}/entry_points.txt", b"[pytest11]\nhelper = torch\n"),
        "pth": put("paths.pth", b"torch\n"),
    }.items():
        yield Attack("allowed-contents", name, change, needs_recipe=True)


def _list_types() -> Iterator[Attack]:
    for name, mode in {"setuid": 0o104755, "setgid": 0o102755, "sticky": 0o101644, "all": 0o107777}.items():
        yield Attack("file-types", name, damage=chmod(mode))
        yield Attack("file-types", f"{name} without a type", damage=chmod(mode & 0o7777))
    for name, mode in {"setgid": 0o042755, "sticky": 0o041777}.items():
        yield Attack("file-types", f"{name} folder", damage=add_folder(mode))
    for target in (
        b"__init__.py",
        b"../torch/__init__.py",
        b"/etc/passwd",
        b"../../../evil",
        b"..",
        b"a/../../b",
    ):
        yield link(target)
    for name, kind in {"pipe": 0o010644, "device": 0o020644, "block": 0o060644, "socket": 0o140644}.items():
        yield Attack("file-types", name, damage=chmod(kind))


def _list_names() -> Iterator[Attack]:
    for name in (
        "TORCH/__init__.py", "Torch/other.py", "torch/LIB/x.py", "torch/__INIT__.py", "\u017ftorch/x.py",
        "torch/lib/x/y/z.py",
    ):  # fmt: skip
        twin = {"\u017ftorch/x.py": "storch/y.py", "torch/lib/x/y/z.py": "torch/lib/X/y/z.py"}.get(name)
        yield Attack("colliding-names", name, _put_both(name, twin) if twin else put(name))
    yield Attack("colliding-names", "forms", _put_both(f"{_COMPOSED}.py", f"{_DECOMPOSED}.py"))
    yield Attack("colliding-names", "forms of folders", _put_both(f"{_COMPOSED}/a.py", f"{_DECOMPOSED}/b.py"))
    yield Attack("colliding-names", "sharp s", _put_both("torch/stra\u00dfe.py", "torch/strasse.py"))
    yield Attack("colliding-names", "kelvin", _put_both("torch/\u212a.py", "torch/k.py"))
    for name in (
        "../evil.py",
        "/evil.py",
        "C:/evil.py",
        "torch\\evil.py",
        "./evil.py",
        "torch//evil.py",
        "a\nb.py",
    ):
        yield Attack("archive", f"name {name!r}", put(name))
    yield Attack("archive", "escape in a name", put("torch/\x1b]0;evil\x07.py"))
    yield Attack("archive", "file and folder", put("torch/__init__.py/evil.py"))
    yield Attack("archive", "one name twice", damage=rewrite(lambda members: members.append(members[0])))


def _put_both(name: str, twin: str) -> Change:
    def change(draft: Draft) -> None:
        draft.members |= {name: _CODE, twin: b"# another\n"}

    return change


def _list_texts() -> Iterator[Attack]:
    entries = {
        "control": b"[console_scripts]\na\x1b]0;x\x07 = torch:main\n",
        "NUL": b"[console_scripts]\na\0b = torch:main\n",
        "another line": b"[console_scripts]\na = torch:main\n  import os\n",
        "no group": b"a = torch:main\n",
        "no object": b"[console_scripts]\na = \n",
        "code": b"[console_scripts]\na = torch:main;import os\n",
        "a path": b"[console_scripts]\na = ../torch:main\n",
        "bytes": bytes(range(128, 256)),
        "twice": b"[console_scripts]\na = torch:main\na = torch:other\n",
    }
    for name, content in entries.items():
        yield Attack("metadata-text", f"entry points, {name}", put("{info}/entry_points.txt", content))
    lines = {
        "NUL": b"Summary: a\0b",
        "escape": b"Summary: \x1b]0;evil\x07",
        "bell": b"Author: \x07",
        "control of 8 bits": "Summary: \u009b2J".encode(),
        "other direction": "Summary: a\u202eb".encode(),
        "NUL below": b"\ntext\0text",
        "escape below": b"\ntext \x1b[2J",
    }
    for name, line in lines.items():
        yield Attack("metadata-text", f"METADATA, {name}", state(line))
    documents = {
        "garbage": b"\x7fgarbage",
        "cut": b'{"variants": {',
        "list": b"[]",
        "NUL": b"\0",
        "deep": b"[" * 100_000,
        "number": b"1" * 5_000,
        "other encoding": '{"variants": {}}'.encode("utf-16"),
    }
    for name, content in documents.items():
        yield Attack("metadata-text", f"variant.json, {name}", put("{info}/variant.json", content))


def _list_damage() -> Iterator[Attack]:
    wrong = "sha256=AAAAQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    lines = {
        "digest": f"torch/__init__.py,{wrong},0",
        "size": f"torch/__init__.py,{wrong},999",
        "md5": "torch/__init__.py,md5=1B2M2Y8AsgTpgAmY7PhCfg,0",
        "fields": "torch/__init__.py,a",
        "absent": "torch/other.py,,",
    }
    for name, line in lines.items():
        yield Attack("record", name, list_wrongly(line))
    yield Attack("record", "unlisted", hide("torch/evil.py"))
    yield Attack("record", "bytes", damage=replace_record(bytes(range(256))))
    yield Attack("record", "empty", damage=replace_record(b""))
    for file in ("RECORD", "METADATA", "WHEEL"):
        yield Attack("record", f"no {file}", damage=leave_out(file))
    yield Attack("record", "two dist-info folders", put("pip-25.0.dist-info/METADATA"))
    changes: dict[str, Callable[[bytes], bytes]] = {
        "cut": lambda data: data[: len(data) // 2],
        "end cut": lambda data: data[:-10],
        "empty": lambda _: b"",
        "other content": _flip_content,
        "local name": _rename_locally,
        "prefix": lambda data: b"#!/bin/sh\n" + data,
        "trailing": lambda data: data + b"more",
        "two archives": lambda data: data + data,
        "encrypted": _mark_encrypted,
    }
    for name, change in changes.items():
        yield Attack("archive", name, damage=patch(change))
    code, mark = library("gfx942"), b"__CLANG_OFFLOAD_BUNDLE__"
    libraries = {
        "cut": code[: len(code) // 2],
        "header": code[:20],
        "sections": code[:40] + b"\xff" * 8 + code[48:],
        "bundle": code.replace(mark + (2).to_bytes(8, "little"), mark + b"\xff" * 8),
    }
    for name, content in libraries.items():
        yield Attack("elf", name, put("torch/lib/libtorch_hip.so", content))
