"""Lay out the ROCm packages installed in a Debian root as AMD lays out ``/opt/rocm``.

Debian spreads ROCm over ``/usr``: libraries and CMake packages below the multi-arch folder, LLVM in
``/usr/lib/llvm-N``, device libraries in clang's resource folder. A ROCm build, its Python packages and the
CMake files of PyTorch expect one tree with ``bin``, ``include``, ``lib/cmake`` and ``lib/llvm``.

    python3 tests/real/lay_out_rocm.py --root /path/to/root --prefix /path/to/root/opt/rocm

Files are hard links where both are on one file system. What Debian does not ship and others read
(``.info/version``, ``include/rocm-core/rocm_version.h``) is written from the version of libamdhip64.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MULTIARCH = "lib/x86_64-linux-gnu"
PACKAGES = re.compile(
    r"hipcc|rocm-(cmake|smi|device-libs-\d+)|rocminfo|amd-smi"
    r"|(clang|llvm|lld|clang-tools)-\d+|llvm-\d+-(linker-tools|runtime)|lib(clang|llvm)\S*\d+(-dev)?"
    r"|libomp(5|-\d+-dev)"
    r"|lib(amd-comgr|amd-smi|amdhip64|hip|hipblas|hipcub|hiprtc|hsa-runtime|miopen|origami|rccl|roc)\S*"
)
LLVM = re.compile(r"(lib)?(clang|llvm|lld)\S*")
LEFT_OUT = re.compile(r"share/(doc|man|lintian|bug|bash-completion)/|lib/python3/")


def list_packages(root: Path) -> dict[str, str]:
    """Return the installed packages that make up ROCm: name as dpkg's file lists have it → version."""
    query = ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${binary:Package} ${Version}\n"]
    rows = subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()
    pairs = (row.split() for row in rows)
    return {name: version for name, version in pairs if PACKAGES.fullmatch(name.split(":")[0])}


def list_files(root: Path, package: str) -> Iterator[Path]:
    """Yield the files and links of a package, relative to ``/usr``."""
    folder = root / "var/lib/dpkg/info"
    listing = folder / f"{package}.list"
    if not listing.exists():
        listing = folder / f"{package}:amd64.list"
    for line in listing.read_text().splitlines():
        path = root / line.lstrip("/")
        if line.startswith("/usr/") and (path.is_symlink() or path.is_file()):
            yield Path(line).relative_to("/usr")


def place_file(package: str, relative: Path) -> str | None:
    """Return where a file of ``/usr`` belongs below the prefix; ``None``: nowhere."""
    text = relative.as_posix()
    if LEFT_OUT.match(text):
        return None
    if re.match(rf"{MULTIARCH}/lib(LLVM|clang)", text):  # clang looks for them beside itself
        return f"lib/llvm/lib/{relative.name}"
    if re.match(r"lib/llvm-\d+/", text):
        return re.sub(r"^lib/llvm-\d+/", "lib/llvm/", text)
    if LLVM.fullmatch(package):  # links to what is below lib/llvm
        return None
    return text.replace(f"{MULTIARCH}/", "lib/").replace("include/x86_64-linux-gnu/", "include/")


def move_cmake_text(text: str) -> str:
    """Rewrite a CMake package of the multi-arch folder for ``lib/cmake/<name>``, one folder less deep."""
    text = text.replace(MULTIARCH, "lib").replace("/../../../../", "/../../../")
    for variable in ("_IMPORT_PREFIX", "AMD_COMGR_PREFIX"):
        climb = f'get_filename_component({variable} "${{{variable}}}" PATH)\n'
        text = text.replace(climb * 4, climb * 3)
    return text


def lay_out(root: Path, prefix: Path) -> str:
    """Make the tree and return the version of ROCm (``6.4.3``)."""
    packages = list_packages(root)
    runtime = next((v for name, v in packages.items() if name.startswith("libamdhip64-dev")), None)
    if runtime is None:
        raise SystemExit(f"{root} has no libamdhip64-dev: install ROCm's packages there first")
    version = re.split(r"[-+~]", runtime)[0]
    for package in packages:
        for relative in list_files(root, package):
            place = place_file(package.split(":")[0], relative)
            if place is not None:
                _place(root / "usr" / relative, prefix / place)
    _add_device_libraries(prefix)
    _add_version(prefix, version)
    return version


def _place(source: Path, target: Path) -> None:
    link = source.readlink().as_posix() if source.is_symlink() else None
    if link is not None and "/llvm-" in source.as_posix() and MULTIARCH.split("/")[1] in link:
        link = Path(link).name  # the file itself is beside it here
    if link == target.name:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if link is not None:
        target.symlink_to(link)
    elif target.suffix == ".cmake" and f"{MULTIARCH}/cmake" in source.as_posix():
        target.write_text(move_cmake_text(source.read_text()))
    else:
        _link_or_copy(source, target)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _add_device_libraries(prefix: Path) -> None:
    """Put the bitcode where ROCm's own clang has it, too, and name clang as ROCm does."""
    for bitcode in sorted(prefix.glob("lib/llvm/lib/clang/*/amdgcn/bitcode/*.bc")):
        target = prefix / "lib/llvm/amdgcn/bitcode" / bitcode.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        os.link(bitcode, target)
    versions = {path.name for path in (prefix / "lib/llvm/lib/clang").iterdir()}
    links = {
        "llvm": "lib/llvm",  # where FindHIP.cmake looks for clang
        "lib/llvm/bin/amdclang": "clang",
        "lib/llvm/bin/amdclang++": "clang++",
        **{f"lib/llvm-{version}": "llvm" for version in versions},  # where Debian's hipcc does
    }
    for name, target in links.items():
        link = prefix / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _add_version(prefix: Path, version: str) -> None:
    major, minor, patch = version.split(".")
    header = prefix / "include/rocm-core/rocm_version.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(
        f"#pragma once\n#define ROCM_VERSION_MAJOR {major}\n"
        f"#define ROCM_VERSION_MINOR {minor}\n#define ROCM_VERSION_PATCH {patch}\n"
        f'#define ROCM_BUILD_INFO "{version}"\n'  # which ATen's Tunable.cpp asks for
    )
    info = prefix / ".info/version"
    info.parent.mkdir(exist_ok=True)
    info.write_text(f"{version}\n")


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="root of a Debian with ROCm installed")
    parser.add_argument("--prefix", type=Path, required=True, help="where the tree appears")
    words = parser.parse_args()
    if words.prefix.exists():
        parser.error(f"{words.prefix} exists")
    part = words.prefix.with_name(f"{words.prefix.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    version = lay_out(words.root.resolve(), part)
    part.rename(words.prefix)
    print(f"ROCm {version} in {words.prefix}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
