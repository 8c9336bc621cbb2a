"""Thin wheels out of fat ones: which code stays, byte for byte, and what is refused."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from binaries import HOST, bundle, coff, compress, elf, hip, kpack, pad, wheel
from wheels import read_members

from rocm_wheels.cli import boundary, main
from rocm_wheels.device_code import code_objects, kernel_databases
from rocm_wheels.package.prune import TargetFilter
from rocm_wheels.wheels import edit, scan, zip_format

pytestmark = pytest.mark.contract

ALL_PACKINGS = [None, *((v, m) for v in (1, 2, 3) for m in ("zlib", "zstd"))]
FOUR = ("gfx906", "gfx90a", "gfx942", "gfx1100")


def code(target: str, *, seed: int = 0, size: int = 4096) -> tuple[str, bytes]:
    """An entry whose code object is like no other: a header, then bytes that do not compress."""
    name, head = hip(target)
    filler = b"".join(hashlib.sha256(f"{target} {seed} {i}".encode()).digest() for i in range(size // 32))
    return name, head[:64] + filler


def packed(plain: bytes, packing: tuple[int, str] | None) -> bytes:
    return plain if packing is None else compress(plain, *packing)


def prune(*words: str | Path) -> int:
    return boundary.run_command(main.cli, ["wheel", "prune", *map(str, words)])


def targets_of(path: Path, member: str) -> list[str]:
    return code_objects.list_code_targets(code_objects.read_code_objects(read_members(path)[member], member))


@pytest.mark.parametrize("packing", ALL_PACKINGS, ids=str)
def test_bundles_keep_what_they_had_for_a_target(tmp_path: Path, packing: tuple[int, str] | None) -> None:
    """Each bundle stays where it is; the kept code objects are the same bytes, in the same order."""
    plains = [bundle(HOST, *(code(t, seed=i) for t in FOUR)) for i in range(3)]
    section = b"".join(pad(packed(plain, packing)) for plain in plains)
    source = wheel(tmp_path, {"demo/lib.so": elf({".text": b"x", ".hip_fatbin": section, ".data": b"y"})})
    assert prune(source, "--gfx", "gfx942,gfx906", "-o", tmp_path / "thin") == 0
    library = read_members(tmp_path / "thin" / source.name)["demo/lib.so"]
    objects = code_objects.read_code_objects(library, "lib.so")
    assert [str(o.target) for o in objects] == ["gfx906", "gfx942"] * 3
    assert {o.bundle for o in objects} == {0, 1, 2}
    if packing is None:
        begin = library.index(b"__CLANG_OFFLOAD_BUNDLE__")
        for i, place in enumerate(range(0, len(section), len(section) // 3)):
            head = library[begin + place :]
            held = [o for o in objects if o.bundle == i]
            for target, o in zip(("gfx906", "gfx942"), held, strict=True):
                assert head[o.offset : o.offset + o.size] == code(target, seed=i)[1]
    assert not scan.scan_wheel(tmp_path / "thin" / source.name).faults


def test_nothing_but_the_named_files_and_record_changes(tmp_path: Path) -> None:
    files = {
        "demo/__init__.py": b"x = 1\n",
        "demo/fat.so": elf({".hip_fatbin": compress(bundle(HOST, *map(code, FOUR)), 3, "zstd")}),
        "demo/thin.so": elf({".hip_fatbin": compress(bundle(HOST, code("gfx942")), 3, "zstd")}),
        "demo/plain.so": elf({".text": b"no device code"}),
        "demo/one.hsaco": code("gfx1100")[1],
        "demo/bundle.co": compress(bundle(HOST, *map(code, FOUR)), 2, "zstd"),
        "demo/foreign.co": compress(bundle(HOST, code("gfx1100")), 2, "zstd"),
        "demo/.kpack/demo_gfx1100.kpack": kpack({("demo.so#0", "gfx1100"): code("gfx1100")[1]}),
        "demo/.kpack/demo_gfx942.kpack": kpack({("demo.so#0", "gfx942"): code("gfx942")[1]}),
    }
    source = wheel(tmp_path, files)
    for folder in ("first", "second"):
        assert prune(source, "--gfx", "gfx942", "-o", tmp_path / folder) == 0
    first, second = (tmp_path / folder / source.name for folder in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    difference = edit.compare_wheels(source, first)
    assert difference.changed == ["demo/bundle.co", "demo/fat.so"]
    assert difference.removed == ["demo/.kpack/demo_gfx1100.kpack", "demo/foreign.co", "demo/one.hsaco"]
    assert (difference.added, difference.modes, difference.metadata) == ([], {}, {})
    assert targets_of(first, "demo/fat.so") == targets_of(first, "demo/bundle.co") == ["gfx942"]
    assert not scan.scan_wheel(first).faults


def test_windows_library_keeps_its_size(tmp_path: Path) -> None:
    dll = coff({".text": b"abc", ".hip_fatbin": bundle(HOST, *map(code, FOUR))}, image=True)
    source = wheel(tmp_path, {"demo/lib.dll": dll})
    assert prune(source, "--gfx", "gfx90a", "-o", tmp_path / "thin") == 0
    thin = tmp_path / "thin" / source.name
    assert targets_of(thin, "demo/lib.dll") == ["gfx90a"]
    assert len(read_members(thin)["demo/lib.dll"]) == len(dll)


@pytest.mark.parametrize(
    ("asked", "held", "stays"),
    [
        ("gfx90a", "gfx90a", True),
        ("gfx90a", "gfx90a:xnack+", True),
        ("gfx90a", "gfx90a:sramecc+:xnack-", True),
        ("gfx90a:xnack-", "gfx90a", True),
        ("gfx90a:xnack-", "gfx90a:xnack-", True),
        ("gfx90a:xnack-", "gfx90a:xnack+", False),
        ("gfx90a", "gfx90", False),
        ("gfx90a", "gfx906", False),
        ("gfx1100", "gfx110", False),
        ("gfx1100", "gfx11-generic", True),
        ("gfx1030", "gfx11-generic", False),
        ("gfx1030", "amdgcnspirv", True),
    ],
)
def test_code_stays_that_runs_on_a_target(asked: str, held: str, stays: bool) -> None:
    assert TargetFilter([asked]).keeps(code_objects.TargetId.parse(held)) is stays


DATABASES = {
    "torch/_rocm/lib/rocblas/library/TensileLibrary_lazy_gfx90a.dat": True,
    "torch/_rocm/lib/rocblas/4.4.1/library/Kernels.so-000-gfx90a-xnack+.hsaco": True,
    "torch/_rocm/lib/rocblas/4.4.1/library/Kernels.so-000-gfx1100.hsaco": False,
    "torch/lib/rocblas/library/gfx942/TensileLibrary_lazy.dat": False,
    "torch/lib/rocblas/library/gfx90a/TensileLibrary_lazy.dat": True,
    "lib/rocblas/library/TensileLibrary_Type_SS_Contraction_l_Ailk_Bljk_Cijk_Dijk_fallback.dat": True,
    "lib/hipblaslt/library/extop_gfx1100.co": False,
    "lib/hipblaslt/library/TensileLiteLibrary_lazy_Mapping.dat": True,
    "lib/hipsparselt/library/TensileLibrary_gfx942.co": False,
    "share/miopen/db/gfx90a68.HIP.fdb.txt": True,
    "share/miopen/db/gfx90878.db.txt": False,
    "share/miopen/db/gfx942130.db.txt": False,
    "share/miopen/db/gfx1030_36.kdb": True,
    "lib/libMIOpenCKGroupedConv_gfx942.so": False,
    "torch/lib/aotriton.images/amd-gfx90a/flash/x.aks2": True,
    "torch/lib/aotriton.images/amd-gfx11xx/flash/x.aks2": False,
    "torch/lib/aotriton.images/amd-gfx103x/flash/x.aks2": True,
    "demo/tuning_gfx1100.json": True,
}


def test_databases_go_by_the_target_in_their_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file without a label stays, and so does one outside of the databases, whatever its name."""
    library = {"demo/lib.so": elf({".hip_fatbin": bundle(HOST, code("gfx90a"))})}
    source = wheel(tmp_path, dict.fromkeys(DATABASES, b"kernels") | library)
    assert prune(source, "--gfx", "gfx90a,gfx1030", "-o", tmp_path / "thin") == 0
    held = read_members(tmp_path / "thin" / source.name)
    assert prune(source, "--gfx", "gfx1201", "-o", tmp_path / "thin") == 13
    assert "tip: it has gfx908 gfx90a gfx90a:xnack+ gfx942 gfx1030 gfx1100\n" in capfd.readouterr().err
    assert {name: name in held for name in DATABASES} == DATABASES
    assert kernel_databases.list_database_labels("demo/tuning_gfx1100.json") == []


def test_refusals_leave_nothing_behind(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of several wheels none is written when one cannot be."""
    library = elf({".hip_fatbin": bundle(HOST, code("gfx942"), code("gfx1100"))})
    good = wheel(tmp_path, {"demo/lib.so": library})
    (tmp_path / "more").mkdir()
    name = "demo-1.0-py3-none-linux_x86_64.whl"
    foreign = {"demo/x.so": elf({".hip_fatbin": bundle(HOST, code("gfx1100"))})}
    other = wheel(tmp_path / "more", foreign, name=name)
    assert prune(good, other, "--gfx", "gfx942", "-o", tmp_path / "thin") == 13
    told = capfd.readouterr().err
    assert "gfx942" in told
    assert "tip: it has gfx1100" in told
    assert not (tmp_path / "thin").exists()
    bare = wheel(tmp_path / "more", {"demo/x.so": elf({".text": b"x"})})
    assert prune(bare, "--gfx", "gfx942", "-o", tmp_path / "thin") == 13
    assert prune(good, "--gfx", "gfx9999", "-o", tmp_path / "thin") == 2
    assert not (tmp_path / "thin").exists()


def test_generic_code_goes_where_a_target_has_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bundle by bundle, what the runtime would take is kept; code for one XNACK setting is not all of it."""
    bundles = [
        bundle(HOST, code("gfx942"), code("gfx9-4-generic")),
        bundle(HOST, code("gfx942:xnack+"), code("gfx9-4-generic")),
        bundle(HOST, code("gfx942:xnack+"), code("gfx942:xnack-"), code("gfx9-4-generic")),
    ]
    source = wheel(tmp_path, {"demo/lib.so": elf({".hip_fatbin": b"".join(map(pad, bundles))})})
    assert prune(source, "--gfx", "gfx942", "-o", tmp_path / "thin", "--json") == 0
    (report,) = json.loads(capfd.readouterr().out)["wheels"]
    library = read_members(tmp_path / "thin" / source.name)["demo/lib.so"]
    held = [(o.bundle, str(o.target)) for o in code_objects.read_code_objects(library, "lib.so")]
    own, settings = (0, "gfx942"), [(2, "gfx942:xnack+"), (2, "gfx942:xnack-")]
    assert held == [own, (1, "gfx942:xnack+"), (1, "gfx9-4-generic"), *settings]
    assert report["targets"] == ["gfx942", "gfx942:xnack+", "gfx942:xnack-", "gfx9-4-generic"]


def test_wheels_without_device_code_come_along(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    library = elf({".hip_fatbin": bundle(HOST, code("gfx942"), code("gfx90a"))})
    source = wheel(tmp_path, {"demo/lib.so": library})
    plain = wheel(tmp_path, {"demo/__init__.py": b""}, name="demo-1.0-1-py3-none-any.whl")
    assert prune(source, plain, "--gfx", "gfx942", "-o", tmp_path / "thin", "--json") == 0
    assert (tmp_path / "thin" / plain.name).read_bytes() == plain.read_bytes()
    assert prune(plain, "--gfx", "gfx942", "-o", tmp_path / "alone") == 13  # nothing to prune at all
    assert not (tmp_path / "alone").exists()
    capfd.readouterr()


needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="links and loads an ELF library"
)

SOURCE = """
    .section .hip_fatbin,"a",@progbits
    .p2align 12
    .globl fatbin
fatbin:
    .incbin "section"
fatbin_end:
    .globl fatbin_size
    .section .rodata
    .p2align 3
fatbin_size:
    .quad fatbin_end - fatbin
    .section .note.GNU-stack,"",@progbits
"""
CODE = """
extern unsigned char fatbin[]; extern unsigned long fatbin_size; int counter = 41; int zero[3000];
unsigned char *address(void) { return fatbin; } unsigned long size(void) { return fatbin_size; }
int count(void) { return ++counter + zero[2999]; }
"""


def link_library(folder: Path, section: bytes) -> bytes:
    folder.mkdir()
    (folder / "section").write_bytes(section)
    (folder / "fat.s").write_text(SOURCE)
    (folder / "code.c").write_text(CODE)
    words = ["cc", "-shared", "-fPIC", "-o", "lib.so", "fat.s", "code.c", "-Wl,-z,max-page-size=4096"]
    subprocess.run(words, cwd=folder, check=True)
    return (folder / "lib.so").read_bytes()


def load_section(library: bytes, path: Path) -> tuple[bytes, int]:
    """Load a library as programs do; return what stands in its memory, and what a function says."""
    path.write_bytes(library)
    loaded = ctypes.CDLL(os.fspath(path))
    loaded.address.restype, loaded.size.restype = ctypes.c_void_p, ctypes.c_ulong
    return ctypes.string_at(loaded.address(), loaded.size()), loaded.count()


@needs_compiler
def test_loaded_library_has_its_bundles_where_they_were(tmp_path: Path) -> None:
    """Pages are given back: a shorter file, the same memory, the rest of it as it was."""
    plains = [bundle(HOST, *(code(t, seed=i, size=1 << 18) for t in FOUR)) for i in range(3)]
    section = b"".join(map(pad, plains))
    whole = link_library(tmp_path / "link", section)
    (tmp_path / "in").mkdir()
    source = wheel(tmp_path / "in", {"demo/lib.so": whole})
    assert prune(source, "--gfx", "gfx942", "-o", tmp_path / "cut") == 0
    library = read_members(tmp_path / "cut" / source.name)["demo/lib.so"]
    memory, number = load_section(library, tmp_path / "cut.so")
    assert number == 42
    assert code_objects.list_code_targets(code_objects.read_code_objects(library, "lib.so")) == ["gfx942"]
    assert len(library) < len(whole) / 3
    assert len(memory) == len(section)
    for i, plain in enumerate(plains):
        held = memory[len(pad(plain)) * i :]
        assert held.startswith(b"__CLANG_OFFLOAD_BUNDLE__")
        assert held.count(code("gfx942", seed=i, size=1 << 18)[1], 0, len(plain)) == 1


@needs_compiler
def test_content_that_an_index_refuses_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros in place of code, which a DLL keeps, are more than 50 times what is left of the wheel."""
    monkeypatch.setattr(zip_format, "_HARMLESS_CONTENT", 1 << 20)  # 64 MB: test_wheel_layout
    big = ("hipv4-amdgcn-amd-amdhsa--gfx1100", code("gfx1100")[1] + os.urandom(2 << 20))
    whole = link_library(tmp_path / "link", bundle(HOST, code("gfx942"), big))
    dll = coff({".text": b"abc", ".hip_fatbin": bundle(HOST, code("gfx942"), big)}, image=True)
    source = wheel(tmp_path, {"demo/lib.dll": dll})
    assert prune(source, "--gfx", "gfx942", "-o", tmp_path / "thin") == 13
    assert "more than 50 times" in capfd.readouterr().err
    assert not (tmp_path / "thin").exists()
    source = wheel(tmp_path, {"demo/lib.so": whole})
    assert prune(source, "--gfx", "gfx942", "-o", tmp_path / "thin") == 0
    assert (tmp_path / "thin" / source.name).stat().st_size < 1 << 20
