"""Host and device wheels: code moves as it is, the runtime finds it, and joining brings it back."""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from binaries import HOST, bundle, compress, hip, kpack, wheel
from commands import Ended, call
from packaging.metadata import Metadata
from rocm import (
    find_kernels,
    link_fat_dll,
    link_fat_library,
    link_stub,
    load_library,
    map_dll,
)
from wheels import VERSION, Draft, list_steps, read_members, require_valid

from rocm_wheels.binaries import elf, pe
from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects, fat_library
from rocm_wheels.device_code.bundles import locate_bundles
from rocm_wheels.package import device_selector
from rocm_wheels.wheels import dist_info, scan, wheel_code
from rocm_wheels.wheels.sbom import WheelParts, format_sbom

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None, reason="links and loads ELF libraries"
    ),
]
VERSION_OF_TORCH = "2.9.0+rocm7.1.0"
HIP, C10 = "torch/lib/libtorch_hip.so", "torch/lib/libc10_hip.so"
ALL = "torch/lib/hipblaslt/library/hipblasltTransform.hsaco"  # a bundle of all targets, in one file
XNACK = "gfx90a:xnack+"
GPUS = {"gfx942": "gfx942:sramecc+:xnack-", "gfx1100": "gfx1100", XNACK: "gfx90a:sramecc+:xnack+"}


def code(target: str, seed: int, size: int = 1 << 15) -> tuple[str, bytes]:
    """An entry whose code object is like no other."""
    name, head = hip(target)
    filler = b"".join(hashlib.sha256(f"{target} {seed} {i}".encode()).digest() for i in range(size // 32))
    return name, head[:64] + filler


@dataclass(frozen=True)
class World:
    """A torch with two libraries, as a draft of a wheel, and the runtime they are linked to."""

    torch: Draft
    stub: Path

    def write(self, folder: Path) -> Path:
        """Write the wheel."""
        folder.mkdir(parents=True, exist_ok=True)
        return self.torch.write(folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """libtorch_hip has three bundles, plain and compressed, of different targets; libc10_hip has one."""
    folder = tmp_path_factory.mktemp("link")
    stub = link_stub(folder)
    bundles = [
        bundle(HOST, code("gfx942", 0), code("gfx1100", 0), code(XNACK, 0)),
        compress(bundle(HOST, code("gfx942", 1), code("gfx1100", 1)), 3, "zstd"),
        compress(bundle(HOST, code("gfx942", 2), code("gfx90a", 2), code("gfx1100", 2)), 2, "zlib"),
    ]
    one = [compress(bundle(HOST, code("gfx942", 3), code("gfx1100", 3)), 2, "zstd")]
    members = {
        "torch/__init__.py": b"",
        "torch/version.py": VERSION.encode(),
        HIP: link_fat_library(folder, "libtorch_hip.so", bundles, stub),
        C10: link_fat_library(folder, "libc10_hip.so", one, stub),
        "torch/lib/rocblas/library/Kernels_gfx90a-xnack+.hsaco": code(XNACK, 4)[1],
        "torch/lib/rocblas/library/Tensile_fallback.dat": b"for all",
        "torch/lib/aotriton.images/amd-gfx11xx/flash/x.aks2": b"of a family",
        "torch/lib/own.co": compress(bundle(HOST, code("gfx942", 5)), 2, "zstd"),
        ALL: compress(bundle(HOST, code("gfx942", 6), code("gfx1100", 6)), 2, "zstd"),
    }
    requires = ["filelock", "rocm[libraries]==7.1.0", "opt-einsum>=3.3; extra == 'opt'"]
    return World(Draft(members=members, requires=requires, fields=["Provides-Extra: opt"]), stub)


def split(*words: str | Path, code: int = 0) -> Ended:
    return call("wheel", "split", *words, code=code)


def join(*words: str | Path, code: int = 0) -> Ended:
    return call("wheel", "join", *words, code=code)


def split_torch(world: World, folder: Path, *more: str) -> tuple[Path, dict[str, Path]]:
    """Split the torch; return host wheel and device wheels by target."""
    torch = world.write(folder / "fat")
    split(torch, "-o", folder / "split", *more)
    devices = {
        path.name.split("-")[0].rpartition("_device_")[2]: path for path in (folder / "split").iterdir()
    }
    devices.pop("amd_torch_device")
    return devices.pop("torch"), devices


def unpack(folder: Path, *wheels: Path) -> Path:
    """Unpack wheels over each other, as installers do; return the folder."""
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
    return folder


def digest_code(library: bytes) -> list[tuple[int, str, str]]:
    """Return number of the bundle, target and digest of each code object, sorted."""
    (span,) = code_objects.find_held_code(memoryview(library), "library").bundle_spans
    return sorted(
        (number, name.rpartition("--")[2], hashlib.sha256(content).hexdigest())
        for number, bundle in enumerate(locate_bundles(span))
        for name, content in bundle.read_contents()
    )


def test_the_runtime_finds_every_kernel_and_only_what_is_installed(world: World, tmp_path: Path) -> None:
    """Each record leads to its code object, byte for byte; without a device wheel to none of its target."""
    host, devices = split_torch(world, tmp_path)
    assert devices.keys() == {"gfx11", "gfx90a", "gfx942", "gfx1100"}
    everything = unpack(tmp_path / "all", host, *devices.values())
    records = load_library(everything / HIP, world.stub)
    expected = {
        "gfx942": [code("gfx942", i)[1] for i in range(3)],
        "gfx1100": [code("gfx1100", i)[1] for i in range(3)],
        XNACK: [code(XNACK, 0)[1], None, code("gfx90a", 2)[1]],
    }
    for target, kernels in expected.items():
        assert find_kernels(records, GPUS[target]) == kernels
    assert find_kernels(records, "gfx90a:sramecc+:xnack-") == [None, None, code("gfx90a", 2)[1]]
    assert find_kernels(load_library(everything / C10, world.stub), "gfx1100") == [code("gfx1100", 3)[1]]
    for absent in devices:
        installed = unpack(tmp_path / absent, host, *(devices[key] for key in devices.keys() - {absent}))
        records = load_library(installed / HIP, world.stub)
        for target, kernels in expected.items():
            is_gone = target.startswith(absent) and absent != "gfx11"
            assert find_kernels(records, GPUS[target]) == ([None] * 3 if is_gone else kernels)


def test_files_go_where_their_target_goes(world: World, tmp_path: Path) -> None:
    host, devices = split_torch(world, tmp_path)
    files = {
        name: sorted(n for n in read_members(path) if "dist-info" not in n) for name, path in devices.items()
    }
    assert files == {
        "gfx11": ["torch/lib/aotriton.images/amd-gfx11xx/flash/x.aks2"],
        "gfx1100": ["torch/.kpack/torch_gfx1100.kpack"],
        "gfx90a": [
            "torch/.kpack/torch_gfx90a.kpack",
            "torch/.kpack/torch_gfx90a:xnack+.kpack",
            "torch/lib/rocblas/library/Kernels_gfx90a-xnack+.hsaco",
        ],
        "gfx942": ["torch/.kpack/torch_gfx942.kpack", "torch/lib/own.co"],
    }
    old, new = world.torch.members, read_members(host)
    moved = {name for names in files.values() for name in names}
    assert old.keys() - new.keys() == old.keys() & moved
    changed = {name for name in old.keys() & new.keys() if old[name] != new[name]}
    assert changed == {HIP, C10, "torch/__init__.py"}
    assert list(wheel_code.read_device_code(host).code) == [ALL], "no other code object is left over"
    for target in GPUS:
        kernel = code(target, 0)[1]
        assert all(kernel[at : at + 64] not in new[HIP] for at in range(64, len(kernel), 4096))
    assert len(new[HIP]) < len(old[HIP]) - (1 << 15) * 3, "the pages of the section are given back"
    for path in [host, *devices.values()]:
        assert not scan.scan_wheel(path).faults


def test_metadata_is_that_of_rocms_own_packages(world: World, tmp_path: Path) -> None:
    """As wheel_splitter.py of ROCm/rocm-systems writes it, field by field."""
    host, devices = split_torch(world, tmp_path)
    info = f"torch-{VERSION_OF_TORCH}.dist-info/METADATA"
    old = Metadata.from_email(read_members(world.write(tmp_path / "again"))[info])
    new = Metadata.from_email(read_members(host)[info])
    v = f"=={VERSION_OF_TORCH}"
    assert set(new.provides_extra or ()) - {"opt"} == {
        "device-gfx90a", "device-gfx942", "device-gfx1100", "device-all",
    }  # fmt: skip
    assert set(map(str, set(new.requires_dist or ()) - set(old.requires_dist or ()))) == {
        f'amd-torch-device-gfx11{v}; extra == "device-all"',
        f'amd-torch-device-gfx11{v}; extra == "device-gfx1100"',
        f'amd-torch-device-gfx1100{v}; extra == "device-all"',
        f'amd-torch-device-gfx1100{v}; extra == "device-gfx1100"',
        f'amd-torch-device-gfx90a{v}; extra == "device-all"',
        f'amd-torch-device-gfx90a{v}; extra == "device-gfx90a"',
        f'amd-torch-device-gfx942{v}; extra == "device-all"',
        f'amd-torch-device-gfx942{v}; extra == "device-gfx942"',
        "rocm-bootstrap",
        f"amd-torch-device{v}",  # ours alone
    }
    assert set(old.requires_dist or ()) <= set(new.requires_dist or ())
    requirements = {
        "gfx11": {f"torch{v}"},
        "gfx1100": {f"torch{v}", "rocm-sdk-device-gfx1100==7.1.0", f"amd-torch-device-gfx11{v}"},
        "gfx90a": {f"torch{v}", "rocm-sdk-device-gfx90a==7.1.0"},
        "gfx942": {f"torch{v}", "rocm-sdk-device-gfx942==7.1.0"},
    }
    for key, path in devices.items():
        folder = f"amd_torch_device_{key}-{VERSION_OF_TORCH}.dist-info"
        files = read_members(path)
        metadata = Metadata.from_email(files[f"{folder}/METADATA"])
        assert (metadata.name, str(metadata.version)) == (f"amd-torch-device-{key}", VERSION_OF_TORCH)
        assert set(map(str, metadata.requires_dist or ())) == requirements[key]
        assert list_steps(files[f"{folder}/sboms/rocm-wheels.cdx.json"]) == ["split"]
        assert path.name.endswith(f"-{VERSION_OF_TORCH}-cp311-cp311-linux_x86_64.whl")
        assert b"Tag: cp311-cp311-linux_x86_64\n" in files[f"{folder}/WHEEL"]


def test_a_selector_brings_the_code_of_what_it_is_for(world: World, tmp_path: Path) -> None:
    """That which is split off brings none. Those of an index are the same bytes, whoever makes them."""
    host, _ = split_torch(world, tmp_path)
    (neutral,) = host.parent.glob("amd_torch_device-*.whl")
    info = f"amd_torch_device-{VERSION_OF_TORCH}.dist-info"
    files = read_members(neutral)
    assert files.keys() == {
        f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "sboms/rocm-wheels.cdx.json")
    }
    metadata = Metadata.from_email(files[f"{info}/METADATA"])
    assert list(map(str, metadata.requires_dist or ())) == [f"torch=={VERSION_OF_TORCH}"]
    for source in (host.name, neutral.name):
        selector = device_selector.make_selector("torch", source, ">=3.10", ["gfx942", "gfx950"])
        assert selector.file == neutral.name.replace("-cp311", "-1gfx942.950-cp311", 1)
        path = tmp_path / selector.file
        path.write_bytes(selector.content)
        assert read_members(path)[f"{info}/METADATA"] == selector.metadata
        assert b"\nBuild: 1gfx942.950\n" in read_members(path)[f"{info}/WHEEL"]
        made = Metadata.from_email(selector.metadata)
        assert str(made.requires_python) == ">=3.10"
        (required,) = made.requires_dist or ()
        assert required.extras == {"device-gfx942", "device-gfx950"}
        digest = hashlib.sha256(selector.content).hexdigest()
        assert digest == "3a8f398b320ce81bd60bfcf8b1cfb2a25245d1240874f8e005824808b1c29d8c"
        join(host, path, *host.parent.glob("amd_torch_device_*.whl"), "-o", tmp_path / "joined")


def test_bills_of_materials_say_what_was_done(world: World, tmp_path: Path) -> None:
    """Of host and joined wheel the steps, of a device wheel what it is; each is valid CycloneDX."""
    name = "sboms/rocm-wheels.cdx.json"
    document = format_sbom(WheelParts("0.1.0", ("gfx942",), "7.1.0"), "torch", VERSION_OF_TORCH)
    members = {**world.torch.members, f"torch-{VERSION_OF_TORCH}.dist-info/{name}": document}
    host, devices = split_torch(replace(world, torch=replace(world.torch, members=members)), tmp_path)
    join(host, *devices.values(), "-o", tmp_path / "joined")
    wheels = [host, tmp_path / "joined" / host.name, devices["gfx942"]]
    sboms = [next(data for n, data in read_members(path).items() if n.endswith(name)) for path in wheels]
    documents = [require_valid(sbom) for sbom in sboms]
    steps = [[step.split()[0] for step in list_steps(sbom)] for sbom in sboms]
    assert steps == [["split"], ["split", "join"], ["split"]]
    component = documents[2]["metadata"]["component"]
    assert component["purl"] == "pkg:pypi/amd-torch-device-gfx942@2.9.0%2Brocm7.1.0"


def test_device_wheels_do_not_know_their_host(world: World, tmp_path: Path) -> None:
    """A host that is built anew, its files in another order, of another day, has the same device wheels."""
    host, devices = split_torch(world, tmp_path / "1")
    changed = dict(reversed(world.torch.members.items())) | {"torch/new.py": b"x = 1\n"}
    rebuilt = replace(world, torch=replace(world.torch, members=changed))
    other_host, other_devices = split_torch(rebuilt, tmp_path / "2")
    assert host.read_bytes() != other_host.read_bytes()
    for path in (host, *devices.values()):
        with zipfile.ZipFile(path) as archive:
            assert all(0 not in member.date_time[:3] for member in archive.infolist())
    assert {k: p.read_bytes() for k, p in devices.items()} == {
        k: p.read_bytes() for k, p in other_devices.items()
    }
    split(tmp_path / "2" / "fat" / host.name, "-o", tmp_path / "2" / "split")  # same bytes twice


def test_joined_a_wheel_has_what_it_had(world: World, tmp_path: Path) -> None:
    host, devices = split_torch(world, tmp_path)
    (report,) = join(*devices.values(), host, "-o", tmp_path / "joined", "--json").json["wheels"]
    assert report["libraries"] == {C10: 1, HIP: 3}
    joined = Path(report["written"])
    assert not scan.scan_wheel(joined).faults
    old, new = world.torch.members, read_members(joined)
    assert {name for name in new if "dist-info" not in name} == old.keys()
    assert [n for n in old if old[n] != new[n]] == [HIP, C10]
    info = f"torch-{VERSION_OF_TORCH}.dist-info/METADATA"
    assert new[info] == read_members(tmp_path / "fat" / joined.name)[info]
    for name in (HIP, C10):
        assert digest_code(new[name]) == digest_code(old[name])
        assert elf.read_loader_info(memoryview(new[name]), name) == elf.read_loader_info(
            memoryview(old[name]), name
        )
        assert list_exports(new[name], tmp_path) == list_exports(old[name], tmp_path)
    records = load_library(unpack(tmp_path / "all", joined) / HIP, world.stub)
    assert [(record["magic"], record["number"]) for record in records] == [("FPIH", 0)] * 3
    split(joined, "-o", tmp_path / "again")
    for path in devices.values():
        archives = {n: data for n, data in read_members(path).items() if n.endswith(".kpack")}
        assert archives.items() <= read_members(tmp_path / "again" / path.name).items()


def list_exports(library: bytes, folder: Path) -> list[str]:
    (folder / "library.so").write_bytes(library)
    words = ["nm", "-D", "--defined-only", folder / "library.so"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()


def test_a_set_of_another_splitter_is_joined(world: World, tmp_path: Path) -> None:
    """Archives that are not compressed, no bill of materials, digests in hex, no word of parents."""
    host, devices = split_torch(world, tmp_path)
    parts = []
    for target in ("gfx942", "gfx1100"):
        kernels = {(f"lib/libtorch_hip.so#{i}", target): code(target, i)[1] for i in range(3)}
        kernels[("lib/libc10_hip.so#0", target)] = code(target, 3)[1]
        content = kpack(kernels, "none", gfx_arches=[target])
        name = f"torch/.kpack/torch_{target}.kpack"
        draft = Draft(f"amd_torch_device_{target}", members={name: content})
        draft.requires = [f"torch == {VERSION_OF_TORCH}"]
        draft.record = {name: f"{name},sha256={hashlib.sha256(content).hexdigest()},{len(content)}"}
        parts.append(draft.write(tmp_path))
    join(host, *parts, "-o", tmp_path / "joined")
    library = read_members(tmp_path / "joined" / host.name)[HIP]
    assert digest_code(library) == sorted(
        (i, target, hashlib.sha256(code(target, i)[1]).hexdigest())
        for i in range(3)
        for target in ("gfx942", "gfx1100")
    )
    load_library(unpack(tmp_path / "all", tmp_path / "joined" / host.name) / HIP, world.stub)
    join(host, parts[0], devices["gfx942"], "-o", tmp_path / "two", code=13)  # the same archive twice
    draft.version = "2.9.1"
    join(host, draft.write(tmp_path), "-o", tmp_path / "two", code=2)  # of no host that was named
    assert not (tmp_path / "two").exists()


def test_wheels_of_families_name_their_archives(world: World, tmp_path: Path) -> None:
    host, devices = split_torch(world, tmp_path, "--group", "family")
    assert devices.keys() == {"gfx9_0", "gfx9_4", "gfx110x", "gfx11"}
    records = load_library(unpack(tmp_path / "all", host, *devices.values()) / HIP, world.stub)
    assert find_kernels(records, GPUS[XNACK]) == [code(XNACK, 0)[1], None, code("gfx90a", 2)[1]]
    assert find_kernels(records, GPUS["gfx942"]) == [code("gfx942", i)[1] for i in range(3)]
    metadata = Metadata.from_email(read_members(host)[f"torch-{VERSION_OF_TORCH}.dist-info/METADATA"])
    v = f"=={VERSION_OF_TORCH}"
    of_gfx1100 = [r for r in metadata.requires_dist or () if 'extra == "device-gfx1100"' in str(r)]
    assert {str(requirement).partition(";")[0] for requirement in of_gfx1100} == {
        f"amd-torch-device-gfx11{v}",
        f"amd-torch-device-gfx110x{v}",
        "rocm-sdk-device-gfx1100==7.1.0",
    }
    join(host, *devices.values(), "-o", tmp_path / "joined")
    old, new = world.torch.members, read_members(tmp_path / "joined" / host.name)
    assert {name: digest_code(new[name]) for name in (HIP, C10)} == {
        name: digest_code(old[name]) for name in (HIP, C10)
    }


@pytest.mark.parametrize(
    "flag", ["-Wl,-z,pack-relative-relocs", "-Wl,-z,max-page-size=0x200000", "-Wl,-z,noseparate-code"]
)
def test_libraries_of_other_linkers_are_split_and_joined(world: World, tmp_path: Path, flag: str) -> None:
    """Addresses of DT_RELR are in the place itself; pages may be of 2 MB; all may be in one segment."""
    bundles = [compress(bundle(HOST, code("gfx942", i, 1 << 18)), 2, "zstd") for i in range(2)]
    library = link_fat_library(tmp_path, "libdemo.so", bundles, world.stub, f"-Wl,-z,{flag}")
    source = wheel(tmp_path, {"demo/__init__.py": b"", "demo/libdemo.so": library})
    split(source, "-o", tmp_path / "split")
    wheels = sorted((tmp_path / "split").iterdir())
    records = load_library(unpack(tmp_path / "all", *wheels) / "demo/libdemo.so", world.stub)
    assert find_kernels(records, "gfx942:xnack-") == [code("gfx942", i, 1 << 18)[1] for i in range(2)]
    join(*wheels, "-o", tmp_path / "joined")
    joined = unpack(tmp_path / "again", tmp_path / "joined" / source.name) / "demo/libdemo.so"
    assert digest_code(joined.read_bytes()) == digest_code(library)
    assert [record["magic"] for record in load_library(joined, world.stub)] == ["FPIH"] * 2


@pytest.mark.slow
@pytest.mark.network
def test_a_library_for_windows(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Looked at, not run: mapped as Windows does, its records lead to the archives, and joined to bundles."""
    from rocm import install_ziglang

    bundles = [
        bundle(HOST, code("gfx1100", 0), code("gfx942", 0)),
        compress(bundle(HOST, code("gfx1100", 1)), 3, "zstd"),
    ]
    dll = link_fat_dll(tmp_path, "demo.dll", bundles, install_ziglang(tmp_path_factory) / "zig")
    name = "demo-1.0-py3-none-win_amd64.whl"
    source = wheel(
        tmp_path, {"demo/bin/demo.dll": dll}, name=name, tags=("py3-none-win_amd64",), pure="false"
    )
    split(source, "-o", tmp_path / "split")
    selector, *wheels = sorted((tmp_path / "split").iterdir())
    assert len(wheels) == 3
    assert selector.name == "amd_demo_device-1.0-py3-none-win_amd64.whl"
    path = unpack(tmp_path / "all", *wheels) / "demo/bin/demo.dll"
    host = path.read_bytes()
    assert len(host) < len(dll) - (1 << 15)
    records = map_dll(host, path)
    assert find_kernels(records, "gfx1100") == [code("gfx1100", i)[1] for i in range(2)]
    assert find_kernels(records, "gfx942") == [code("gfx942", 0)[1], None]
    assert pe.read_pe_imports(memoryview(host), "host") == pe.read_pe_imports(memoryview(dll), "dll")
    join(*wheels, "-o", tmp_path / "joined")
    joined = read_members(tmp_path / "joined" / name)["demo/bin/demo.dll"]
    assert digest_code(joined) == digest_code(dll)
    for record in map_dll(joined, path):
        assert record["magic"] == "FPIH"
        assert bytes.fromhex(record["content"]).startswith(b"CCOB")
    split(tmp_path / "joined" / name, "-o", tmp_path / "again")
    assert read_members(tmp_path / "again" / wheels[0].name).keys() == read_members(wheels[0]).keys()


def test_generic_code_is_for_all_its_targets(world: World, tmp_path: Path) -> None:
    bundles = [bundle(HOST, code("gfx9-4-generic", 0))]
    library = link_fat_library(tmp_path, "libdemo.so", bundles, world.stub)
    split(wheel(tmp_path, {"demo/libdemo.so": library}), "-o", tmp_path / "split")
    (_, device, host) = sorted((tmp_path / "split").iterdir())
    assert device.name.startswith("amd_demo_device_gfx9-")
    metadata = Metadata.from_email(read_members(host)["demo-1.0.dist-info/METADATA"])
    assert set(metadata.provides_extra or ()) == {"device-gfx942", "device-gfx950", "device-all"}


def refuse(path: Path, code: int = 13) -> str:
    """Split a wheel that cannot be; return what is said. A damaged library is exit code 2."""
    told = split(path, "-o", path.parent / "refused", code=code).err
    assert not (path.parent / "refused").exists()
    return told


def test_what_cannot_be_split_is_refused_by_name(world: World, tmp_path: Path) -> None:
    host, devices = split_torch(world, tmp_path)
    assert "split already" in refuse(host)
    assert "split already" in refuse(devices["gfx942"])
    variant = shutil.copy(tmp_path / "fat" / host.name, tmp_path / host.name.replace(".whl", "-rocm7.whl"))
    assert "wheel retag --label ''" in refuse(variant)
    library = world.torch.members[HIP]

    def make(files: Mapping[str, bytes]) -> Path:
        return wheel(tmp_path, {"demo/__init__.py": b"", **files})

    assert "no device code" in refuse(make({}))
    assert "libx.so" in refuse(make({"demo/libx.so": library[: len(library) // 2]}), 2)
    no_table = library[:40] + bytes(8) + library[48:]
    assert "section" in refuse(make({"demo/libx.so": no_table}), 2)
    at = library.index(struct.pack("<II", 0x48495046, 1))
    assert "magic" in refuse(make({"demo/libx.so": library[:at] + b"XXXX" + library[at + 4 :]}), 2)
    damaged = library.replace(b"CCOB", b"CCOX", 1)
    assert "bundle" in refuse(make({"demo/libx.so": damaged}), 2)
    spirv = [bundle(HOST, ("hip-spirv64-amd-amdhsa--amdgcnspirv", b"\x03\x02\x23\x07" + bytes(60)))]
    content = link_fat_library(tmp_path, "libdemo.so", spirv, world.stub)
    assert "amdgcnspirv" in refuse(make({"demo/libdemo.so": content}))


@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_wheel_is_not_joined(world: World, tmp_path: Path, number: int) -> None:
    """Cut short, or a byte of a member changed: exit code 2, as in unit/test_damaged_wheel.py."""
    host, devices = split_torch(world, tmp_path)
    wheels = [host, *devices.values()]
    content = wheels[number].read_bytes()
    with zipfile.ZipFile(wheels[number]) as archive:
        largest = max(archive.infolist(), key=lambda info: info.compress_size)
    middle = largest.header_offset + largest.compress_size // 2
    for damaged in (content[: len(content) // 2], content[:middle] + b"damage" + content[middle + 6 :]):
        wheels[number].write_bytes(damaged)
        join(*wheels, "-o", tmp_path / "joined", code=2)
        assert not (tmp_path / "joined").exists()


def test_any_mutation_of_a_library_is_split_or_refused(world: World) -> None:
    """Most in its tables; what comes of it is of about its size."""
    library, chance = world.torch.members[C10], random.Random(1)
    programs, sections = struct.unpack_from("<QQ", library, 32)
    tables = [*range(64), *range(programs, programs + 56 * 8), *range(sections, len(library))]
    outcomes = Counter[str]()
    for _ in range(400):
        content = bytearray(library)
        for place in [chance.choice(tables), chance.randrange(len(content))]:
            content[place] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
        try:
            split_library = fat_library.read_fat_library(memoryview(content), "mutated")
            split_library.list_bundle_places()
            size = sum(map(len, split_library.remove_code(b"marker")))
            assert size < len(library) + (1 << 20)
            outcomes["split"] += 1
        except errors.DataError as fault:
            assert str(fault).startswith("mutated: ")
            outcomes["refused"] += 1
    assert min(outcomes["split"], outcomes["refused"]) > 20


def test_all_wheels_are_written_or_none(world: World, tmp_path: Path) -> None:
    torch = world.write(tmp_path)
    foreign = tmp_path / "split" / torch.name.replace("torch", "amd_torch_device_gfx942", 1)
    foreign.parent.mkdir()
    foreign.write_bytes(b"somebody else's")
    split(torch, "-o", tmp_path / "split", code=2)
    assert [path.name for path in (tmp_path / "split").iterdir()] == [foreign.name]
    host = foreign.replace(foreign.with_name(torch.name))
    split(torch, "-o", tmp_path / "split", code=2)
    assert [path.name for path in (tmp_path / "split").iterdir()] == [host.name]
    told = split(torch, "-o", tmp_path / "none", "--dry-run").out
    assert "  amd_torch_device-" in told  # who takes the files that are told takes all of them
    assert not (tmp_path / "none").exists()
    before = torch.read_bytes()
    split(torch, "-o", tmp_path, code=2)  # the host wheel would take the name of its source
    assert torch.read_bytes() == before
    assert not list(tmp_path.glob("amd_*"))


def test_killed_at_any_time_it_leaves_whole_wheels_and_is_done_again(world: World, tmp_path: Path) -> None:
    """The host wheel comes last: where it is, all device wheels are."""
    torch = world.write(tmp_path)
    split(torch, "-o", tmp_path / "whole")
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    folder = tmp_path / "split"
    argv = [sys.executable, "-m", "rocm_wheels", "wheel", "split", torch, "-o", folder]
    for begun in (".*.part", ".*.part/*", "amd_*"):  # hidden, being written, being named
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = {*folder.glob(begun)}
        while process.poll() is None and {*folder.glob(begun)} <= before:
            time.sleep(0.001)
        process.kill()
        process.wait()
        left = {path.name: path.read_bytes() for path in folder.glob("[!.]*")}
        assert left.items() <= whole.items()
        assert torch.name not in left or left == whole
    split(torch, "-o", folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_companions_are_split_beside_torch(world: World, tmp_path: Path) -> None:
    """A library at the top of its package finds its archive beside it."""
    torch = world.write(tmp_path)
    bundles = [compress(bundle(HOST, code("gfx942", 9)), 2, "zstd")]
    library = link_fat_library(tmp_path, "_C.so", bundles, world.stub)
    draft = Draft("torchvision", "0.24.0", members={"torchvision/_C.so": library}, requires=["torch"])
    vision = draft.write(tmp_path)
    written = split(torch, vision, "-o", tmp_path / "split", "--json").json["wheels"][1]["written"]
    assert list(written["devices"]) == ["gfx942"]
    paths = [Path(written["host"]), Path(written["devices"]["gfx942"])]
    assert paths[1].name.startswith("amd_torchvision_device_gfx942-0.24.0-")
    records = load_library(unpack(tmp_path / "all", *paths) / "torchvision/_C.so", world.stub)
    assert find_kernels(records, "gfx942") == [code("gfx942", 9)[1]]
    metadata = Metadata.from_email(
        read_members(paths[1])["amd_torchvision_device_gfx942-0.24.0.dist-info/METADATA"]
    )
    assert list(map(str, metadata.requires_dist or ())) == ["torchvision==0.24.0"]


@pytest.mark.parametrize("extras", ["[device-gfx942]", "[device-all]", ""])
def test_an_extra_brings_the_wheels_of_a_gpu(world: World, tmp_path: Path, extras: str) -> None:
    """By uv, from a folder: host, device wheel, and ROCm's own device package; without an extra the host."""
    from uv import find_uv_bin

    members = {name: content for name, content in world.torch.members.items() if "aotriton" not in name}
    draft = replace(world.torch, members=members, tag="py3-none-linux_x86_64", python="")
    host, devices = split_torch(replace(world, torch=draft), tmp_path)
    for name in ("filelock", "rocm", "rocm_bootstrap", *(f"rocm_sdk_device_{key}" for key in devices)):
        fields = ["Provides-Extra: libraries"] if name == "rocm" else []
        Draft(name, "7.1.0", tag="py3-none-any", fields=fields).write(host.parent)
    words = [find_uv_bin(), "pip", "install", "--no-index", "--find-links", host.parent, "--offline"]
    words += ["--python", sys.executable, "--target", tmp_path / "site", f"torch{extras}"]
    subprocess.run(list(map(str, words)), check=True)
    names = {path.name.partition("-")[0] for path in (tmp_path / "site").glob("*.dist-info")}
    keys = {"[device-gfx942]": {"gfx942"}, "[device-all]": devices.keys(), "": set()}[extras]
    assert names - {"torch", "amd_torch_device", "filelock", "rocm", "rocm_bootstrap"} == {
        f"{prefix}_device_{key}" for key in keys for prefix in ("amd_torch", "rocm_sdk")
    }
    archives = {path.name for path in (tmp_path / "site/torch").glob(".kpack/*")}
    assert {name.removeprefix("torch_")[:6] for name in archives} == {key[:6] for key in keys}
    # import says which extra is missing: every one on a machine without a list of GPUs, else that of the GPU
    none = ["pip install 'torch[device-gfx90a]'", "pip install 'torch[device-gfx942]'"]
    none += ["pip install 'torch[device-gfx1100]'"]
    assert import_torch(tmp_path, "/none") == ([] if extras else none)
    assert import_torch(tmp_path, NODES) == ([none[0]] if "all" not in extras else [])


# as the kernel driver lists a CPU, an MI250X, and a GPU that this torch has nothing for
NODES = "nodes"


def import_torch(folder: Path, nodes: str) -> list[str]:
    """Import the torch that is in `site`; return the commands of its warning."""
    for number, version in enumerate((0, 90010, 100300)):
        (folder / f"nodes/{number}").mkdir(parents=True, exist_ok=True)
        (folder / f"nodes/{number}/properties").write_text(
            f"cpu_cores_count 8\ngfx_target_version {version}\n"
        )
    program = (
        "import sys; from pathlib import Path; real, at = Path.glob, Path(sys.argv[1]);"
        "Path.glob = lambda path, pattern: real(at if 'kfd' in str(path) else path, pattern); import torch"
    )
    words = [sys.executable, "-W", "always", "-c", program, nodes]
    ended = subprocess.run(words, cwd=folder, env={"PYTHONPATH": "site"}, capture_output=True, check=True)
    return re.findall(r"pip install '[^']*'", ended.stderr.decode())


def test_a_package_that_says_nothing_at_import_stays_as_it_is(world: World, tmp_path: Path) -> None:
    """Nor is a module of somebody else overwritten."""
    for number, gone in enumerate(({"torch/__init__.py"}, set())):
        members = {name: content for name, content in world.torch.members.items() if name not in gone}
        members |= {} if gone else {"torch/_device_wheels.py": b"x = 1\n"}
        draft = replace(world, torch=replace(world.torch, members=members))
        host, _ = split_torch(draft, tmp_path / str(number))
        assert {n: c for n, c in read_members(host).items() if n.endswith(".py")} == {
            n: c for n, c in members.items() if n.endswith(".py")
        }


Members = dict[str, bytes]


def rewrite(path: Path, change: Callable[[Members], object], *, as_hex: bool = False) -> None:
    """Change members of a wheel, and list them in RECORD as they are."""
    members = read_members(path)
    record = next(name for name in members if name.endswith(".dist-info/RECORD"))
    del members[record]
    change(members)
    lines = []
    for name, content in members.items():
        digest = hashlib.sha256(content)
        spelled = (
            digest.hexdigest()
            if as_hex
            else dist_info.encode_record_digest(digest.digest()).partition("=")[2]
        )
        lines.append(f"{name},sha256={spelled},{len(content)}\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**members, record: "".join([*lines, f"{record},,\n"]).encode()}.items():
            archive.writestr(name, content)


def edit_metadata(old: str, new: str) -> Callable[[Members], object]:
    def change(members: Members) -> None:
        name = next(name for name in members if name.endswith(".dist-info/METADATA"))
        assert old.encode() in members[name]
        members[name] = members[name].replace(old.encode(), new.encode())

    return change


def lose_kernel(members: Members) -> None:
    kernels = {(f"lib/libtorch_hip.so#{i}", "gfx942"): code("gfx942", i)[1] for i in (0, 2)}
    kernels[("lib/libc10_hip.so#0", "gfx942")] = code("gfx942", 3)[1]
    members["torch/.kpack/torch_gfx942.kpack"] = kpack(kernels, gfx_arches=["gfx942"])


def lose_archive(members: Members) -> None:
    del members["torch/.kpack/torch_gfx942.kpack"]


def carry_rocm(members: Members) -> None:
    members["torch/_rocm/lib/libamdhip64.so.7"] = b"a runtime of ROCm 7.2"


GFX942 = "Requires-Dist: amd-torch-device-gfx942 == 2.9.0+rocm7.1.0"
# wheel ("": the host), what is done to it, whether RECORD is in hex; check, severity and what is said
FAULTS: list[tuple[str, Callable[[Members], object], bool, tuple[str, str, str]]] = [
    ("gfx942", edit_metadata("torch == 2.9.0", "torch == 2.9.1"), False, ("device-wheels", "error", "2.9.1")),
    ("gfx942", lose_kernel, False, ("moved-code", "warning", "libtorch_hip.so#1")),
    ("gfx1100", lambda members: None, True, ("device-wheels", "warning", "hex")),
    ("", edit_metadata(GFX942, "Requires-Dist: x"), False, ("device-extras", "error", "device-gfx942")),
    ("", edit_metadata(GFX942, GFX942.replace("2.9", "2.8")), False, ("device-extras", "error", "2.8.0")),
    ("", edit_metadata("device-gfx942", "device-gfx950"), False, ("device-extras", "warning", "gfx950")),
    (
        "gfx942",
        lambda m: m.pop("torch/.kpack/torch_gfx942.kpack"),
        False,
        ("device-wheels", "error", "gfx942"),
    ),
    ("", carry_rocm, False, ("kpack-runtime", "error", "archives")),
]


def test_a_fault_of_a_set_is_named(world: World, tmp_path: Path) -> None:
    """One at a time in a set that is right; what was said of that before does not count."""
    host, devices = split_torch(world, tmp_path)
    before = verify_set(host, devices)
    for key, change, as_hex, (check, severity, said) in FAULTS:
        path = devices[key] if key else host
        whole = path.read_bytes()
        rewrite(path, change, as_hex=as_hex)
        found = [finding for finding in verify_set(host, devices) if finding not in before]
        assert any((f["check"], f["severity"]) == (check, severity) and said in f["what"] for f in found)
        path.write_bytes(whole)


def test_a_library_that_still_has_its_code_is_named(world: World, tmp_path: Path) -> None:
    """As it was before, or with its records changed and its bundles left where they were."""
    host, devices = split_torch(world, tmp_path)
    for content in (
        world.torch.members[C10],
        keep_bundles(world.torch.members[C10], read_members(host)[C10]),
    ):
        rewrite(host, lambda members, new=content: members.update({C10: new}))  # type: ignore[misc]
        found = verify_set(host, devices)
        assert [f["where"] for f in found if f["check"] == "moved-code" and f["severity"] == "error"] == [C10]


def keep_bundles(old: bytes, new: bytes) -> bytes:
    """Return a split library that has its bundles in the section that was emptied, and not shortened."""
    library = fat_library.read_fat_library(memoryview(old), "old")
    marker = fat_library.read_fat_library(memoryview(new), "new").marker
    assert library.code and marker
    pieces = library.remove_code(new[marker.offset : marker.offset + marker.size])
    whole = bytearray(b"".join(pieces))
    section = fat_library.read_fat_library(memoryview(whole), "host").code
    assert section
    content = old[library.code.offset : library.code.offset + section.size]
    whole[section.offset : section.offset + section.size] = content
    return bytes(whole)


def verify_set(host: Path, devices: Mapping[str, Path]) -> list[Any]:
    """Return what `audit` finds in a host wheel with its device wheels."""
    words = ["audit", host, *devices.values(), "--rocm", "7.1.0", "--json"]
    (report,) = call(*words, code=(0, 14)).json["wheels"]
    return list(report["findings"])
