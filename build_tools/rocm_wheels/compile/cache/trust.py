"""A self-test of a compiler cache: does it notice everything that device code depends on?

A cache that returns an old object makes a wheel that is wrong in silence. It happens when the
preprocessor of a toolchain does not show the cache what the device pass reads (a bundler that writes
``-`` as a file is enough), and with inputs that no preprocessor shows, as device libraries. So the very
programs that a build uses are tried: hipcc, the cache before clang, the target.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.compile.cache.program import CompilerCache
from rocm_wheels.compile.cache.server import server_of_its_own
from rocm_wheels.compile.cache.session import ccache_variables
from rocm_wheels.compile.cache.statistics import Counts, statistics
from rocm_wheels.compile.hipcc import hipcc_environment, hipcc_of
from rocm_wheels.compile.sdk_tree import SdkTree
from rocm_wheels.errors import BuildError
from rocm_wheels.model.gfx import base_target
from rocm_wheels.process import capture, run

CACHE_TEST_VERSION = "1"  # raise it when a verdict of this module could be another one
NOT_APPLICABLE = "not applicable"

_KERNEL = """\
#include <hip/hip_runtime.h>
#ifdef __HIP_DEVICE_COMPILE__
#include "device_only.h"
#else
#define FACTOR 1.0f
#endif
__global__ void scale(float* values) { values[threadIdx.x] *= FACTOR; }
"""
_HEADER = "#define FACTOR {}.0f\n"
_OTHER_TARGETS = ("gfx1100", "gfx942", "gfx90a", "gfx1030")
_LINKED = re.compile(r"-mlink-builtin-bitcode\"?\s+(?:\"([^\"]+)\"|(\S+))")
_PAUSES = (0.2, 1.0, 2.0)  # seconds before another attempt
_TIMEOUT = 300.0  # seconds a compile; with ROCm's own headers one takes about 3
_SETTING = re.compile(r"\((?P<origin>.*)\) (?P<key>[a-z_]+) = (?P<value>.*)")
# settings of ccache's that say where it stores or what it reports, not what it takes for the same compile
_PLACES = (
    "cache_dir|temporary_dir|remote_\\w+|secondary_storage|reshare|read_only\\w*|recache|disable|stats\\w*|log_file"
    "|debug\\w*|max_\\w+|limit_multiple|umask|namespace"
)
# what of sccache's is about the key of an entry; all else is about servers and storages
_KEYS = ("SCCACHE_DIRECT", "SCCACHE_BASEDIRS", "SCCACHE_CACHE_MULTIARCH", "SCCACHE_C_CUSTOM_CACHE_BUSTER")


@dataclass(frozen=True)
class Check:
    """One thing that was tried; ``passed`` is ``None`` where it does not apply to this toolchain."""

    what: str
    expected: str
    seen: str
    passed: bool | None


@dataclass(frozen=True)
class CacheVerdict:
    """Whether device objects may be taken from the cache, and why."""

    trusted: bool
    checks: tuple[Check, ...]


def self_test(
    cache: CompilerCache, sdk: SdkTree, target: str, folder: Path, env: Mapping[str, str]
) -> CacheVerdict:
    """Try the cache with device code for ``target``, as a build on Linux would use it.

    ``env`` is the user's. What is tried goes into ``folder`` alone: a cache of its own and, for sccache,
    a server of its own, so the user's cache neither answers nor learns anything. ccache's settings are
    the user's, except where it stores. Raises BuildError when the compiler itself fails.
    """
    with _trial(cache, sdk, folder, env) as trial:
        checks = (
            _twice(trial, target),
            _device_header(trial, target),
            _other_target(trial, target),
            _device_library(trial, target),
        )
    return CacheVerdict(all(check.passed is not False for check in checks), checks)


@dataclass(frozen=True)
class _Compile:
    """What came of one compile: what the cache counted, and a digest of the object."""

    counts: Counts
    digest: str

    @property
    def word(self) -> str:
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
class _Trial:
    """A cache in a folder of its own, and the compiler. ``source`` holds the kernel and its header."""

    cache: CompilerCache
    sdk: SdkTree
    folder: Path
    env: Mapping[str, str]
    source: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", self.folder / "source")

    def compile(self, target: str) -> _Compile:
        """Compile the kernel through the cache; more than once when it stores nothing.

        ccache leaves alone what reads a file whose status has just changed, and that of a header changes
        with each hard link that an installer makes to it or takes away.
        """
        for pause in _PAUSES:
            found = self._compile(target)
            if not found.counts.uncacheable:
                break
            time.sleep(pause)
        return found

    def _compile(self, target: str) -> _Compile:
        wrapped = {**self.env, "HIP_CLANG_LAUNCHER": os.fspath(self.cache.program)}
        before = Counts()
        if self.cache.kind == "ccache":
            logs = self.folder / "logs"
            shutil.rmtree(logs, ignore_errors=True)
            logs.mkdir()
            wrapped |= ccache_variables(self.cache, wrapped, self.folder, logs)
        else:
            before = self._counts(wrapped)
        self._hipcc(target, wrapped)
        return _Compile(self._counts(wrapped).since(before), _digest(self.source / "kernel.o"))

    def can_compile(self, target: str) -> bool:
        """Tell whether the compiler, without the cache, knows a target."""
        try:
            self._hipcc(target, self.env)
        except BuildError:
            return False
        return True

    def command(self, target: str) -> list[str]:
        """Return the line of a compile."""
        hipcc = os.fspath(hipcc_of(self.sdk, "linux"))
        return [hipcc, f"--offload-arch={target}", "-O2", "-fPIC", "-c", "kernel.hip", "-o", "kernel.o"]

    def write_header(self, number: int, hours: int) -> None:
        """Write the header that device code reads, dated so many hours ago: caches distrust a fresh file."""
        path = self.source / "device_only.h"
        path.write_text(_HEADER.format(number), encoding="utf-8")
        _date(path, hours)

    def _hipcc(self, target: str, env: Mapping[str, str]) -> None:
        (self.source / "kernel.o").unlink(missing_ok=True)
        what = f"compiling a test of the compiler cache for {target}"
        run(self.command(target), env=env, cwd=self.source, timeout=_TIMEOUT, what=what)

    def _counts(self, env: Mapping[str, str]) -> Counts:
        found = statistics(self.cache, env)
        parts = (found.host, found.device, found.unsorted)
        return Counts(*(sum(numbers) for numbers in zip(*map(_numbers, parts), strict=True)))


def _twice(trial: _Trial, target: str) -> Check:
    """Compile the same source again: it must be answered. What is cached is stored with a little delay."""
    trial.write_header(3, hours=3)
    first = second = trial.compile(target)
    for pause in _PAUSES:
        second = trial.compile(target)
        if second.word != "miss":
            break
        time.sleep(pause)
    same = second.digest == first.digest
    seen = second.word if second.word != "hit" else f"hit, {'the same' if same else 'other'} bytes"
    return Check("the same source compiled twice", "hit, the same bytes", seen, second.word == "hit" and same)


def _device_header(trial: _Trial, target: str) -> Check:
    """Change what only device code reads."""
    before = trial.compile(target)
    trial.write_header(5, hours=1)
    return _must_differ("a header that only device code reads, changed", before, trial.compile(target))


def _other_target(trial: _Trial, target: str) -> Check:
    """Compile for another GPU."""
    what = "another --offload-arch"
    others = [other for other in _OTHER_TARGETS if other != base_target(target)]
    other = next(filter(trial.can_compile, others), None)
    if other is None:
        return Check(what, "miss", f"{NOT_APPLICABLE}: this ROCm compiles for {target} alone", None)
    return _must_differ(f"{what} ({other})", trial.compile(target), trial.compile(other))


def _device_library(trial: _Trial, target: str) -> Check:
    """Change a device library that clang links in; four zeros at its end leave its code as it was."""
    what, expected = "a device library in HIP_DEVICE_LIB_PATH, changed", "miss"
    if trial.sdk.bitcode is None:
        return Check(what, expected, f"{NOT_APPLICABLE}: this ROCm has no folder of them", None)
    copy = trial.folder / "bitcode"
    shutil.copytree(trial.sdk.bitcode, copy)
    trial = replace(trial, env={**trial.env, "HIP_DEVICE_LIB_PATH": os.fspath(copy)})
    linked = [path for path in _linked(trial, target) if path.parent == copy.resolve()]
    if not linked:
        return Check(what, expected, f"{NOT_APPLICABLE}: this compiler links none from there", None)
    trial.compile(target)
    with linked[0].open("ab") as library:
        library.write(bytes(4))
    seen = trial.compile(target).word
    return Check(f"{what} ({linked[0].name})", expected, seen, seen == "miss")


def _linked(trial: _Trial, target: str) -> list[Path]:
    """Ask clang which device libraries it links."""
    lines: list[str] = []
    run(
        [*trial.command(target), "-###"],
        env=trial.env,
        cwd=trial.source,
        on_line=lines.append,
        timeout=_TIMEOUT,
        what="asking hipcc which device libraries it links",
    )
    found = [match[1] or match[2] for line in lines for match in _LINKED.finditer(line)]
    return [(trial.source / path).resolve() for path in found]


def _must_differ(what: str, before: _Compile, after: _Compile) -> Check:
    other = after.digest != before.digest
    seen = f"{after.word}, {'other' if other else 'the same'} bytes"
    return Check(what, "miss, other bytes", seen, after.word == "miss" and other)


@contextmanager
def _trial(cache: CompilerCache, sdk: SdkTree, folder: Path, env: Mapping[str, str]) -> Iterator[_Trial]:
    source = folder / "source"
    source.mkdir(parents=True)
    (source / "kernel.hip").write_text(_KERNEL, encoding="utf-8")
    _date(source / "kernel.hip", hours=4)
    prefix = f"{cache.kind.upper()}_"
    others = {name: value for name, value in env.items() if not name.startswith(prefix)}
    built = hipcc_environment(sdk, others, "linux")
    with contextlib.ExitStack() as stack:
        if cache.kind == "ccache":
            config = folder / "ccache.conf"
            config.write_text(_users_settings(cache, env), encoding="utf-8")
            built |= {"CCACHE_DIR": os.fspath(folder / "cache"), "CCACHE_CONFIGPATH": os.fspath(config)}
        else:
            config = folder / "sccache.conf"
            config.touch()
            built |= {name: env[name] for name in _KEYS if name in env}
            built |= {"SCCACHE_DIR": os.fspath(folder / "cache"), "SCCACHE_CONF": os.fspath(config)}
            built |= stack.enter_context(server_of_its_own(cache.program, built))
        yield _Trial(cache, sdk, folder, built)


def _users_settings(cache: CompilerCache, env: Mapping[str, str]) -> str:
    """Return what the user has set of ccache, in files or variables, without where it stores."""
    said = capture([cache.program, "--show-config"], env=env, what="ccache --show-config")
    settings = filter(None, map(_SETTING.fullmatch, said.splitlines()))
    return "".join(
        f"{one['key']} = {one['value']}\n"
        for one in settings
        if one["origin"] != "default" and not re.fullmatch(_PLACES, one["key"])
    )


def _numbers(counts: Counts) -> tuple[int, int, int, int]:
    return counts.hits, counts.misses, counts.uncacheable, counts.errors


def _date(path: Path, hours: int) -> None:
    moment = time.time() - hours * 3600
    os.utime(path, (moment, moment))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
