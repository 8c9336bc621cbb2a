"""Build torch: cmake and ninja compile in build/, setuptools packs what they made.

Variables that are read, as the large setup.py reads them:

PYTORCH_BUILD_VERSION, PYTORCH_BUILD_NUMBER   the version, instead of version.txt
PYTORCH_EXTRA_INSTALL_REQUIREMENTS            more requirements of the wheel, joined by |
USE_ROCM, PYTORCH_ROCM_ARCH                   build the HIP kernels, for these targets (a;b)
BUILD_TEST, INSTALL_TEST                      build test programs, and put them into torch/test; both are on unless given
ROCM_HOME, CMAKE_PREFIX_PATH                  where ROCm and its cmake files are
MAX_JOBS                                      compilers at the same time
BUILD_TYPE, DEBUG                             of cmake; Release unless given, Debug with DEBUG=1

cmake itself reads CC, CXX, CXXFLAGS, LDFLAGS and CMAKE_{C,CXX}_COMPILER_LAUNCHER. Objects stay
in build/: a build that was stopped goes on where it was. An editable install (pip install -e .) puts what was built into torch/.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build"
LIBRARIES = ["libc10.so", "libtorch_cpu.so", "libtorch_hip.so", "libtorch_python.so"]
HEADERS = ["ATen/Functions.h", "c10/core/Error.h", "c10/hip/HIPException.h", "torch/extension.h"]


def enabled(name, default="OFF"):
    """Read a switch: ON, 1, YES, TRUE and Y are on."""
    return os.environ.get(name, default).upper() in ("ON", "1", "YES", "TRUE", "Y")


def version():
    """Return the version of this build."""
    given = os.environ.get("PYTORCH_BUILD_VERSION")
    if given is None:
        return (ROOT / "version.txt").read_text().strip()
    number = int(os.environ.get("PYTORCH_BUILD_NUMBER", "1"))
    return f"{given}.post{number}" if number > 1 else given


def git_version():
    """Return the commit that is checked out."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return head.stdout.strip() if head.returncode == 0 else "Unknown"


def requirements():
    """Return what the wheel requires."""
    return [line for line in os.environ.get("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "").split("|") if line]


def write_version():
    """Write torch/version.py."""
    hip = subprocess.run([rocm_home() / "bin/hipconfig", "--version"], capture_output=True, text=True, check=True)
    (ROOT / "torch/version.py").write_text(
        f"__version__ = {version()!r}\n"
        f"git_version = {git_version()!r}\n"
        f"hip = {hip.stdout.strip() if enabled('USE_ROCM') else None!r}\n"
        "cuda = None\n"
        f"debug = {enabled('DEBUG')}\n"
    )


def rocm_home():
    """Return the folder of ROCm."""
    home = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH")
    if not home:
        raise SystemExit("ROCM_HOME is not set: it names the folder of ROCm")
    return Path(home)


class CMakeBuild(build_ext):
    """Runs cmake and ninja, then puts the libraries beside the Python files."""

    def run(self):
        definitions = {
            "CMAKE_BUILD_TYPE": "Debug" if enabled("DEBUG") else os.environ.get("BUILD_TYPE", "Release"),
            "CMAKE_INSTALL_PREFIX": str(ROOT / "torch"),
            "CMAKE_PREFIX_PATH": os.environ.get("CMAKE_PREFIX_PATH", ""),
            "USE_ROCM": "ON" if enabled("USE_ROCM") else "OFF",
            "PYTORCH_ROCM_ARCH": os.environ.get("PYTORCH_ROCM_ARCH", ""),
            "BUILD_TEST": "ON" if enabled("BUILD_TEST", "ON") else "OFF",
            "Python_EXECUTABLE": sys.executable,
        }
        options = [f"-D{name}={value}" for name, value in definitions.items()]
        # as the large one (tools/setup_helpers/cmake.py): what is configured is not configured again
        if not ((BUILD / "CMakeCache.txt").is_file() and (BUILD / "build.ninja").is_file()):
            subprocess.run(["cmake", "-GNinja", "-S", ROOT, "-B", BUILD, *options], check=True)
        jobs = ["-j", os.environ["MAX_JOBS"]] if os.environ.get("MAX_JOBS") else []
        target = ["--target", "install"] if self.inplace else []
        subprocess.run(["cmake", "--build", BUILD, *target, *jobs], check=True)
        if not self.inplace:
            self.collect(Path(self.build_lib) / "torch")

    def collect(self, package):
        """Copy what was built, and the headers for extensions, into the package."""
        for library in LIBRARIES if (BUILD / "lib/libtorch_hip.so").exists() else LIBRARIES[:2] + LIBRARIES[3:]:
            self.copy(BUILD / "lib" / library, package / "lib" / library)
        name = "_C" + sysconfig.get_config_var("EXT_SUFFIX")
        self.copy(BUILD / "lib" / name, package / name)
        for header in HEADERS:
            found = [folder / header for folder in (ROOT / "aten/src", ROOT, ROOT / "torch/csrc/api")]
            self.copy(next(path for path in found if path.is_file()), package / "include" / header)
        config = "ATenConfig.cmake"
        self.copy(BUILD / "cmake-exports" / config, package / "share/cmake/ATen" / config)
        if enabled("BUILD_TEST", "ON") and enabled("INSTALL_TEST", "ON"):
            for program in sorted((BUILD / "test").glob("*_test")):
                self.copy(program, package / "test" / program.name)

    def copy(self, source, target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


write_version()
setup(
    name="torch",
    version=version(),
    description="Tensors and neural networks: a small model of the large project",
    python_requires=">=3.10",
    packages=find_packages(include=["torch", "torch.*"]),
    package_data={"torch.utils.hipify": ["LICENSE"]},
    ext_modules=[Extension("torch._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    install_requires=requirements(),
    zip_safe=False,
)
