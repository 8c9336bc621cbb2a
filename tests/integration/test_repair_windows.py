"""``wheel repair`` of wheels for Windows, on any system: DLLs that clang links, delvewheel as the judge."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, call
from rocm import install_ziglang
from wheels import Draft

from rocm_wheels.binaries import pe
from rocm_wheels.core import errors
from rocm_wheels.wheels import scan

pytestmark = [pytest.mark.contract, pytest.mark.slow, pytest.mark.network]
TAG = "cp311-cp311-win_amd64"
Link = Callable[..., Path]


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Link:
    """Link a DLL that has one function, and calls those of the DLLs that are named."""
    zig = install_ziglang(tmp_path_factory) / "zig"
    cache = tmp_path_factory.mktemp("cache")
    linked: dict[tuple[str, ...], Path] = {}

    def link_dll(target: Path, name: str, *needs: Path) -> Path:
        """Link once what several tests have."""
        target.mkdir(parents=True, exist_ok=True)
        key = (name, *(need.name for need in needs))
        if key not in linked:
            linked[key] = compile_dll(tmp_path_factory.mktemp("dll"), name, *needs)
        for path in (linked[key], linked[key].with_suffix(".lib")):
            shutil.copy(path, target)
        return target / name

    def compile_dll(folder: Path, name: str, *needs: Path) -> Path:
        calls = [need.stem.replace(".", "_") for need in needs]
        source = folder / f"{name}.c"
        own = Path(name).stem.replace(".", "_")
        source.write_text(
            "".join(f"__declspec(dllimport) int {call}(void);\n" for call in calls)
            + f"__declspec(dllexport) int {own}(void) {{\n"
            + f"    return {' + '.join(['1', *(f'{call}()' for call in calls)])};\n}}\n"
            + "int DllMainCRTStartup(void *a, int b, void *c) { return 1; }\n"
        )
        libraries = [str(need.with_suffix(".lib")) for need in needs]
        argv = [str(zig), "cc", "-target", "x86_64-windows-gnu", "-shared", "-nostdlib", "-O1", str(source)]
        argv += [
            "-o",
            str(folder / name),
            f"-Wl,--out-implib,{(folder / name).with_suffix('.lib')}",
            *libraries,
        ]
        env = {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache), "HOME": str(cache)}
        subprocess.run(argv, env=env, check=True, capture_output=True)
        return folder / name

    return link_dll


class World:
    """A torch for Windows: torch_hip.dll needs amdhip64_7.dll of rocm, and more."""

    def __init__(self, folder: Path, link: Link) -> None:
        self.folder, self.link = folder, link
        self.links, self.out = folder / "links", folder / "out"
        self.links.mkdir()
        self.hip = link(folder / "sdk", "amdhip64_7.dll")
        core = Draft("rocm_sdk_core", "7.1.0", "py3-none-win_amd64")
        core.members["_rocm_sdk_core/bin/AMDHIP64_7.dll"] = self.hip.read_bytes()
        core.write(self.links)

    def write_torch(self, *needs: Path, **members: bytes) -> Path:
        """Write a torch whose library needs the runtime and other DLLs."""
        library = self.link(self.folder / "build", "torch_hip.dll", self.hip, *needs)
        draft = Draft("torch", "2.9.0", TAG, requires=["rocm-sdk-core==7.1.0"])
        draft.members = {
            "torch/__init__.py": b"import os\n",
            "torch/lib/torch_hip.dll": library.read_bytes(),
            **members,
        }
        return draft.write(self.folder)

    def run(self, *words: object, code: int = 0) -> Ended:
        """Run ``wheel repair --json``."""
        output = [] if "--output-dir" in words else ["--output-dir", self.out]
        return call("wheel", "repair", "--json", *output, "--find-links", self.links, *words, code=code)

    def repair(self, *words: object) -> Any:
        """Repair wheels; return what is said of the first."""
        return self.run(*words).json["wheels"][0]

    def refuse(self, *words: object) -> str:
        """Return why wheels are not repaired."""
        return self.run(*words, code=13).err


@pytest.fixture
def world(tmp_path: Path, link: Link) -> World:
    return World(tmp_path, link)


def test_dlls_of_packages_stay_outside_and_the_wheel_as_it_is(world: World) -> None:
    wheel = world.write_torch()
    repaired = world.repair(wheel)
    assert repaired["excluded"] == {"amdhip64_7.dll": "rocm_sdk_core-7.1.0-py3-none-win_amd64.whl"}
    assert Path(repaired["path"]).name == wheel.name
    assert Path(repaired["path"]).read_bytes() == wheel.read_bytes()


def test_dll_of_rocm_that_nothing_requires_is_a_fault(world: World) -> None:
    wheel = world.write_torch()
    for core in world.links.iterdir():
        core.unlink()
    told = world.refuse(wheel, "--library-dir", world.hip.parent)
    assert "amdhip64_7.dll, needed by torch/lib/torch_hip.dll" in told and "rocm-sdk-core==7.1.0" in told


def test_stray_dll_is_named_or_grafted_with_what_it_needs(world: World) -> None:
    strays = world.folder / "strays"
    deep = world.link(strays, "deep.dll")
    stray = world.link(strays, "Stray.dll", deep)
    wheel = world.write_torch(stray)
    told = world.refuse(wheel)
    assert "stray.dll, needed by torch/lib/torch_hip.dll" in told
    assert not world.out.exists()
    repaired = world.repair(wheel, "--library-dir", strays)
    assert [graft["library"] for graft in repaired["grafts"]] == ["deep.dll", "stray.dll"]
    path = Path(repaired["path"])
    with zipfile.ZipFile(path) as archive:
        names = [name.lower() for name in archive.namelist() if name.startswith("torch.libs/")]
        assert {name for name in names if name.endswith(".dll")} == {
            "torch.libs/deep.dll",
            "torch.libs/stray.dll",
        }
        with zipfile.ZipFile(wheel) as old:
            library = "torch/lib/torch_hip.dll"
            assert archive.read(library) == old.read(library)
    assert scan.scan_wheel(path).faults == ()
    again = world.folder / "again"
    world.repair(wheel, "--library-dir", strays, "--output-dir", again)
    assert (again / path.name).read_bytes() == path.read_bytes()


def test_runtime_of_visual_c_is_left_out(world: World) -> None:
    redist = world.folder / "redist"
    runtime = world.link(redist, "msvcp140.dll")
    wheel = world.write_torch(runtime)
    repaired = world.repair(wheel)
    assert "VC runtime" in repaired["excluded"]["msvcp140.dll"]


def test_imports_are_those_that_pefile_reads(world: World) -> None:
    pefile = pytest.importorskip("pefile")
    with zipfile.ZipFile(world.write_torch()) as archive:
        content = archive.read("torch/lib/torch_hip.dll")
    oracle = pefile.PE(data=content)
    names = tuple(entry.dll.decode() for entry in oracle.DIRECTORY_ENTRY_IMPORT)
    assert pe.read_pe_imports(memoryview(content), "x") == names == ("amdhip64_7.dll",)
    assert pe.read_pe_imports(memoryview(b"MZ"), "x") is None
    delayed = bytearray(content)
    section = max(oracle.sections, key=lambda row: row.SizeOfRawData - row.Misc_VirtualSize)
    place = section.Misc_VirtualSize + 7 & ~7  # in what pads the section in the file
    address, offset = section.VirtualAddress + place, section.PointerToRawData + place
    thunks = address + 96
    table = struct.pack("<8I32x", 1, address + 64, 0, thunks, thunks, 0, 0, 0)
    table += b"Later.dll".ljust(32, b"\0") + struct.pack("<QQ", 1 << 63 | 1, 0)  # by its number 1
    delayed[offset : offset + len(table)] = table
    directory = oracle.OPTIONAL_HEADER.DATA_DIRECTORY[13].get_file_offset()
    delayed[directory : directory + 8] = struct.pack("<II", address, 64)
    assert [e.dll for e in pefile.PE(data=bytes(delayed)).DIRECTORY_ENTRY_DELAY_IMPORT] == [b"Later.dll"]
    assert pe.read_pe_imports(memoryview(delayed), "x") == ("amdhip64_7.dll", "Later.dll")
    for size in range(64, len(content), 97):
        try:
            pe.read_pe_imports(memoryview(content)[:size], "x")
        except errors.DataError:
            continue
