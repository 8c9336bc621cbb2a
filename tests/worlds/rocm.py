"""ROCm: installed, as artifacts, and in libraries as a fat torch has them."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import lzma
import os
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import miniature
import pytest
import servers
from binaries import zstd
from filelock import FileLock

from rocm_wheels.binaries import elf
from rocm_wheels.compile import sdk_tree
from rocm_wheels.device_code import kpack
from rocm_wheels.sdk.artifacts import merge_artifacts, read_artifacts, read_requirements

# ---- The small ROCm of ``tests/miniature`` with its compiler, laid out as an installation is.


SOURCE = miniature.SOURCE / "rocm"
TARGETS = ["gfx942", "gfx1100"]
ENV = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def lay_out(artifacts: Path, root: Path) -> Path:
    """Put all artifacts over each other, as an installation is."""
    for relative, entry in merge_artifacts(read_artifacts(artifacts)).items():
        place = root / relative
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(entry.path, place, follow_symlinks=False)
    return root


def install_ziglang(factory: pytest.TempPathFactory, wanted: Sequence[str] = ()) -> Path:
    """Install ziglang once for all workers (the installer's cache keeps its 101 MB); return its folder."""
    base = factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    wanted = wanted or [path.read_text().strip() for path in SOURCE.rglob("python_requirements.txt")]
    with FileLock(shared / "ziglang.lock"):
        if not (shared / "ziglang" / "done").exists():
            to = ["--target", shared / "ziglang", "--python", sys.executable, "--no-deps", *wanted]
            subprocess.run([sys.executable, "-m", "uv", "pip", "install", "--quiet", *to], check=True)
            (shared / "ziglang" / "done").touch()
    return shared / "ziglang" / "ziglang"


def beside_ziglang(artifacts: Path, factory: pytest.TempPathFactory) -> Path:
    """Lay out a ROCm beside ziglang, as in site-packages."""
    ziglang = install_ziglang(factory, read_requirements(read_artifacts(artifacts)))
    site = factory.mktemp("site packages")
    (site / "ziglang").symlink_to(ziglang)
    return lay_out(artifacts, site / "_rocm_sdk_devel")


def small_sdk(factory: pytest.TempPathFactory) -> sdk_tree.SdkTree:
    """Make the small ROCm and look at it as a build does."""
    artifacts = miniature.make_artifacts(
        SOURCE, factory.mktemp("rocm") / "artifacts", version="7.1.0", targets=TARGETS, env=ENV
    )
    return sdk_at(beside_ziglang(artifacts, factory))


def sdk_at(root: Path) -> sdk_tree.SdkTree:
    """Look at a ROCm."""
    return sdk_tree.inspect_sdk(version="7.1.0", root=root, cmake=root / "lib" / "cmake", bin=root / "bin")


def another(sdk: sdk_tree.SdkTree, site: Path) -> sdk_tree.SdkTree:
    """Copy a small ROCm, to change it."""
    site.mkdir()
    (site / "ziglang").symlink_to((sdk.root.parent / "ziglang").resolve())
    return sdk_at(Path(shutil.copytree(sdk.root, site / sdk.root.name, symlinks=True)))


# ---- Installed ROCms as trees of small files, and what a torch looks for of ROCm, for tests.


# what a tree of torch asks its CMake to find: as the large one does, in fewer words
LOAD_HIP = """
macro(find_package_and_print_version PACKAGE_NAME)
  find_package("${PACKAGE_NAME}" ${ARGN})
endmacro()
find_package_and_print_version(HIP 1.0 MODULE)
if(HIP_FOUND)
  find_package_and_print_version(hip REQUIRED CONFIG)
  find_package_and_print_version(miopen REQUIRED)
  find_package_and_print_version(hipcub REQUIRED) # headers alone
  if(CMAKE_VERSION VERSION_GREATER_EQUAL "4.0.0")
    find_package_and_print_version(hiprtc REQUIRED)
  else()
    find_package_and_print_version(hiprtc REQUIRED)
  endif()
  if(UNIX)
    find_package_and_print_version(rccl)
    if(ROCM_VERSION_DEV VERSION_GREATER_EQUAL "7.14.0")
      find_package_and_print_version(hipfile REQUIRED)
    endif()
  else() # Win32
    find_package_and_print_version(hipsdk REQUIRED)
  endif()
  find_package_and_print_version(hipsparselt)
endif()
"""
_HIP_HEADER = (
    "#define HIP_VERSION_MAJOR {0}\n#define HIP_VERSION_MINOR    {1}\n#define HIP_VERSION_PATCH 53211\n"
)


def make_torch_tree(folder: Path) -> Path:
    """Write a tree that says what it looks for of ROCm."""
    file = folder / "cmake/public/LoadHIP.cmake"
    file.parent.mkdir(parents=True)
    file.write_text(LOAD_HIP)
    return folder


def make_rocm(root: Path, version: str = "7.2.4", packages: Iterable[str] = ()) -> Path:
    """Write what an installed ROCm is known by; CMake packages by name."""
    major, minor, _ = version.split(".")
    files = {
        ".info/version": f"{version}-98\n",
        "include/hip/hip_version.h": _HIP_HEADER.format(major, minor),
        "include/hip/hip_runtime.h": "",
        "bin/hipcc": "#!/bin/sh\n",
        "lib/cmake/hip/hip-config.cmake": "",
        f"lib/libamdhip64.so.{major}.{minor}.53211": "",
        "lib/llvm/bin/clang++": "#!/bin/sh\n",
        "lib/llvm/amdgcn/bitcode/oclc_isa_version_942.bc": "",
        "lib/llvm/amdgcn/bitcode/oclc_isa_version_90a.bc": "",
        "lib/llvm/amdgcn/bitcode/ocml.bc": "",
        "lib/rocblas/library/TensileLibrary_lazy_gfx942.dat": "",
        "lib/rocblas/library/TensileLibrary_lazy_gfx803.dat": "",
        "lib/hipblaslt/library/extop_gfx942.co": "",
        "lib/hipblaslt/library/extop_gfx1100.co": "",
        **{f"lib/cmake/{name}/{name}-config.cmake": "" for name in packages},
    }
    for relative, text in files.items():
        (root / relative).parent.mkdir(parents=True, exist_ok=True)
        (root / relative).write_text(text)
    return root


# ---- A very small ROCm artifacts tree with real ELF files, for the tests of packages made from it.


_HIP = 'const char *hip_name(void) { return "hip"; }\n'
_BLAS = "extern const char *hip_name(void);\nconst char *blas_name(void) { return hip_name(); }\n"
_CLANG = '#include <stdio.h>\nint main(int n, char **w) { printf("%s %d\\n", w[0], n); return 0; }\n'
_HIPCC = "#!/bin/sh\necho hipcc from $(dirname $0) $@\n"


def add(artifacts: Path, folder: str, base: str, files: dict[str, str], *, executable: bool = False) -> Path:
    """Add text files to an artifact; returns its base folder."""
    root = artifacts / folder / base
    root.mkdir(parents=True, exist_ok=True)
    manifest = artifacts / folder / "artifact_manifest.txt"
    known = manifest.read_text().splitlines() if manifest.exists() else []
    if base not in known:
        manifest.write_text("\n".join([*known, base]) + "\n")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if executable else 0o644)
    return root


def library(target: Path, source: str, soname: str, *options: str) -> None:
    """Compile a real shared library."""
    compiled(target, source, "-shared", "-fPIC", f"-Wl,-soname,{soname}", *options)


def compiled(target: Path, source: str, *options: str) -> None:
    """Compile C."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["cc", "-x", "c", "-", "-x", "none", "-o", target, *options],
        input=source.encode(),
        check=True,
        timeout=60,
    )


def make_artifacts(artifacts: Path, *, version: str = "7.1.0+small", compile_elf: bool = True) -> Path:
    """Write the tree: core, libraries, two targets, development files, a header-only library."""
    add(
        artifacts, "base_lib_generic", "base/aux-overlay/stage",
        {
            "share/therock/therock_manifest.json": json.dumps(
                {"rocm_package_version": version, "flags": {"KPACK_SPLIT_ARTIFACTS": True}}
            ),
            "share/therock/dist_info.json": json.dumps({"dist_amdgpu_targets": ";".join(TARGETS)}),
            "lib/cmake/AMDDeviceLibs/AMDDeviceLibsConfig.cmake": "# device libraries\n",
        },
    )  # fmt: skip
    llvm = add(artifacts, "amd-llvm_run_generic", "compiler/amd-llvm/stage", {
        "share/therock/python_requirements.txt": "# the compiler's own\nsmall-compiler == 1.0\n",
    })  # fmt: skip
    (llvm / "llvm").symlink_to("lib/llvm")
    hip = add(artifacts, "core-hip_lib_generic", "core/clr/stage", {"lib/.hipInfo": "HIP_VERSION=7.1\n"})
    add(artifacts, "core-hip_lib_generic", "core/hipcc/stage", {"bin/hipcc": _HIPCC}, executable=True)
    add(artifacts, "core-hip_dev_generic", "core/clr/stage", {
        "include/hip/hip_runtime.h": "#pragma once\n",
        "lib/cmake/hip/hip-config.cmake": "# hip\n",
    })  # fmt: skip
    add(
        artifacts,
        "prim_dev_generic",
        "math-libs/rocPRIM/stage",
        {"include/rocprim/a, b.hpp": "#pragma once\n"},
    )
    blas = add(artifacts, "blas_lib_generic", "math-libs/BLAS/stage", {"share/blas/notice": "generic\n"})
    for target in TARGETS:
        add(artifacts, f"blas_lib_{target}", "math-libs/BLAS/stage", {
            f"lib/rocblas/library/kernels_{target}.dat": f"kernels for {target}\n",
            f".kpack/blas_{target}.kpack": f"code for {target}\n",
        })  # fmt: skip
    if compile_elf:
        _binaries(llvm, hip, blas)
    else:
        add(
            artifacts,
            "amd-llvm_run_generic",
            "compiler/amd-llvm/stage",
            {"lib/llvm/bin/amdclang": "#!/bin/sh\n"},
        )
    return artifacts


def _binaries(llvm: Path, hip: Path, blas: Path) -> None:
    programs = llvm / "lib/llvm/bin"
    compiled(programs / "clang-22", _CLANG)
    (programs / "amdclang").symlink_to("clang-22")
    (programs / "amdclang++").symlink_to("amdclang")
    library(hip / "lib/libamdhip64.so.7.1", _HIP, "libamdhip64.so.7")
    (hip / "lib/libamdhip64.so.7").symlink_to("libamdhip64.so.7.1")
    (hip / "lib/libamdhip64.so").symlink_to("libamdhip64.so.7")
    library(
        blas / "lib/libhipblas.so.3", _BLAS, "libhipblas.so.3", str(hip / "lib/libamdhip64.so.7.1"),
        "-Wl,-rpath,$ORIGIN:$ORIGIN/../../_rocm_sdk_core/lib",
    )  # fmt: skip
    (blas / "lib/libhipblas.so").symlink_to("libhipblas.so.3")


# ---- archives of artifacts as a build publishes them: packed, with digests, on a page, in a bucket


def pack(folder: Path, form: str = "zst") -> bytes:
    """Pack an artifact's folder, its manifest first, as TheRock's builds do."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        manifest = folder / "artifact_manifest.txt"
        tar.add(manifest, manifest.name)
        for path in sorted(folder.rglob("*")):
            if path != manifest:
                tar.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return compressed(content.getvalue(), form)


def compressed(content: bytes, form: str) -> bytes:
    """Compress a tar archive."""
    return zstd.compress(content) if form == "zst" else lzma.compress(content, preset=0)


def packed_tree(folder: Path, *, form: str = "zst") -> dict[str, bytes]:
    """Return the archives of a very small ROCm and their digests by file name."""
    artifacts = make_artifacts(folder, compile_elf=False)
    files = {f"{path.name}.tar.{form}": pack(path, form) for path in sorted(artifacts.iterdir())}
    return with_digests(files)


def with_digests(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Add a ``.sha256sum`` to every archive."""
    sums = {f"{n}.sha256sum": f"{hashlib.sha256(c).hexdigest()}\n".encode() for n, c in files.items()}
    return {**files, **sums}


def put(bucket: str, folder: str, files: Mapping[str, bytes]) -> None:
    """Put files into a folder of a bucket of the test's S3, which is made when it is missing."""
    client = servers._client(servers.moto())
    client.call("create_bucket", Bucket=bucket)
    for name, content in files.items():
        client.call("put_object", Bucket=bucket, Key=f"{folder}/{name}", Body=content)


def page(names: list[str]) -> bytes:
    """Return the page that a server makes of a folder (as TheRock's: a table of links)."""
    rows = "".join(f'<tr><td><a href="{quote(name)}">{name}</a></td><td>1 kB</td></tr>\n' for name in names)
    head = '<!DOCTYPE html><html><body><table><tr><td><a href="../index.html">..</a></td></tr>'
    return f'{head}<tr><td><a href="logs/index.html">logs/</a></td></tr>{rows}</table>'.encode()


# ---- Libraries as hipcc links them, made with the system's compiler, and a runtime that says what it is
# records.
#
# Each bundle has a record in ``.hipFatBinSegment``, which a constructor hands to
# ``__hipRegisterFatBinary``.
# The stub prints path of the library, magic, number and the bytes that the record points to; what the HIP
# runtime does with them is done in Python (``find_kernels``), by its documents and not by our readers.


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
