"""Build torchaudio. Read: BUILD_VERSION, USE_ROCM, USE_CUDA."""

import os
from pathlib import Path

from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

SOURCE = "src/libtorchaudio"


def enabled(name):
    return os.environ.get(name, "0").upper() in ("ON", "1", "YES", "TRUE", "Y")


def extension():
    """Describe the one extension; without a GPU build it has no kernels."""
    sources = [f"{SOURCE}/module.cpp"]
    if enabled("USE_ROCM") or enabled("USE_CUDA"):
        return CUDAExtension("torchaudio.lib._torchaudio", [*sources, f"{SOURCE}/cuda/overdrive.cu"])
    return CppExtension("torchaudio.lib._torchaudio", sources)


setup(
    name="torchaudio",
    version=os.environ.get("BUILD_VERSION") or Path("version.txt").read_text().strip(),
    description="Audio for PyTorch: a small model of the large project",
    python_requires=">=3.10",
    install_requires=["torch>=2.11"],
    packages=find_packages("src", include=["torchaudio", "torchaudio.*"]),
    package_dir={"": "src"},
    ext_modules=[extension()],
    cmdclass={"build_ext": BuildExtension},
    zip_safe=False,
)
