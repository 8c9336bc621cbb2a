"""Tables of ELF and PE files as loaders read them: real libraries, cut short, changed in every byte."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from wheels import library

from rocm_wheels.binaries import loader, pe
from rocm_wheels.core import errors

pytestmark = pytest.mark.contract

CONTENT = library("gfx942", run_path="/opt/build:$ORIGIN", stack=None)


def test_library_without_a_stack_header_asks_for_an_executable_one() -> None:
    binary = loader.read_host_binary(memoryview(CONTENT), "x")
    assert binary is not None and binary.architecture == "x86_64"
    assert binary.has_executable_stack


def test_names_that_nobody_can_count_may_be_shared() -> None:
    """Without .dynsym nothing says which names there are: a text stays, but its entry can go."""
    binary = loader.read_host_binary(memoryview(CONTENT), "x")
    assert binary is not None
    (run_path,) = binary.run_paths
    assert run_path.is_shared and run_path.entries == ("/opt/build", "$ORIGIN")
    assert loader.plan_run_path(binary, ["$ORIGIN"]) is None
    patches = loader.plan_run_path(binary, [""])
    assert patches is not None
    changed = bytearray(CONTENT)
    for patch in patches:
        changed[patch.offset : patch.offset + len(patch.content)] = patch.content
    after = loader.read_host_binary(memoryview(changed), "x")
    assert after is not None and after.run_paths == () and len(changed) == len(CONTENT)


def test_longer_text_does_not_fit() -> None:
    binary = loader.read_host_binary(memoryview(CONTENT), "x")
    assert binary is not None
    assert loader.plan_run_path(binary, ["$ORIGIN/of/a/folder/that/is/longer"]) is None
    assert loader.plan_run_path(binary, [binary.run_paths[0].text]) == []


needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs a C compiler for Linux"
)


@needs_compiler
def test_symbol_versions_of_a_linked_library(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    source = '#include <stdio.h>\nvoid f(void) { puts("x"); }'
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True
    )
    binary = loader.read_host_binary(memoryview(path.read_bytes()), "x")
    assert binary is not None
    assert any(version.startswith("GLIBC_2.") for version in binary.versions["libc.so.6"])
    assert not binary.has_executable_stack and not binary.debug_size


SOURCE = """
#include <stdio.h>
extern int missing(void), other(void) __attribute__((weak));
extern _Thread_local int counter;
_Thread_local int counter;
int first(void) { return missing() + counter; }
int second(void) { puts("x"); return other ? other() : 0; }
int older(void) { return 1; }
__asm__(".symver older,third@V1");
int newer(void) { return 2; }
__asm__(".symver newer,third@@V2");
static int local(void) { return 3; }
int (*pointer)(void) = local;
"""
VERSIONS = "V1 { global: first; counter; pointer; third; local: *; }; V2 { global: second; } V1;"


def link(folder: Path, *words: str, source: str = SOURCE) -> bytes:
    """Link a library; with the versions of ``VERSIONS`` where its source is this."""
    (folder / "versions").write_text(VERSIONS)
    script = [f"-Wl,--version-script={folder / 'versions'}"] if source is SOURCE else []
    command = ["cc", "-shared", "-fPIC", *script, *words, "-x", "c", "-", "-o", folder / "lib.so"]
    subprocess.run(command, input=source, text=True, check=True)
    return (folder / "lib.so").read_bytes()


def link_shared(folder: Path, size: int) -> bytes:
    """Link a library, and give it 128 symbols whose names are one text of this size."""
    content = link(folder, "-Wl,--hash-style=sysv")
    file = ELFFile(io.BytesIO(content))
    rows = list_dynamic_places(file)
    shared = bytearray(content) + bytes(-len(content) % (1 << 16))  # behind all other segments
    table_at, text_at = len(shared), len(shared) + 24 * 128 + 8 * 64
    shared += struct.pack("<IBBHQQ", 8, 0x10, 0, 1, 1, 0) * 128 + struct.pack("<II", 0, 128) + bytes(504)
    shared += bytes(8) + b"x" * size + b"\0"
    load = next(n for n, s in enumerate(file.iter_segments()) if s["p_type"] == "PT_LOAD")
    program = file["e_phoff"] + file["e_phentsize"] * load
    struct.pack_into("<QQQQQ", shared, program + 8, 0, 0, 0, len(shared), len(shared))
    values = {"DT_SYMTAB": table_at, "DT_STRTAB": text_at, "DT_STRSZ": size + 9}
    for tag, value in {**values, "DT_HASH": table_at + 24 * 128}.items():
        struct.pack_into("<Q", shared, rows[tag], value)
    for tag in ("DT_VERNEED", "DT_VERDEF", "DT_VERSYM"):
        struct.pack_into("<qQ", shared, rows[tag] - 8, 0x7FFFFFF0, 0)
    return bytes(shared)


def list_dynamic_places(file: ELFFile) -> dict[str, int]:
    """Return where the values of the dynamic section are."""
    section = file.get_section_by_name(".dynamic")
    return {tag.entry.d_tag: section["sh_offset"] + 16 * n + 8 for n, tag in enumerate(section.iter_tags())}


def read_symbols(content: bytes) -> loader.DynamicSymbols:
    binary = loader.read_host_binary(memoryview(content), "x", symbols=True)
    assert binary is not None and binary.symbols is not None
    return binary.symbols


@needs_compiler
@pytest.mark.parametrize("style", ["sysv", "gnu", "both"])
def test_symbols_of_a_linked_library(style: str, tmp_path: Path) -> None:
    """With its versions, and with nothing but the hash table to say how many there are."""
    content = link(tmp_path, f"-Wl,--hash-style={style}")
    symbols = read_symbols(content)
    versions = {"first": "V1", "counter": "V1", "pointer": "V1", "second": "V2"}
    stated = {*versions.items(), ("third", "V1"), ("third", "V2")}
    assert symbols.list_exported() - {("V1", "V1"), ("V2", "V2")} == stated
    assert [*symbols.undefined[loader.SymbolVersion("", "")]] == [b"missing"]
    [(needed, puts)] = [item for item in symbols.undefined.items() if item[0].library == "libc.so.6"]
    assert needed in symbols.needed and [*puts] == [b"puts"]
    assert symbols.versions == {"V1", "V2"}
    table = ELFFile(io.BytesIO(content)).get_section_by_name(".dynsym")
    kinds = [(s.name, s["st_info"]["bind"], s["st_shndx"] == "SHN_UNDEF") for s in table.iter_symbols()]
    named = [
        n for n, bind, absent in kinds if n and bind != "STB_LOCAL" and (bind, absent) != ("STB_WEAK", True)
    ]
    assert "other" in {name for name, _, _ in kinds}  # it is weak: it may stay undefined
    packed = [*symbols.exported.values(), *symbols.undefined.values()]
    names = [name.decode() for each in packed for name in each]
    assert sorted(names) == sorted(named)
    assert read_symbols(content[:40] + bytes(8) + content[48:58] + bytes(6) + content[64:]) == symbols


@needs_compiler
def test_symbols_of_a_library_that_defines_none_are_counted(tmp_path: Path) -> None:
    """Its table of hashes is empty then, and says nothing of those that it needs."""
    source = "extern int missing(void); __attribute__((constructor)) static void run(void) { missing(); }"
    content = link(tmp_path, "-nostdlib", "-Wl,--hash-style=gnu", source=source)
    symbols = read_symbols(content)
    assert {version: [*names] for version, names in symbols.undefined.items()} == {
        loader.SymbolVersion("", ""): [b"missing"]
    }
    assert not symbols.exported


@needs_compiler
def test_tables_of_symbols_that_take_more_than_they_say_are_refused(tmp_path: Path) -> None:
    """Symbols can share one long text: what they take together has a limit."""
    content = link(tmp_path, "-Wl,--hash-style=sysv")
    file = ELFFile(io.BytesIO(content))
    rows = list_dynamic_places(file)
    hash_at = file.get_section_by_name(".hash")["sh_offset"]
    changes = [
        (hash_at + 4, struct.pack("<I", 0xFFFFFFFF)),
        (rows["DT_STRSZ"], struct.pack("<Q", 1 << 40)),
    ]
    for at, number in changes:
        with pytest.raises(errors.DataError):
            read_symbols(content[:at] + number + content[at + len(number) :])
    with pytest.raises(errors.DataError, match="names of dynamic symbols"):
        read_symbols(link_shared(tmp_path, 1 << 20))


@needs_compiler
def test_names_that_share_a_text_are_held_in_less_than_their_library_has(tmp_path: Path) -> None:
    """Those of all libraries of a wheel are held at once: a small one must not fill the memory."""
    size = 1 << 18
    content = link_shared(tmp_path, size)
    tracemalloc.start()
    symbols = read_symbols(content)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert [len(name) for name in symbols.exported[""]] == [size] * 128
    assert held < len(content)


@needs_compiler
@pytest.mark.parametrize("style", ["sysv", "gnu"])
def test_damaged_symbols_are_an_error_of_data_or_are_not_seen(style: str, tmp_path: Path) -> None:
    """Every byte of the tables that say where the symbols are, and how many."""
    content = link(tmp_path, f"-Wl,--hash-style={style}")
    file = ELFFile(io.BytesIO(content))
    names = (".hash", ".gnu.hash", ".dynsym", ".gnu.version_d", ".gnu.version_r", ".dynamic")
    tables = [section for section in map(file.get_section_by_name, names) if section is not None]
    for section in tables:
        for at in range(section["sh_offset"], section["sh_offset"] + section["sh_size"]):
            for value in {0, 1, 0x80, 0xFF} - {content[at]}:
                try:
                    read_symbols(content[:at] + bytes([value]) + content[at + 1 :])
                except errors.DataError:
                    continue


@given(st.integers(0, len(CONTENT) - 1), st.binary(min_size=1, max_size=8))
def test_damage_is_an_error_of_data_or_is_not_seen(place: int, damage: bytes) -> None:
    damaged = CONTENT[:place] + damage + CONTENT[place + len(damage) :]
    for content in (damaged, CONTENT[:place]):
        for read in (loader.read_host_binary, pe.read_pe_imports):
            try:
                read(memoryview(content), "x")
            except errors.DataError:
                continue
