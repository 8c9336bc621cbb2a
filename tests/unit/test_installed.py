"""What is installed, read from files: builds, duplicates, device code, and which GPU it serves.

All trees are constructed; the device code in them is real ELF headers in real offload bundles.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from binaries import bundle as aligned
from binaries import compress, elf, hip, kpack, kpack_reference
from pythons import environment, install, install_torch
from wheels import bundle, library

from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects
from rocm_wheels.user import gpu_support, installed_packages, kernel_proof

TWO = aligned(hip("gfx1100"), hip("gfx942"))


@pytest.mark.parametrize(
    ("name", "version", "files", "kind", "number"),
    [
        ("torch", "2.9.1+rocm7.1", {"torch/version.py": "hip = '7.1.2'\ncuda = None\n"}, "rocm", "7.1"),
        ("torch", "2.9.1", {"torch/version.py": "hip = '7.1.2'\n"}, "rocm", "7.1.2"),
        ("torch", "2.13.0", {"torch/version.py": "hip = '7.15.2'\nrocm = '10.0.0'\n"}, "rocm", "10.0.0"),
        ("torch", "2.9.1", {"torch/version.py": "hip: 'str | None' = None\ncuda = '12.8'\n"}, "cuda", "12.8"),
        ("torch", "2.9.1+cpu", {"torch/version.py": "hip = None\ncuda = None\n"}, "cpu", ""),
        ("torch", "2.9.1", {"torch/version.py": "xpu = '20250101'\n"}, "xpu", "20250101"),
        # a version.py that nobody can read: the libraries tell, or the version
        ("torch", "2.9.1", {"torch/version.py": "(", "torch/lib/libtorch_hip.so": b""}, "rocm", ""),
        ("torch", "2.9.1+cu128", {}, "cuda", "12.8"),
        ("torch", "2.9.1", {}, "unknown", ""),
        ("torch", "2.13.0+rocmsdk7.15.0a20260728", {}, "rocm", "7.15.0a20260728"),
        ("torchvision", "0.24.1+rocm7.1", {"torchvision/__init__.py": ""}, "rocm", "7.1"),
        ("torchvision", "0.24.1+cpu", {"torchvision/__init__.py": ""}, "cpu", ""),
        ("torchaudio", "2.9.1", {"torchaudio/__init__.py": ""}, "unknown", ""),
        ("pytorch-triton-rocm", "3.5.1", {}, "rocm", ""),
        ("triton-rocm", "3.6.0", {}, "rocm", ""),
        ("triton", "3.5.1", {}, "unknown", ""),
        ("pytorch-triton-xpu", "3.5.0", {}, "xpu", ""),
    ],
)  # fmt: skip
def test_build_kind_is_read_from_what_is_there(  # noqa: PLR0917
    tmp_path: Path, name: str, version: str, files: dict[str, bytes | str], kind: str, number: str
) -> None:
    place = environment(tmp_path)
    install(place.site_packages, name, version, files=files, installer="uv")
    found = installed_packages.read_environment_packages(place).get(name)
    assert found is not None
    assert (found.kind, found.build.version, found.installer) == (kind, number, "uv")


def test_a_package_says_by_its_links_what_it_was_built_for(tmp_path: Path) -> None:
    place = environment(tmp_path)
    # DT_RUNPATH and DT_NEEDED have the same form: the tag alone differs
    linked = library(run_path="libtorch_hip.so").replace(b"\x1d" + bytes(7), b"\x01" + bytes(7), 1)
    install(place.site_packages, "torchvision", "0.24.1", files={"torchvision/_C.so": linked})
    found = installed_packages.read_environment_packages(place).get("torchvision")
    assert found is not None and (found.kind, found.build.source[-5:]) == ("rocm", "_C.so")


def test_what_is_in_front_on_the_path_shadows_the_rest(tmp_path: Path) -> None:
    user = tmp_path / "user"
    place = environment(tmp_path / "venv", also=[user])
    install_torch(user, hip=None, version="2.8.0+cpu")
    install_torch(place.site_packages, "gfx1100")
    install(place.site_packages, "numpy", "2.0.0")
    install(place.site_packages, "rocm-sdk-core", "7.1.0")
    (place.site_packages / "~orch-2.7.0.dist-info").mkdir()
    (place.site_packages / "torchaudio-2.9.1.dist-info").mkdir()
    found = installed_packages.read_environment_packages(place)
    assert [(one.name, one.version, one.shadowed) for one in found.packages] == [
        ("torch", "2.8.0+cpu", False),
        ("rocm-sdk-core", "7.1.0", False),
        ("torch", "2.9.1+rocm7.1.0", True),
    ]
    assert found.torch is not None and found.torch.kind == "cpu" and found.rocm_version == "7.1.0"
    gone = f"{place.site_packages}/torchaudio-2.9.1.dist-info/METADATA"
    assert [fault.split(" ", 1)[1] for fault in found.faults] == [
        f"cannot be read: [Errno 2] No such file or directory: '{gone}'",
        "is left of an installation that was broken off; delete it",
    ]


def test_an_editable_torch_is_where_its_sources_are(tmp_path: Path) -> None:
    place = environment(tmp_path / "venv")
    tree = tmp_path / "my %20 sources"
    (tree / "torch" / "lib").mkdir(parents=True)
    (tree / "torch" / "lib" / "libtorch_hip.so").write_bytes(library("gfx1201"))
    said = f'{{"url": "{tree.as_uri()}", "dir_info": {{"editable": true}}}}'
    install(place.site_packages, "torch", "2.9.0a0", direct_url=said)
    found = installed_packages.read_environment_packages(place)
    assert gpu_support.list_kernel_targets(found, "torch") == ("gfx1201",)


@pytest.mark.parametrize(
    ("content", "targets"),
    [
        (library("gfx1100", "gfx942:sramecc+:xnack-"), ("gfx942:sramecc+:xnack-", "gfx1100")),
        (library(fatbin=bundle("gfx1100") + bytes(50) + bundle("gfx1201")), ("gfx1100", "gfx1201")),
        (elf({".hip_fatbin": compress(TWO, 3, "zstd")}), ("gfx942", "gfx1100")),
        (elf({".hip_fatbin": compress(aligned(hip("gfx90a")), 1, "zlib")}), ("gfx90a",)),
        (elf({".hip_fatbin": aligned(("hipv4-amdgcn-amd-amdhsa--gfx906", b""), hip("gfx90a"))}), ("gfx90a",)),
        (library(), ()),
        (b"", ()),
        (b"#!/bin/sh\n", ()),
    ],
)  # fmt: skip
def test_tables_alone_tell_the_targets(tmp_path: Path, content: bytes, targets: tuple[str, ...]) -> None:
    path = tmp_path / "libtorch_hip.so"
    path.write_bytes(content)
    assert code_objects.read_library_targets(path).targets == targets


def test_archives_that_a_library_names_count_where_they_are(tmp_path: Path) -> None:
    place = environment(tmp_path)
    split = elf(
        {".rocm_kpack_ref": kpack_reference("../.kpack/torch_@GFXARCH@.kpack", "../.kpack/rest.kpack")}
    )
    install_torch(place.site_packages, **{"torch/lib/libtorch_hip.so": split})
    empty = installed_packages.read_environment_packages(place)
    assert gpu_support.list_kernel_targets(empty, "torch") == ()
    assert empty.torch is not None
    missing = ("../.kpack/torch_@GFXARCH@.kpack", "../.kpack/rest.kpack")
    assert gpu_support.read_installed_code(empty.torch)[0].missing == missing
    _, kernel = hip("gfx942")
    archive = {"torch/.kpack/torch_gfx942.kpack": kpack({("lib/libtorch_hip.so#0", "gfx942"): kernel})}
    install(place.site_packages, "amd-torch-device-gfx942", "2.9.1", files=archive)
    found = installed_packages.read_environment_packages(place)
    assert gpu_support.list_kernel_targets(found, "torch") == ("gfx942",)


def test_other_libraries_do_not_speak_for_torch(tmp_path: Path) -> None:
    place = environment(tmp_path)
    install_torch(place.site_packages, "gfx1100", **{"torch/lib/libaotriton_v2.so.0.11": library("gfx942")})
    found = installed_packages.read_environment_packages(place)
    assert gpu_support.list_kernel_targets(found, "torch") == ("gfx1100",)
    assert found.torch is not None
    code = gpu_support.read_installed_code(found.torch, everything=True)
    assert [(one.path.name, one.targets) for one in code] == [
        ("libtorch_hip.so", ("gfx1100",)),
        ("libaotriton_v2.so.0.11", ("gfx942",)),
    ]
    assert gpu_support.list_kernel_targets(found, "torchaudio") == ()


def test_a_damaged_library_is_said(tmp_path: Path) -> None:
    place = environment(tmp_path)
    cut = library("gfx1100")[:-40]
    install_torch(place.site_packages, **{"torch/lib/libtorch_hip.so": cut})
    with pytest.raises(errors.DataError, match=r"libtorch_hip\.so.*reaches past the end"):
        gpu_support.list_kernel_targets(installed_packages.read_environment_packages(place), "torch")


def test_libraries_of_rocm_go_by_the_names_of_their_files(tmp_path: Path) -> None:
    place = environment(tmp_path)
    root = place.site_packages / "_rocm_sdk_libraries"
    for name in (
        "lib/rocblas/library/TensileLibrary_lazy_gfx942.dat",
        "lib/rocblas/library/TensileLibrary_lazy_gfx90a.dat",
        "lib/hipblaslt/library/gfx1100/x.dat",
        "share/miopen/db/gfx94230.db.txt",
        "share/miopen/db/gfx942.kdb",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    files = gpu_support.list_library_files(installed_packages.read_environment_packages(place))
    found = {library: targets for library, (_, targets) in files.items()}
    assert found == {"rocBLAS": ("gfx90a", "gfx942"), "hipBLASLt": ("gfx1100",), "MIOpen": ("gfx942",)}


@pytest.mark.parametrize(
    ("targets", "gfx", "xnack", "how", "by"),
    [
        (["gfx1100"], "gfx1100", False, "native", "gfx1100"),
        (["gfx1100"], "gfx1101", False, "no", ""),
        (["gfx11-generic"], "gfx1101", False, "generic", "gfx11-generic"),
        (["gfx9-4-generic"], "gfx950", False, "generic", "gfx9-4-generic"),
        (["gfx11-generic"], "gfx1201", False, "no", ""),
        (["gfx90a:xnack+"], "gfx90a", False, "setting", "gfx90a:xnack+"),
        (["gfx90a:xnack+"], "gfx90a", True, "native", "gfx90a:xnack+"),
        (["gfx90a:xnack-"], "gfx90a", True, "setting", "gfx90a:xnack-"),
        (["gfx90a:xnack+", "gfx90a:xnack-"], "gfx90a", False, "native", "gfx90a:xnack-"),
        (["gfx942:sramecc+:xnack-"], "gfx942", False, "native", "gfx942:sramecc+:xnack-"),
        (["gfx942:sramecc-"], "gfx942", False, "setting", "gfx942:sramecc-"),
        (["gfx942"], "gfx942:sramecc+:xnack+", False, "native", "gfx942"),
        (["amdgcnspirv"], "gfx1201", False, "portable", "amdgcnspirv"),
        ([], "gfx942", False, "no", ""),
    ],
)  # fmt: skip
def test_which_gpu_code_serves(targets: list[str], gfx: str, xnack: bool, how: str, by: str) -> None:
    served = gpu_support.check_kernel_support(targets, gfx, xnack=xnack)
    assert (served.kind, served.by) == (how, by)
    assert served.describe_support(gfx).startswith("yes") is served.runs


def test_the_running_python_is_looked_at_without_starting_anything() -> None:
    found = installed_packages.read_installed_packages(None, {})
    assert found.environment.python == Path(sys.executable)
    assert found.environment.version.startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing", "there is no Python"), ("folder", "is a folder, and no virtual environment")],
)
def test_what_is_no_python_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(errors.UsageError, match=message):
        installed_packages.read_installed_packages(tmp_path / name, {})


def test_an_installed_torch_that_says_nothing_is_told_by_its_libraries(tmp_path: Path) -> None:
    """It is not taken for one that computes on the CPU."""
    place = environment(tmp_path)
    install(place.site_packages, "torch", "2.9.1", files={"torch/__init__.py": ""})
    proof = kernel_proof.prove_installed(place)
    assert proof is not None and (proof.kind, proof.targets) == ("unknown", ())
    assert proof.describe("gfx1100").startswith("torch 2.9.1: code for gfx1100: no: it has code for no GPU")
