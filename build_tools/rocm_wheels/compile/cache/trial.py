"""A compiler cache, the SDK's compiler and a kernel in a folder of their own: what the self-test tries.

The user's cache neither answers nor learns anything: the storage is in the folder and sccache has a server of
its own. ccache's settings are the user's, except where it stores.
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
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.compile.cache.program import CompilerCache
from rocm_wheels.compile.cache.server import server_of_its_own
from rocm_wheels.compile.cache.session import ccache_variables
from rocm_wheels.compile.cache.statistics import Counts, statistics
from rocm_wheels.compile.hipcc import hipcc_environment, hipcc_of
from rocm_wheels.compile.sdk_tree import SdkTree
from rocm_wheels.errors import BuildError
from rocm_wheels.process import capture, run

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
_LINKED = re.compile(r"-mlink-builtin-bitcode\"?\s+(?:\"([^\"]+)\"|(\S+))")
PAUSES = (0.2, 1.0, 2.0)  # seconds before another attempt
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
class Compile:
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
class Trial:
    """A cache in a folder of its own, and the compiler. ``source`` holds the kernel and its header."""

    cache: CompilerCache
    sdk: SdkTree
    folder: Path
    env: Mapping[str, str]
    source: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", self.folder / "source")

    def compile(self, target: str) -> Compile:
        """Compile the kernel through the cache."""
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
        return Compile(self._counts(wrapped).since(before), _digest(self.source / "kernel.o"))

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

    def linked(self, target: str) -> list[Path]:
        """Ask clang which device libraries it links."""
        lines: list[str] = []
        run(
            [*self.command(target), "-###"],
            env=self.env,
            cwd=self.source,
            on_line=lines.append,
            timeout=_TIMEOUT,
            what="asking hipcc which device libraries it links",
        )
        found = [match[1] or match[2] for line in lines for match in _LINKED.finditer(line)]
        return [(self.source / path).resolve() for path in found]

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


@contextmanager
def trial_in(cache: CompilerCache, sdk: SdkTree, folder: Path, env: Mapping[str, str]) -> Iterator[Trial]:
    """Set everything up in ``folder``; ``env`` is the user's. A server of sccache's is stopped afterwards."""
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
            config.write_text(users_settings(cache, env), encoding="utf-8")
            built |= {"CCACHE_DIR": os.fspath(folder / "cache"), "CCACHE_CONFIGPATH": os.fspath(config)}
        else:
            config = folder / "sccache.conf"
            config.touch()
            built |= _of_keys(env)
            built |= {"SCCACHE_DIR": os.fspath(folder / "cache"), "SCCACHE_CONF": os.fspath(config)}
            built |= stack.enter_context(server_of_its_own(cache.program, built))
        yield Trial(cache, sdk, folder, built)


def users_settings(cache: CompilerCache, env: Mapping[str, str]) -> str:
    """Return what the user has set of a cache, in files or variables, without where it stores: a verdict
    of the self-test holds for no others.
    """
    if cache.kind == "sccache":
        return "".join(f"{name} = {value}\n" for name, value in _of_keys(env).items())
    said = capture([cache.program, "--show-config"], env=env, what="ccache --show-config")
    settings = filter(None, map(_SETTING.fullmatch, said.splitlines()))
    return "".join(
        f"{one['key']} = {one['value']}\n"
        for one in settings
        if one["origin"] != "default" and not re.fullmatch(_PLACES, one["key"])
    )


def _of_keys(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in _KEYS if name in env}


def _numbers(counts: Counts) -> tuple[int, int, int, int]:
    return counts.hits, counts.misses, counts.uncacheable, counts.errors


def _date(path: Path, hours: int) -> None:
    moment = time.time() - hours * 3600
    os.utime(path, (moment, moment))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
