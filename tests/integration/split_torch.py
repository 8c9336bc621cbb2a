"""A torch that is split as ROCm's packaging does it: a host wheel, and device wheels with archives.

Source: ROCm/rocm-systems, shared/kpack/python/rocm_kpack/wheel_splitter.py. The library keeps its size
here: where its device code was there are zeros. Kernels are headers of code objects; RECORD has digests in
hex, as theirs.
"""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.wheels import read_wheel_code

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from binary_writer import code_object, kpack, kpack_reference

LIBRARY = "torch/lib/libtorch_hip.so"
ARCHIVE = "../.kpack/torch_@GFXARCH@.kpack"


def split_torch(wheel: Path, folder: Path) -> tuple[Path, dict[str, Path]]:
    """Write host and device wheels of a torch; return the first, and the others by target."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}
    metadata = next(name for name in members if name.endswith(".dist-info/METADATA"))
    tags = members[metadata.replace("METADATA", "WHEEL")]
    version = wheel.name.split("-")[1]
    code, extras, parts = read_wheel_code(wheel)[LIBRARY], "", {}
    for target in sorted({held.target.processor for held in code}):
        name = f"amd-torch-device-{target}"
        extras += f"Provides-Extra: device-{target}\n"
        extras += f'Requires-Dist: {name} == {version}; extra == "device-{target}"\n'
        count = sum(held.target.processor == target for held in code)
        kernels = {(f"lib/libtorch_hip.so#{i}", target): code_object(target) for i in range(count)}
        stated = (
            f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nRequires-Dist: torch == {version}\n"
        )
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        content = {f"torch/.kpack/torch_{target}.kpack": kpack(kernels)}
        content |= {f"{info}/METADATA": stated.encode(), f"{info}/WHEEL": tags}
        parts[target] = _write(content, folder / wheel.name.replace("torch", name.replace("-", "_"), 1))
    head, blank, body = members[metadata].decode().partition("\n\n")
    members[metadata] = f"{head}\n{extras}{blank[1:]}{body}".encode()
    members[LIBRARY] = _host_library(members[LIBRARY], folder)
    return _write(members, folder / wheel.name), parts


def _host_library(content: bytes, folder: Path) -> bytes:
    for begin, size in _fat_binaries(content):
        content = content[:begin] + bytes(size) + content[begin + size :]
    library, marker, host = folder / "library.so", folder / "marker", folder / "host.so"
    library.write_bytes(content)
    marker.write_bytes(kpack_reference(ARCHIVE))
    words = ["objcopy", "--add-section", f".rocm_kpack_ref={marker}", library, host]
    subprocess.run(words, check=True)
    return host.read_bytes()


def _fat_binaries(library: bytes) -> list[tuple[int, int]]:
    """Return place and size of each section with bundles of device code."""
    (at,) = struct.unpack_from("<Q", library, 40)
    size, count, names = struct.unpack_from("<HHH", library, 58)
    rows = [struct.unpack_from("<IIQQQQ", library, at + size * i) for i in range(count)]
    begin = rows[names][4]
    named = [(library[begin + row[0] :].partition(b"\0")[0], row[4], row[5]) for row in rows]
    return [(place, length) for name, place, length in named if name == b".hip_fatbin"]


def _write(members: Mapping[str, bytes], path: Path) -> Path:
    record = next(name for name in members if name.endswith("/METADATA")).replace("METADATA", "RECORD")
    lines = [
        f"{name},sha256={hashlib.sha256(data).hexdigest()},{len(data)}" for name, data in members.items()
    ]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(record, "\n".join([*lines, f"{record},,", ""]))
    return path
