"""Time what is done to finished wheels: `bench_package.py [--size MB] [--runs N] [--folder DIR]`, by hand.

`wheel prune` of a library of SIZE MB of device code for four targets to two, and `wheel fat` with an SDK of
twice as much, each as a process of its own; beside them `cp` and sync of the same bytes, and isal at the same
level on what is compressed anew, on as many cores.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from isal import isal_zlib

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from audit_wheels import Draft
from binary_writer import HOST, bundle, code_object, compress, hip, pad

TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx1100")
KEPT = "gfx942,gfx1100"
BUNDLE = 16 << 20  # of plain code
INIT = 'import rocm_sdk\nrocm_sdk.initialize_process(preload_shortnames=["rocblas"])\n'


def make_code(target: str, seed: int) -> tuple[str, bytes]:
    """Return a code object that compresses to about a third, as real ones do."""
    size = BUNDLE // len(TARGETS)
    block = b"".join(hashlib.sha256(f"{target} {seed} {i}".encode()).digest() for i in range(size // 96))
    filler = b"".join(block[i : i + 4096] + bytes(8192) for i in range(0, len(block), 4096))
    return hip(target, (code_object(target)[:64] + filler)[:size])


def link_library(folder: Path, name: str, megabytes: int) -> Path:
    """Link a library with so many megabytes of bundles in its file."""
    section = folder / "section"
    with section.open("wb") as file:
        seed = 0
        while file.tell() < megabytes << 20:
            file.write(pad(compress(bundle(HOST, *(make_code(t, seed) for t in TARGETS)), 3, "zstd")))
            seed += 1
    (folder / "fat.s").write_text(
        '.section .hip_fatbin,"a",@progbits\n.p2align 12\n.incbin "section"\n'
        '.section .note.GNU-stack,"",@progbits\n'
    )
    words = ["cc", "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-Wl,-z,max-page-size=4096"]
    subprocess.run([*words, "-o", name, "fat.s"], cwd=folder, check=True)
    return folder / name


def deflate(path: Path) -> Path:
    """Write an archive again with deflated members, as wheels are."""
    packed = path.with_suffix(".packed")
    with (
        zipfile.ZipFile(path) as old,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new,
    ):
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    return packed.rename(path)


def run(*words: str | Path) -> None:
    argv = [sys.executable, "-m", "rocm_wheels", "-q", *map(str, words)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def copy(paths: list[Path], folder: Path) -> None:
    """Copy files as cp does, and have them on the disk."""
    for path in paths:
        subprocess.run(["cp", path, folder], check=True)
        descriptor = os.open(folder / path.name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def pack_members(path: Path, names: list[str]) -> None:
    """Deflate members of a finished wheel again, in threads: the least that packing them can cost."""

    def pack(content: bytes) -> int:
        packer = isal_zlib.compressobj(3, 8, -15)
        return len(packer.compress(content)) + len(packer.flush())

    with zipfile.ZipFile(path) as archive, ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(pack, [archive.read(name) for name in names]))


def measure(work: Callable[[], None], runs: int) -> str:
    """Return the medians of seconds and of processor time, ours and that of processes we started."""
    rows = []
    for _ in range(runs):
        begun, before = time.monotonic(), os.times()
        work()
        after = os.times()
        rows.append((time.monotonic() - begun, sum(after[:4]) - sum(before[:4])))
    seconds, processor = (statistics.median(column) for column in zip(*rows, strict=True))
    return f"{seconds:6.2f} s, {processor:6.2f} s of processor time"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=256, help="MB of device code in the library")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        compare(Path(name), options.size, options.runs)


def compare(folder: Path, size: int, runs: int) -> None:
    library = link_library(folder, "librocblas.so.5", size)
    torch_hip = link_library(folder, "libtorch_hip.so", 1)
    torch = Draft(
        members={
            "torch/__init__.py": b"from . import _rocm_init\n",
            "torch/_rocm_init.py": INIT.encode(),
            "torch/lib/libtorch_hip.so": torch_hip.read_bytes(),
        },
        requires=["rocm[libraries]==7.1.0"],
    )
    rocm = {
        "_rocm_sdk_core/.info/version": b"7.1.0\n",
        "_rocm_sdk_core/lib/librocblas.so.5": library.read_bytes(),
    }
    content = b"".join(hashlib.sha256(str(i).encode()).digest() for i in range((size << 20) // 32))
    rocm["_rocm_sdk_core/lib/rocblas/library/TensileLibrary_gfx942.co"] = content
    rocm["_rocm_sdk_core/lib/rocblas/library/TensileLibrary_gfx1100.co"] = b"kernels"
    links = folder / "links"
    links.mkdir()
    sdk = deflate(Draft("rocm_sdk_core", "7.1.0", "py3-none-linux_x86_64", members=rocm).write(links))
    wheel = deflate(torch.write(folder))
    out, copies = folder / "out", folder / "copies"
    copies.mkdir()

    def prune() -> None:
        shutil.rmtree(out, ignore_errors=True)
        run("wheel", "prune", sdk, "--gfx", KEPT, "-o", out)

    def make_fat() -> None:
        shutil.rmtree(out, ignore_errors=True)
        run("wheel", "fat", wheel, "--find-links", links, "--gfx", KEPT, "-o", out)

    print(f"wheel of {sdk.stat().st_size >> 20} MB, a library of {library.stat().st_size >> 20} MB")
    print(f"cp and sync                 {measure(lambda: copy([sdk], copies), runs)}")
    pruned = measure(prune, runs)
    thin = out / sdk.name
    print(f"wheel prune, 4 -> 2 targets {pruned} -> {thin.stat().st_size >> 20} MB")
    packed = measure(lambda: pack_members(thin, ["_rocm_sdk_core/lib/librocblas.so.5"]), runs)
    print(f"isal on the pruned library  {packed}, inflating it included")
    fat = measure(make_fat, runs)
    made = next(out.iterdir())
    print(f"wheel fat                   {fat} -> {made.stat().st_size >> 20} MB")
    print(f"cp and sync of that         {measure(lambda: copy([made], copies), runs)}")


if __name__ == "__main__":
    main()
