"""Device code that a real AMDGPU compiler made here: clang 22 and lld out of the ``ziglang`` wheel.

The compiler lacks one tool, ``clang-offload-bundler``; ``binaries`` stands in for it. The code
objects, the host libraries around them and the static libraries are the compiler's own.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from rocm import install_ziglang

from rocm_wheels.device_code import code_objects
from rocm_wheels.wheels import wheel_code

pytestmark = [pytest.mark.contract, pytest.mark.slow, pytest.mark.network]

HOST = f"{platform.machine()}-unknown-linux-gnu"
TARGETS = ["gfx906:sramecc+:xnack-", "gfx90a:xnack+", "gfx90a:xnack-", "gfx942", "gfx950", "gfx9-4-generic",
           "gfx1036", "gfx1100", "gfx1151", "gfx1201", "gfx1250", "gfx12-generic"]  # fmt: skip

KERNEL = """
typedef decltype(sizeof(0)) size_t;
struct dim3 { unsigned x, y, z; };
typedef struct stream *hipStream_t;
typedef enum hipError_t { hipSuccess } hipError_t;
extern "C" hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t);
extern "C" hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t);
extern "C" hipError_t __hipPopCallConfiguration(dim3 *, dim3 *, size_t *, hipStream_t *);
__attribute__((global)) void twice(float *x) { x[__builtin_amdgcn_workitem_id_x()] *= 2; }
"""

BUNDLER = """#!{python}
import sys
sys.path.insert(0, {worlds!r})
from binaries import bundle, compress
value = lambda key: [a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith(key + "=")]
targets = value("-targets")[0].split(",")
made = bundle(*zip(targets, [open(name, "rb").read() for name in value("-input")]))
if {{"-compress", "--compress"}} & {{*sys.argv}}:
    made = compress(made, 3, "zstd")
open(value("-output")[0], "wb").write(made)
"""


class Compiler:
    """clang, with shims for the tools that it starts by name."""

    def __init__(self, zig: Path, shims: Path) -> None:
        self._zig = zig
        self._shims = shims
        worlds = str(Path(__file__).parents[1] / "worlds")
        bundler = BUNDLER.format(python=sys.executable, worlds=worlds)
        linker = f'#!/bin/sh\nshift 2\nexec "{zig}" ld.lld "$@"\n'  # -flavor gnu
        for name, text in {"clang-offload-bundler": bundler, "lld": linker}.items():
            (shims / name).write_text(text)
            (shims / name).chmod(0o755)

    def tool(self, *words: object) -> None:
        """Run ``zig WORDS``."""
        env = {"PATH": f"{self._shims}:/usr/bin:/bin", "HOME": str(self._shims)}
        done = subprocess.run([self._zig, *map(str, words)], env=env, capture_output=True, text=True)  # noqa: PLW1510
        assert done.returncode == 0, done.stderr

    def hip(self, source: Path, output: Path, targets: list[str], *options: str, host: str = HOST) -> Path:
        """Compile HIP for these targets."""
        resources = ["-resource-dir", self._zig.parent / "lib", "-nogpuinc", "-nogpulib", "-O1"]
        archs = [f"--offload-arch={target}" for target in targets]
        if host == HOST:
            archs.append("-fPIC")
        driver = ["clang", "--driver-mode=g++", f"--target={host}", "-x", "hip"]
        self.tool(*driver, *resources, *archs, *options, source, "-o", output)
        return output


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("the shims are for Linux on x86_64 and aarch64")
    return Compiler(install_ziglang(tmp_path_factory) / "zig", tmp_path_factory.mktemp("shims"))


def _check(found: list[code_objects.CodeObject], targets: list[str] = TARGETS) -> None:
    """Every target once, and the ELF header names the same processor."""
    assert sorted(str(o.target) for o in found) == sorted(targets)
    assert all(o.machine == o.target.processor for o in found)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.hip"
    path.write_text(KERNEL)
    return path


def test_a_shared_library_stripped_or_not(compiler: Compiler, source: Path, tmp_path: Path) -> None:
    made = compiler.hip(source, tmp_path / "lib.so", TARGETS, "-shared", "-nostdlib")
    found = wheel_code.read_device_code(made).code[""]
    _check(found)
    assert {(o.section, o.packing, o.kind, o.form) for o in found} == {
        (".hip_fatbin", "plain", "hipv4", "elf")
    }
    subprocess.run(["strip", made], check=True)
    assert wheel_code.read_device_code(made).code[""] == found


def test_two_translation_units_plain_and_compressed(compiler: Compiler, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.hip"
    other.write_text(KERNEL.replace("twice", "again"))
    one = compiler.hip(source, tmp_path / "one.o", ["gfx942", "gfx1100"], "-c")
    two = compiler.hip(other, tmp_path / "two.o", ["gfx942", "gfx1201"], "-c", "--offload-compress")
    both = tmp_path / "both.so"
    compiler.tool("ld.lld", "-shared", one, two, "-o", both)
    assert {(str(o.target), o.bundle, o.packing) for o in wheel_code.read_device_code(both).code[""]} == {
        ("gfx942", 0, "plain"),
        ("gfx1100", 0, "plain"),
        ("gfx942", 1, "zstd v3"),
        ("gfx1201", 1, "zstd v3"),
    }
    for style in ("gnu", "bsd"):
        library = tmp_path / f"lib_{style}.a"
        compiler.tool("ar", f"--format={style}", "rcs", library, one, two)
        assert code_objects.list_code_targets(wheel_code.read_device_code(library).code[""]) == [
            "gfx942",
            "gfx1100",
            "gfx1201",
        ]


def test_a_windows_object_and_library(compiler: Compiler, source: Path, tmp_path: Path) -> None:
    windows = "x86_64-pc-windows-msvc"
    made = compiler.hip(source, tmp_path / "kernel.obj", ["gfx1100", "gfx1151"], "-c", host=windows)
    _check(wheel_code.read_device_code(made).code[""], ["gfx1100", "gfx1151"])
    library = tmp_path / "kernel.dll"
    unresolved = ["/force:unresolved", "/noentry", "/nodefaultlib", "/include:__hip_fatbin"]
    compiler.tool("lld-link", "/dll", *unresolved, made, f"/out:{library}")
    found = wheel_code.read_device_code(library).code[""]
    _check(found, ["gfx1100", "gfx1151"])
    assert {o.section for o in found} == {".hip_fat"}


@pytest.mark.parametrize("target", ["gfx942", "gfx90a:sramecc+:xnack-", "gfx11-generic"])
def test_a_code_object_of_its_own(compiler: Compiler, source: Path, tmp_path: Path, target: str) -> None:
    options = ["--offload-device-only", "--no-gpu-bundle-output"]
    made = compiler.hip(source, tmp_path / "kernel.hsaco", [target], *options)
    _check(wheel_code.read_device_code(made).code[""], [target])
    _check(code_objects.read_code_objects(made.read_bytes(), "kernel.dat"), [target])
