"""Build torchvision. Read: BUILD_VERSION, PYTORCH_VERSION; FORCE_CUDA=1 compiles the kernels on a machine without a GPU."""

import os
from pathlib import Path

import torch
from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

SOURCE = "torchvision/csrc"
REQUIRED = os.environ.get("PYTORCH_VERSION")
VERSION = os.environ.get("BUILD_VERSION") or Path("version.txt").read_text().strip()


def extension():
    """Describe the operators; without a GPU build they are for the host alone."""
    if torch.cuda.is_available() or os.environ.get("FORCE_CUDA", "0") == "1":
        sources = [f"{SOURCE}/vision.cpp", f"{SOURCE}/cuda/nms.cu"]
        return CUDAExtension("torchvision._C", sources, define_macros=[("WITH_CUDA", "1")])
    return CppExtension("torchvision._C", [f"{SOURCE}/vision.cpp"])


Path("torchvision/version.py").write_text(f"__version__ = {VERSION!r}\nhip = {torch.version.hip!r}\n")
setup(
    name="torchvision",
    version=VERSION,
    description="Images for PyTorch: a small model of the large project",
    python_requires=">=3.10",
    install_requires=[f"torch=={REQUIRED}" if REQUIRED else "torch"],
    packages=find_packages(include=["torchvision", "torchvision.*"]),
    ext_modules=[extension()],
    cmdclass={"build_ext": BuildExtension},
    zip_safe=False,
)
