"""Installed ROCms as trees of small files, and what a torch looks for of ROCm, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

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
