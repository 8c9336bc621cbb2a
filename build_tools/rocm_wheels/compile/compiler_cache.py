"""Compiler caches, ccache and sccache: their programs, variables, servers, hits and misses.

They are started by the build through launcher variables. A client of sccache that finds no server starts
one, which stays. So one is started before a build and stopped after it, on a port of its own. Steps that run
at the same time have its counts in common: two servers on one folder of cached files harm each other
(sccache's page on local storage).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Literal

from rocm_wheels.core import environment_numbers, files, log, process
from rocm_wheels.core.errors import BuildError, UsageError
from rocm_wheels.models import estimates, project_names

_CACHE_HOMEPAGES = {"ccache": "https://ccache.dev", "sccache": "https://github.com/mozilla/sccache"}


@dataclass(frozen=True)
class CompilerCache:
    """A cache to use, for host and device compiles."""

    kind: Literal["ccache", "sccache"]
    program: Path

    def launcher_variables(self, platform: project_names.Platform) -> dict[str, str]:
        """Return the variables that put the cache before the compilers.

        hipcc starts clang through HIP_CLANG_LAUNCHER, so the device compiles, which CMake's launchers do
        not see, are cached as well (a hipcc before ROCm 7.13 ignores it, ROCm/llvm-project#1490, and
        ``check_cache_trust`` says so). A compile for several targets is one entry: both caches key it
        by what ``clang -E`` prints for the host and each target. ccache cannot store separate debug
        information (/Zi) of MSVC: ccache/ccache#1040.
        """
        program = os.fspath(self.program)
        variables = {"CMAKE_C_COMPILER_LAUNCHER": program, "CMAKE_CXX_COMPILER_LAUNCHER": program}
        if self.kind == "ccache" and platform == "windows":
            variables["CMAKE_MSVC_DEBUG_INFORMATION_FORMAT"] = "Embedded"
        if platform == "linux":
            variables["HIP_CLANG_LAUNCHER"] = program
        return variables

    def ask_version(self, env: Mapping[str, str]) -> str:
        """Return the first line that the program says of its version: ``ccache version 4.14.2``."""
        output = process.capture_output(
            [self.program, "--version"], env=env, description=f"{self.kind} --version"
        )
        return output.partition("\n")[0].strip()


def find_compiler_cache(kind: Literal["ccache", "sccache"], env: Mapping[str, str]) -> CompilerCache:
    """Find the program on PATH. Raises UsageError when it is not there: nothing is built uncached unasked."""
    program = shutil.which(kind, path=env.get("PATH", ""))
    if program is None:
        raise UsageError(
            f"--compiler-cache {kind} was given, but there is no {kind} on PATH",
            tip=f"install it ({_CACHE_HOMEPAGES[kind]}) or leave the option out",
        )
    return CompilerCache(kind, Path(program).absolute())


HOST_LOG = "CCACHE_STATSLOG"  # ccache appends to this file what came of each compile
DEVICE_LOG = "ROCM_WHEELS_DEVICE_STATSLOG"  # the same for those of hipcc: see ``open_cache_session``

# ccache's counters. What happens below a result (direct_cache_miss, local_storage_hit) counts nothing
# here; what is not named counts as uncacheable when it stands for a compile of its own.
_HIT_COUNTERS = {"direct_cache_hit", "preprocessed_cache_hit"}
_MISS_COUNTERS = {"cache_miss"}
_ERROR_COUNTERS = {
    "compiler_check_failed",
    "could_not_find_compiler",
    "error_hashing_extra_file",
    "internal_error",
    "missing_cache_file",
    "remote_storage_error",
    "remote_storage_timeout",
}
_DETAIL_COUNTERS = {"direct_cache_miss", "preprocessed_cache_miss", "cleanups_performed"}


@dataclass(frozen=True)
class CacheCounts:
    """Compiles by what came of them."""

    hits: int = 0
    misses: int = 0
    uncacheable: int = 0
    errors: int = 0

    def subtract(self, before: CacheCounts) -> CacheCounts:
        """Return what was added. A counter that was set back meanwhile counts from zero."""
        added = [now - then for now, then in zip(astuple(self), astuple(before), strict=True)]
        return self if min(added) < 0 else CacheCounts(*added)


@dataclass(frozen=True)
class CacheStatistics:
    """What a cache counted. ``unsorted``: compiles of which it does not say whether they were device code:
    what sccache did not cache.
    """

    kind: str
    host: CacheCounts = CacheCounts()
    device: CacheCounts = CacheCounts()
    unsorted: CacheCounts = CacheCounts()

    def subtract(self, before: CacheStatistics) -> CacheStatistics:
        """Return what was added since an earlier look."""
        return CacheStatistics(
            self.kind,
            self.host.subtract(before.host),
            self.device.subtract(before.device),
            self.unsorted.subtract(before.unsorted),
        )

    @property
    def total(self) -> CacheCounts:
        """All compiles."""
        numbers = zip(*(astuple(part) for part in (self.host, self.device, self.unsorted)), strict=True)
        return CacheCounts(*map(sum, numbers))

    @property
    def hits(self) -> int:
        """All compiles that were answered from the cache."""
        return self.total.hits

    @property
    def cacheable(self) -> int:
        """All compiles that could have been."""
        return self.total.hits + self.total.misses

    @property
    def rate(self) -> float | None:
        """Hits among the compiles that can be cached, 0 to 1; ``None`` when there were none."""
        return self.hits / self.cacheable if self.cacheable else None

    @property
    def text(self) -> str:
        """Say it in a line: how many compiles were answered, host and device code apart."""
        if self.rate is None:
            return f"{self.kind} saw no compiles"
        counts = {"host": self.host, "device": self.device, "others": self.unsorted}
        parts = {name: f"{part.hits} of {part.hits + part.misses}" for name, part in counts.items()}
        apart = ", ".join(f"{name} {part}" for name, part in parts.items() if part != "0 of 0")
        share = f"{math.floor(self.rate * 1000) / 10:g} %"
        return f"{self.kind} answered {self.hits} of {self.cacheable} compiles, {share} ({apart})"

    def as_record(self) -> dict[str, object]:
        """Return plain values for a JSON line."""
        rate = None if self.rate is None else round(self.rate, 4)
        return {**asdict(self), "rate": rate}


def read_statistics(cache: CompilerCache, env: Mapping[str, str]) -> CacheStatistics:
    """Ask a cache what it has counted, inside ``open_cache_session`` and with its variables.

    ccache's counts are those of the step alone; sccache's are those of the server, so take the difference of
    two. Raises BuildError when sccache does not answer in its form.
    """
    if cache.kind == "sccache":
        return parse_sccache_statistics(_ask_server(cache.program, env))
    logs = (Path(env[HOST_LOG]), Path(env[DEVICE_LOG]))
    texts = [log.read_text(encoding="utf-8", errors="replace") if log.exists() else "" for log in logs]
    return CacheStatistics("ccache", *(parse_ccache_log(text.splitlines()) for text in texts))


def parse_sccache_statistics(answer: Mapping[str, Any]) -> CacheStatistics:
    """Read what ``sccache --show-stats --stats-format=json`` prints (0.4 and newer)."""
    counts: dict[bool, list[int]] = {True: [], False: []}  # by whether they are of device code
    try:
        stats = answer["stats"]
        for name in ("cache_hits", "cache_misses", "cache_errors"):
            languages = stats[name]["counts"]
            for hip, numbers in counts.items():
                numbers.append(sum(n for language, n in languages.items() if (language == "HIP") is hip))
        uncached = int(stats["requests_not_cacheable"]) + int(stats["non_cacheable_compilations"])
    except (KeyError, ValueError, TypeError, AttributeError) as cause:
        raise BuildError("sccache prints its statistics in an unknown format") from cause
    host, device = (
        CacheCounts(hits, misses, 0, failed) for hits, misses, failed in (counts[False], counts[True])
    )
    return CacheStatistics("sccache", host, device, CacheCounts(uncacheable=uncached))


def parse_ccache_log(lines: Iterable[str]) -> CacheCounts:
    """Read a log of ccache's: for each compile ``# source``, then the counters that it added to."""
    counters = Counter(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    kinds = (_HIT_COUNTERS, _MISS_COUNTERS, _ERROR_COUNTERS)
    hits, misses, failed = (sum(counters[name] for name in names) for names in kinds)
    details = {name for name in counters if name in _DETAIL_COUNTERS or "_storage_" in name}
    others = counters.keys() - details - _HIT_COUNTERS - _MISS_COUNTERS - _ERROR_COUNTERS
    return CacheCounts(hits, misses, sum(counters[name] for name in others), failed)


_IDLE_SECONDS = "3600"  # of a server whose build was killed; one file can compile for half an hour
ADDRESS_VARIABLES = ("SCCACHE_SERVER_PORT", "SCCACHE_SERVER_UDS")


@contextmanager
def serve_sccache(program: Path, env: Mapping[str, str], folder: Path) -> Iterator[Mapping[str, str]]:
    """Have a server of sccache for a while; yield the variables that lead to it.

    One that listens at an address that ``env`` names is used as it is; else one is started, there or on a
    port of its own, and stopped at the end. Two servers on one folder of cached files harm each other: so
    what a killed run left below ``folder`` is stopped, and whoever is at work there is waited for; a run has
    one for all of its steps. Servers with a remote storage do not mind each other. BuildError for a server
    that does not start.
    """
    from filelock import FileLock, Timeout

    named = any(env.get(name) for name in ADDRESS_VARIABLES)
    if named and is_listening(env):
        yield {}
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock, port_note = FileLock(folder / "sccache.lock"), folder / "sccache.port"
    with contextlib.ExitStack() as ending:
        try:
            ending.enter_context(lock.acquire(timeout=0))
        except Timeout:
            log.log_note(
                "waiting for another step in this work directory, which has the server of sccache: "
                "SCCACHE_SERVER_PORT of one that runs lets both use it"
            )
            ending.enter_context(lock)
        if port_note.exists():
            stop_server(program, {**env, "SCCACHE_SERVER_PORT": port_note.read_text(encoding="utf-8")})
            port_note.unlink()
        variables: dict[str, str] = {}
        if not named:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
                free.bind(("127.0.0.1", 0))
                port = str(free.getsockname()[1])
            variables = {"SCCACHE_SERVER_PORT": port, "SCCACHE_IDLE_TIMEOUT": _IDLE_SECONDS}
        server = {**env, **variables}
        process.capture_output(
            [program, "--start-server"],
            env=server,
            timeout=120,
            description="sccache --start-server",
            tip="is the storage that the SCCACHE_ variables name within reach?",
        )
        ending.callback(stop_server, program, server)
        location = str(_ask_server(program, server).get("cache_location"))
        if "disk" not in location.lower():  # `Local disk: …`, or a chain of storages with one
            lock.release()
        elif not named:
            ending.callback(port_note.unlink, missing_ok=True)
            files.write_atomically(port_note, port)
        yield variables


def stop_server(program: Path, env: Mapping[str, str]) -> None:
    """Stop the server that ``env`` leads to; one that has ended by itself is no fault."""
    try:
        process.capture_output(
            [program, "--stop-server"], env=env, timeout=60, description="sccache --stop-server"
        )
    except BuildError as cause:
        if is_listening(env):
            raise BuildError("a server of sccache could not be stopped") from cause


def is_listening(env: Mapping[str, str]) -> bool:
    """Tell whether a server answers at the address in ``env``, without starting one."""
    address: str | tuple[str, int]
    if path := env.get("SCCACHE_SERVER_UDS"):
        family, address = getattr(socket, "AF_UNIX", socket.AF_INET), path
    else:
        port = environment_numbers.read_number(env, "SCCACHE_SERVER_PORT") or 0
        family, address = socket.AF_INET, ("127.0.0.1", port)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        with contextlib.suppress(OSError):
            probe.connect(address)
            return True
    return False


def _ask_server(program: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Return what a server says of itself. BuildError where it does not answer in sccache's form (0.4)."""
    words = [os.fspath(program), "--show-stats", "--stats-format=json"]
    try:
        return dict(
            json.loads(process.capture_output(words, env=env, timeout=60, description="sccache --show-stats"))
        )
    except (ValueError, TypeError) as cause:
        raise BuildError("sccache prints its statistics in an unknown format") from cause


_IGNORED_CTIME = "include_file_ctime"
_SETTING_LINE = re.compile(r"\((?P<origin>.*)\) (?P<key>[a-z_]+) = (?P<value>.*)")
_LEAST_BASE_PARTS = 3  # of a folder whose paths are written relative: /home/me, and not /usr or /


@dataclass(frozen=True)
class CcacheSetting:
    """A setting of ccache's, and where it comes from: ``default``, a file, ``environment``."""

    origin: str
    value: str

    @property
    def is_default(self) -> bool:
        """Tell whether nobody has set it."""
        return self.origin == "default"


def read_ccache_settings(cache: CompilerCache, env: Mapping[str, str]) -> dict[str, CcacheSetting]:
    """Ask ccache for all of its settings."""
    output = process.capture_output(
        [cache.program, "--show-config"], env=env, description="ccache --show-config"
    )
    matches = filter(None, map(_SETTING_LINE.fullmatch, output.splitlines()))
    return {match["key"]: CcacheSetting(match["origin"], match["value"]) for match in matches}


def find_base_folder(folders: Iterable[Path]) -> Path | None:
    """Return the folder that holds all of a build's; None where that is one of the system's own.

    Caches know compiles by paths below it relative to it, so that another clone, on another machine, has
    the same ones.
    """
    base = Path(os.path.commonpath([os.fspath(folder) for folder in folders]))
    return base if len(base.parts) >= _LEAST_BASE_PARTS else None


@contextmanager
def open_cache_session(
    cache: CompilerCache, env: Mapping[str, str], folder: Path, base: Path | None = None
) -> Iterator[Mapping[str, str]]:
    """Yield variables to set beside those of a build step's environment ``env``.

    ``folder`` is the same for all steps of a work directory, and so is ``base`` (``find_base_folder``). With
    ``{**env, **yielded}``, ``read_statistics`` counts what this step compiles; ask it inside, what is logged
    for it goes away with the session, and so does a server of sccache's that was started for it. The user's
    own variables for storages, remote ones too, stay as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if cache.kind == "sccache":
        bases: dict[str, str] = {}
        if base is not None and not _has_sccache_bases(env):  # sccache 0.14 and newer
            bases["SCCACHE_BASEDIRS"] = os.fspath(base)
        with serve_sccache(cache.program, {**env, **bases}, folder) as variables:
            yield {**bases, **variables}
        return
    if env.get(HOST_LOG):
        log.log_note(f"{HOST_LOG} is set for this build's own counts; {env[HOST_LOG]} gets none of it")
    with tempfile.TemporaryDirectory(prefix="ccache-", dir=folder) as logs:
        yield make_ccache_variables(cache, env, folder, Path(logs), base)


def _has_sccache_bases(env: Mapping[str, str]) -> bool:
    """Tell whether the user has named folders below which paths are relative: ours would go before those."""
    if "SCCACHE_BASEDIRS" in env:
        return True
    config_folder = env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "/"), ".config")
    config = Path(env.get("SCCACHE_CONF") or Path(config_folder, "sccache", "config"))
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return bool(re.search(r"(?m)^\s*basedirs\s*=", config.read_text(encoding="utf-8")))
    return False


def make_ccache_variables(
    cache: CompilerCache, env: Mapping[str, str], folder: Path, logs: Path, base: Path | None = None
) -> dict[str, str]:
    """Return what makes ccache log into ``logs`` and look at the right things.

    Compilers of two ROCm packages can have the same size and date (archives store dates; installers
    copy them), so their content is what counts, unless the user chose another check than ccache's own.
    A header's status changes with each hard link that an installer makes to it or takes away; ccache (4.14)
    would then compile twice and store nothing. Its date and content are looked at all the same.

    clang links the bitcode of HIP_DEVICE_LIB_PATH into device code, and no preprocessor shows that:
    ccache 4.7.5 and 4.14.2 were seen to return the old object. They hash an extra file, which lists the
    libraries with their digests. sccache 0.16.0 hashes the libraries itself.

    Below ``base`` paths are made relative, and it may keep what a build of torch needs (``compiler_cache`` in
    data/estimates.yaml), where the user has set neither.
    """
    settings = read_ccache_settings(cache, env)
    variables = {HOST_LOG: os.fspath(logs / "host.log"), DEVICE_LOG: os.fspath(logs / "device.log")}
    if settings["compiler_check"].value == "mtime" and "CCACHE_COMPILERCHECK" not in env:
        variables["CCACHE_COMPILERCHECK"] = "content"
    if base is not None and settings["base_dir"].is_default:
        variables["CCACHE_BASEDIR"] = os.fspath(base)
    if settings["max_size"].is_default:
        variables["CCACHE_MAXSIZE"] = f"{estimates.load_estimate_table().compiler_cache.gib:g}Gi"
    overlooked = [word.strip() for word in settings["sloppiness"].value.split(",") if word.strip()]
    if _IGNORED_CTIME not in overlooked:
        variables["CCACHE_SLOPPINESS"] = ",".join([*overlooked, _IGNORED_CTIME])
    library_folder = env.get("HIP_DEVICE_LIB_PATH")
    if libraries := sorted(Path(library_folder).glob("*.bc")) if library_folder else []:
        text = "".join(f"{path.name} {files.hash_file(path)}\n" for path in libraries)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        listing = folder / f"device-libraries-{name}.txt"
        if not listing.exists():
            files.write_atomically(listing, text)
        extra = [env.get("CCACHE_EXTRAFILES"), os.fspath(listing)]
        variables["CCACHE_EXTRAFILES"] = os.pathsep.join(path for path in extra if path)
    if env.get("HIP_CLANG_LAUNCHER") == os.fspath(cache.program):
        launcher = folder / "hip-ccache"
        text = (
            "#!/bin/sh\n# ccache for what hipcc compiles: it logs in a file of its own\n"
            f'{HOST_LOG}=${DEVICE_LOG} exec {shlex.quote(os.fspath(cache.program))} "$@"\n'
        )
        if not launcher.is_file() or launcher.read_text(encoding="utf-8") != text:
            files.write_atomically(launcher, text)
        launcher.chmod(0o755)
        variables["HIP_CLANG_LAUNCHER"] = os.fspath(launcher)
    return variables
