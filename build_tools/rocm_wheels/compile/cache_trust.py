"""A self-test of a compiler cache: does it notice everything that device code depends on?

A cache that returns an old object makes a wheel that is wrong in silence. It happens when the
preprocessor of a toolchain does not show the cache what the device pass reads (a bundler that writes
``-`` as a file is enough), and with inputs that no preprocessor shows, as device libraries. So the very
programs that a build uses are tried: hipcc, the cache before clang, the target.

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
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.compile.compiler_cache import (
    CacheCounts,
    CompilerCache,
    make_ccache_variables,
    read_ccache_settings,
    read_statistics,
    run_own_server,
)
from rocm_wheels.compile.sdk_tree import SdkTree, find_hipcc, make_hipcc_environment
from rocm_wheels.core import (
    BuildError,
    RetryPolicy,
    hash_file,
    run_command,
    wait_or_stop,
)
from rocm_wheels.models import strip_features

_TRIAL_KERNEL = """\
#include <hip/hip_runtime.h>
#ifdef __HIP_DEVICE_COMPILE__
#include "device_only.h"
#else
#define FACTOR 1.0f
#endif
__global__ void scale(float* values) { values[threadIdx.x] *= FACTOR; }
"""
_HOST_SOURCE = '#include "host.h"\nint scale(int value) { return value * FACTOR; }\n'
_HEADER_TEMPLATE = "#define FACTOR {}.0f\n"
_LINKED_LIBRARY = re.compile(r"-mlink-builtin-bitcode\"?\s+(?:\"([^\"]+)\"|(\S+))")
_STORE_DELAYS = RetryPolicy(retries=3, first_wait=0.2, growth=3, jitter=0)
_COMPILE_SECONDS = 300.0  # seconds a compile; with ROCm's own headers one takes about 3
# settings of ccache's that say where it stores or what it reports, not what it takes for the same compile
_PLACE_SETTINGS = (
    "cache_dir|temporary_dir|remote_\\w+|secondary_storage|reshare|read_only\\w*|recache|disable|stats\\w*|log_file"
    "|debug\\w*|max_\\w+|limit_multiple|umask|namespace"
)
_PLACES = ("one place", "another place")  # work folders below that of a trial
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

    counts: CacheCounts
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

    cache: CompilerCache
    sdk: SdkTree
    folder: Path
    env: Mapping[str, str]
    source: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", self.folder / "source")

    def compile_kernel(self, target: str) -> TrialCompile:
        """Compile the kernel through the cache."""
        wrapped = {**self.env, "HIP_CLANG_LAUNCHER": os.fspath(self.cache.program)}
        with self._count(wrapped, self.folder) as (env, counts):
            self._run_hipcc(target, env)
        return TrialCompile(counts[0], hash_file(self.source / "kernel.o"))

    def compile_for_host(self, compiler: str, place: Path, target: str) -> TrialCompile:
        """Compile a file for the host through the cache, as the work folder ``place`` would for a target."""
        source, include = place / "source", place / "rocm" / "include"
        for folder in (source, include):
            folder.mkdir(parents=True, exist_ok=True)
        (include / "host.h").write_text(_HEADER_TEMPLATE.format(2), encoding="utf-8")
        (source / "host.cpp").write_text(_HOST_SOURCE, encoding="utf-8")
        for path in (include / "host.h", source / "host.cpp"):
            _set_age(path, hours=5)
        program, file = os.fspath(self.cache.program), os.fspath(source / "host.cpp")
        argv = [program, compiler, f"-I{include}", "-O2", "-c", file, "-o", "host.o"]
        with self._count({**self.env, "PYTORCH_ROCM_ARCH": target}, place) as (env, counts):
            run_command(
                argv,
                env=env,
                cwd=source,
                timeout=_COMPILE_SECONDS,
                description="compiling a test of the compiler cache for the host",
            )
        return TrialCompile(counts[0], hash_file(source / "host.o"))

    @contextmanager
    def _count(
        self, env: Mapping[str, str], base: Path
    ) -> Iterator[tuple[Mapping[str, str], list[CacheCounts]]]:
        """Yield the environment of a compile, and a list that then has what the cache counted."""
        before, counts = CacheCounts(), list[CacheCounts]()
        if self.cache.kind == "ccache":
            logs = self.folder / "logs"
            shutil.rmtree(logs, ignore_errors=True)
            logs.mkdir()
            env = {**env, **make_ccache_variables(self.cache, env, self.folder, logs, base)}
        else:
            before = self._read_counts(env)
        yield env, counts
        counts.append(self._read_counts(env).subtract(before))

    def can_compile(self, target: str) -> bool:
        """Tell whether the compiler, without the cache, knows a target."""
        try:
            self._run_hipcc(target, self.env)
        except BuildError:
            return False
        return True

    def make_compile_command(self, target: str) -> list[str]:
        """Return the line of a compile."""
        hipcc = os.fspath(find_hipcc(self.sdk, "linux"))
        return [hipcc, f"--offload-arch={target}", "-O2", "-fPIC", "-c", "kernel.hip", "-o", "kernel.o"]

    def find_linked_libraries(self, target: str) -> list[Path]:
        """Ask clang which device libraries it links."""
        lines: list[str] = []
        run_command(
            [*self.make_compile_command(target), "-###"],
            env=self.env,
            cwd=self.source,
            on_line=lines.append,
            timeout=_COMPILE_SECONDS,
            description="asking hipcc which device libraries it links",
        )
        paths = [match[1] or match[2] for line in lines for match in _LINKED_LIBRARY.finditer(line)]
        return [(self.source / path).resolve() for path in paths]

    def write_header(self, number: int, hours: int) -> None:
        """Write the header that device code reads, dated so many hours ago: caches distrust a fresh file."""
        path = self.source / "device_only.h"
        path.write_text(_HEADER_TEMPLATE.format(number), encoding="utf-8")
        _set_age(path, hours)

    def _run_hipcc(self, target: str, env: Mapping[str, str]) -> None:
        (self.source / "kernel.o").unlink(missing_ok=True)
        description = f"compiling a test of the compiler cache for {target}"
        run_command(
            self.make_compile_command(target),
            env=env,
            cwd=self.source,
            timeout=_COMPILE_SECONDS,
            description=description,
        )

    def _read_counts(self, env: Mapping[str, str]) -> CacheCounts:
        cache_statistics = read_statistics(self.cache, env)
        parts = (cache_statistics.host, cache_statistics.device, cache_statistics.unsorted)
        return CacheCounts(*(sum(numbers) for numbers in zip(*map(_list_numbers, parts), strict=True)))


@contextmanager
def open_trial(
    cache: CompilerCache, sdk: SdkTree, folder: Path, env: Mapping[str, str]
) -> Iterator[CacheTrial]:
    """Set everything up in ``folder``; ``env`` is the user's. A server of sccache's is stopped afterwards."""
    source = folder / "source"
    source.mkdir(parents=True)
    (source / "kernel.hip").write_text(_TRIAL_KERNEL, encoding="utf-8")
    _set_age(source / "kernel.hip", hours=4)
    prefix = f"{cache.kind.upper()}_"
    others = {name: value for name, value in env.items() if not name.startswith(prefix)}
    built = make_hipcc_environment(sdk, others, "linux")
    with contextlib.ExitStack() as stack:
        if cache.kind == "ccache":
            config = folder / "ccache.conf"
            config.write_text(read_user_settings(cache, env), encoding="utf-8")
            built |= {"CCACHE_DIR": os.fspath(folder / "cache"), "CCACHE_CONFIGPATH": os.fspath(config)}
        else:
            config = folder / "sccache.conf"
            config.touch()
            places = os.pathsep.join(os.fspath(folder / name) for name in _PLACES)
            built |= {"SCCACHE_BASEDIRS": places, **_select_key_variables(env)}
            built |= {"SCCACHE_DIR": os.fspath(folder / "cache"), "SCCACHE_CONF": os.fspath(config)}
            built |= stack.enter_context(run_own_server(cache.program, built))
        yield CacheTrial(cache, sdk, folder, built)


def read_user_settings(cache: CompilerCache, env: Mapping[str, str]) -> str:
    """Return what the user has set of a cache, in files or variables, without where it stores: a verdict
    of the self-test holds for no others.
    """
    if cache.kind == "sccache":
        return "".join(f"{name} = {value}\n" for name, value in _select_key_variables(env).items())
    settings = read_ccache_settings(cache, env)
    return "".join(
        f"{name} = {setting.value}\n"
        for name, setting in settings.items()
        if not setting.is_default and not re.fullmatch(_PLACE_SETTINGS, name)
    )


def _select_key_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in _KEY_VARIABLES if name in env}


def _list_numbers(counts: CacheCounts) -> tuple[int, int, int, int]:
    return counts.hits, counts.misses, counts.uncacheable, counts.errors


def _set_age(path: Path, hours: int) -> None:
    moment = time.time() - hours * 3600
    os.utime(path, (moment, moment))


CACHE_TEST_VERSION = "2"  # raise it when a verdict of this module could be another one
NOT_APPLICABLE = "not applicable"

OTHER_PLACE = "code of the host in another work folder, for another GPU"
_OTHER_TARGETS = ("gfx1100", "gfx942", "gfx90a", "gfx1030")


@dataclass(frozen=True)
class TrustCheck:
    """One thing that was tried; ``passed`` is ``None`` where it does not apply to this toolchain."""

    what: str
    expected: str
    seen: str
    passed: bool | None


@dataclass(frozen=True)
class CacheVerdict:
    """Whether device objects may be taken from the cache, and why."""

    trusted: bool
    checks: tuple[TrustCheck, ...]


def check_cache_trust(
    cache: CompilerCache, sdk: SdkTree, target: str, folder: Path, env: Mapping[str, str]
) -> CacheVerdict:
    """Try the cache with device code for ``target``, as a build on Linux would use it.

    ``env`` is the user's. What is tried goes into ``folder`` alone: a cache of its own and, for sccache,
    a server of its own, so the user's cache neither answers nor learns anything. ccache's settings are
    the user's, except where it stores. Raises BuildError when the compiler itself fails.
    """
    with open_trial(cache, sdk, folder, env) as trial:
        checks = (
            _check_repeat(trial, target),
            _check_device_header(trial, target),
            _check_other_target(trial, target),
            _check_device_library(trial, target),
            _check_other_place(trial, target),
        )
    return CacheVerdict(all(check.passed is not False for check in checks), checks)


def _check_repeat(trial: CacheTrial, target: str) -> TrustCheck:
    """Compile the same source again: it must be answered. What is cached is stored with a little delay."""
    trial.write_header(3, hours=3)
    first = second = trial.compile_kernel(target)
    for misses in range(1, _STORE_DELAYS.retries + 1):
        second = trial.compile_kernel(target)
        if second.outcome != "miss":
            break
        wait_or_stop(_STORE_DELAYS.compute_wait(misses))
    same = second.digest == first.digest
    outcome = second.outcome if second.outcome != "hit" else f"hit, {'the same' if same else 'other'} bytes"
    return TrustCheck(
        "the same source compiled twice", "hit, the same bytes", outcome, second.outcome == "hit" and same
    )


def _check_device_header(trial: CacheTrial, target: str) -> TrustCheck:
    """Change what only device code reads."""
    before = trial.compile_kernel(target)
    trial.write_header(5, hours=1)
    return _require_difference(
        "a header that only device code reads, changed", before, trial.compile_kernel(target)
    )


def _check_other_target(trial: CacheTrial, target: str) -> TrustCheck:
    """Compile for another GPU."""
    description = "another --offload-arch"
    others = [other for other in _OTHER_TARGETS if other != strip_features(target)]
    other = next(filter(trial.can_compile, others), None)
    if other is None:
        return TrustCheck(
            description, "miss", f"{NOT_APPLICABLE}: this ROCm compiles for {target} alone", None
        )
    return _require_difference(
        f"{description} ({other})", trial.compile_kernel(target), trial.compile_kernel(other)
    )


def _check_device_library(trial: CacheTrial, target: str) -> TrustCheck:
    """Change a device library that clang links in; four zeros at its end leave its code as it was."""
    description, expected = "a device library in HIP_DEVICE_LIB_PATH, changed", "miss"
    if trial.sdk.bitcode is None:
        return TrustCheck(description, expected, f"{NOT_APPLICABLE}: this ROCm has no folder of them", None)
    copy = trial.folder / "bitcode"
    shutil.copytree(trial.sdk.bitcode, copy)
    trial = replace(trial, env={**trial.env, "HIP_DEVICE_LIB_PATH": os.fspath(copy)})
    linked = [path for path in trial.find_linked_libraries(target) if path.parent == copy.resolve()]
    if not linked:
        return TrustCheck(
            description, expected, f"{NOT_APPLICABLE}: this compiler links none from there", None
        )
    trial.compile_kernel(target)
    with linked[0].open("ab") as library:
        library.write(bytes(4))
    outcome = trial.compile_kernel(target).outcome
    return TrustCheck(f"{description} ({linked[0].name})", expected, outcome, outcome == "miss")


def _check_other_place(trial: CacheTrial, target: str) -> TrustCheck:
    """Compile the host's code in another work folder, for another GPU: useful to share, and no condition."""
    compiler = shutil.which((trial.env.get("CXX", "").split() or ["c++"])[0], path=trial.env.get("PATH"))
    if compiler is None:
        return TrustCheck(OTHER_PLACE, "hit", f"{NOT_APPLICABLE}: there is no compiler for the host", None)
    other = next(name for name in _OTHER_TARGETS if name != strip_features(target))
    first, second = (trial.folder / name for name in _PLACES)
    for misses in range(_STORE_DELAYS.retries + 1):
        if trial.compile_for_host(compiler, first, target).outcome == "hit":
            break
        wait_or_stop(_STORE_DELAYS.compute_wait(misses) if misses else 0)
    outcome = trial.compile_for_host(compiler, second, other).outcome
    return TrustCheck(OTHER_PLACE, "hit", outcome, True if outcome == "hit" else None)


def _require_difference(description: str, before: TrialCompile, after: TrialCompile) -> TrustCheck:
    other = after.digest != before.digest
    outcome = f"{after.outcome}, {'other' if other else 'the same'} bytes"
    return TrustCheck(description, "miss, other bytes", outcome, after.outcome == "miss" and other)
