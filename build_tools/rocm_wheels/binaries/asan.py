"""AddressSanitizer: how host code is compiled with it, what tells that it was, and where its runtime is.

Every library that is compiled with it calls one runtime, which must be in a process before everything else:
Python is compiled without, so it is preloaded. A process has one: that of gcc and that of clang do not go
together. Device code is left as it is (``-Xarch_host``): that needs xnack, and other builds of kernels.

Sources: clang and gcc manuals, ``-fsanitize=address``; ROCm/TheRock cmake/therock_sanitizers.cmake and
docs/development/sanitizers.md at 89553ce3746eda74ade42557470d25e37c91b6f0; its issue 7508.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from rocm_wheels.binaries import loader
from rocm_wheels.core import errors, process

_RUNTIME = re.compile(r"libasan\.so(\.[0-9]+)*|libclang_rt\.asan(-\w+)?\.so")
_INIT = b"__asan_init"  # what each compiled file calls, also where its library is linked to no runtime
_WORDS = ("-fsanitize=address", "-fno-omit-frame-pointer", "-g")
# clang links its runtime into programs alone unless it is told; the name depends on how it was configured
_CLANG_RUNTIMES = ("libclang_rt.asan-x86_64.so", "libclang_rt.asan.so")
_GCC_RUNTIMES = ("libasan.so",)
# Python frees little when it ends; torch has some global variables in several libraries
_OPTIONS = "detect_leaks=0:detect_odr_violation=0"
_COMPILERS = ("c++", "clang++", "gcc", "clang")


def is_runtime(library: str) -> bool:
    """Tell whether a library, by its SONAME, is AddressSanitizer's runtime."""
    return _RUNTIME.fullmatch(library) is not None


def is_instrumented(binary: loader.HostBinary) -> bool:
    """Tell whether a library was compiled with AddressSanitizer: linked to its runtime, or calls it."""
    if any(map(is_runtime, binary.loader.needed)):
        return True
    undefined = binary.symbols.undefined if binary.symbols is not None else {}
    return any(_INIT in names for version, names in undefined.items() if not version.name)


def list_runtimes(binaries: Iterable[loader.HostBinary]) -> list[str]:
    """Return the SONAMEs of the runtimes that libraries are linked to."""
    return sorted({name for binary in binaries for name in binary.loader.needed if is_runtime(name)})


def add_build_variables(env: dict[str, str], *, imports: bool) -> None:
    """Have the compilers of a build compile host code with AddressSanitizer; its own flags stay behind.

    ``imports``: the build loads what was compiled so before (``import torch`` of a setup.py). Raises
    BuildError where CC and CXX are not one of gcc and clang, HostError without its runtime, and for what is
    no command.
    """
    commands = [_read_command(env, "CC") or ["cc"], _read_command(env, "CXX") or ["c++"]]
    tip = "CC and CXX name the compilers: both gcc's, or both clang's"
    # what they define of themselves: their names and versions are words of whoever built them
    definitions = [
        process.capture_output(
            [*command, "-dM", "-E", "-x", "c", os.devnull], env=env, check=errors.BuildError, tip=tip
        )
        for command in commands
    ]
    macros = {"#define __clang__ ": "clang", "#define __GNUC__ ": "gcc"}  # clang has both
    kinds = {next((kind for macro, kind in macros.items() if macro in text), "") for text in definitions}
    if len(kinds) != 1 or "" in kinds:
        names = " and ".join(map(shlex.join, commands))
        raise errors.BuildError(f"--packaging asan: {names} are not both gcc, or both clang", tip=tip)
    is_clang = "clang" in kinds
    compile_flags = [word for flag in _WORDS for word in (("-Xarch_host", flag) if is_clang else (flag,))]
    link_flags = ["-fsanitize=address", *(["-shared-libsan"] if is_clang else [])]
    for name, flags in (("CFLAGS", compile_flags), ("CXXFLAGS", compile_flags), ("LDFLAGS", link_flags)):
        env[name] = " ".join([*flags, *filter(None, [env.get(name)])])
    env |= make_test_variables(env)  # programs of the build are compiled so, too
    runtime = find_runtime(_CLANG_RUNTIMES if is_clang else _GCC_RUNTIMES, env)  # the finished wheel needs it
    if imports:
        env |= make_test_variables(env, runtime)


def make_test_variables(env: Mapping[str, str], runtime: Path | None = None) -> dict[str, str]:
    """Return the variables of a process that loads such libraries: what the user has set goes last."""
    options = env.get("ASAN_OPTIONS", "").removeprefix(_OPTIONS).lstrip(":")
    variables = {"ASAN_OPTIONS": ":".join(filter(None, [_OPTIONS, options]))}
    if runtime is not None:
        others = [name for name in env.get("LD_PRELOAD", "").split(":") if name and name != str(runtime)]
        variables["LD_PRELOAD"] = ":".join([str(runtime), *others])
    return variables


def find_runtime(names: Collection[str], env: Mapping[str, str], folders: Iterable[Path] = ()) -> Path:
    """Return the first runtime of these names: of ROCm's packages in ``folders``, else of a compiler.

    Without names, of libraries that are linked to none, it is clang's: gcc links each to its own. Raises
    HostError where there is none.
    """
    names = names or _CLANG_RUNTIMES
    for folder in folders:
        for path in sorted(folder.glob("_rocm_sdk_core*/lib/llvm/lib/clang/*/lib/**/*.so")):
            if path.name in names:
                return path
    path_variable = env.get("PATH", os.defpath)
    commands = [_read_command(env, "CXX"), *([name] for name in _COMPILERS)]
    for command in commands:
        if not command or shutil.which(command[0], path=path_variable) is None:
            continue
        for name in names:
            words = [*command, f"-print-file-name={name}"]
            answer = Path(process.capture_output(words, env=env, check=errors.HostError).strip())
            if answer.is_absolute() and answer.is_file():
                return answer.resolve()
    raise errors.HostError(
        f"the runtime of AddressSanitizer is not here: {' or '.join(names)}",
        tip="install that of the compiler (gcc: libasan8; clang: libclang-rt), or name that in CXX",
    )


def _read_command(env: Mapping[str, str], name: str) -> list[str]:
    try:
        return shlex.split(env.get(name, ""))
    except ValueError as cause:
        raise errors.HostError(f"{name}={env[name]} is no command: {cause}", tip="unset it") from None
