"""ROCm packages from an installed ROCm: which file goes where, installed by uv, and what is refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from rocm import make_artifacts
from warm_python import warm_python

from rocm_wheels.core import installation
from rocm_wheels.sdk import interpreters
from rocm_wheels.sdk.artifacts import merge_artifacts, read_artifacts

pytestmark = [pytest.mark.contract, pytest.mark.skipif(sys.platform != "linux", reason="compiles ELF files")]

KERNELS = {  # names that ROCm 6.4 and 7.2 have
    "lib/rocblas/library/TensileLibrary_lazy_gfx942.dat": "gfx942",
    "lib/rocblas/library/TensileLibrary_Type_SS_gfx90a.co": "gfx90a",
    "lib/rocblas/library/Kernels.so-000-gfx90a-xnack+.hsaco": "gfx90a",
    "lib/hipblaslt/library/extop_gfx1100.co": "gfx1100",
    "share/miopen/db/gfx90a68.db": "gfx90a",
    "share/miopen/db/gfx900_56.kdb": "gfx900",
    "share/miopen/db/gfx942130.HIP.fdb.txt": "gfx942",
    "lib/rocblas/library/TensileLibrary_lazy_gfx1250.dat": "gfx1250",
    "share/miopen/db/gfx103036.HIP.fdb.txt": "gfx1030",
}
SHARED = (
    "lib/rocblas/library/TensileLibrary_Type_SS_fallback.dat",
    "lib/hipblaslt/library/hipblasltTransform.hsaco",
    *(f"lib/hipblaslt/library/extop_{name}-generic.co" for name in ("gfx9", "gfx9-4", "gfx10-3", "gfx11")),
)
UNKNOWN = (  # ROCm has kernels for targets that it is no longer built for, and for those to come
    ("lib/rocblas/library/TensileLibrary_lazy_gfx803.dat", "gfx803"),
    ("share/miopen/db/gfx803_36.db", "gfx803"),
    ("share/miopen/db/gfx940e4.kdb", "gfx940"),
    ("lib/hipblaslt/library/Kernels.so-000-gfx941-xnack+.hsaco", "gfx941"),
    ("lib/hipsparselt/library/extop_gfx1299.co", "gfx1299"),
    ("share/miopen/db/gfx129940.HIP.fdb.txt", "gfx1299"),
)


def add_kernels(root: Path, *relatives: str) -> None:
    for relative in relatives:
        (root / relative).parent.mkdir(parents=True, exist_ok=True)
        (root / relative).write_text(relative)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Lay out the small ROCm as an installed one."""
    root = tmp_path / "opt/rocm"
    artifacts = [a for a in read_artifacts(make_artifacts(tmp_path / "artifacts")) if a.generic]
    for relative, entry in merge_artifacts(artifacts).items():
        target = root / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(entry.path, target, follow_symlinks=False)
    shutil.rmtree(root / "share/therock")
    add_kernels(root, *KERNELS, *SHARED)
    (root / ".info").mkdir()
    (root / ".info/version").write_text("6.4.3-128\n")
    return root


def make_packages(destination: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    door = [*warm_python(), "-m", "rocm_wheels", "build-python-packages"]
    command = [*door, "--output-dir", destination, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def list_members(destination: Path, package: str) -> set[str]:
    (wheel,) = (destination / "dist").glob(f"{package}-6.4.3-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name.split("/", 1)[-1] for name in archive.namelist()}


def test_files_go_to_the_packages_that_rocm_has_them_in(prefix: Path, tmp_path: Path) -> None:
    result = make_packages(tmp_path / "made", "--from-prefix", prefix)
    assert result.returncode == 0, result.stderr
    for relative, target in KERNELS.items():
        assert relative in list_members(tmp_path / "made", f"rocm_sdk_device_{target}")
        assert relative not in list_members(tmp_path / "made", "rocm_sdk_libraries")
    assert {*SHARED, "lib/libhipblas.so.3"} <= list_members(tmp_path / "made", "rocm_sdk_libraries")
    core = list_members(tmp_path / "made", "rocm_sdk_core")
    assert {"bin/hipcc", "lib/libamdhip64.so.7", "lib/llvm/bin/amdclang++"} <= core
    assert "include/rocprim/a, b.hpp" not in core


def test_only_the_targets_that_are_asked_for(prefix: Path, tmp_path: Path) -> None:
    result = make_packages(tmp_path / "made", "--from-prefix", prefix, "--gfx", "gfx90a")
    assert result.returncode == 0, result.stderr
    names = {path.name for path in (tmp_path / "made/dist").iterdir()}
    assert {name.split("-")[0] for name in names if "device" in name} == {"rocm_sdk_device_gfx90a"}
    result = make_packages(tmp_path / "other", "--from-prefix", prefix, "--gfx", "gfx1201")
    assert result.returncode == 11
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("relative", "target"), UNKNOWN[1:4:2])
def test_kernels_of_a_target_that_nobody_here_knows(
    prefix: Path, tmp_path: Path, relative: str, target: str
) -> None:
    add_kernels(prefix, relative)
    for words in (["--gfx", f"gfx90a,{target}"], []):
        result = make_packages(tmp_path / "made", "--from-prefix", prefix, *words)
        assert (result.returncode, result.stderr.count("error: ")) == (11, 1), result.stderr
        assert f"{target} ({prefix / relative})" in result.stderr
        assert "data/gfx_families.yaml" in result.stderr
        assert not (tmp_path / "made").exists()
    (tip,) = re.findall(r"tip: .*(--gfx \S+),", result.stderr)
    assert target not in tip
    result = make_packages(tmp_path / "made", "--from-prefix", prefix, *tip.split())
    assert result.returncode == 0, result.stderr
    for package in ("rocm_sdk_core", "rocm_sdk_libraries", "rocm_sdk_device_gfx90a"):
        assert relative not in list_members(tmp_path / "made", package)


def test_all_unknown_targets_are_named_at_once(prefix: Path, tmp_path: Path) -> None:
    add_kernels(prefix, *(relative for relative, _ in UNKNOWN))
    result = make_packages(tmp_path / "made", "--from-prefix", prefix)
    assert result.returncode == 11
    assert re.findall(r"(gfx\w+) \(\S+( and 1 more)?\)", result.stderr) == [
        ("gfx803", " and 1 more"), ("gfx940", ""), ("gfx941", ""), ("gfx1299", " and 1 more")
    ]  # fmt: skip


def test_the_installed_tree_is_whole_again(prefix: Path, tmp_path: Path) -> None:
    assert make_packages(tmp_path / "made", "--from-prefix", prefix).returncode == 0
    venv = tmp_path / "venv"
    env = interpreters.compose_uv_environment({**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache")})
    for words in (
        ["venv", "--no-project", "--python", sys.executable, str(venv)],
        ["pip", "install", "--python", str(venv), "--no-index", "--find-links", str(tmp_path / "made/dist"),
         "rocm[libraries,devel,device]"],
    ):  # fmt: skip
        subprocess.run([installation.find_uv(), "-q", *words], env=env, check=True, timeout=120)
    tree = Path(subprocess.check_output([venv / "bin/rocm-sdk", "path", "--root"], text=True).strip())
    files = [path.relative_to(prefix) for path in prefix.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if not (tree / path).is_file()] == []


@pytest.mark.parametrize(
    ("damage", "exit_code"),
    [
        (lambda root: shutil.rmtree(root / "include"), 11),  # no ROCm at all
        (lambda root: (root / ".info/version").unlink(), 11),  # which ROCm?
        (lambda root: (root / "lib/libout.so").symlink_to("/usr/lib/libout.so.1"), 11),
    ],
)
def test_what_is_no_whole_rocm_is_refused(
    prefix: Path, tmp_path: Path, damage: Callable[[Path], None], exit_code: int
) -> None:
    damage(prefix)
    result = make_packages(tmp_path / "made", "--from-prefix", prefix)
    assert result.returncode == exit_code, result.stderr
    assert not (tmp_path / "made").exists()


def test_one_source_and_one_only(prefix: Path, tmp_path: Path) -> None:
    assert make_packages(tmp_path / "made").returncode == 2
    both = make_packages(tmp_path / "made", "--from-prefix", prefix, "--artifact-dir", tmp_path / "artifacts")
    assert both.returncode == 2
