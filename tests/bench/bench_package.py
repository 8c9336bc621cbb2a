"""Time what is done to finished wheels, by hand.

``bench_package.py [--size MB] [--runs N] [--folder DIR] [--peers PYTHON]``: `wheel stamp` of a torch with a
library of SIZE MB of device code for four targets and as much other data, `targets`, `wheel prune` of such a
library to two targets, `wheel fat` with an SDK of twice as much, `wheel split` and `wheel join` of that
torch, each as a process of its own; beside them `cp` and sync of the same bytes, zstd and isal at the same
level on what is compressed anew (pruned libraries by both), and, where PYTHON has them, `auditwheel show` and
variantlib's `make-variant`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import clock
from isal import isal_zlib

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "worlds"))
from binaries import HOST, bundle, code_object, compress, hip, pad
from wheels import Draft

from rocm_wheels.device_code import code_objects, kpack
from rocm_wheels.device_code.bundles import BundlePlace, locate_bundles

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
    places = []
    with section.open("wb") as file:
        while file.tell() < megabytes << 20:
            codes = [make_code(target, len(places)) for target in TARGETS]
            places.append(file.tell())
            file.write(pad(compress(bundle(HOST, *codes), 3, "zstd")))
    records = "".join(f".long 0x48495046, 1\n.quad bundles + {place}, 0\n" for place in places)
    (folder / "fat.s").write_text(
        '.section .hip_fatbin,"a",@progbits\n.p2align 12\nbundles:\n.incbin "section"\n'
        f'.section .hipFatBinSegment,"aw",@progbits\n.p2align 3\n{records}'
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


def run(*words: str | Path) -> list[str]:
    """Return a command of ours."""
    return [sys.executable, "-m", "rocm_wheels", "-q", *map(str, words)]


def pack_library(path: Path, name: str) -> None:
    """Compress the code of a library in a wheel, and deflate it, in threads: the least for pruning it."""

    def pack(content: bytes) -> int:
        packer = isal_zlib.compressobj(3, 8, -15)
        return len(packer.compress(content)) + len(packer.flush())

    with zipfile.ZipFile(path) as archive:
        content = archive.read(name)
    compress_code(content)
    blocks = [content[at : at + (4 << 20)] for at in range(0, len(content), 4 << 20)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(pack, blocks))


def compress_code(library: bytes) -> None:
    """Inflate the bundles of a library, compress their code objects, in threads: the least for archives."""
    (span,) = code_objects.find_held_code(memoryview(library), "library").bundle_spans

    def work(place: BundlePlace) -> int:
        return sum(len(kpack.compress_kernel(content)) for _, content in place.read_contents())

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(work, locate_bundles(span)))


def make_world(folder: Path, size: int) -> None:
    """Make a torch with a library of device code, one without, and a wheel of ROCm with another."""
    library = link_library(folder, "librocblas.so.5", size)
    content = b"".join(hashlib.sha256(str(i).encode()).digest() for i in range((size << 20) // 32))
    for name, needed in (("torch-thin", 1), ("torch", size)):
        members = {
            "torch/__init__.py": b"from . import _rocm_init\n",
            "torch/_rocm_init.py": INIT.encode(),
            "torch/lib/libtorch_hip.so": link_library(folder, "libtorch_hip.so", needed).read_bytes(),
        }
        if needed == size:
            members["torch/lib/data.bin"] = content
            members |= {f"torch/include/{i}.h": b"int x;\n" * i for i in range(2000)}
        (folder / name).mkdir()
        deflate(Draft(members=members, requires=["rocm[libraries]==7.1.0"]).write(folder / name))
    rocm = {
        "_rocm_sdk_core/.info/version": b"7.1.0\n",
        "_rocm_sdk_core/lib/librocblas.so.5": library.read_bytes(),
        "_rocm_sdk_core/lib/rocblas/library/TensileLibrary_gfx942.co": content,
        "_rocm_sdk_core/lib/rocblas/library/TensileLibrary_gfx1100.co": b"kernels",
    }
    (folder / "links").mkdir()
    sdk = Draft("rocm_sdk_core", "7.1.0", "py3-none-linux_x86_64", members=rocm)
    deflate(sdk.write(folder / "links"))


def list_ways(folder: Path, peers: Path | None) -> dict[str, list[str]]:
    """Return what is timed, by name; each finds an empty folder ``out``."""
    (torch,), (thin,) = (folder / "torch").iterdir(), (folder / "torch-thin").iterdir()
    (sdk,) = (folder / "links").iterdir()
    library, out = folder / "librocblas.so.5", folder / "out"
    copy = "cp --reflink=never {0} {1} && sync {1}/*"
    ways = {
        "cp and sync of torch": ["sh", "-c", copy.format(torch, out)],
        "wheel stamp": run("wheel", "stamp", torch, "-o", out),
        "targets of that wheel": run("targets", torch),
        "targets of a library": run("targets", library),
        "the same, --details": run("targets", library, "--details"),
        "cp and sync of the SDK": ["sh", "-c", copy.format(sdk, out)],
        "wheel prune, 4 -> 2 targets": run("wheel", "prune", sdk, "--gfx", KEPT, "-o", out),
        "zstd and isal on what stays": [sys.executable, __file__, "--pack", str(folder / "thin" / sdk.name)],
        "wheel fat": run("wheel", "fat", thin, "--find-links", sdk.parent, "--gfx", KEPT, "-o", out),
        "wheel split": run("wheel", "split", torch, "-o", out),
        "zstd on the code objects": [sys.executable, __file__, "--compress", str(library)],
        "wheel join": run("wheel", "join", *(folder / "parts").iterdir(), "-o", out),
    }
    if peers is not None:
        project = folder / "pyproject.toml"
        project.write_text(clock.VARIANT_PYPROJECT)
        ways["auditwheel show"] = [str(peers.parent / "auditwheel"), "show", str(torch)]
        ways["variantlib make-variant"] = [
            *(str(peers.parent / "variantlib"), "make-variant", "-f", str(torch), "-o", str(out)),
            *("--no-isolation", "--pyproject-toml", str(project)),
            *("--property", "bench :: version :: 1", "--variant-label", "bench1"),
        ]
    return ways


def compare(folder: Path, runs: int, peers: Path | None) -> None:
    """Print the medians of alternated runs, and the ratio of processor time to ``cp`` and sync."""
    (sdk,) = (folder / "links").iterdir()
    (torch,) = (folder / "torch").iterdir()
    clock.run(run("wheel", "prune", sdk, "--gfx", KEPT, "-o", folder / "thin"))
    clock.run(run("wheel", "split", torch, "-o", folder / "parts"))
    for kind in ("torch", "links", "thin"):
        (wheel,) = (folder / kind).iterdir()
        print(f"{kind}: {wheel.stat().st_size >> 20} MB")
    ways = {name: partial(clock.run, words) for name, words in list_ways(folder, peers).items()}
    spent = clock.take_turns(ways, runs, partial(clock.renew, folder / "out"))
    for name, several in spent.items():
        seconds, processor, memory = clock.find_medians(several)
        print(f"{name:28} {seconds:7.2f} s {processor:7.2f} s of processor time {memory:5.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=256, help="MB of device code in a library")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help="one that has auditwheel and variantlib")
    parser.add_argument("--make", type=Path, help="only make the wheels")
    parser.add_argument("--pack", type=Path, help="only pack the library of a wheel")
    parser.add_argument("--compress", type=Path, help="only compress the code objects of a library")
    options = parser.parse_args()
    if options.make:
        make_world(options.make, options.size)
    elif options.compress:
        compress_code(options.compress.read_bytes())
    elif options.pack:
        pack_library(options.pack, "_rocm_sdk_core/lib/librocblas.so.5")
    else:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            # in a process of its own: what it took would count as the peak of all that are started later
            words = [sys.executable, __file__, "--make", name, "--size", str(options.size)]
            subprocess.run(words, check=True)
            compare(Path(name), options.runs, options.peers)


if __name__ == "__main__":
    main()
