"""The environment of a build, as whole dictionaries: project by platform by option."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import BARE, FULL, VERSION, request

import rocm_wheels.compile
from rocm_wheels.compile import compiler_cache, environment, sdk_tree
from rocm_wheels.compile.hooks import pytorch, triton
from rocm_wheels.core import errors
from rocm_wheels.models import project, project_names

pytestmark = pytest.mark.contract

QUIET = "-Wno-error=maybe-uninitialized -Wno-error=uninitialized -Wno-error=restrict"
VARIABLE = "PYTORCH_VERSION"
BASE = {"PATH": "/bin", "HOME": "/home/me"}
compose = environment.compose_environment

COMMON = {
    "HOME": "/home/me",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",
    "CMAKE_PREFIX_PATH": "/sdk/lib/cmake",
    "ROCM_HOME": "/sdk",
    "ROCM_PATH": "/sdk",
    "PYTORCH_ROCM_ARCH": "gfx942;gfx1100",
    "USE_GLOO": "ON",
    "HIP_CLANG_PATH": "/sdk/lib/llvm/bin",
    "HIP_DEVICE_LIB_PATH": "/sdk/lib/llvm/amdgcn/bitcode",
    "BLAS": "OpenBLAS",
    "OpenBLAS_HOME": "/sdk/lib/host-math",
    "OpenBLAS_LIB_NAME": "rocm-openblas",
}
LAUNCHER = f"sh {Path(rocm_wheels.compile.__file__).with_name('hip_launcher.sh')}"
HOST_LAUNCHER = LAUNCHER.replace(" ", ";").replace("hip_", "host_")
HOST_LAUNCHERS = ("CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER")
ON_LINUX = {
    "PATH": "/sdk/bin:/bin",
    "USE_KINETO": "ON",
    "CXXFLAGS": QUIET,
    "CPPFLAGS": QUIET,
    "HIP_CLANG_LAUNCHER": LAUNCHER,
    "CMAKE_HIP_COMPILER_LAUNCHER": LAUNCHER.replace(" ", ";"),
}
ON_WINDOWS = {
    "PATH": "/sdk/bin;/bin",
    "USE_KINETO": "OFF",
    "HIP_CLANG_PATH": "/sdk/lib/llvm/bin",
    "CC": "/sdk/lib/llvm/bin/clang-cl.exe",
    "CXX": "/sdk/lib/llvm/bin/clang-cl.exe",
}
TORCH = {
    "USE_ROCM": "ON",
    "USE_CUDA": "OFF",
    "USE_MPI": "OFF",
    "USE_NUMA": "OFF",
    "BUILD_TEST": "0",
    "INSTALL_TEST": "0",
    "USE_CCACHE": "OFF",
    "PYTORCH_BUILD_VERSION": VERSION,
    "PYTORCH_BUILD_NUMBER": "1",
    "PYTORCH_EXTRA_INSTALL_REQUIREMENTS": "rocm[libraries]==7.1.0|triton==3.7.0",
    "USE_FLASH_ATTENTION": "ON",
    "USE_MEM_EFF_ATTENTION": "ON",
}
AUDIO = {
    "BUILD_VERSION": VERSION,
    "BUILD_NUMBER": "1",
    "USE_ROCM": "1",
    "USE_CUDA": "0",
    "USE_FFMPEG": "1",
    "USE_OPENMP": "1",
    "BUILD_SOX": "0",
    "PYTORCH_VERSION": VERSION,
}
VISION = {
    "BUILD_VERSION": VERSION,
    "VERSION_NAME": VERSION,
    "BUILD_NUMBER": "1",
    "FORCE_CUDA": "1",
    "TORCHVISION_USE_NVJPEG": "0",
    "TORCHVISION_USE_VIDEO_CODEC": "0",
    "PYTORCH_VERSION": VERSION,
}
TRITON = {
    "TRITON_WHEEL_VERSION_SUFFIX": "+rocm7.1.0",
    "TRITON_APPEND_CMAKE_ARGS": "-DCMAKE_FIND_USE_CMAKE_ENVIRONMENT_PATH=FALSE",
    "TRITON_BUILD_WITH_CCACHE": "OFF",
}
SDK_ONLY = {"DISTUTILS_USE_SDK": "1"}


SYSDEPS = {
    "CPATH": "/sdk/lib/rocm_sysdeps/include:/sdk/include/roctracer",
    "LDFLAGS": "-L/sdk/lib/rocm_sysdeps/lib",
    "PKG_CONFIG_PATH": "/sdk/lib/rocm_sysdeps/lib/pkgconfig",
    "LD_LIBRARY_PATH": "/sdk/lib/rocm_sysdeps/lib",
}
LLVM = {
    "TRITON_BUILD_PROTON": "OFF",
    "TRITON_WHEEL_NAME": "triton",
    "LLVM_SYSPATH": "/llvm",
    "LLVM_BUILD_DIR": "/llvm",
    "LLVM_INCLUDE_DIRS": "/llvm/include",
    "LLVM_LIBRARY_DIR": "/llvm/lib",
}
GOLDEN: list[tuple[str, project_names.Platform, dict[str, str]]] = [
    ("pytorch", "linux", {**COMMON, **ON_LINUX, **TORCH, **SYSDEPS}),
    ("pytorch", "windows", {**COMMON, **ON_WINDOWS, **TORCH, **SDK_ONLY}),
    ("pytorch_audio", "linux", {**COMMON, **ON_LINUX, **AUDIO}),
    ("pytorch_audio", "windows", {**COMMON, **ON_WINDOWS, **AUDIO, **SDK_ONLY}),
    ("pytorch_vision", "linux", {**COMMON, **ON_LINUX, **VISION}),
    ("pytorch_vision", "windows", {**COMMON, **ON_WINDOWS, **VISION, **SDK_ONLY}),
    ("apex", "linux", {**COMMON, **ON_LINUX, "BUILD_VERSION": VERSION, "BUILD_NUMBER": "1"}),
    ("triton", "linux", {**COMMON, **ON_LINUX, **TRITON}),
    ("triton", "windows", {**COMMON, **ON_WINDOWS, **TRITON, **LLVM}),
]


@pytest.mark.parametrize(("name", "platform", "expected"), GOLDEN, ids=[f"{n}-{p}" for n, p, _ in GOLDEN])
def test_the_whole_environment(name: str, platform: project_names.Platform, expected: dict[str, str]) -> None:
    base = BASE | ({"LLVM_SYSPATH": "/llvm"} if (name, platform) == ("triton", "windows") else {})
    before = dict(base)
    made, source = request(name, platform), {}
    if platform == "linux":
        place = f"-ffile-prefix-map=/src/{name}=."
        source = {"ROCM_WHEELS_SOURCE": os.fspath(made.source)}
        source |= {"HIPFLAGS": place, "HIPCC_COMPILE_FLAGS_APPEND": place}
        if name == "pytorch":  # whose libraries say the flags of the host's compiler
            source |= dict.fromkeys(HOST_LAUNCHERS, HOST_LAUNCHER)
        else:
            source |= {"CFLAGS": place, "CXXFLAGS": f"{place} {expected['CXXFLAGS']}"}
    assert compose(made, base) == {**expected, **source}
    assert base == before


CCACHE = compiler_cache.CompilerCache("ccache", Path("/bin/ccache"))
SCCACHE = compiler_cache.CompilerCache("sccache", Path("/bin/sccache"))
OTHER_SDK = replace(FULL, version="7.1.0+miniature", roctracer=None, bitcode=None, host_math=None)
OF_THE_USER = {"SOURCE_DATE_EPOCH": "5", "PYTHONHASHSEED": "9", "MAX_JOBS": "3", "USE_KINETO": "OFF"}
OF_TRITON = {"TRITON_WHEEL_VERSION_SUFFIX": "+git1234", "TRITON_WHEEL_NAME": "triton"}
# project, what is asked for, what the user has set, what comes of it
EXTRA = "PYTORCH_EXTRA_INSTALL_REQUIREMENTS"
EMBEDDED = "CMAKE_MSVC_DEBUG_INFORMATION_FORMAT"
OPTIONS: list[tuple[str, dict[str, Any], dict[str, str], dict[str, str | None]]] = [
    ("pytorch", {"flash_attention": False, "triton_requirement": None}, {},
     {"USE_FLASH_ATTENTION": "OFF", "USE_MEM_EFF_ATTENTION": "OFF", EXTRA: "rocm[libraries]==7.1.0"}),
    ("pytorch", {"sdk": OTHER_SDK}, {"HIP_DEVICE_LIB_PATH": "/mine"},
     {EXTRA: "rocm[libraries]==7.1.0+miniature|triton==3.7.0", "HIP_DEVICE_LIB_PATH": "/mine", "BLAS": None,
      "CPATH": "/sdk/lib/rocm_sysdeps/include", "CXXFLAGS": QUIET}),
    ("apex", {"editable": True}, {}, {"CFLAGS": None, "HIPFLAGS": None}),
    ("apex", {"source": Path("/a b")}, {}, {"CFLAGS": None, "HIPFLAGS": None}),
    ("triton", {"offline": True}, {}, {"TRITON_OFFLINE_BUILD": "1"}),
    ("triton", {}, {}, {"TRITON_OFFLINE_BUILD": None}),
    ("pytorch", {"build_number": "7"}, {}, {"PYTORCH_BUILD_NUMBER": "7"}),
    ("pytorch", {"commit_epoch": 1700000000}, {}, {"SOURCE_DATE_EPOCH": "1700000000"}),
    ("pytorch", {"commit_epoch": 1700000000}, OF_THE_USER, {**OF_THE_USER}),
    ("pytorch", {}, {"USE_GLOO": "OFF"}, {"USE_GLOO": "OFF"}),
    ("pytorch", {}, {"BLAS": "MKL"}, {"BLAS": "MKL", "OpenBLAS_HOME": None}),
    ("pytorch", {}, {"OpenBLAS_HOME": "/mine"}, {"BLAS": None, "OpenBLAS_HOME": "/mine"}),
    ("pytorch_audio", {"sdk": BARE}, {}, {"BLAS": None, "HIP_DEVICE_LIB_PATH": None}),
    ("pytorch_audio", {"cache": CCACHE}, {},
     {"CMAKE_C_COMPILER_LAUNCHER": "/bin/ccache", "HIP_CLANG_LAUNCHER": "/bin/ccache"}),
    ("pytorch", {"cache": CCACHE, "platform": "windows"}, {},
     {EMBEDDED: "Embedded", "HIP_CLANG_LAUNCHER": None}),
    ("pytorch", {"cache": SCCACHE}, {},
     {"CMAKE_CXX_COMPILER_LAUNCHER": "/bin/sccache", "HIP_CLANG_LAUNCHER": "/bin/sccache", EMBEDDED: None}),
    ("pytorch", {}, {"CMAKE_CXX_COMPILER_LAUNCHER": "mine"},
     {"CMAKE_C_COMPILER_LAUNCHER": HOST_LAUNCHER, "CMAKE_CXX_COMPILER_LAUNCHER": "mine"}),
    ("pytorch", {"editable": True}, {}, dict.fromkeys(HOST_LAUNCHERS)),
    ("triton", {"triton_environment": OF_TRITON}, {"TRITON_APPEND_CMAKE_ARGS": "-DX=1"},
     {"TRITON_WHEEL_VERSION_SUFFIX": "+git1234+rocm7.1.0", "TRITON_WHEEL_NAME": "triton",
      "TRITON_APPEND_CMAKE_ARGS": "-DCMAKE_FIND_USE_CMAKE_ENVIRONMENT_PATH=FALSE -DX=1"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more", "base", "expected"), OPTIONS)
def test_options_change_only_what_they_say(
    name: str, more: dict[str, Any], base: dict[str, str], expected: dict[str, str | None]
) -> None:
    env = compose(request(name, **more), BASE | base)
    assert {key: env.get(key) for key in expected} == expected


def test_what_the_user_has_set_is_kept() -> None:
    mine = {"CXXFLAGS": "-march=native", "CPPFLAGS": "-DX", "CFLAGS": "-O1", "LDFLAGS": "-Wl,-O1"}
    mine |= {"LD_LIBRARY_PATH": "/my/lib:/other", "PKG_CONFIG_PATH": "/my/pc"}
    mine |= {"CMAKE_PREFIX_PATH": "/my/cmake", "PATH": "/my/bin:/sdk/bin:/bin"}
    env = compose(request("pytorch"), mine)
    assert env["CXXFLAGS"].endswith(f"{QUIET} -march=native")
    assert env["CPPFLAGS"] == f"{QUIET} -DX"
    assert env["CFLAGS"] == "-O1"
    assert compose(request("apex"), mine)["CFLAGS"] == "-ffile-prefix-map=/src/apex=. -O1"
    assert env["LDFLAGS"] == "-L/sdk/lib/rocm_sysdeps/lib -Wl,-O1"
    assert env["LD_LIBRARY_PATH"] == "/sdk/lib/rocm_sysdeps/lib:/my/lib:/other"
    assert env["PKG_CONFIG_PATH"] == "/sdk/lib/rocm_sysdeps/lib/pkgconfig:/my/pc"
    assert env["CMAKE_PREFIX_PATH"] == "/sdk/lib/cmake:/my/cmake"
    assert env["PATH"] == "/sdk/bin:/my/bin:/bin"


@pytest.mark.skipif(shutil.which("g++") is None, reason="it is compiled by g++")
@pytest.mark.parametrize(
    "name", ["CFLAGS", "CXXFLAGS", "HIPFLAGS", "HIPCC_COMPILE_FLAGS_APPEND", "CMAKE_CXX_COMPILER_LAUNCHER"]
)
def test_what_is_compiled_is_the_same_in_every_folder(name: str, tmp_path: Path) -> None:
    """As bitsandbytes, whose library names one of its files by its whole path: `__FILE__`."""
    made, launched = [], name.endswith("LAUNCHER")
    for folder in ("first", "another/one"):
        source = tmp_path / folder / "apex"
        (source / "csrc").mkdir(parents=True)
        (source / "csrc" / "a.cpp").write_text('extern "C" const char *where() { return __FILE__; }\n')
        env = compose(request("pytorch" if launched else "apex", source=source), BASE)
        words = ["g++", "-g", "-shared", "-fPIC", str(source / "csrc" / "a.cpp"), "-o", "a.so"]
        words = [*env[name].split(";"), *words] if launched else [*words, *env[name].split()]
        subprocess.run(words, cwd=source, check=True, env={**env, "PATH": os.environ["PATH"]})
        made.append((source / "a.so").read_bytes())
    assert made[0] == made[1] and b"./csrc/a.cpp\0" in made[0] and b"/first/" not in made[0]


_NAMES = ["CXXFLAGS", "CFLAGS", "LDFLAGS", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CC", "MAX_JOBS"]
_FLAGS = st.dictionaries(st.sampled_from(_NAMES), st.text(alphabet="abc-/=: ", max_size=12))


@given(_FLAGS, st.sampled_from(["pytorch", "pytorch_audio", "apex", "triton"]))
def test_no_project_sees_what_another_was_given(mine: dict[str, str], name: str) -> None:
    base = BASE | mine
    first = compose(request("pytorch_vision"), base)
    compose(request(name), base)
    assert compose(request("pytorch_vision"), base) == first
    assert base == BASE | mine
    torch_only = {"USE_FLASH_ATTENTION", "PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "TRITON_APPEND_CMAKE_ARGS"}
    assert not torch_only & set(first)


def test_relative_sources_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert request("pytorch", source=Path("torch")).source == tmp_path / "torch"


def test_a_build_runs_where_its_front_end_has_its_file(tmp_path: Path) -> None:
    for folder, expected in (("python", "python"), (".", ".")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "setup.py").touch()
        assert request("triton", source=tmp_path).folder == tmp_path / expected


def test_the_sdk_is_looked_at_once(tmp_path: Path) -> None:
    for part in ("bin", "lib/cmake", "lib/rocm_sysdeps", "include/roctracer"):
        (tmp_path / part).mkdir(parents=True)
    sdk = sdk_tree.inspect_sdk(
        version="7.1", root=tmp_path, cmake=tmp_path / "lib/cmake", bin=tmp_path / "bin"
    )
    assert sdk.sysdeps == tmp_path / "lib/rocm_sysdeps"
    assert sdk.bitcode is None and sdk.host_math is None
    assert [line.split(":")[0] for line in sdk_tree.list_sdk_warnings(sdk)] == [
        "the ROCm SDK has no lib/llvm/amdgcn/bitcode",
        "the ROCm SDK has no lib/host-math",
    ]
    with pytest.raises(errors.SdkError, match="its cmake folder is /nowhere, which does not exist"):
        sdk_tree.inspect_sdk(version="7.1", root=tmp_path, cmake=Path("/nowhere"), bin=tmp_path / "bin")


def test_packages_of_an_installed_rocm_take_the_libraries_of_the_system() -> None:
    made = replace(BARE, bundles=False)
    env = compose(request("pytorch", sdk=made), BASE)
    assert "LDFLAGS" not in env
    assert "PKG_CONFIG_PATH" not in env
    assert any("lib/rocm_sysdeps" in line for line in sdk_tree.list_sdk_warnings(made))


def test_a_recipe_can_name_the_targets_and_the_sdk() -> None:
    recipe = project.load_project("bitsandbytes")
    env = compose(request("triton", project=recipe), BASE)
    words = env["CMAKE_ARGS"].split()
    assert "-DBNB_ROCM_ARCH=gfx942;gfx1100" in words
    assert "-DCMAKE_HIP_COMPILER=/sdk/lib/llvm/bin/clang++" in words


USAGE, BUILD = errors.UsageError, errors.BuildError
OTHER_NAME = {**BASE, "TRITON_WHEEL_NAME": "pytorch-triton-rocm"}
AUDIO_PINS = partial(environment.list_exact_pins, request("pytorch_audio"))
WRONG: list[tuple[Callable[[], object], type[errors.RocmWheelsError], str]] = [
    (lambda: compose(request("pytorch", sdk=BARE), BASE), errors.SdkError,
     "has no /sdk/lib/rocm_sysdeps, which torch needs on Linux"),
    (lambda: compose(request("pytorch", flash_attention=None), BASE), USAGE,
     "flash attention must be decided"),
    (lambda: compose(request("triton", "windows"), BASE), USAGE, "LLVM_SYSPATH is not set"),
    (lambda: compose(request("triton"), OTHER_NAME), USAGE,
     "TRITON_WHEEL_NAME is pytorch-triton-rocm, but the recipe builds triton"),
    (lambda: AUDIO_PINS({VARIABLE: "2.*"}), USAGE, "torch==2.* does not require one exact version"),
    (lambda: AUDIO_PINS({VARIABLE: "my own"}), USAGE, "'torch==my own' is not a requirement"),
    (lambda: request("apex", "windows"), USAGE, "apex is not built on windows"),
    (lambda: request("apex", targets=()), USAGE, "no GPU target to compile for"),
    (lambda: request("apex", build_number="one"), USAGE, "--pytorch-build-number one is not a number"),
    (lambda: request("apex", build_number="0"), USAGE, "--pytorch-build-number 0"),
    (lambda: request("pytorch", triton_requirement="triton==3|x==1"), USAGE, "is not a requirement"),
    (lambda: compiler_cache.find_compiler_cache("ccache", {"PATH": ""}), USAGE, "there is no ccache on PATH"),
    (lambda: compiler_cache.find_compiler_cache("sccache", {}), USAGE,
     "--compiler-cache sccache was given"),
    (lambda: request("apex").folder, BUILD, "apex: no pyproject.toml or setup.py in /src/apex"),
    (lambda: request("triton").folder, BUILD, "no setup.py in /src/triton or /src/triton/python"),
    (lambda: pytorch.find_windows_libraries({}), BUILD, "VCToolsRedistDir is not set"),
    (lambda: pytorch.find_windows_libraries({"VCToolsRedistDir": "/nowhere"}), BUILD,
     "no libomp140.x86_64.dll"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_input(call: Callable[[], object], error: type[errors.RocmWheelsError], message: str) -> None:
    with pytest.raises(error) as fault:
        call()
    assert message in str(fault.value)


@pytest.mark.parametrize(
    ("name", "users", "pins"),
    [
        ("pytorch_audio", {}, (f"torch=={VERSION}",)),
        ("pytorch_vision", {VARIABLE: "2.9.0"}, ("torch==2.9.0",)),  # by --set-env
        ("pytorch_vision", {VARIABLE: ""}, ()),
        ("apex", {VARIABLE: "2.9.0"}, (f"torch=={VERSION}",)),  # its build does not read it
        ("pytorch", {VARIABLE: "2.9.0"}, ()),
    ],
)
def test_companions_pin_the_torch_that_they_are_built_against(
    name: str, users: dict[str, str], pins: tuple[str, ...]
) -> None:
    asked = request(name, set_env=users)
    assert environment.list_exact_pins(asked, compose(asked, {**BASE, VARIABLE: "1.0"})) == pins


def test_what_hooks_of_projects_beyond_torchs_set() -> None:
    causal = compose(request("causal_conv1d", targets=("gfx90a", "gfx1100")), BASE)
    assert causal["HIP_ARCHITECTURES"] == "gfx90a,gfx1100"
    assert compose(request("torchcodec"), BASE)["BUILD_AGAINST_ALL_FFMPEG_FROM_S3"] == "1"
    codec = request("torchcodec", set_env={"I_CONFIRM_THIS_IS_NOT_A_LICENSE_VIOLATION": "1"})
    assert "BUILD_AGAINST_ALL_FFMPEG_FROM_S3" not in compose(codec, BASE)
    own = {**BASE, "FETCHCONTENT_SOURCE_DIR_AVIF_S3": "/my libs/avif", "CMAKE_ARGS": "-DX=1"}
    assert shlex.split(compose(codec, own)["CMAKE_ARGS"]) == [
        "-DFETCHCONTENT_SOURCE_DIR_AVIF_S3=/my libs/avif",
        "-DX=1",
    ]


def test_windows_libraries_are_found(tmp_path: Path) -> None:
    omp = tmp_path / "x64" / "OpenMP" / "libomp140.x86_64.dll"
    uv = tmp_path / "uv" / "bin" / "uv.dll"
    env = {"VCToolsRedistDir": str(tmp_path)}
    for file in (omp, uv):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"MZ")
    assert pytorch.find_windows_libraries(env) == (omp,)
    assert pytorch.find_windows_libraries(env | {"libuv_ROOT": str(tmp_path / "uv")}) == (omp, uv)
    # as os.environ has them on Windows
    of_windows = {"VCTOOLSREDISTDIR": str(tmp_path), "LIBUV_ROOT": str(uv.parents[1])}
    assert pytorch.find_windows_libraries(of_windows) == (omp, uv)
    uv.unlink()
    with pytest.raises(errors.BuildError, match="there is no"):
        pytorch.find_windows_libraries(env | {"libuv_ROOT": str(tmp_path / "uv")})


def test_variables_of_tritons_checkout(tmp_path: Path) -> None:
    assert triton.read_triton_environment(tmp_path) == {}
    file = tmp_path / "build_env.json"
    file.write_text('{"TRITON_WHEEL_VERSION_SUFFIX": ""}')
    assert triton.read_triton_environment(tmp_path) == {"TRITON_WHEEL_VERSION_SUFFIX": ""}
    for wrong in ("[]", '{"A": 1}'):
        file.write_text(wrong)
        with pytest.raises(errors.DataError, match="one object of strings"):
            triton.read_triton_environment(tmp_path)
    file.write_text("{")
    with pytest.raises(errors.DataError, match="cannot read"):
        triton.read_triton_environment(tmp_path)


def launch(root: str, *words: str) -> list[str]:
    command = [*LAUNCHER.split(" "), "printf", "%s\\n", *words]
    env = {"PATH": os.environ["PATH"], "ROCM_WHEELS_SOURCE": root}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(sys.platform == "win32", reason="a script of sh")
def test_device_code_is_named_by_its_place_in_the_tree() -> None:
    def compile_in(root: str, source: str, target: str) -> str:
        words = ["-x", "hip", "-c", f"{root}/{source}", "-o", f"{root}/{target}", "-MF", f"{root}/x.c"]
        *rest, name = launch(root, *words)
        assert rest == words and name.startswith("-cuid=")
        return name

    first = compile_in("/a", "x.hip", "build/x.o")
    assert first == compile_in("/b/other", "x.hip", "build/x.o")
    others = {compile_in("/a", "y.hip", "build/x.o"), compile_in("/a", "x.hip", "build/twin/x.o")}
    assert len(others - {first}) == 2
    for words in (["x.o", "-shared"], ["-c", "x.hip", "-cuid=mine"], ["-E", "x.hip"]):
        assert launch("/a", *words) == words
