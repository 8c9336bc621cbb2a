"""Compiler caches: ccache and sccache, started by the build through launcher variables."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_wheels.errors import UsageError
from rocm_wheels.model.project import Platform

_HOMES = {"ccache": "https://ccache.dev", "sccache": "https://github.com/mozilla/sccache"}


@dataclass(frozen=True)
class CompilerCache:
    """A cache to use. ``wrap_device``: sccache takes device compiles too (not with ``--sccache-no-wrap``)."""

    kind: Literal["ccache", "sccache"]
    program: Path
    wrap_device: bool = True

    def variables(self, platform: Platform) -> dict[str, str]:
        """Return the variables that put the cache before the compilers.

        hipcc starts the compiler named by HIP_CLANG_LAUNCHER itself, so the device compiles, which
        CMake's launchers do not see, are cached as well (ROCm 7.13 and newer). ccache cannot
        store separate debug information (/Zi) of MSVC: ccache/ccache#1040.
        """
        program = os.fspath(self.program)
        found = {"CMAKE_C_COMPILER_LAUNCHER": program, "CMAKE_CXX_COMPILER_LAUNCHER": program}
        if self.kind == "ccache" and platform == "windows":
            found["CMAKE_MSVC_DEBUG_INFORMATION_FORMAT"] = "Embedded"
        if self.kind == "sccache" and platform == "linux" and self.wrap_device:
            found["HIP_CLANG_LAUNCHER"] = program
        return found

    @property
    def caution(self) -> str | None:
        """What to tell the user before the build, if anything.

        sccache 0.16.0 was seen to give back device code of an older header that is included only
        under ``#ifdef __HIP_DEVICE_COMPILE__``; ccache compiled again.
        """
        if self.kind == "sccache" and self.wrap_device:
            return (
                "sccache can return stale device code when a header that only the device pass reads has"
                " changed; use --use-ccache or --sccache-no-wrap for wheels that are published"
            )
        return None


def find_compiler_cache(
    kind: Literal["ccache", "sccache"], env: Mapping[str, str], *, wrap_device: bool = True
) -> CompilerCache:
    """Find the program on PATH. Raises UsageError when it is not there: nothing is built uncached unasked."""
    program = shutil.which(kind, path=env.get("PATH", ""))
    if program is None:
        raise UsageError(
            f"--use-{kind} was given, but there is no {kind} on PATH",
            tip=f"install it ({_HOMES[kind]}) or leave the option out",
        )
    return CompilerCache(kind, Path(program).absolute(), wrap_device)
