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
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class TrialCompile:
    """What came of one compile: what the cache counted, and a digest of the object."""

    counts: compiler_cache.CacheCounts
    digest: str

    @property
    def outcome(self) -> str:
        """Say it in a word; nothing is counted when hipcc starts clang by itself."""
        counts = self.counts
        for number, word in (
            (counts.errors, "an error of the cache"),
            (counts.uncacheable, "not cached"),
            (counts.misses, "miss"),
            (counts.hits, "hit"),
        ):
            if number:
                return word
        return "hipcc did not start it (HIP_CLANG_LAUNCHER: ROCm 7.13 and newer)"


@dataclass(frozen=True)
class CacheTrial:
    """A cache in a folder of its own, and the compiler. ``source`` holds the kernel and its header."""

    cache: compiler_cache.CompilerCache
    sdk: sdk_tree.SdkTree
    folder: Path
    env: Mapping[str, str]
    source: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", self.folder / "source")

    def compile_kernel(self, target: str) -> TrialCompile:
        """Compile the kernel through the cache."""
        wrapped = {**self.env, "HIP_CLANG_LAUNCHER": os.fspath(self.cache.program)}
        with self._count(wrapped) as (env, counts):
            self._run_hipcc(target, env)
        return TrialCompile(counts[0], files.hash_file(self.source / "kernel.o"))

    @contextmanager
    def _count(
        self, env: Mapping[str, str]
    ) -> Iterator[tuple[Mapping[str, str], list[compiler_cache.CacheCounts]]]:
        """Yield the environment of a compile, and a list that then has what the cache counted."""
        before, counts = compiler_cache.CacheCounts(), list[compiler_cache.CacheCounts]()
        if self.cache.kind == "ccache":
            logs = self.folder / "logs"
            shutil.rmtree(logs, ignore_errors=True)
            logs.mkdir()
            env = {
                **env,
                **compiler_cache.make_ccache_variables(self.cache, env, self.folder, logs, self.folder),
            }
        else:
            before = self._read_counts(env)
        yield env, counts
        counts.append(self._read_counts(env).subtract(before))

    def write_header(self, number: int, hours: int) -> None:
        """Write the header that device code reads, dated so many hours ago: caches distrust a fresh file."""
        path = self.source / "device_only.h"
        path.write_text(_HEADER_TEMPLATE.format(number), encoding="utf-8")
        _set_age(path, hours)

    def _run_hipcc(self, target: str, env: Mapping[str, str]) -> None:
        (self.source / "kernel.o").unlink(missing_ok=True)
        hipcc = os.fspath(sdk_tree.find_hipcc(self.sdk, "linux"))
        process.run_command(
            [hipcc, f"--offload-arch={target}", "-O2", "-fPIC", "-c", "kernel.hip", "-o", "kernel.o"],
            env=env,
            cwd=self.source,
            timeout=_COMPILE_SECONDS,
            description=f"compiling a test of the compiler cache for {target}",
        )

    def _read_counts(self, env: Mapping[str, str]) -> compiler_cache.CacheCounts:
        cache_statistics = compiler_cache.read_statistics(self.cache, env)
        parts = (cache_statistics.host, cache_statistics.device, cache_statistics.unsorted)
        return compiler_cache.CacheCounts(
            *(sum(numbers) for numbers in zip(*map(_list_numbers, parts), strict=True))
        )


@contextmanager
def open_trial(
    cache: compiler_cache.CompilerCache, sdk: sdk_tree.SdkTree, folder: Path, env: Mapping[str, str]
) -> Iterator[CacheTrial]:
    """Set everything up in ``folder``; ``env`` is the user's. A server of sccache's is stopped afterwards."""
    source = folder / "source"
    source.mkdir(parents=True)
    (source / "kernel.hip").write_text(_TRIAL_KERNEL, encoding="utf-8")
    _set_age(source / "kernel.hip", hours=4)
    prefix = f"{cache.kind.upper()}_"
    others = {name: value for name, value in env.items() if not name.startswith(prefix)}
    built = sdk_tree.make_hipcc_environment(sdk, others, "linux")
    with contextlib.ExitStack() as stack:
        if cache.kind == "ccache":
            config = folder / "ccache.conf"
            config.write_text(read_user_settings(cache, env), encoding="utf-8")
            built |= {"CCACHE_DIR": os.fspath(folder / "cache"), "CCACHE_CONFIGPATH": os.fspath(config)}
        else:
            config = folder / "sccache.conf"
            config.touch()
            built |= _select_key_variables(env)
            built |= {"SCCACHE_DIR": os.fspath(folder / "cache"), "SCCACHE_CONF": os.fspath(config)}
            for name in compiler_cache.ADDRESS_VARIABLES:  # a server of its own, with nothing of the user's
                built.pop(name, None)
            built |= stack.enter_context(compiler_cache.serve_sccache(cache.program, built, folder))
        yield CacheTrial(cache, sdk, folder, built)


def read_user_settings(cache: compiler_cache.CompilerCache, env: Mapping[str, str]) -> str:
    """Return what the user has set of a cache, in files or variables, without where it stores: a verdict
    of the self-test holds for no others.
    """
    if cache.kind == "sccache":
        return "".join(f"{name} = {value}\n" for name, value in _select_key_variables(env).items())
    settings = compiler_cache.read_ccache_settings(cache, env)
    return "".join(
        f"{name} = {setting.value}\n"
        for name, setting in settings.items()
        if not setting.is_default and not re.fullmatch(_PLACE_SETTINGS, name)
    )


def _select_key_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in _KEY_VARIABLES if name in env}


def _list_numbers(counts: compiler_cache.CacheCounts) -> tuple[int, int, int, int]:
    return counts.hits, counts.misses, counts.uncacheable, counts.errors


def _set_age(path: Path, hours: int) -> None:
    moment = time.time() - hours * 3600
    os.utime(path, (moment, moment))


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

    ``env`` is the user's. What is tried goes into ``folder`` alone: a cache of its own and, for sccache,
    a server of its own, so the user's cache neither answers nor learns anything. ccache's settings are
    the user's, except where it stores. Raises BuildError when the compiler itself fails.
    """
    with open_trial(cache, sdk, folder, env) as trial:
        checks = (_check_repeat(trial, target), _check_device_header(trial, target))
    return CacheVerdict(all(check.passed for check in checks), checks)


def _check_repeat(trial: CacheTrial, target: str) -> TrustCheck:
    """Compile the same source again: it must be answered. What is cached is stored with a little delay."""
    trial.write_header(3, hours=3)
    first = second = trial.compile_kernel(target)
    for misses in range(1, _STORE_DELAYS.retries + 1):
        second = trial.compile_kernel(target)
        if second.outcome != "miss":
            break
        process.wait_or_stop(_STORE_DELAYS.compute_wait(misses))
    same = second.digest == first.digest
    outcome = second.outcome if second.outcome != "hit" else f"hit, {'the same' if same else 'other'} bytes"
    return TrustCheck(
        "the same source compiled twice", "hit, the same bytes", outcome, second.outcome == "hit" and same
    )


def _check_device_header(trial: CacheTrial, target: str) -> TrustCheck:
    """Change what only device code reads."""
    before = trial.compile_kernel(target)
    trial.write_header(5, hours=1)
    after = trial.compile_kernel(target)
    other = after.digest != before.digest
    return TrustCheck(
        "a header that only device code reads, changed",
        "miss, other bytes",
        f"{after.outcome}, {'other' if other else 'the same'} bytes",
        after.outcome == "miss" and other,
    )
