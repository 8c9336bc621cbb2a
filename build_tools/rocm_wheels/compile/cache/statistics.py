"""Hits and misses of a compiler cache: host and device apart where the cache tells."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from rocm_wheels.compile.cache.program import CompilerCache
from rocm_wheels.errors import BuildError
from rocm_wheels.process import capture_output

HOST_LOG = "CCACHE_STATSLOG"  # ccache appends to this file what came of each compile
DEVICE_LOG = "ROCM_WHEELS_DEVICE_STATSLOG"  # the same for those of hipcc: see ``session``

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
_AMOUNT_SUFFIXES = ("_kibibyte", "_timestamp", "files_in_cache")


@dataclass(frozen=True)
class CacheCounts:
    """Compiles by what came of them."""

    hits: int = 0
    misses: int = 0
    uncacheable: int = 0
    errors: int = 0

    def subtract(self, before: CacheCounts) -> CacheCounts:
        """Return what was added. A counter that was set back meanwhile counts from zero."""
        names = [field.name for field in fields(self)]
        added = {name: getattr(self, name) - getattr(before, name) for name in names}
        return self if min(added.values()) < 0 else CacheCounts(**added)


@dataclass(frozen=True)
class CacheStatistics:
    """What a cache counted. ``unsorted``: compiles of which it does not say whether they were device code.

    Those are all of ccache's without a log of a step's own (``open_cache_session`` gives one), and what
    sccache did not cache.
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
    def hits(self) -> int:
        """All compiles that were answered from the cache."""
        return self.host.hits + self.device.hits + self.unsorted.hits

    @property
    def cacheable(self) -> int:
        """All compiles that could have been."""
        return self.hits + self.host.misses + self.device.misses + self.unsorted.misses

    @property
    def rate(self) -> float | None:
        """Hits among the compiles that can be cached, 0 to 1; ``None`` when there were none."""
        return self.hits / self.cacheable if self.cacheable else None

    @property
    def text(self) -> str:
        """Say it in a line: how many compiles were answered, host and device code apart."""
        if self.rate is None:
            return f"{self.kind} was asked for no compile"
        parts = (("host", self.host), ("device", self.device), ("others", self.unsorted))
        apart = ", ".join(
            f"{name} {counts.hits} of {counts.hits + counts.misses}"
            for name, counts in parts
            if counts.hits + counts.misses
        )
        share = f"{math.floor(self.rate * 1000) / 10:g} %"
        return f"{self.kind} answered {self.hits} of {self.cacheable} compiles, {share} ({apart})"

    def as_record(self) -> dict[str, object]:
        """Return plain values for a JSON line."""
        rate = None if self.rate is None else round(self.rate, 4)
        return {**asdict(self), "rate": rate}


def read_statistics(cache: CompilerCache, env: Mapping[str, str]) -> CacheStatistics:
    """Ask a cache what it has counted. Raises BuildError when it does not answer in its form.

    Inside ``open_cache_session``, with its variables, ccache's counts are those of the step alone; sccache's
    are those of the server, so take the difference of two.
    """
    if cache.kind == "sccache":
        output = capture_output(
            [cache.program, "--show-stats", "--stats-format=json"],
            env=env,
            timeout=60,
            description="sccache --show-stats",
        )
        return parse_sccache_statistics(output)
    if DEVICE_LOG in env and HOST_LOG in env:
        return CacheStatistics(
            "ccache",
            host=parse_ccache_log(_read_lines(env[HOST_LOG])),
            device=parse_ccache_log(_read_lines(env[DEVICE_LOG])),
        )
    output = capture_output([cache.program, "--print-stats"], env=env, timeout=60)
    return CacheStatistics("ccache", unsorted=parse_ccache_counters(output))


def explain_low_rate(statistics: CacheStatistics, floor: float) -> str | None:
    """Say that a smaller share (0 to 1) of compiles was answered than asked for; ``None`` when it was not.

    Without a compile there is no share, and nothing to say.
    """
    rate = statistics.rate
    if rate is None or rate >= floor:
        return None
    return f"{statistics.text}: fewer than the {floor * 100:g} % asked for"


def parse_sccache_statistics(text: str) -> CacheStatistics:
    """Read what ``sccache --show-stats --stats-format=json`` prints (0.4 and newer)."""
    try:
        stats = json.loads(text)["stats"]
        hits, misses, errors = (
            stats[name]["counts"] for name in ("cache_hits", "cache_misses", "cache_errors")
        )
        uncached = int(stats["requests_not_cacheable"]) + int(stats["non_cacheable_compilations"])
        device, host = (
            CacheCounts(
                hits=_count_language(hits, hip=hip),
                misses=_count_language(misses, hip=hip),
                errors=_count_language(errors, hip=hip),
            )
            for hip in (True, False)
        )
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise BuildError("sccache prints its statistics in a form that is not known") from cause
    return CacheStatistics("sccache", host, device, CacheCounts(uncacheable=uncached))


def parse_ccache_counters(text: str) -> CacheCounts:
    """Read what ``ccache --print-stats`` prints: a counter and its value a line (4.0 and newer)."""
    try:
        pairs = [line.split("\t") for line in text.splitlines()]
        counters = {name: int(value) for name, value in pairs}
    except ValueError as cause:
        raise BuildError("ccache prints its statistics in a form that is not known") from cause
    if not _MISS_COUNTERS & counters.keys():
        raise BuildError("ccache prints its statistics in a form that is not known")
    return _sort_counters(counters)


def parse_ccache_log(lines: Iterable[str]) -> CacheCounts:
    """Read a log of ccache's: for each compile ``# source``, then the counters that it added to."""
    return _sort_counters(
        Counter(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    )


def _sort_counters(counters: Mapping[str, int]) -> CacheCounts:
    def total_of(names: set[str]) -> int:
        return sum(counters.get(name, 0) for name in names)

    rest = {
        name
        for name in counters
        if name not in _HIT_COUNTERS | _MISS_COUNTERS | _ERROR_COUNTERS | _DETAIL_COUNTERS
        and "_storage_" not in name
        and not name.endswith(_AMOUNT_SUFFIXES)
    }
    rest.discard("max_files_in_cache")
    return CacheCounts(
        total_of(_HIT_COUNTERS), total_of(_MISS_COUNTERS), total_of(rest), total_of(_ERROR_COUNTERS)
    )


def _count_language(counts: Mapping[str, int], *, hip: bool) -> int:
    return sum(number for language, number in counts.items() if (language == "HIP") is hip)


def _read_lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []  # nothing was compiled
