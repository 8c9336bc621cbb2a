"""The small ROCm: its artifacts, its libraries, and the compiler inside it."""

from __future__ import annotations

import ctypes
import filecmp
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import miniature
import pytest
from rocm import ENV, SOURCE, TARGETS, beside_ziglang, lay_out

from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects
from rocm_wheels.sdk.artifacts import merge_artifacts, read_artifacts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the small ROCm is for Linux")

KERNEL = """
#include <hip/hip_runtime.h>
__global__ void scale(int count, float a, float* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] *= a;
}
extern "C" int launch(float* x) {
    hipLaunchKernelGGL(scale, dim3(1), dim3(64), 0, 0, 64, 2.0f, x);
    return hipGetLastError();
}
"""


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return miniature.make_artifacts(
        SOURCE, tmp_path_factory.mktemp("rocm") / "artifacts", version="7.1.0", targets=TARGETS, env=ENV
    )


@pytest.fixture(scope="module")
def rocm(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beside_ziglang(artifacts, tmp_path_factory)


def _run(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=cwd, env=env or ENV, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_same_bytes_anywhere_and_nothing_twice(artifacts: Path, tmp_path: Path) -> None:
    options = {"version": "7.1.0", "targets": list(reversed(TARGETS)), "env": ENV}
    again = miniature.make_artifacts(SOURCE, tmp_path / "deep" / "down" / "artifacts", **options)  # type: ignore[arg-type]

    def files(folder: Path) -> list[str]:
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    assert files(again) == files(artifacts)
    assert filecmp.cmpfiles(artifacts, again, files(again), shallow=False)[1:] == ([], [])
    inode = again.stat().st_ino
    miniature.make_artifacts(SOURCE, again, **options)  # type: ignore[arg-type]
    assert again.stat().st_ino == inode


def test_another_version_or_target_is_made_anew(tmp_path: Path) -> None:
    dest = tmp_path / "artifacts"
    miniature.make_artifacts(SOURCE, dest, version="7.1.0", targets=["gfx942"], env=ENV)
    miniature.make_artifacts(SOURCE, dest, version="7.2.1rc1", targets=["gfx1201"], env=ENV)
    found = read_artifacts(dest)
    assert {artifact.family for artifact in found} == {"generic", "gfx1201"}
    tree = merge_artifacts(found)
    assert tree[".info/version"].path.read_text() == "7.2.1rc1\n"
    assert "HIP_VERSION_MINOR 2\n" in tree["include/hip/hip_version.h"].path.read_text()
    assert "gfx1201" in tree["share/therock/dist_info.json"].path.read_text()
    assert not [path for path in tree if "@" in path]


def test_a_compiler_that_fails_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(errors.SdkError, match="compiling lib"):
        miniature.make_artifacts(
            SOURCE, tmp_path / "artifacts", version="7.1.0", targets=TARGETS, env={**ENV, "CC": "false"}
        )
    assert list(tmp_path.iterdir()) == []


def test_the_runtime_answers_as_without_a_gpu(artifacts: Path) -> None:
    tree = merge_artifacts(read_artifacts(artifacts))
    for library in miniature.LIBRARIES:
        ctypes.CDLL(str(tree[f"{library.folder}/{library.soname}"].path))
        assert tree[f"{library.folder}/lib{library.name}.so"].link == library.soname
    hip = ctypes.CDLL(str(tree["lib/libamdhip64.so.7"].path))
    number = ctypes.c_int(-1)
    assert (hip.hipGetDeviceCount(ctypes.byref(number)), number.value) == (100, 0)
    assert (hip.hipRuntimeGetVersion(ctypes.byref(number)), number.value) == (0, 70100000)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "a kernel.hip"
    path.write_text(KERNEL)
    yield path


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize(("options", "packing"), [([], "plain"), (["--offload-compress"], "zlib v3")])
def test_hipcc_compiles_for_all_targets(
    rocm: Path, kernel: Path, tmp_path: Path, options: list[str], packing: str
) -> None:
    archs = [f"--offload-arch={target}" for target in TARGETS]
    _run(rocm / "bin/hipcc", *archs, *options, "-O2", "-fPIC", "-c", kernel, "-o", "kernel.o", cwd=tmp_path)
    _run(rocm / "bin/hipcc", "-shared", "kernel.o", "-o", "libkernel.so", cwd=tmp_path)
    found = code_objects.read_file_code(tmp_path / "libkernel.so")
    assert {(str(code.target), code.machine, code.packing) for code in found} == {
        (target, target, packing) for target in TARGETS
    }
    # loaded, it registers its kernel; called, it says that there is no GPU
    program = (
        f"import ctypes; hip = ctypes.CDLL({str(rocm / 'lib/libamdhip64.so.7')!r}, ctypes.RTLD_GLOBAL);"
        "hip.miniature_kernel.restype = ctypes.c_char_p;"
        "library = ctypes.CDLL('./libkernel.so');"
        "print(library.launch(None), hip.miniature_fat_binaries(), hip.miniature_kernel(0).decode())"
    )
    assert _run(sys.executable, "-c", program, cwd=tmp_path) == "100 1 _Z5scaleifPf\n"


@pytest.mark.slow
@pytest.mark.network
def test_the_compiler_is_found_through_a_link_and_a_launcher(
    rocm: Path, kernel: Path, tmp_path: Path
) -> None:
    (tmp_path / "clang++").symlink_to(rocm / "lib/llvm/bin/clang++")
    assert f"{platform.machine()}-unknown-linux-gnu" in _run(tmp_path / "clang++", "--version", cwd=tmp_path)
    launcher = tmp_path / "launcher"
    launcher.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/launched\nexec "$@"\n')
    launcher.chmod(0o755)
    env = {**ENV, "HIP_CLANG_LAUNCHER": str(launcher)}
    _run(rocm / "bin/hipcc", "--offload-arch=gfx942", "-c", kernel, "-o", "k.o", cwd=tmp_path, env=env)
    assert (tmp_path / "launched").read_text().strip().endswith("lib/llvm/bin/clang++")


def test_without_ziglang_the_compiler_says_what_to_install(artifacts: Path, tmp_path: Path) -> None:
    root = lay_out(artifacts, tmp_path / "site" / "_rocm_sdk_core")
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        [root / "bin/hipcc", "--version"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 127
    assert done.stderr == "clang++: the compiler is missing; install it: pip install ziglang\n"
    assert _run(root / "bin/hipconfig", "--version", cwd=tmp_path) == "7.1.0"
