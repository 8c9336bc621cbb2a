"""A very small ROCm artifacts tree with real ELF files, for the tests of packages made from it."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import s3_servers
from zstd_library import zstd

TARGETS = ("gfx942", "gfx1100")
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
    client = s3_servers._client(s3_servers.moto())
    client.call("create_bucket", Bucket=bucket)
    for name, content in files.items():
        client.call("put_object", Bucket=bucket, Key=f"{folder}/{name}", Body=content)


def page(names: list[str]) -> bytes:
    """Return the page that a server makes of a folder (as TheRock's: a table of links)."""
    rows = "".join(f'<tr><td><a href="{quote(name)}">{name}</a></td><td>1 kB</td></tr>\n' for name in names)
    head = '<!DOCTYPE html><html><body><table><tr><td><a href="../index.html">..</a></td></tr>'
    return f'{head}<tr><td><a href="logs/index.html">logs/</a></td></tr>{rows}</table>'.encode()
