"""Libraries as hipcc links them, made with the system's compiler, and a runtime that says what it is records.

Each bundle has a record in ``.hipFatBinSegment``, which a constructor hands to ``__hipRegisterFatBinary``.
The stub prints path of the library, magic, number and the bytes that the record points to; what the HIP
runtime does with them is done in Python (``find_kernels``), by its documents and not by our readers.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from zstd_library import zstd

from rocm_wheels.binaries import elf
from rocm_wheels.device_code import kpack

STUB = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
struct record { unsigned magic, version; const unsigned char *content; unsigned long number; };
struct area { unsigned long begin, end; };

/* What is mapped from the file where the record points to: all that the runtime may read. */
static int find_area(struct dl_phdr_info *info, size_t size, void *given) {
  struct area *area = given;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    unsigned long begin = info->dlpi_addr + segment->p_vaddr;
    if (segment->p_type == PT_LOAD && begin <= area->begin && area->begin < begin + segment->p_filesz)
      area->end = begin + segment->p_filesz;
  }
  return 0;
}

/* As the runtime: the record says which of the two it is, and where its code or its archives are. */
void **__hipRegisterFatBinary(const struct record *record) {
  static void *handle;
  struct area area = {(unsigned long)record->content, 0};
  Dl_info library;
  char magic[5] = {0};
  memcpy(magic, &record->magic, 4);
  dladdr(record, &library);
  dl_iterate_phdr(find_area, &area);
  printf("{\"library\": \"%s\", \"magic\": \"%s\", ", library.dli_fname, magic);
  printf("\"number\": %lu, \"content\": \"", record->number);
  if (area.end > area.begin + 4096) area.end = area.begin + 4096;
  for (const unsigned char *at = record->content; at < (unsigned char *)area.end; at++) printf("%02x", *at);
  printf("\"}\n");
  fflush(stdout);
  return &handle;
}
"""

_SOURCE = """
struct record {{ unsigned magic, version; const void *bundle; unsigned long number; }};
{declarations}
void **__hipRegisterFatBinary(const struct record *);
int answer_{stem}(void) {{ return 42; }}
static __attribute__((section(".hipFatBinSegment"))) struct record records[] = {{
{records}
}};
static __attribute__((constructor)) void start(void) {{
  for (unsigned i = 0; i < sizeof records / sizeof *records; i++) __hipRegisterFatBinary(&records[i]);
}}
"""


def link_stub(folder: Path) -> Path:
    """Link the runtime; return its path, whose folder is one to look for libraries in."""
    (folder / "stub.c").write_text(STUB)
    path = folder / "libamdhip64.so.7"
    words = ["cc", "-shared", "-fPIC", "-Wl,-soname,libamdhip64.so.7", "-o", path, folder / "stub.c", "-ldl"]
    subprocess.run(words, check=True)
    return path


def link_fat_library(folder: Path, name: str, bundles: Sequence[bytes], stub: Path, *flags: str) -> bytes:
    """Link a library with bundles, and return it."""
    stem = name.partition(".")[0]
    lines = ['.section .hip_fatbin,"a",@progbits']
    for i, bundle in enumerate(bundles):
        (folder / f"{stem}.{i}").write_bytes(bundle)
        lines += [".p2align 12", f".hidden bundle_{i}", f".globl bundle_{i}", f"bundle_{i}:"]
        lines.append(f'.incbin "{folder / f"{stem}.{i}"}"')
    (folder / f"{stem}.s").write_text("\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""]))
    declarations = "".join(f"extern const char bundle_{i}[];\n" for i in range(len(bundles)))
    records = "".join(f"  {{0x48495046, 1, bundle_{i}, 0}},\n" for i in range(len(bundles)))
    source = _SOURCE.format(stem=stem, declarations=declarations, records=records)
    (folder / f"{stem}.c").write_text(source)
    path = folder / name
    words = ["cc", "-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-soname,{name}", *flags, "-o", path]
    subprocess.run([*words, folder / f"{stem}.c", folder / f"{stem}.s", stub], check=True)
    return path.read_bytes()


_DLL_SOURCE = """
struct record {{ unsigned magic, version; const void *bundle; unsigned long long number; }};
{declarations}
__attribute__((section(".hipFatB"))) struct record records[] = {{
{records}
}};
__declspec(dllexport) struct record *answer(void) {{ return records; }}
int DllMainCRTStartup(void *a, int b, void *c) {{ return 1; }}
"""


def link_fat_dll(folder: Path, name: str, bundles: Sequence[bytes], zig: Path) -> bytes:
    """Link a DLL with bundles by clang and lld, and return it."""
    lines = ['.section .hip_fat,"dr"']
    for i, bundle in enumerate(bundles):
        (folder / f"bundle.{i}").write_bytes(bundle)
        lines += [".p2align 12", f".globl bundle_{i}", f"bundle_{i}:", f'.incbin "bundle.{i}"']
    (folder / "bundles.s").write_text("\n".join([*lines, ""]))
    declarations = "".join(f"extern const char bundle_{i}[];\n" for i in range(len(bundles)))
    records = "".join(f"  {{0x48495046, 1, bundle_{i}, 0}},\n" for i in range(len(bundles)))
    (folder / "library.c").write_text(_DLL_SOURCE.format(declarations=declarations, records=records))
    words = [zig, "cc", "-target", "x86_64-windows-gnu", "-shared", "-nostdlib", "-O1", "-o", name]
    env = {"ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder), "HOME": str(folder)}
    words += ["library.c", "bundles.s"]
    subprocess.run(words, cwd=folder, env=env, check=True, capture_output=True)
    return (folder / name).read_bytes()


def map_dll(dll: bytes, path: Path) -> list[dict[str, Any]]:
    """Map a DLL as the loader of Windows does; return what its records are, as ``load_library`` does.

    Sections must be one behind the other in memory, within the size that the image says.
    """
    (at,) = struct.unpack_from("<I", dll, 60)
    count, size = struct.unpack_from("<HxxxxxxxxxxxxH", dll, at + 6)
    base, unit, _ = struct.unpack_from("<QII", dll, at + 24 + 24)
    image_size, headers_size = struct.unpack_from("<II", dll, at + 24 + 56)
    memory = bytearray(dll[:headers_size].ljust(image_size, b"\0"))
    end = -(-headers_size // unit) * unit
    names = {}
    for i in range(count):
        row = struct.unpack_from("<8sIIII", dll, at + 24 + size + 40 * i)
        name, length, address, raw, offset = row
        assert address == end and offset + raw <= len(dll)
        content = dll[offset : offset + min(raw, length)]
        memory[address : address + len(content)] = content
        names[name.rstrip(b"\0").decode()] = (address, length)
        end = -(-(address + max(length, raw)) // unit) * unit
    assert end == image_size
    begin, length = names[".hipFatB"]
    records = []
    for magic, _, pointer, number in struct.iter_unpack("<4sIQQ", memory[begin : begin + length]):
        content = memory[pointer - base : pointer - base + 4096]
        record = {"library": str(path), "magic": magic.decode(), "number": number, "content": content.hex()}
        records.append(record)
    return records


def load_library(path: Path, stub: Path) -> list[dict[str, Any]]:
    """Load a library in a process of its own; return what the stub was records, in order."""
    code = f"import ctypes; assert ctypes.CDLL({str(path)!r}).answer_{path.name.partition('.')[0]}() == 42"
    env = {**os.environ, "LD_LIBRARY_PATH": str(stub.parent)}
    result = subprocess.run(
        [sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in result.stdout.splitlines()]


def find_kernels(records: Sequence[dict[str, Any]], target: str) -> list[bytes | None]:
    """Return the kernel that each record leads to on a GPU (``gfx90a:sramecc+:xnack-``), None for none."""
    return [find_kernel(record, target) for record in records]


def find_kernel(record: dict[str, Any], target: str) -> bytes | None:
    """Do what the runtime does with a record of the new kind: archives, then the kernel by its number."""
    assert record["magic"] == "HIPK"
    marker: Any = kpack.unpack_messagepack(
        elf.BinarySpan(memoryview(bytes.fromhex(record["content"])), "marker")
    )
    folder = Path(record["library"]).parent
    tables = []
    for path in marker["kpack_search_paths"]:
        for name in _list_subsets(target) if "@GFXARCH@" in path else [""]:
            archive = folder / path.replace("@GFXARCH@", name)
            if archive.is_file() and archive not in [place for place, _ in tables]:
                tables.append((archive, _read_table(archive)))
    for name in _list_subsets(target):
        for archive, table in tables:
            entry = table["toc"].get(f"{marker['kernel_name']}#{record['number']}", {}).get(name)
            if name in table["gfx_arches"] and entry:
                return _read_kernel(archive, table, entry)
    return None


def _list_subsets(target: str) -> Iterator[str]:
    processor, *features = target.split(":")
    for count in range(len(features), -1, -1):
        for kept in itertools.combinations(features, count):
            yield ":".join([processor, *kept])


def _read_table(archive: Path) -> Any:
    content = archive.read_bytes()
    magic, version, at = struct.unpack_from("<4sIQ", content)
    assert (magic, version) == (b"KPAK", 1)
    return kpack.unpack_messagepack(elf.BinarySpan(memoryview(content)[at:], str(archive)))


def _read_kernel(archive: Path, table: Any, entry: Any) -> bytes:
    content = archive.read_bytes()
    assert table["compression_scheme"] == "zstd-per-kernel"
    at = table["zstd_offset"] + 4
    for _ in range(entry["ordinal"]):
        at += 4 + struct.unpack_from("<I", content, at)[0]
    (size,) = struct.unpack_from("<I", content, at)
    kernel = zstd.decompress(content[at + 4 : at + 4 + size])
    assert len(kernel) == entry["original_size"]
    return kernel
