"""What the installed ROCm SDK has, looked up once; everything after that is pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import SdkError


@dataclass(frozen=True)
class SdkTree:
    """An installed SDK: its version, three folders, and optional parts (``None`` when missing)."""

    version: str
    root: Path
    cmake: Path
    bin: Path
    bundles: bool = True  # made by ROCm's own build, which brings its dependencies in lib/rocm_sysdeps
    sysdeps: Path | None = None  # lib/rocm_sysdeps: liblzma, libdrm and others that ROCm brings
    clang: Path | None = None  # lib/llvm/bin
    bitcode: Path | None = None  # lib/llvm/amdgcn/bitcode: device libraries
    host_math: Path | None = None  # lib/host-math: OpenBLAS
    roctracer: Path | None = None  # include/roctracer: headers for Kineto


def inspect_sdk(*, version: str, root: Path, cmake: Path, bin: Path) -> SdkTree:
    """Look which parts an SDK has. Raises SdkError when one of its three folders is not there."""
    folders = {"root": root, "cmake": cmake, "bin": bin}
    for name, folder in folders.items():
        if not folder.is_dir():
            raise SdkError(
                f"the ROCm SDK {version} says that its {name} folder is {folder}, which does not exist",
                tip="install it again: build_prod_wheels.py install-rocm",
            )
    root = root.absolute()

    def find_part(path: str) -> Path | None:
        return root / path if (root / path).is_dir() else None

    return SdkTree(
        version=version,
        root=root,
        cmake=cmake.absolute(),
        bin=bin.absolute(),
        bundles=(root / "share/therock/therock_manifest.json").is_file(),
        sysdeps=find_part("lib/rocm_sysdeps"),
        clang=find_part("lib/llvm/bin"),
        bitcode=find_part("lib/llvm/amdgcn/bitcode"),
        host_math=find_part("lib/host-math"),
        roctracer=find_part("include/roctracer"),
    )


def list_sdk_warnings(sdk: SdkTree) -> tuple[str, ...]:
    """Say what a build goes without, one line a missing part."""
    parts = {
        "lib/rocm_sysdeps": (
            sdk.sysdeps or sdk.bundles,
            "it was made from an installed ROCm; libdrm, liblzma and others are the system's",
        ),
        "lib/llvm/amdgcn/bitcode": (sdk.bitcode, "the compiler looks for its device libraries by itself"),
        "lib/host-math": (sdk.host_math, "torch is built without OpenBLAS"),
        "include/roctracer": (sdk.roctracer, "the profiler (Kineto) may not find roctracer.h"),
    }
    return tuple(
        f"the ROCm SDK has no {path}: {consequence}"
        for path, (part, consequence) in parts.items()
        if not part
    )
