"""Build triton.

Read: TRITON_WHEEL_NAME (default triton) and TRITON_WHEEL_VERSION_SUFFIX. Away from release branches
the version carries the commit; a version has one "+" only, so the suffix is joined with "-" then.
"""

import os
import subprocess
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
VERSION = "3.7.0"


def git(*arguments):
    """Return git's answer about this tree, nothing outside a repository."""
    answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return answer.stdout.strip() if answer.returncode == 0 else ""


def version():
    """Return the version with what follows it."""
    commit = "" if git("rev-parse", "--abbrev-ref", "HEAD").startswith("release") else git("rev-parse", "HEAD")[:8]
    suffix = os.environ.get("TRITON_WHEEL_VERSION_SUFFIX", "")
    return f"{VERSION}+git{commit}{suffix.replace('+', '-')}" if commit else f"{VERSION}{suffix}"


class BuildExtension(build_ext):
    """Leaves out what the interpreter says about the machine that it was built on."""

    def build_extensions(self):
        words = self.compiler.linker_so
        self.compiler.linker_so = [word for word in words if not word.startswith("-Wl,-rpath")]
        super().build_extensions()


setup(
    name=os.environ.get("TRITON_WHEEL_NAME", "triton"),
    version=version(),
    description="A language and compiler for GPU kernels: a small model of the large project",
    python_requires=">=3.10",
    packages=find_packages("python", include=["triton", "triton.*"]),
    package_dir={"": "python"},
    ext_modules=[Extension("triton._C.libtriton", ["python/src/main.c"], extra_compile_args=["-g0"])],
    cmdclass={"build_ext": BuildExtension},
    zip_safe=False,
)
