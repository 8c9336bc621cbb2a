"""Build apex: `--cpp_ext` and `--cuda_ext` choose the extensions. Read: BUILD_VERSION."""

import os
import sys
from pathlib import Path

from setuptools import find_packages, setup


def asked_for(option):
    """Tell whether an option was given; setuptools must not see it."""
    if option not in sys.argv:
        return False
    sys.argv.remove(option)
    return True


extensions, commands = [], {}
if asked_for("--cpp_ext"):
    from torch.utils.cpp_extension import BuildExtension, CppExtension

    extensions.append(CppExtension("apex_C", ["csrc/flatten.cpp"]))
    commands = {"build_ext": BuildExtension}
if asked_for("--cuda_ext"):
    from torch.utils.cpp_extension import BuildExtension, CUDAExtension

    extensions.append(CUDAExtension("amp_C", ["csrc/amp_frontend.cpp", "csrc/multi_tensor_sgd.cu"]))
    commands = {"build_ext": BuildExtension}

setup(
    name="apex",
    version=os.environ.get("BUILD_VERSION") or Path("version.txt").read_text().strip(),
    description="Fused optimizers: a small model of the large project",
    python_requires=">=3.10",
    install_requires=["packaging>20.6"],
    packages=find_packages(include=["apex", "apex.*"]),
    ext_modules=extensions,
    cmdclass=commands,
)
