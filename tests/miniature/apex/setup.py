"""Build apex. Its extensions are compiled where they are used, unless APEX_BUILD_CPP_OPS or APEX_BUILD_CUDA_OPS is set.

Read as well: BUILD_VERSION. `--cpp_ext` and `--cuda_ext`, by which older ones choose extensions, are taken and mean nothing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, find_packages, setup

import torch
from torch.utils.cpp_extension import ROCM_HOME, BuildExtension, CppExtension, CUDAExtension, hipify

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))
from op_builder import OPS  # noqa: E402

sys.argv[1:] = [word for word in sys.argv[1:] if word not in ("--cpp_ext", "--cuda_ext")]


def version():
    """Return the version of this build."""
    return os.environ.get("BUILD_VERSION") or (ROOT / "version.txt").read_text().strip()


def rocm_version():
    """Return what hipcc says of itself: its first line is `HIP version: 7.1.0`."""
    said = subprocess.run([f"{ROCM_HOME}/bin/hipcc", "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[said.stdout.split().index("version:") + 1]


class PlatformDistribution(Distribution):
    """A wheel for one platform, also without a compiled extension."""

    def has_ext_modules(self):
        return True


def extensions():
    """Return the extensions that are compiled now; the sources of all others are only translated."""
    made = []
    for name, sources in OPS.items():
        kernels = any(source.endswith(".cu") for source in sources)
        if os.environ.get("APEX_BUILD_CUDA_OPS" if kernels else "APEX_BUILD_CPP_OPS", "0") != "0":
            made.append((CUDAExtension if kernels else CppExtension)(f"apex.{name}", sources))
        elif kernels:
            hipify(sources)
    return made


def write_what_is_installed(compiled):
    """Write down which extensions the wheel has compiled, and for which torch."""
    installed = {name: f"apex.{name}" in compiled for name in OPS}
    facts = {"version": torch.__version__, "hip_version": torch.version.hip, "rocm": rocm_version()}
    text = f"version = {version()!r}\ninstalled_ops = {installed!r}\ntorch_info = {facts!r}\n"
    (ROOT / "apex/git_version_info_installed.py").write_text(text)


def copy_what_links_point_to():
    """Wheels hold no links: put copies in their place."""
    for link in sorted((ROOT / "apex").iterdir()):
        if link.is_symlink() and link.resolve().is_dir():
            target = link.resolve()
            link.unlink()
            shutil.copytree(target, link)


modules = extensions()
write_what_is_installed([module.name for module in modules])
doors = sorted(path.name for path in (ROOT / "compatibility").glob("*.py"))
for door in doors:
    shutil.copy2(ROOT / "compatibility" / door, ROOT / door)
copy_what_links_point_to()
setup(
    name="apex",
    version=version(),
    description="Fused optimizers: a small model of the large project",
    python_requires=">=3.10",
    install_requires=["packaging>20.6"],
    packages=find_packages(include=["apex", "apex.*"]),
    package_data={"apex": ["csrc/*"]},
    py_modules=[Path(door).stem for door in doors],
    ext_modules=modules,
    cmdclass={"build_ext": BuildExtension} if modules else {},
    distclass=PlatformDistribution,
)
for door in doors:
    (ROOT / door).unlink()
