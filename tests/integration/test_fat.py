"""A torch that carries its ROCm: what is taken, what is left out, what is refused, and that it loads."""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from binaries import HOST, bundle, code_object, compress, hip
from commands import Ended, call
from crash import killed_at_events
from wheels import Draft, read_members, read_packed, require_valid

from rocm_wheels.device_code import code_objects
from rocm_wheels.wheels import sbom, scan, wheel_code

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None, reason="links and loads ELF libraries"
    ),
]
CLONE = Path(__file__).resolve().parents[2]
ROCM = "7.1.0"
TARGETS = ("gfx942", "gfx1100")
INIT = """
def initialize():
    import rocm_sdk
    rocm_sdk.initialize_process(preload_shortnames=["amdhip64", "hipblas"], check_version="7.1.0")
"""
PACKAGE = """
from . import _rocm_init
_rocm_init.initialize()
import ctypes, os
answer = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_hip.so")).torch_answer
"""
VERSION = "__version__ = '2.9.0+rocm7.1.0'\ncuda: str | None = None\nhip: str | None = '7.1.25424'\n"


@dataclass(frozen=True)
class World:
    """A torch and the packages of ROCm as drafts of wheels: a test may change some before."""

    torch: Draft
    rocm: Mapping[str, Draft]

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write all wheels; return torch and the folder of the others."""
        links = folder / "rocm"
        links.mkdir(parents=True)
        for draft in self.rocm.values():
            deflate(draft.write(links))
        return deflate(self.torch.write(folder)), links


def deflate(path: Path) -> Path:
    """Write an archive again with deflated members, as wheels are."""
    with zipfile.ZipFile(path) as archive:
        contents = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in contents:
            info.compress_type, info.date_time = zipfile.ZIP_DEFLATED, (2026, 1, 1, 0, 0, 0)
            archive.writestr(info, content)
    return path


def link(folder: Path, name: str, source: str, *needed: str, code: tuple[str, ...] = ()) -> bytes:
    """Link a library, with a bundle of ``code`` for targets."""
    (folder / "lib.c").write_text(source)
    words = ["cc", "-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-soname,{name}", "-o", name, "lib.c"]
    if code:
        entries = [hip(target, code_object(target, size=1 << 16)) for target in code]
        (folder / "section").write_bytes(compress(bundle(HOST, *entries), 3, "zstd"))
        text = '.section .hip_fatbin,"a",@progbits\n.p2align 12\n.incbin "section"\n'
        (folder / "fat.s").write_text(text + '.section .note.GNU-stack,"",@progbits\n')
        words.append("fat.s")
    subprocess.run([*words, "-L.", *(f"-l:{need}" for need in needed)], cwd=folder, check=True)
    return (folder / name).read_bytes()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """amdhip64 is linked to hsa-runtime64, hipblas to rocblas, which has kernels; rocfft to nothing."""
    folder = tmp_path_factory.mktemp("link")
    hsa = link(folder, "libhsa-runtime64.so.1", "int hsa_answer(void) { return 42; }")
    hip64 = link(
        folder,
        "libamdhip64.so.7",
        "int hsa_answer(void); int hip_answer(void) { return hsa_answer(); }",
        "libhsa-runtime64.so.1",
    )
    rocblas = link(folder, "librocblas.so.5", "int roc = 1;", "libamdhip64.so.7", code=TARGETS)
    hipblas = link(folder, "libhipblas.so.3", "int blas = 1;", "librocblas.so.5")
    rocfft = link(folder, "librocfft.so.0", "int fft = 1;")
    torch_hip = link(
        folder,
        "libtorch_hip.so",
        "int hip_answer(void); int torch_answer(void) { return hip_answer(); }",
        "libamdhip64.so.7",
        "libhipblas.so.3",
        code=TARGETS,
    )
    torch = Draft(
        members={
            "torch/__init__.py": PACKAGE.encode(),
            "torch/version.py": VERSION.encode(),
            "torch/_rocm_init.py": INIT.encode(),
            "torch/lib/libtorch_hip.so": torch_hip,
        },
        requires=["filelock", f"rocm[libraries]=={ROCM}", "triton==3.5.0; platform_system == 'Linux'"],
        fields=["License-File: LICENSE"],
    )
    torch.members[f"{torch.folder}/licenses/LICENSE"] = b"BSD-3-Clause, of torch"
    core = {
        ".info/version": b"7.1.0\n",
        "bin/hipcc": b"#!/bin/sh\n",
        "include/hip/hip_runtime.h": b"",
        "lib/libhsa-runtime64.so.1": hsa,
        "lib/libamdhip64.so.7": hip64,
        "share/doc/hip/LICENSE.txt": b"MIT, of HIP",
    }
    libraries = {
        "lib/librocblas.so.5": rocblas,
        "lib/libhipblas.so.3": hipblas,
        "lib/librocfft.so.0": rocfft,
        "lib/rocblas/library/TensileLibrary_fallback.dat": b"for all",
        "share/doc/rocblas/LICENSE.md": b"MIT, of rocBLAS",
    }
    drafts = {
        "core": make_part("rocm_sdk_core", "_rocm_sdk_core", core),
        "libraries": make_part("rocm_sdk_libraries", "_rocm_sdk_libraries", libraries),
    }
    for target in TARGETS:
        kernels = {
            f"lib/rocblas/library/TensileLibrary_lazy_{target}.dat": target.encode(),
            f"lib/rocblas/library/Kernels.so-000-{target}.hsaco": code_object(target, size=4096),
        }
        drafts[target] = make_part(f"rocm_sdk_device_{target}", "_rocm_sdk_libraries", kernels)
    return World(torch, drafts)


def make_part(distribution: str, tree: str, files: Mapping[str, bytes]) -> Draft:
    members = {f"{tree}/__init__.py": b"", **{f"{tree}/{name}": data for name, data in files.items()}}
    return Draft(distribution, ROCM, tag="py3-none-linux_x86_64", members=members)


def fat(*words: str | Path, code: int = 0) -> Ended:
    return call("wheel", "fat", *words, code=code)


def make_fat(world: World, folder: Path, gfx: str = "gfx942", *more: str) -> Path:
    torch, links = world.write(folder)
    fat(torch, "--find-links", links, "--gfx", gfx, "-o", folder / "fat", *more)
    (path,) = (folder / "fat").iterdir()
    return path


def refuse(world: World, folder: Path, gfx: str = "gfx942") -> str:
    """Return why no fat wheel is made."""
    torch, links = world.write(folder)
    told = fat(torch, "--find-links", links, "--gfx", gfx, "-o", folder / "fat", code=13).err
    assert not (folder / "fat").exists()
    return told


def without(draft: Draft, *names: str) -> Draft:
    return replace(draft, members={n: d for n, d in draft.members.items() if not n.endswith(names)})


def test_only_what_torch_needs_is_taken_for_its_targets(world: World, tmp_path: Path) -> None:
    path = make_fat(world, tmp_path)
    files = read_members(path)
    assert sorted(name.removeprefix("torch/_rocm/") for name in files if "/_rocm/" in name) == [
        ".info/version",
        "lib/libamdhip64.so.7",
        "lib/libhipblas.so.3",
        "lib/libhsa-runtime64.so.1",
        "lib/librocblas.so.5",
        "lib/rocblas/library/Kernels.so-000-gfx942.hsaco",
        "lib/rocblas/library/TensileLibrary_fallback.dat",
        "lib/rocblas/library/TensileLibrary_lazy_gfx942.dat",
    ]
    code = wheel_code.read_device_code(path).code
    assert {name: code_objects.list_code_targets(objects) for name, objects in code.items()} == {
        "torch/_rocm/lib/librocblas.so.5": ["gfx942"],
        "torch/_rocm/lib/rocblas/library/Kernels.so-000-gfx942.hsaco": ["gfx942"],
        "torch/lib/libtorch_hip.so": ["gfx942"],
    }
    whole = world.rocm["core"].members["_rocm_sdk_core/lib/libamdhip64.so.7"]
    assert files["torch/_rocm/lib/libamdhip64.so.7"] == whole
    assert files["torch/__init__.py"] == PACKAGE.encode()


def test_metadata_differs_in_requirement_and_licences_only(world: World, tmp_path: Path) -> None:
    torch, _ = world.write(tmp_path / "other")
    path = make_fat(world, tmp_path)
    info = "torch-2.9.0+rocm7.1.0.dist-info"
    old, new = (read_members(wheel)[f"{info}/METADATA"].decode().splitlines() for wheel in (torch, path))
    assert [line for line in old if line not in new] == [f"Requires-Dist: rocm[libraries]=={ROCM}"]
    added = [line for line in new if line not in old]
    assert added == [
        "License-File: rocm/hip/LICENSE.txt",
        "License-File: rocm/rocblas/LICENSE.md",
    ]
    assert read_members(path)[f"{info}/licenses/rocm/hip/LICENSE.txt"] == b"MIT, of HIP"
    assert path.name == torch.name
    assert not scan.scan_wheel(path).faults


def test_the_bill_of_materials_names_the_packages_inside(world: World, tmp_path: Path) -> None:
    """Also where they are named as what torch was built against: no reference is there twice."""
    built_against = (sbom.PackagePart("rocm-sdk-core", ROCM),)
    bill = sbom.format_sbom(
        sbom.WheelParts("0.1.0", TARGETS, ROCM, packages=built_against), "torch", "2.9.0+rocm7.1.0"
    )
    member = "torch-2.9.0+rocm7.1.0.dist-info/sboms/rocm-wheels.cdx.json"
    torch = replace(world.torch, members={**world.torch.members, member: bill})
    content = read_members(make_fat(replace(world, torch=torch), tmp_path))[member]
    component = require_valid(content)["metadata"]["component"]
    (core,) = (tmp_path / "rocm").glob("rocm_sdk_core-*")
    record = read_members(core)[f"rocm_sdk_core-{ROCM}.dist-info/RECORD"]
    held = {part["name"]: part["properties"] for part in component["components"]}
    assert held.keys() == {"rocm-sdk-core", "rocm-sdk-libraries", "rocm-sdk-device-gfx942"}
    assert held["rocm-sdk-core"][0]["value"] == hashlib.sha256(record).hexdigest()
    assert component["properties"][-1]["value"] == "fat gfx942"


def test_same_bytes_twice_and_whole_members_are_copied_raw(world: World, tmp_path: Path) -> None:
    first, second = make_fat(world, tmp_path / "1"), make_fat(world, tmp_path / "2")
    assert first.read_bytes() == second.read_bytes()
    (core,) = (tmp_path / "1" / "rocm").glob("rocm_sdk_core-*")
    packed = [
        read_packed(core, "_rocm_sdk_core/lib/libamdhip64.so.7"),
        read_packed(first, "torch/_rocm/lib/libamdhip64.so.7"),
    ]
    assert packed[0] == packed[1]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside-rocm"])
def test_it_loads_its_own_files(world: World, tmp_path: Path, beside: bool) -> None:
    """Also where the packages of ROCm are installed: theirs are not opened."""
    path = make_fat(world, tmp_path)
    site = tmp_path / "site"
    for wheel in [path, *((tmp_path / "rocm").glob("*.whl") if beside else ())]:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import torch; print(torch.answer())\n"
        "print(*sorted({line.split()[5] for line in open('/proc/self/maps') if '.so' in line}), sep='\\n')"
    )
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    words = [sys.executable, "-I", "-c", code]
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    answer, *maps = ended.stdout.splitlines()
    assert answer == "42"
    inside = [name for name in maps if name.startswith(str(site))]
    assert [name for name in inside if "/torch/_rocm/" not in name] == [f"{site}/torch/lib/libtorch_hip.so"]
    assert len(inside) == 5


def test_verify_knows_a_wheel_that_carries_its_rocm(world: World, tmp_path: Path) -> None:
    path = make_fat(world, tmp_path)
    assert verify(path) == {}


def verify(path: Path) -> dict[str, str]:
    """Return the errors of a wheel by the names of checks."""
    ended = call("audit", path, "--gfx", "gfx942", "--rocm", ROCM, "--json", code=(0, 14))
    report = ended.json["wheels"][0]
    errors = {f["check"]: f["what"] for f in report["findings"] if f["severity"] == "error"}
    assert ended.code == (14 if errors else 0)
    return errors


def test_what_a_script_that_only_copies_makes_is_found_out(world: World, tmp_path: Path) -> None:
    """The whole tree copied in, the version changed in the file name only, RECORD and METADATA as before."""
    torch, _ = world.write(tmp_path)
    path = tmp_path / torch.name.replace("+rocm7.1.0", "+rocm_rocm7.1.0")
    shutil.copyfile(torch, path)
    with zipfile.ZipFile(path, "a") as archive:
        for draft in world.rocm.values():
            for name, content in draft.members.items():
                if not name.endswith("__init__.py"):
                    archive.writestr(f"torch/_rocm/{name.partition('/')[2]}", content)
    errors = verify(path)
    assert {"archive", "rocm-requirement", "rocm-init", "device-code"} <= errors.keys()
    assert "rocm[libraries]==7.1.0" in errors["rocm-requirement"]
    assert "rocm_sdk" in errors["rocm-init"] or "LIBRARIES" in errors["rocm-init"]


@pytest.mark.parametrize("gone", ["lib/libhsa-runtime64.so.1", "lib/librocblas.so.5", "lib/libhipblas.so.3"])
def test_a_missing_library_is_named(world: World, tmp_path: Path, gone: str) -> None:
    poorer = World(world.torch, {name: without(draft, gone) for name, draft in world.rocm.items()})
    said = refuse(poorer, tmp_path)
    assert gone.rpartition("/")[2] in said or "hipblas" in said


def test_a_target_without_kernels_is_refused_unless_rocm_has_none(world: World, tmp_path: Path) -> None:
    """hipBLASLt is not built for gfx1030, says TheRock's table: that is no fault of the packages."""
    parts = {name: draft for name, draft in world.rocm.items() if name != "gfx942"}
    said = refuse(World(world.torch, parts), tmp_path / "1")
    assert "rocBLAS" in said and "rocm-sdk-device-gfx942 7.1.0" in said
    assert "has no code for gfx1201" in refuse(world, tmp_path / "2", "gfx1201")


def test_a_library_of_generic_code_serves_its_targets(world: World, tmp_path: Path) -> None:
    """As rocSOLVER of Debian has it: no code of gfx942's own. Its build is ROCm's, so verify says nothing."""
    tree = "_rocm_sdk_libraries/lib/librocblas.so.5"
    library = link(tmp_path, "librocblas.so.5", "int roc = 1;", code=("gfx9-4-generic", "gfx1100"))
    old = world.rocm["libraries"]
    changed = replace(old, members={**old.members, tree: library})
    path = make_fat(replace(world, rocm={**world.rocm, "libraries": changed}), tmp_path / "fat")
    code = wheel_code.read_device_code(path).code
    assert code_objects.list_code_targets(code["torch/_rocm/lib/librocblas.so.5"]) == ["gfx9-4-generic"]
    assert verify(path) == {}
    without_code = link(tmp_path, "librocblas.so.5", "int roc = 1;", code=("gfx1100",))
    changed = replace(old, members={**old.members, tree: without_code})
    told = refuse(replace(world, rocm={**world.rocm, "libraries": changed}), tmp_path / "2")
    assert "librocblas.so.5 of the ROCm packages has no code for gfx942" in told


def test_libraries_under_their_full_version_get_the_name_of_the_soname(world: World, tmp_path: Path) -> None:
    tree = "_rocm_sdk_core/lib"
    core = world.rocm["core"].members
    renamed = {name.replace("libamdhip64.so.7", "libamdhip64.so.7.1.25424"): d for name, d in core.items()}
    renamed = {n.replace("runtime64.so.1", "runtime64.so.1.18.0"): data for n, data in renamed.items()}
    changed = replace(world.rocm["core"], members=renamed)
    torch, links = World(world.torch, {**world.rocm, "core": changed}).write(tmp_path)
    fat(torch, "--find-links", links, "--gfx", "gfx942", "-o", tmp_path / "fat")
    (made,) = (tmp_path / "fat").iterdir()
    files = read_members(made)
    assert files["torch/_rocm/lib/libamdhip64.so.7"] == core[f"{tree}/libamdhip64.so.7"]
    assert files["torch/_rocm/lib/libhsa-runtime64.so.1"] == core[f"{tree}/libhsa-runtime64.so.1"]
    tree_of_init = ast.parse(files["torch/_rocm_init.py"])
    (loaded,) = (
        ast.literal_eval(node.value)
        for node in tree_of_init.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LIBRARIES"
    )
    assert [name for name in loaded if f"torch/_rocm/{name}" not in files] == []
    assert loaded.index("lib/libhsa-runtime64.so.1") < loaded.index("lib/libamdhip64.so.7")


def test_dry_run_and_build_tag(world: World, tmp_path: Path) -> None:
    torch, links = world.write(tmp_path)
    words = (torch, "--find-links", links, "--gfx", "gfx942;gfx1100", "-o", tmp_path / "fat", "--json")
    [planned] = fat(*words, "--dry-run", "--build-tag", "1fat").json["wheels"]
    assert planned["libraries"][0] == "lib/libhsa-runtime64.so.1"
    shown = fat(*words[:-1], "--dry-run").out.splitlines()[0]
    libraries, files = len(planned["libraries"]), planned["files"]
    assert f": ROCm {ROCM}; {' '.join(planned['targets'])}; " in shown
    assert f"; {libraries} libraries; {files - libraries} other files" in shown
    assert not (tmp_path / "fat").exists()
    [written] = fat(*words, "--build-tag", "1fat").json["wheels"]
    assert planned == written | {"written": None}
    assert Path(written["written"]).name == torch.name.replace("-cp311", "-1fat-cp311", 1)
    assert not scan.scan_wheel(Path(written["written"])).faults
    fat(*words, "--build-tag", "fat", code=2)


def torch_variant(folder: Path) -> str:
    """Give the torch in a folder the name of a variant wheel."""
    (torch,) = folder.glob("torch-*.whl")
    return torch.rename(torch.with_name(torch.name.replace(".whl", "-rocm7.1.whl"))).name


def test_what_is_no_thin_torch_is_refused(world: World, tmp_path: Path) -> None:
    path = make_fat(world, tmp_path / "1")
    links = tmp_path / "1" / "rocm"
    variant = links.parent / torch_variant(links.parent)
    words = ("--gfx", "gfx942", "-o", tmp_path / "fat")
    for wheel in (path, variant):
        fat(wheel, "--find-links", links, *words, code=13)
    refuse(World(replace(world.torch, requires=["filelock"]), world.rocm), tmp_path / "2")
    other = replace(world.rocm["core"], version="7.0.0")
    refuse(World(world.torch, {**world.rocm, "core": other}), tmp_path / "3")
    torch, _ = world.write(tmp_path / "4")
    fat(torch, *words, code=2)
    fat(torch, "--find-links", tmp_path / "none", *words, code=2)
    assert not (tmp_path / "fat").exists()


@pytest.fixture(scope="module")
def windows_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The same of DLLs that clang links: torch_hip needs libhipblas, that rocblas, that amdhip64_7."""
    from rocm import install_ziglang

    zig, folder = install_ziglang(tmp_path_factory) / "zig", tmp_path_factory.mktemp("dll")
    entries = [hip(target, code_object(target, size=1 << 16)) for target in TARGETS]
    (folder / "section").write_bytes(compress(bundle(HOST, *entries), 3, "zstd"))
    (folder / "fat.s").write_text('.section .hip_fat,"dr"\n.p2align 12\n.incbin "section"\n')
    env = {"ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder), "HOME": str(folder)}

    def link_dll(name: str, *needs: str, code: bool = False) -> bytes:
        calls = [need.replace(".dll", "_answer") for need in needs]
        text = "".join(f"__declspec(dllimport) int {call}(void);\n" for call in calls)
        text += f"__declspec(dllexport) int {name.replace('.dll', '_answer')}(void) {{ return "
        text += " + ".join(["1", *(f"{call}()" for call in calls)]) + "; }\n"
        (folder / "lib.c").write_text(text + "int DllMainCRTStartup(void *a, int b, void *c) { return 1; }\n")
        words = [zig, "cc", "-target", "x86_64-windows-gnu", "-shared", "-nostdlib", "-O1", "lib.c"]
        words += ["-o", name, f"-Wl,--out-implib,{name}.lib", *(["fat.s"] if code else ())]
        words += [f"{need}.lib" for need in needs]
        subprocess.run(words, cwd=folder, env=env, check=True, capture_output=True)
        return (folder / name).read_bytes()

    core = {".info/version": b"7.1.0", "bin/amdhip64_7.dll": link_dll("amdhip64_7.dll")}
    libraries = {
        "bin/rocblas.dll": link_dll("rocblas.dll", "amdhip64_7.dll", code=True),
        "bin/libhipblas.dll": link_dll("libhipblas.dll", "rocblas.dll"),
        "bin/rocfft.dll": link_dll("rocfft.dll"),
    }
    torch = Draft(
        tag="cp311-cp311-win_amd64",
        members={
            "torch/__init__.py": PACKAGE.encode(),
            "torch/version.py": VERSION.encode(),
            "torch/_rocm_init.py": INIT.encode(),
            "torch/lib/torch_hip.dll": link_dll("torch_hip.dll", "libhipblas.dll", code=True),
        },
        requires=[f"rocm[libraries]=={ROCM}"],
    )
    parts = {
        "core": make_part("rocm_sdk_core", "_rocm_sdk_core", core),
        "libraries": make_part("rocm_sdk_libraries", "_rocm_sdk_libraries", libraries),
    }
    for target in TARGETS:
        files = {f"bin/rocblas/library/TensileLibrary_lazy_{target}.dat": b"kernels"}
        parts[target] = make_part(f"rocm_sdk_device_{target}", "_rocm_sdk_libraries", files)
    rocm = {name: replace(draft, tag="py3-none-win_amd64") for name, draft in parts.items()}
    return World(torch, rocm)


@pytest.mark.slow
@pytest.mark.network
def test_a_torch_for_windows(windows_world: World, tmp_path: Path) -> None:
    """Looked at, not run: imports lead the way as NEEDED does, DLLs are pruned and keep their size."""
    path = make_fat(windows_world, tmp_path)
    files = read_members(path)
    assert sorted(name.removeprefix("torch/_rocm/") for name in files if "/_rocm/" in name) == [
        ".info/version",
        "bin/amdhip64_7.dll",
        "bin/libhipblas.dll",
        "bin/rocblas.dll",
        "bin/rocblas/library/TensileLibrary_lazy_gfx942.dat",
    ]
    code = wheel_code.read_device_code(path).code
    assert {name: code_objects.list_code_targets(objects) for name, objects in code.items()} == {
        "torch/_rocm/bin/rocblas.dll": ["gfx942"],
        "torch/lib/torch_hip.dll": ["gfx942"],
    }
    whole = windows_world.rocm["libraries"].members["_rocm_sdk_libraries/bin/rocblas.dll"]
    assert len(files["torch/_rocm/bin/rocblas.dll"]) == len(whole)
    assert b'"bin/amdhip64_7.dll",\n    "bin/rocblas.dll",' in files["torch/_rocm_init.py"]
    assert verify(path) == {}
    poorer = {n: without(draft, "bin/rocblas.dll") for n, draft in windows_world.rocm.items()}
    assert "rocblas.dll" in refuse(World(windows_world.torch, poorer), tmp_path / "2")


def test_killed_at_any_time_it_leaves_no_half_wheel(world: World, tmp_path: Path, exhaustive: bool) -> None:
    torch, links = world.write(tmp_path)
    whole = make_fat(world, tmp_path / "whole").read_bytes()
    made = tmp_path / "fat"
    words = (torch, "--find-links", links, "--gfx", "gfx942", "-o", made)
    for event in killed_at_events(
        lambda: fat(*words),
        begin=lambda: shutil.rmtree(made, ignore_errors=True),
        exhaustive=exhaustive,
    ):
        wheels = list(made.glob("*.whl"))
        assert [path.name for path in wheels] in ([], [torch.name]), event
        assert all(path.read_bytes() == whole for path in wheels), event
        fat(*words)
        assert [path.name for path in made.iterdir()] == [torch.name], event
        assert (made / torch.name).read_bytes() == whole, event


def test_packages_come_from_an_index(world: World, tmp_path: Path) -> None:
    """As `set package` takes them, which names the torch 1fat and replaces the thin one."""
    torch, links = world.write(tmp_path / "torch")
    index = tmp_path / "index"
    call("index", "build", index, *sorted(links.iterdir()))
    words = ["set", "package", str(torch.parent), "--packaging", "fat", "--rocm-index", str(index)]
    call(*words, "--gfx", "gfx942")
    (path,) = torch.parent.glob("*.whl")
    again = make_fat(world, tmp_path / "2", "gfx942", "--build-tag", "1fat")
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(again.read_bytes()).digest()


def test_scripts_make_the_same_wheel(world: World, tmp_path: Path) -> None:
    """All targets of the wheel where none are named; the version in the file's name is no other."""
    torch, links = world.write(tmp_path)
    name = torch.name.replace("-cp311", "-1fat-cp311", 1)
    named, beside = (
        [sys.executable, CLONE / "build_tools" / script, torch, links]
        for script in ("patch_fat_wheel.py", "windows_patch_fat_wheel.py")
    )
    subprocess.run([*named, "--output-path", tmp_path / "out" / name], check=True)
    subprocess.run(beside, check=True)
    assert (tmp_path / "out" / name).read_bytes() == (tmp_path / name).read_bytes()
