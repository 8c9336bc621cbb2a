"""An installed ROCm: what is read from it, when it counts as another one, what a torch misses in it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocm import make_rocm, make_torch_tree

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.models import torch_features
from rocm_wheels.sdk import rocm_prefix


def test_what_is_in_it(tmp_path: Path) -> None:
    prefix = rocm_prefix.inspect_prefix(make_rocm(tmp_path / "rocm"), {})
    assert (prefix.version, prefix.hip_version) == ("7.2.4", "7.2.53211")
    assert prefix.device_targets == ("gfx90a", "gfx942")
    assert prefix.kernels == {"hipblaslt": ("gfx942", "gfx1100"), "rocblas": ("gfx803", "gfx942")}
    assert prefix.targets == ("gfx942",), "of rocBLAS, as far as they are targets that can be built for"
    assert prefix.libraries == {"libamdhip64.so.7.2.53211"}


def test_content_is_told_by_names_sizes_and_times(tmp_path: Path) -> None:
    root = make_rocm(tmp_path / "rocm")
    before = rocm_prefix.inspect_prefix(root, {}).content
    shutil.copytree(root, tmp_path / "copy")  # keeps the times, as packages and archives do
    assert rocm_prefix.inspect_prefix(tmp_path / "copy", {}).content == before
    (tmp_path / "link").symlink_to(root)
    assert rocm_prefix.inspect_prefix(tmp_path / "link", {}).content == before
    (root / "lib/__pycache__").mkdir()
    (root / "lib/__pycache__/x.pyc").touch()
    (root / "share/doc").mkdir(parents=True)
    (root / "share/doc/readme").touch()
    assert rocm_prefix.inspect_prefix(root, {}).content == before
    os.utime(root / "include/hip/hip_runtime.h", (1, 1))
    assert rocm_prefix.inspect_prefix(root, {}).content != before


def link_out(root: Path) -> None:
    (root.parent / "elsewhere").write_text("a library")
    (root / "lib/libhsa-runtime64.so.1").symlink_to(root.parent / "elsewhere")


def test_what_a_link_leads_to_outside_counts(tmp_path: Path) -> None:
    root = make_rocm(tmp_path / "rocm")
    link_out(root)
    before = rocm_prefix.inspect_prefix(root, {}).content
    (tmp_path / "elsewhere").write_text("a library of the next release")
    assert rocm_prefix.inspect_prefix(root, {}).content != before


def mix_versions(root: Path) -> None:
    header = (root / "include/hip/hip_version.h").read_text()
    (root / "include/hip/hip_version.h").write_text(header.replace("MAJOR 7", "MAJOR 6"))


def leave_old_runtime(root: Path) -> None:
    (root / "lib/libamdhip64.so.6.4.43484").touch()


WRONG: list[tuple[Callable[[Path], object], type[errors.RocmWheelsError], str]] = [
    (shutil.rmtree, errors.UsageError, "there is no folder"),
    (lambda root: shutil.rmtree(root / "include"), errors.SdkError, "no include/hip"),
    (lambda root: (root / ".info/version").unlink(), errors.SdkError, "does not say which ROCm"),
    (lambda root: (root / ".info/version").write_bytes(b"\xff"), errors.SdkError, "does not say which ROCm"),
    (lambda root: (root / "bin/hipcc").unlink(), errors.SdkError, "no bin/hipcc"),
    (lambda root: shutil.rmtree(root / "lib/cmake"), errors.SdkError, "no lib/cmake"),
    (lambda root: shutil.rmtree(root / "lib/llvm/amdgcn"), errors.SdkError, "no device libraries"),
    (mix_versions, errors.SdkError, "include/hip/hip_version.h"),
    (leave_old_runtime, errors.SdkError, "lib/libamdhip64.so.6.4.43484"),
]


@pytest.mark.contract
@pytest.mark.parametrize(("damage", "error", "names"), WRONG)
def test_what_is_no_whole_rocm_is_refused(
    damage: Callable[[Path], object], error: type[errors.RocmWheelsError], names: str, tmp_path: Path
) -> None:
    root = make_rocm(tmp_path / "rocm")
    damage(root)
    with pytest.raises(error, match=names) as refused:
        rocm_prefix.inspect_prefix(root, {})
    assert refused.value.tip


def test_a_folder_of_the_whole_system_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="whole system"):
        rocm_prefix.inspect_prefix(Path("/usr"), {})


def test_device_libraries_of_another_folder(tmp_path: Path) -> None:
    root = make_rocm(tmp_path / "rocm")
    (root / "lib/llvm/amdgcn").rename(tmp_path / "amdgcn")
    prefix = rocm_prefix.inspect_prefix(root, {"HIP_DEVICE_LIB_PATH": str(tmp_path / "amdgcn/bitcode")})
    assert prefix.device_targets == ("gfx90a", "gfx942")


def test_what_a_torch_looks_for_and_does_not_find(tmp_path: Path) -> None:
    tree = make_torch_tree(tmp_path / "pytorch")
    assert "hipfile" in {package.name for package in torch_features.read_hip_packages(tree, "7.14.0")}
    packages = torch_features.read_hip_packages(tree, "7.2.4")
    assert [package.name for package in packages if package.required] == ["hip", "miopen", "hipcub", "hiprtc"]
    prefix = rocm_prefix.inspect_prefix(make_rocm(tmp_path / "rocm", packages=["hiprtc"]), {})
    others = {"CMAKE_PREFIX_PATH": str(make_rocm(tmp_path / "cub", packages=["hipcub"]))}
    missing = prefix.find_missing(packages, others)
    assert [(part.name, part.required, part.option) for part in missing] == [
        ("MIOpen", True, ""),
        ("RCCL", True, "USE_RCCL"),
        ("hipSPARSELt", False, ""),
    ]
    without = prefix.find_missing(packages, {**others, "USE_RCCL": "0"})
    assert [part.name for part in without] == ["MIOpen", "hipSPARSELt"]


@pytest.mark.contract
def test_the_command_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, tree = make_rocm(tmp_path / "rocm"), make_torch_tree(tmp_path / "pytorch")
    words = ["rocm", "show", "--rocm-path", str(root), "--pytorch-dir", str(tree), "--json"]
    assert boundary.run_command(main.cli, words) == 0
    shown = json.loads(capsys.readouterr().out)
    told = (shown["version"], shown["targets"], shown["clang"])
    assert told == ("7.2.4", ["gfx942"], f"{root}/lib/llvm/bin")
    missing = [part["package"] for part in shown["missing"] if part["required"]]
    assert missing == ["miopen", "hipcub", "hiprtc", "rccl"]
    assert boundary.run_command(main.cli, [*words[:3], str(root), "--pytorch-dir", str(root)]) == 2
