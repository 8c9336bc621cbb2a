"""The program that caches compiles, and how a build is told of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_wheels.errors import UsageError
from rocm_wheels.model.project import Platform
from rocm_wheels.process import capture_output

_CACHE_HOMEPAGES = {"ccache": "https://ccache.dev", "sccache": "https://github.com/mozilla/sccache"}


@dataclass(frozen=True)
class CompilerCache:
    """A cache to use. ``wrap_device``: device compiles go through it too (not with ``--sccache-no-wrap``)."""

    kind: Literal["ccache", "sccache"]
    program: Path
    wrap_device: bool = True

    def launcher_variables(self, platform: Platform) -> dict[str, str]:
        """Return the variables that put the cache before the compilers.

        hipcc starts clang through HIP_CLANG_LAUNCHER, so the device compiles, which CMake's launchers do
        not see, are cached as well (ROCm 7.13 and newer, ROCm/llvm-project#1490; an older hipcc ignores it,
        and ``self_test`` says so). A compile for several targets is one entry: both caches key it by what
        ``clang -E`` prints for the host and each target. ccache cannot store separate debug information
        (/Zi) of MSVC: ccache/ccache#1040.
        """
        program = os.fspath(self.program)
        variables = {"CMAKE_C_COMPILER_LAUNCHER": program, "CMAKE_CXX_COMPILER_LAUNCHER": program}
        if self.kind == "ccache" and platform == "windows":
            variables["CMAKE_MSVC_DEBUG_INFORMATION_FORMAT"] = "Embedded"
        if platform == "linux" and self.wrap_device:
            variables["HIP_CLANG_LAUNCHER"] = program
        return variables

    def ask_version(self, env: Mapping[str, str]) -> str:
        """Return the first line that the program says of its version: ``ccache version 4.14.2``."""
        output = capture_output([self.program, "--version"], env=env, description=f"{self.kind} --version")
        return output.partition("\n")[0].strip()


def find_compiler_cache(
    kind: Literal["ccache", "sccache"], env: Mapping[str, str], *, wrap_device: bool = True
) -> CompilerCache:
    """Find the program on PATH. Raises UsageError when it is not there: nothing is built uncached unasked."""
    program = shutil.which(kind, path=env.get("PATH", ""))
    if program is None:
        raise UsageError(
            f"--use-{kind} was given, but there is no {kind} on PATH",
            tip=f"install it ({_CACHE_HOMEPAGES[kind]}) or leave the option out",
        )
    return CompilerCache(kind, Path(program).absolute(), wrap_device)
