"""A self-test of a compiler cache: does it notice what only device code reads?

A cache that returns an old object makes a wheel that is wrong in silence. It happens when the
preprocessor of a toolchain does not show the cache what the device pass reads (a bundler that writes
``-`` as a file is enough). So the very programs that a build uses are tried: hipcc, the cache before
clang, the target.

The user's cache neither answers nor learns anything: the storage is in a folder of the trial, and sccache
has a server of its own. ccache's settings are the user's, except where it stores.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.compile import compiler_cache, sdk_tree
from rocm_wheels.core import files, process, retry

_TRIAL_KERNEL = """\
#include <hip/hip_runtime.h>
#ifdef __HIP_DEVICE_COMPILE__
#include "device_only.h"
#else
#define FACTOR 1.0f
#endif
__global__ void scale(float* values) { values[threadIdx.x] *= FACTOR; }
"""
_HEADER_TEMPLATE = "#define FACTOR {}.0f\n"
_STORE_DELAYS = retry.RetryPolicy(retries=3, first_wait=0.2, growth=3, jitter=0)
_COMPILE_SECONDS = 300.0  # seconds a compile; with ROCm's own headers one takes about 3
# settings of ccache's that say where it stores or what it reports, not what it takes for the same compile
_PLACE_SETTINGS = (
    "cache_dir|temporary_dir|remote_\\w+|secondary_storage|reshare|read_only\\w*|recache|disable|stats\\w*|log_file"
    "|debug\\w*|max_\\w+|limit_multiple|umask|namespace"
)
# what of sccache's is about the key of an entry; all else is about servers and storages
_KEY_VARIABLES = (
    "SCCACHE_DIRECT",
    "SCCACHE_BASEDIRS",
    "SCCACHE_CACHE_MULTIARCH",
    "SCCACHE_C_CUSTOM_CACHE_BUSTER",
)


CACHE_TEST_VERSION = "3"  # raise it when a verdict of this module could be another one


@dataclass(frozen=True)
class TrustCheck:
    """One thing that was tried."""

    what: str
    expected: str
    seen: str
    passed: bool


@dataclass(frozen=True)
class CacheVerdict:
    """Whether device objects may be taken from the cache, and why."""

    trusted: bool
    checks: tuple[TrustCheck, ...]


def check_cache_trust(
    cache: compiler_cache.CompilerCache,
    sdk: sdk_tree.SdkTree,
    target: str,
    folder: Path,
    env: Mapping[str, str],
) -> CacheVerdict:
    """Try the cache with device code for ``target``, as a build on Linux would use it.

    ``env`` is the user's. What is tried goes into ``folder`` alone. Raises BuildError when the compiler
    itself fails.
    """
    source = folder / "source"
    source.mkdir(parents=True)
    _write_aged(source / "kernel.hip", _TRIAL_KERNEL, hours=4)
    others = {name: value for name, value in env.items() if not name.startswith(f"{cache.kind.upper()}_")}
    trial = sdk_tree.make_hipcc_environment(sdk, others, "linux")
    trial["HIP_CLANG_LAUNCHER"] = os.fspath(cache.program)
    with contextlib.ExitStack() as ending:
        config = folder / "cache.conf"
        if cache.kind == "ccache":
            config.write_text(read_user_settings(cache, env), encoding="utf-8")
            trial |= {"CCACHE_DIR": os.fspath(folder / "cache"), "CCACHE_CONFIGPATH": os.fspath(config)}
            trial |= compiler_cache.make_ccache_variables(cache, trial, folder, folder, folder)
        else:
            config.touch()
            trial |= {name: env[name] for name in _KEY_VARIABLES if name in env}
            trial |= {"SCCACHE_DIR": os.fspath(folder / "cache"), "SCCACHE_CONF": os.fspath(config)}
            trial |= ending.enter_context(compiler_cache.serve_sccache(cache.program, trial, folder))

        def compile_kernel() -> tuple[str, str]:
            """Compile through the cache; return what it counted, in a word, and the digest of the object."""
            (source / "kernel.o").unlink(missing_ok=True)
            before = compiler_cache.read_statistics(cache, trial)
            hipcc = os.fspath(sdk_tree.find_hipcc(sdk, "linux"))
            process.run_command(
                [hipcc, f"--offload-arch={target}", "-O2", "-fPIC", "-c", "kernel.hip", "-o", "kernel.o"],
                env=trial,
                cwd=source,
                timeout=_COMPILE_SECONDS,
                description=f"compiling a test of the compiler cache for {target}",
            )
            counts = compiler_cache.read_statistics(cache, trial).subtract(before).total
            words = {
                "an error of the cache": counts.errors,
                "not cached": counts.uncacheable,
                "miss": counts.misses,
                "hit": counts.hits,
                "hipcc did not start it (HIP_CLANG_LAUNCHER: ROCm 7.13 and newer)": 1,  # nothing is counted
            }
            return next(word for word, count in words.items() if count), files.hash_file(source / "kernel.o")

        # the same source again must be answered; what is cached is stored with a little delay
        _write_aged(source / "device_only.h", _HEADER_TEMPLATE.format(3), hours=3)
        _, first = compile_kernel()
        again, second = compile_kernel()
        for misses in range(1, _STORE_DELAYS.retries + 1):
            if again != "miss":
                break
            process.wait_or_stop(_STORE_DELAYS.compute_wait(misses))
            again, second = compile_kernel()
        # what only device code reads is changed
        _write_aged(source / "device_only.h", _HEADER_TEMPLATE.format(5), hours=1)
        changed, third = compile_kernel()
    same, other = second == first, third != second
    checks = (
        TrustCheck(
            "the same source compiled twice",
            "hit, the same bytes",
            f"hit, {'the same' if same else 'other'} bytes" if again == "hit" else again,
            again == "hit" and same,
        ),
        TrustCheck(
            "a header that only device code reads, changed",
            "miss, other bytes",
            f"{changed}, {'other' if other else 'the same'} bytes",
            changed == "miss" and other,
        ),
    )
    return CacheVerdict(all(check.passed for check in checks), checks)


def read_user_settings(cache: compiler_cache.CompilerCache, env: Mapping[str, str]) -> str:
    """Return what the user has set of a cache, in files or variables, without where it stores: a verdict
    of the self-test holds for no others.
    """
    if cache.kind == "sccache":
        return "".join(f"{name} = {env[name]}\n" for name in _KEY_VARIABLES if name in env)
    settings = compiler_cache.read_ccache_settings(cache, env)
    return "".join(
        f"{name} = {setting.value}\n"
        for name, setting in settings.items()
        if not setting.is_default and not re.fullmatch(_PLACE_SETTINGS, name)
    )


def _write_aged(path: Path, text: str, *, hours: int) -> None:
    """Write a file, dated so many hours ago: caches distrust a fresh one."""
    path.write_text(text, encoding="utf-8")
    moment = time.time() - hours * 3600
    os.utime(path, (moment, moment))
